//! An isolated prefix on the `RabbitMQ` that `cargo xtask test` starts, and other clients of it.

pub mod impostor;
pub mod proxy;
pub mod vandal;
pub mod witness;

use campanile_domain::queue::Queue;
use std::env;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use campanile_broker::{
    Broker, BrokerError, Confirm, Consumer, Delivery, Message, Published, RabbitMq, RabbitMqConfig,
};
pub use campanile_testkit::{until, within};
use url::Url;
use uuid::Uuid;

/// Exchanges and queues with a prefix of their own, which are removed at the end.
#[derive(Debug, Clone)]
pub struct Place {
    config: RabbitMqConfig,
}

impl Place {
    pub fn new(queues: &[&str]) -> Self {
        let url = url().to_string();
        let prefix = format!("test-{}.", Uuid::now_v7());
        let queues = queues.iter().map(|queue| Queue::named(*queue)).collect();
        Self { config: RabbitMqConfig { url, ca_file: None, prefix, queues, limit: 5_000 } }
    }

    pub fn config(&self) -> RabbitMqConfig {
        self.config.clone()
    }

    /// The full name in the broker.
    pub fn name(&self, name: &str) -> String {
        format!("{}{name}", self.config.prefix)
    }

    /// Opens the broker with all queues restored.
    pub async fn open(&self, limit: usize) -> Arc<dyn Broker> {
        let broker = self.find(limit).await;
        make_good(&*broker).await;
        broker
    }

    /// Opens the broker without restoring queues.
    pub async fn find(&self, limit: usize) -> Arc<dyn Broker> {
        let config = RabbitMqConfig { limit, ..self.config() };
        Arc::new(RabbitMq::open(config).await.expect("RabbitMQ is there"))
    }

    pub async fn remove(self) {
        RabbitMq::remove(&self.config).await.expect("RabbitMQ is there");
    }
}

/// Restores every lost queue, and returns their names.
pub async fn make_good(broker: &dyn Broker) -> Vec<String> {
    let lost = broker.losses();
    broker.restore(&lost).await.expect("RabbitMQ is there");
    lost
}

pub fn url() -> Url {
    let url = env::var("CAMPANILE_TEST_BROKER_URL").expect(
        "CAMPANILE_TEST_BROKER_URL names a RabbitMQ to test with: run `cargo xtask test`, or set the variable",
    );
    url.parse().expect("CAMPANILE_TEST_BROKER_URL is a URL")
}

pub fn messages(numbers: Range<usize>) -> Vec<Message> {
    numbers.map(|number| Message { id: format!("{number:05}"), body: (*b"{}").into(), stamp: None }).collect()
}

/// Publishes, and retries while the broker is unavailable.
pub async fn publish(broker: &dyn Broker, queue: &str, numbers: Range<usize>) {
    let accepted = Published::Confirmed(vec![Confirm::Accepted; numbers.len()]);
    let published = until("the broker takes messages", async || {
        match broker.publish(queue, messages(numbers.clone())).await {
            Err(BrokerError::Unreachable(_) | BrokerError::Lost(_)) => None,
            published => Some(published.expect("the broker is open")),
        }
    });
    assert_eq!(published.await, accepted);
}

/// Receives until each of these ids has come, and acknowledges everything. Some may come more than once.
pub async fn receive_and_ack(consumer: &mut dyn Consumer, numbers: Range<usize>) {
    let mut missing: Vec<_> = messages(numbers).into_iter().map(|message| message.id).collect();
    while !missing.is_empty() {
        let deliveries = receive(consumer, 1_000).await;
        missing.retain(|id| deliveries.iter().all(|delivery| delivery.message.id != *id));
        let tags: Vec<_> = deliveries.iter().map(|delivery| delivery.tag).collect();
        // Messages that cannot be acknowledged are redelivered.
        consumer.ack(&tags).await.ok();
    }
}

/// Receives, and retries while the broker is unavailable.
pub async fn receive(consumer: &mut dyn Consumer, max: usize) -> Vec<Delivery> {
    until("messages come", async || match within(consumer.receive(max, Duration::ZERO)).await {
        Err(BrokerError::Unreachable(_) | BrokerError::Lost(_)) => None,
        received => Some(received.expect("the broker is open")),
    })
    .await
}
