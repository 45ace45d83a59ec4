//! The exchanges and queues, exactly as documented; others bind to them by these names.
//!
//! - `notifications.exchange`, a durable topic exchange. Every queue is bound to it by its own name.
//! - The queues: durable quorum queues that redeliver a message at most [`DELIVERY_LIMIT`] times, and then dead-letter
//!   it.
//! - `notifications.dlx`, a durable topic exchange, and `notification.dlq`, a durable quorum queue that takes
//!   everything from it.
//! - `notifications.websocket`, a durable topic exchange, and `mailing.jobs.process`, a queue like the others.
//!   Campanile declares them at each connection and does not use them yet: they are not counted, missed or restored.
//!
//! All names begin with the configured prefix.

use std::collections::HashSet;
use std::iter;
use std::sync::Arc;

use campanile_domain::queue::Queue;

use crate::amqp::{Channel, Connection, Fault, NOT_FOUND, Request, Table, Value};
use crate::{BrokerError, DEAD_LETTER_QUEUE, DELIVERY_LIMIT};

pub(super) const EXCHANGE: &str = "notifications.exchange";
pub(super) const DEAD_LETTER_EXCHANGE: &str = "notifications.dlx";
pub(super) const REALTIME_EXCHANGE: &str = "notifications.websocket";
pub(super) const EXCHANGES: [&str; 3] = [EXCHANGE, DEAD_LETTER_EXCHANGE, REALTIME_EXCHANGE];
/// Declared only. Nothing is published to it yet, so its messages are neither counted nor missed.
pub(super) const MAILING_QUEUE: &str = "mailing.jobs.process";
/// The binding key that matches every routing key.
const EVERYTHING: &str = "#";
/// Dead letters stay in their queue, however often they come back. Since RabbitMQ 4 a queue without a limit has a limit
/// of 20, and earlier versions do not understand its spelling of "none". All versions understand this number, so an
/// upgrade finds the queue as it was declared.
const NO_DELIVERY_LIMIT: i64 = i32::MAX as i64;

pub(super) const ACCESS_REFUSED: u16 = 403;
const RESOURCE_LOCKED: u16 = 405;
const PRECONDITION_FAILED: u16 = 406;

#[derive(Debug)]
pub(super) struct Topology {
    prefix: String,
    /// Sorted, without prefix. Includes the dead-letter queue but not the queue that is declared only.
    queues: Vec<String>,
    urgent: HashSet<String>,
}

impl Topology {
    pub(super) fn new(prefix: &str, queues: &[Queue]) -> Result<Self, BrokerError> {
        let urgent = queues.iter().filter(|queue| queue.is_urgent()).map(Queue::to_string).collect();
        let mut queues: Vec<String> = queues.iter().map(Queue::to_string).collect();
        queues.push(DEAD_LETTER_QUEUE.to_owned());
        queues.sort();
        queues.dedup();
        let topology = Self { prefix: prefix.to_owned(), queues, urgent };
        let names = topology.queues.iter().map(String::as_str).chain(EXCHANGES).chain([MAILING_QUEUE]);
        for name in names.map(|name| topology.name(name)) {
            if name.len() > crate::amqp::MAX_SHORT_BYTES || name.starts_with("amq.") {
                return Err(BrokerError::Misconfigured(format!(
                    "`{name}` cannot be the name of a queue or exchange: it is longer than 255 bytes, or begins with \
                     `amq.`; shorten it, or change `broker.prefix`"
                )));
            }
        }
        Ok(topology)
    }

    /// Whether what is published to the queue goes before what is published to others.
    pub(super) fn is_urgent(&self, queue: &str) -> bool {
        self.urgent.contains(queue)
    }

    pub(super) fn queues(&self) -> impl Iterator<Item = &String> {
        self.queues.iter()
    }

