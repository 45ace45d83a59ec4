//! The limit of RabbitMQ: the same messages, published with confirms and acknowledged in batches, and nothing else.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use campanile_broker::{Broker, Confirm, Message, Published, RabbitMq};
use campanile_domain::queue::Queue;
use uuid::Uuid;

use super::{BATCH, Rate, WINDOW};
use crate::bench::Bench;
use crate::site::Site;

const QUEUE: &str = "limit";
/// About the size of the engine's messages.
const BODY: &str = concat!(
    r#"{"v":1,"event_id":"order-123456","event_type":"ORDER_CREATED","aggregate_type":"RESTAURANT","#,
    r#""aggregate_id":"r123","recipient_type":"RESTAURANT_USER","recipient_id":"staff-1234","#,
    r#""recipient_address":"person1234@example.com","channel":"EMAIL","title":"Order 123456","#,
    r#""body":"Giulia Rossi ordered 4 dishes, to be served at 19:30.","priority":"NORMAL","#,
    r#""shared_read":true,"entity_type":"RESTAURANT","entity_id":"r123","payload":{"number":123456,"#,
    r#""guest":"Giulia Rossi","dishes":4,"at":"19:30","table":12},"occurred_at":"2026-01-21T10:15:30Z"}"#,
);

pub async fn broker(bench: &Bench) -> Result<Rate> {
    let config = Site::queues(bench, vec![Queue::named(QUEUE)]);
    let broker: Arc<dyn Broker> = Arc::new(RabbitMq::open(config.clone()).await?);
    broker.restore(&broker.losses()).await?;
    let measured = both_ways(&broker).await;
    drop(broker);
    bench.remove(&Site::Queues(config)).await?;
    measured
}

/// Messages that were published and received within the window.
async fn both_ways(broker: &Arc<dyn Broker>) -> Result<Rate> {
    let mut consumer = broker.consume(QUEUE, 4 * BATCH).await?;
    let end = Instant::now() + WINDOW;
    let publisher = tokio::spawn({
        let broker = Arc::clone(broker);
        async move {
            while Instant::now() < end {
                publish(broker.as_ref()).await?;
            }
            Ok::<(), anyhow::Error>(())
        }
    });
    let (begun, mut received) = (Instant::now(), 0usize);
    while Instant::now() < end {
        let left = end.saturating_duration_since(Instant::now());
        let Ok(deliveries) =
            tokio::time::timeout(left, consumer.receive(BATCH, Duration::from_millis(5))).await
        else {
            break;
        };
        let tags: Vec<_> = deliveries?.iter().map(|delivery| delivery.tag).collect();
        consumer.ack(&tags).await?;
        received += tags.len();
    }
    let took = begun.elapsed().as_secs_f64();
    publisher.await.context("the publisher died")??;
    #[expect(clippy::cast_precision_loss, reason = "far below that")]
    let received = received as f64;
    Ok(received / took)
}

async fn publish(broker: &dyn Broker) -> Result<()> {
    let body: Arc<[u8]> = BODY.as_bytes().into();
    let messages =
        (0..BATCH).map(|_| Message { id: Uuid::now_v7().to_string(), body: Arc::clone(&body), stamp: None });
    match broker.publish(QUEUE, messages.collect()).await? {
        Published::Confirmed(confirms) => {
            ensure!(
                confirms.iter().all(|confirm| *confirm == Confirm::Accepted),
                "the broker refuses messages"
            );
            Ok(())
        }
        Published::Full => anyhow::bail!("the broker is full"),
    }
}
