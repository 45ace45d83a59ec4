//! The broker: whether it answers, and is as it should be.

use std::time::Duration;

use campanile_broker::{RabbitMq, RabbitMqConfig};
use campanile_domain::finding::Finding;

use crate::config::{BrokerChoice, Config};

const SUBJECT: &str = "broker";
const PATIENCE: Duration = Duration::from_secs(20);

pub async fn examine(config: &Config) -> Vec<Finding> {
    let (choice, engine) = match (config.broker.choice(), config.engine()) {
        (Ok(choice), Ok(engine)) => (choice, engine),
        (Err(error), _) | (_, Err(error)) => {
            return vec![Finding::wrong(SUBJECT, format!("{error:#}"), "correct broker.url")];
        }
    };
    let BrokerChoice::RabbitMq { url, ca_file, prefix } = choice else {
        return vec![Finding::ok(SUBJECT, "inside the process, which serves one instance")];
    };
    let queues = engine.user_types.queues();
    let rabbitmq = RabbitMqConfig { url: url.0, ca_file, prefix, queues, limit: 1 };
    tokio::time::timeout(PATIENCE, RabbitMq::examine(&rabbitmq)).await.unwrap_or_else(|_| {
        let what = format!("RabbitMQ does not answer within {PATIENCE:?}");
        vec![Finding::wrong(SUBJECT, what, "is it running, and are host and port in broker.url right?")]
    })
}
