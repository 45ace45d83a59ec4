//! Checks the installation in RabbitMQ for `doctor`. Nothing is created or changed.

use campanile_domain::finding::{Finding, Level};

use super::RabbitMqConfig;
use super::address::Address;
use super::permissions;
use super::topology::{EXCHANGES, MAILING_QUEUE, ProbeResult, QueueProber, Topology};
use crate::BrokerError;
use crate::amqp::Connection;

const BROKER: &str = "broker";
const TOPOLOGY: &str = "topology";

pub(super) async fn examine(config: &RabbitMqConfig) -> Vec<Finding> {
    match connect(config).await {
        Ok((address, topology, connection)) => {
            let mut findings =
                vec![Finding::ok(BROKER, format!("RabbitMQ at {address} accepts the connection"))];
            let permissions = permissions::examine(&topology, &connection, &address).await;
            let permissions = permissions.unwrap_or_else(|error| wrong(BROKER, &error));
            let may_declare = permissions.level == Level::Ok;
            findings.push(permissions);
            findings.extend(examine_topology(&topology, &connection, may_declare).await);
            findings
        }
        Err(error) => vec![wrong(BROKER, &error)],
    }
}

async fn connect(config: &RabbitMqConfig) -> Result<(Address, Topology, Connection), BrokerError> {
    let (address, topology) = config.parse()?;
    let connection = address.connect("is examined").await?;
    Ok((address, topology, connection))
}

/// Checks exchanges and queues. How they were declared is checked only if the user may declare them, because the check
/// declares.
async fn examine_topology(topology: &Topology, connection: &Connection, may_declare: bool) -> Vec<Finding> {
    let mut prober = QueueProber::new(topology, connection);
    let (mut missing, mut ready, mut findings) = (Vec::new(), 0, Vec::new());
    for exchange in EXCHANGES {
        if may_declare && let Err(error) = topology.check_exchange(connection, exchange).await {
            findings.push(wrong(TOPOLOGY, &error));
        }
    }
    for queue in topology.queues() {
        match prober.probe(queue).await {
            Ok(ProbeResult::Ready(messages)) => {
                ready += messages;
                if may_declare && let Err(error) = topology.check(connection, queue).await {
                    findings.push(wrong(TOPOLOGY, &error));
                }
            }
            Ok(ProbeResult::Missing) => missing.push(topology.name(queue)),
            Ok(ProbeResult::Silent) => findings.push(silent(topology, queue)),
            Err(error @ BrokerError::Misconfigured(_)) => findings.push(wrong(TOPOLOGY, &error)),
            Err(error) => return vec![wrong(TOPOLOGY, &error)],
        }
    }
    let all = topology.queues().count();
    if missing.len() == all {
        findings.push(Finding::note(TOPOLOGY, "no queue exists yet; `campanile serve` declares them"));
        return findings;
    }
    findings.extend(examine_mailing_queue(topology, connection, &mut prober, may_declare).await);
    if !missing.is_empty() {
        let what = format!(
            "missing: {}; a running instance declares them again and republishes their messages",
            missing.join(", ")
        );
        findings.push(Finding::note(TOPOLOGY, what));
    } else if findings.is_empty() {
        findings.push(Finding::ok(
            TOPOLOGY,
            format!("all {all} queues exist with the expected arguments; {ready} messages are ready"),
        ));
    }
    findings
}

/// Reports the mailing queue only if something is wrong with it: it is declared but not used.
async fn examine_mailing_queue(
    topology: &Topology,
    connection: &Connection,
    prober: &mut QueueProber<'_>,
    may_declare: bool,
) -> Option<Finding> {
    let checked = match prober.probe(MAILING_QUEUE).await {
        Ok(ProbeResult::Ready(_)) if may_declare => topology.check(connection, MAILING_QUEUE).await,
        Ok(ProbeResult::Ready(_)) => Ok(()),
        Ok(ProbeResult::Silent) => return Some(silent(topology, MAILING_QUEUE)),
        Ok(ProbeResult::Missing) => {
            let name = topology.name(MAILING_QUEUE);
            let what = format!("missing: {name}; an instance declares it when it connects");
            return Some(Finding::note(TOPOLOGY, what));
        }
        Err(error) => Err(error),
    };
    checked.err().map(|error| wrong(TOPOLOGY, &error))
}

fn silent(topology: &Topology, queue: &str) -> Finding {
    let name = topology.name(queue);
    let remedy = format!(
        "restart RabbitMQ, or delete the queue (`rabbitmqctl delete_queue {name}`): \
         an instance that runs makes it again, and \
         publishes again what was in it"
    );
    Finding::wrong(
        TOPOLOGY,
        format!("RabbitMQ does not respond to requests about the queue `{name}`"),
        remedy,
    )
}

/// A finding with its remedy, both taken from the error.
fn wrong(subject: &'static str, error: &BrokerError) -> Finding {
    let text = error.to_string();
    match (text.split_once("; "), error) {
        (Some((what, remedy)), _) => Finding::wrong(subject, what, remedy),
        (None, BrokerError::Unreachable(_)) => {
            Finding::wrong(subject, text, "check that it is running, and host and port in broker.url")
        }
        (None, _) => Finding::wrong(subject, text, "correct broker.url"),
    }
}
