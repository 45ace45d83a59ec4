//! Properties of the in-process broker only: exact order, exact counts, and a memory that starts empty.

use campanile_domain::queue::Queue;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use campanile_broker::{
    Broker, Confirm, Consumer, DEAD_LETTER_QUEUE, Delivery, InProcess, Message, Published,
};

#[tokio::test(start_paused = true)]
async fn what_consumers_give_back_takes_its_old_place() {
    let broker = open(100);
    publish(&broker, 0..8).await;
    let mut one = broker.consume("a", 100).await.unwrap();
    let mut other = broker.consume("a", 100).await.unwrap();
    receive(&mut *one, 3).await;
    receive(&mut *other, 3).await;
    drop(one);
    drop(other);
    let mut successor = broker.consume("a", 100).await.unwrap();
    let deliveries = receive(&mut *successor, 100).await;
    assert_eq!(ids(&deliveries), ["0", "1", "2", "3", "4", "5", "6", "7"]);
    let redelivered: Vec<_> = deliveries.iter().map(|delivery| delivery.redelivered).collect();
    assert_eq!(redelivered, [true, true, true, true, true, true, false, false]);
    successor.release(&[deliveries[7].tag, deliveries[1].tag, deliveries[4].tag]).await.unwrap();
    assert_eq!(ids(&receive(&mut *successor, 100).await), ["1", "4", "7"]);
}

#[tokio::test(start_paused = true)]
async fn unacknowledged_messages_count_against_the_limit() {
    let broker = open(3);
    publish(&broker, 0..3).await;
    let mut consumer = broker.consume("a", 100).await.unwrap();
    let deliveries = receive(&mut *consumer, 3).await;
    assert!(broker.is_full("a"));
    consumer.release(&[deliveries[0].tag]).await.unwrap();
    assert!(broker.is_full("a"));
    consumer.ack(&[deliveries[1].tag]).await.unwrap();
    assert!(!broker.is_full("a"));
    assert_eq!(broker.publish("a", messages(3..5)).await.unwrap(), Published::Full);
    publish(&broker, 3..4).await;
    assert!(broker.is_full("a"));
}

#[tokio::test(start_paused = true)]
async fn zero_limit_and_zero_prefetch_still_let_one_through() {
    let broker = open(0);
    assert!(!broker.is_full("a"));
    publish(&broker, 0..1).await;
    assert!(broker.is_full("a"));
    let mut consumer = broker.consume("a", 0).await.unwrap();
    assert_eq!(ids(&consumer.receive(0, Duration::ZERO).await.unwrap()), ["0"]);
}

#[tokio::test]
async fn every_queue_is_lost_at_start() {
    let broker = InProcess::new(["b", "a"].map(Queue::named), 10);
    assert_eq!(broker.losses(), ["a", "b", DEAD_LETTER_QUEUE]);
    broker.restore(&broker.losses()).await.unwrap();
    assert!(broker.losses().is_empty());
}

#[tokio::test]
async fn depths_name_every_queue() {
    let broker = open(10);
    publish(&broker, 0..2).await;
    assert_eq!(broker.depths(), [("a".to_owned(), 2), (DEAD_LETTER_QUEUE.to_owned(), 0)]);
}

#[tokio::test]
async fn debug_output_shows_no_body() {
    let broker = open(10);
    let body: Arc<[u8]> = (*b"secret").into();
    let message = Message { id: "m".to_owned(), body, stamp: None };
    assert_eq!(format!("{message:?}"), r#"Message { id: "m", body_bytes: 6 }"#);
    broker.publish("a", vec![message]).await.unwrap();
    let mut consumer = broker.consume("a", 10).await.unwrap();
    let deliveries = receive(&mut *consumer, 1).await;
    assert!(!format!("{broker:?} {consumer:?} {deliveries:?}").contains("115, 101"));
}

fn open(limit: usize) -> InProcess {
    InProcess::new([Queue::named("a")], limit)
}

fn messages(numbers: Range<usize>) -> Vec<Message> {
    numbers.map(|number| Message { id: number.to_string(), body: (*b"{}").into(), stamp: None }).collect()
}

async fn publish(broker: &InProcess, numbers: Range<usize>) {
    let accepted = Published::Confirmed(vec![Confirm::Accepted; numbers.len()]);
    assert_eq!(broker.publish("a", messages(numbers)).await.expect("it is open"), accepted);
}

async fn receive(consumer: &mut dyn Consumer, max: usize) -> Vec<Delivery> {
    consumer.receive(max, Duration::ZERO).await.expect("it is open")
}

fn ids(deliveries: &[Delivery]) -> Vec<&str> {
    deliveries.iter().map(|delivery| delivery.message.id.as_str()).collect()
}
