//! Checks the broker: whether it is reachable and correctly set up.

use std::time::Duration;

use campanile_broker::RabbitMq;
use campanile_domain::finding::Finding;

use crate::cli::with_causes;
use crate::config::{BrokerChoice, Config};

const SUBJECT: &str = "broker";
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(20);

pub async fn examine(config: &Config) -> Vec<Finding> {
    let rabbitmq = match config.broker_choice() {
        Ok(BrokerChoice::RabbitMq(rabbitmq)) => rabbitmq,
        Ok(BrokerChoice::InProcess) => {
            return vec![Finding::ok(SUBJECT, "in-process broker (supports one instance)")];
        }
        Err(error) => return vec![Finding::wrong(SUBJECT, with_causes(&error), "correct broker.url")],
    };
    tokio::time::timeout(RESPONSE_TIMEOUT, RabbitMq::examine(&rabbitmq)).await.unwrap_or_else(|_| {
        let what = format!("RabbitMQ did not respond within {RESPONSE_TIMEOUT:?}");
        vec![Finding::wrong(
            SUBJECT,
            what,
            "check that it is running and that host and port in broker.url are correct",
        )]
    })
}
