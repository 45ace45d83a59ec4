//! Checks whether the user has the permissions that an instance needs, whether or not the names exist.
//!
//! `RabbitMQ` checks permissions first. So each is tested by a request that cannot succeed: a declaration or consumer
//! with an argument of the wrong type, or the removal of a binding that does not exist. Nothing is created, changed or
//! consumed.

use std::sync::Arc;

use campanile_domain::finding::Finding;

use super::address::Address;
use super::topology::{
    ACCESS_REFUSED, DEAD_LETTER_EXCHANGE, EXCHANGE, MAILING_QUEUE, REALTIME_EXCHANGE, Topology, broken,
};
use crate::BrokerError;
use crate::amqp::{Connection, Fault, Request, Table, Value};

const SUBJECT: &str = "permissions";
/// A routing key that no binding uses.
const NO_KEY: &str = "campanile doctor asks whether it may";

/// Checks all permissions. An error is one of the connection and ends the check.
pub(super) async fn examine(
    topology: &Topology,
    connection: &Connection,
    address: &Address,
) -> Result<Finding, BrokerError> {
    let mut refused = Vec::new();
    for exchange in [EXCHANGE, DEAD_LETTER_EXCHANGE, REALTIME_EXCHANGE] {
        let name = topology.name(exchange);
        if !may_use_exchange(connection, &name, exchange != REALTIME_EXCHANGE).await? {
            refused.push(name);
        }
    }
    for queue in topology.queues().map(String::as_str).chain([MAILING_QUEUE]) {
        if !may_use_queue(topology, connection, queue).await? {
            refused.push(topology.name(queue));
        }
    }
    if refused.is_empty() {
        let what = format!("user {} may configure, write and read what an instance uses", address.user());
        return Ok(Finding::ok(SUBJECT, what));
    }
    let what = format!(
        "user {} may not configure, write and read all that an instance uses: {}",
        address.user(),
        refused.join(", ")
    );
    let pattern = pattern(topology);
    let remedy = format!(
        "rabbitmqctl set_permissions -p {} {} '{pattern}' '{pattern}' '{pattern}'",
        address.vhost(),
        address.user()
    );
    Ok(Finding::wrong(SUBJECT, what, remedy))
}

/// Whether the user may declare an exchange and, if `bound`, bind to it. The exchange that is declared only is not
/// bound.
async fn may_use_exchange(connection: &Connection, name: &str, bound: bool) -> Result<bool, BrokerError> {
    // Invalid on purpose: a number where the name of another exchange belongs.
    let impossible = Table::from([("alternate-exchange".to_owned(), Value::Number(0))]);
    let declare = Request::DeclareExchange { name, kind: "topic", arguments: &impossible };
    let unbind = Request::UnbindExchange { exchange: name, from: name, key: NO_KEY };
    Ok(may(connection, declare).await? && (!bound || may(connection, unbind).await?))
}

async fn may_use_queue(
    topology: &Topology,
    connection: &Connection,
    queue: &str,
) -> Result<bool, BrokerError> {
    let (name, exchange) = (topology.name(queue), topology.exchange(queue));
    let text = |key: &str| Table::from([(key.to_owned(), Value::Text("a number stands here".to_owned()))]);
    let (mut arguments, consumer) = (topology.arguments(queue), text("x-priority"));
    arguments.extend(text("x-max-length"));
    let requests = [
        Request::DeclareQueue { name: &name, arguments: &arguments },
        Request::UnbindQueue { queue: &name, exchange: &exchange, key: NO_KEY },
        Request::Consume { queue: &name, arguments: &consumer },
    ];
    for request in requests {
        if !may(connection, request).await? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether the user has the permission for a request. A refusal for another reason means that the permission check
/// passed.
async fn may(connection: &Connection, request: Request<'_>) -> Result<bool, BrokerError> {
    let channel = connection.channel(Arc::new(())).await.map_err(broken)?;
    match channel.ask(request).await {
        Err(Fault::Refused { code, .. }) => Ok(code != ACCESS_REFUSED),
        // A queue that does not answer is reported elsewhere.
        Ok(_) | Err(Fault::Silent) => Ok(true),
        Err(fault @ (Fault::Broken(_) | Fault::NotAmqp)) => Err(broken(fault)),
    }
}

/// A pattern for permissions that matches all of these names. It also matches other names with the same beginning.
fn pattern(topology: &Topology) -> String {
    let ours = |queue: &&String| !queue.starts_with("notification.") && !queue.starts_with("notifications.");
    let others = topology.queues().filter(ours).map(String::as_str).chain([MAILING_QUEUE]);
    let names: Vec<String> = others.map(|queue| format!("{}$", escaped(queue))).collect();
    format!("^{}(notifications?\\.|{})", escaped(&topology.name("")), names.join("|"))
}

fn escaped(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    name.chars().map(|c| if plain(c) { c.to_string() } else { format!("\\{c}") }).collect()
}

#[cfg(test)]
mod tests {
    use campanile_domain::queue::Queue;

    use super::*;

    #[test]
    fn a_pattern_matches_what_is_used() {
        let queues = ["notification.restaurant", "bells.monk"].map(Queue::named);
        let pattern = |prefix: &str| pattern(&Topology::new(prefix, &queues).unwrap());
        assert_eq!(pattern(""), r"^(notifications?\.|bells\.monk$|mailing\.jobs\.process$)");
        assert_eq!(pattern("shop."), r"^shop\.(notifications?\.|bells\.monk$|mailing\.jobs\.process$)");
    }
}