    pub(super) fn name(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// The exchange that routes to a queue, with the queue's name as routing key.
    pub(super) fn exchange(&self, queue: &str) -> String {
        self.name(if queue == DEAD_LETTER_QUEUE { DEAD_LETTER_EXCHANGE } else { EXCHANGE })
    }

    /// Declares the exchanges, the wanted queues, and what is declared only. Existing, equal ones do not change.
    /// Returns the queues that did not answer. A queue that the broker cannot create ends the whole connection. It is
    /// reported to `spoils`, so that the next connection can leave it out.
    pub(super) async fn declare(
        &self,
        connection: &Connection,
        wanted: impl Fn(&String) -> bool,
        spoils: impl Fn(&str),
    ) -> Result<Vec<String>, BrokerError> {
        let mut channel = connection.channel(Arc::new(())).await.map_err(broken)?;
        for name in EXCHANGES.map(|name| self.name(name)) {
            declare_exchange(&channel, &name).await?;
        }
        let wanted = self.queues.iter().filter(|queue| wanted(queue)).map(String::as_str);
        let mut silent = Vec::new();
        for queue in wanted.chain([MAILING_QUEUE]) {
            let declared = self.declare_queue(&channel, queue).await;
            if declared.as_ref().is_err_and(|error| is_its_failure(error, &self.name(queue))) {
                spoils(queue);
            }
            if declared? == Declared::Silent {
                silent.push(queue.to_owned());
                channel = connection.channel(Arc::new(())).await.map_err(broken)?;
            }
        }
        Ok(silent)
    }

    async fn declare_queue(&self, channel: &Channel, queue: &str) -> Result<Declared, BrokerError> {
        let (name, exchange) = (self.name(queue), self.exchange(queue));
        let arguments = self.arguments(queue);
        let key = if queue == DEAD_LETTER_QUEUE { EVERYTHING } else { name.as_str() };
        let declare = Request::DeclareQueue { name: &name, arguments: &arguments };
        let bind = Request::BindQueue { queue: &name, exchange: &exchange, key };
        for (request, kind, wanted) in
            [(declare, "queue", describe(&arguments).as_str()), (bind, "binding of the queue", key)]
        {
            match channel.ask(request).await {
                Ok(_) => {}
                Err(Fault::Silent) => return Ok(Declared::Silent),
                Err(fault) => return Err(foreign(kind, &name, wanted, &fault)),
            }
        }
        Ok(Declared::There)
    }

    /// Checks that an exchange is declared correctly, if it exists.
    pub(super) async fn check_exchange(
        &self,
        connection: &Connection,
        exchange: &str,
    ) -> Result<(), BrokerError> {
        let name = self.name(exchange);
        let channel = connection.channel(Arc::new(())).await.map_err(broken)?;
        match channel.ask(Request::CheckExchange { name: &name }).await {
            Ok(_) => declare_exchange(&channel, &name).await,
            Err(fault) if is_missing(&fault) => Ok(()),
            Err(fault) => Err(foreign_exchange(&name, &fault)),
        }
    }

    /// Checks that an existing queue is declared correctly, by an equal declaration, which changes nothing.
    pub(super) async fn check(&self, connection: &Connection, queue: &str) -> Result<(), BrokerError> {
        let channel = connection.channel(Arc::new(())).await.map_err(broken)?;
        let (name, arguments) = (self.name(queue), self.arguments(queue));
        let declare = Request::DeclareQueue { name: &name, arguments: &arguments };
        let described = describe(&arguments);
        channel.ask(declare).await.map_err(|fault| foreign("queue", &name, &described, &fault))?;
        Ok(())
    }

    pub(super) fn arguments(&self, queue: &str) -> Table {
        if queue == DEAD_LETTER_QUEUE {
            dead_letter_arguments()
        } else {
            arguments(&self.name(DEAD_LETTER_EXCHANGE))
        }
    }

    #[cfg(feature = "conformance")]
    pub(super) async fn remove(&self, connection: &Connection) -> Result<(), BrokerError> {
        let channel = connection.channel(Arc::new(())).await.map_err(broken)?;
        for queue in self.queues.iter().map(String::as_str).chain([MAILING_QUEUE]) {
            channel.ask(Request::DeleteQueue { name: &self.name(queue) }).await.map_err(broken)?;
        }
        for exchange in EXCHANGES {
            channel.ask(Request::DeleteExchange { name: &self.name(exchange) }).await.map_err(broken)?;
        }
        Ok(())
    }
}

async fn declare_exchange(channel: &Channel, name: &str) -> Result<(), BrokerError> {
    let declare = Request::DeclareExchange { name, kind: "topic", arguments: &Table::new() };
    channel.ask(declare).await.map(drop).map_err(|fault| foreign_exchange(name, &fault))
}

fn foreign_exchange(name: &str, fault: &Fault) -> BrokerError {
    foreign("exchange", name, "durable, topic", fault)
}

#[derive(Debug, PartialEq, Eq)]
enum Declared {
    There,
    Silent,
}

/// The result of probing a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProbeResult {
    /// The queue exists, with this many ready messages.
    Ready(usize),
    Missing,
    /// The broker is reachable but does not answer requests about this queue.
    Silent,
}

/// Probes queues without creating them. It reuses a channel until the broker closes it, which it does for a missing
/// queue.
pub(super) struct QueueProber<'a> {
    topology: &'a Topology,
    connection: &'a Connection,
    channel: Option<Channel>,
}

impl<'a> QueueProber<'a> {
    pub(super) fn new(topology: &'a Topology, connection: &'a Connection) -> Self {
        Self { topology, connection, channel: None }
    }

    pub(super) async fn probe(&mut self, queue: &str) -> Result<ProbeResult, BrokerError> {
        let channel = match self.channel.take() {
            Some(channel) => channel,
            None => self.connection.channel(Arc::new(())).await.map_err(broken)?,
        };
        let name = self.topology.name(queue);
        match channel.ask(Request::CheckQueue { name: &name }).await {
            Ok(ready) => {
                self.channel = Some(channel);
                Ok(ProbeResult::Ready(usize::try_from(ready).unwrap_or(usize::MAX)))
            }
            Err(fault) if is_missing(&fault) => Ok(ProbeResult::Missing),
            Err(Fault::Silent) => Ok(ProbeResult::Silent),
            Err(fault) => Err(foreign("queue", &name, &describe(&self.topology.arguments(queue)), &fault)),
        }
    }
}

/// Whether the queue is really missing. A cluster with too many nodes down also says "not found", for queues that will
/// return with their messages.
fn is_missing(fault: &Fault) -> bool {
    match fault {
        Fault::Refused { code: NOT_FOUND, text } => {
            !text.contains("inaccessible") && !text.contains("stopped")
        }
        Fault::Refused { .. } | Fault::Broken(_) | Fault::Silent | Fault::NotAmqp => false,
    }
}

fn arguments(dead_letter_exchange: &str) -> Table {
    Table::from([
        ("x-queue-type".to_owned(), Value::Text("quorum".to_owned())),
        ("x-delivery-limit".to_owned(), Value::Number(DELIVERY_LIMIT.into())),
        ("x-dead-letter-exchange".to_owned(), Value::Text(dead_letter_exchange.to_owned())),
    ])
}

fn dead_letter_arguments() -> Table {
    Table::from([
        ("x-queue-type".to_owned(), Value::Text("quorum".to_owned())),
        ("x-delivery-limit".to_owned(), Value::Number(NO_DELIVERY_LIMIT)),
    ])
}

fn describe(arguments: &Table) -> String {
    let arguments = arguments.iter().map(|(name, value)| format!(", {name} {value}"));
    iter::once("durable".to_owned()).chain(arguments).collect()
}

/// Whether the broker failed to create this queue. Quorum queues that were deleted and created again at once may be
/// left half-made: `cluster_not_formed`.
fn is_its_failure(error: &BrokerError, name: &str) -> bool {
    let reason = error.to_string();
    reason.contains("INTERNAL_ERROR") && reason.contains(&format!("'{name}'"))
}

/// The error for something that was declared differently. The broker's text names the difference and the actual value.
fn foreign(kind: &str, name: &str, wanted: &str, fault: &Fault) -> BrokerError {
    match fault.code() {
        Some(RESOURCE_LOCKED) => BrokerError::Misconfigured(format!(
            "the {kind} `{name}` already exists as exclusive to another connection, but Campanile declares it \
             as shared ({wanted}): {fault}; close that connection, use another virtual host, or \
             set `broker.prefix`"
        )),
        Some(PRECONDITION_FAILED) => BrokerError::Misconfigured(format!(
            "the {kind} `{name}` already exists with other arguments than Campanile's ({wanted}): {fault}; delete it \
             when it is no longer needed (`rabbitmqctl delete_queue`, or the management page), \
             use another virtual host, or set \
             `broker.prefix`"
        )),
        Some(ACCESS_REFUSED) => BrokerError::Misconfigured(format!(
            "the {kind} `{name}` may not be declared: {fault}; give the user the permissions to configure, write and \
             read by `rabbitmqctl set_permissions`"
        )),
        _ => broken(fault.clone()),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is handed to `map_err`")]
pub(super) fn broken(fault: Fault) -> BrokerError {
    BrokerError::Unreachable(fault.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_that_will_be_back_is_not_missing() {
        let said = |text: &str| Fault::Refused { code: NOT_FOUND, text: text.to_owned() };
        assert!(is_missing(&said("NOT_FOUND - no queue 'a' in vhost '/'")));
        let away =
            "NOT_FOUND - home node 'rabbit@a' of durable queue 'a' in vhost '/' is down or inaccessible";
        assert!(!is_missing(&said(away)));
        assert!(!is_missing(&Fault::broken("no queue")));
    }

    #[test]
    fn a_queue_that_can_t_be_made_is_told_from_others() {
        let said = "INTERNAL_ERROR - Cannot declare quorum queue 'a.b' in vhost '/' on node 'n' with leader on \
            node 'n': \
                    cluster_not_formed (541)";
        let error = broken(Fault::broken(said));
        assert!(is_its_failure(&error, "a.b") && !is_its_failure(&error, "a"));
        assert!(!is_its_failure(&broken(Fault::broken("INTERNAL_ERROR (541)")), "a.b"));
    }
}
