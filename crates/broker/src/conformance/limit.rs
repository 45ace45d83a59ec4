//! Checks of the limits of queues and consumers.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use super::{
    ack, collect, consume, ids, nothing_comes, publish, publish_when_there_is_capacity, received,
    stays_silent, tags, try_publish, within,
};
use crate::{Broker, DEAD_LETTER_QUEUE, Published};

pub async fn a_full_queue_takes_nothing_and_says_so(open: impl AsyncFn(usize) -> Arc<dyn Broker>) {
    let broker = open(10).await;
    assert!(!broker.is_full("a"));
    publish(&*broker, "a", 0..8).await;
    assert!(!broker.is_full("a"));
    publish(&*broker, "a", 8..9).await;
    // The queue reports that it is full, but it still accepts one message.
    assert!(broker.is_full("a"));
    publish(&*broker, "a", 9..10).await;
    assert!(broker.is_full("a"));
    assert_eq!(try_publish(&*broker, "a", 10..11).await, Published::Full);
    let mut consumer = consume(&broker, "a", 100).await;
    assert_eq!(received(&collect(&mut *consumer, 10).await), ids(0..10));
    nothing_comes(&mut *consumer).await;
}

pub async fn a_publish_is_taken_whole_or_not_at_all(open: impl AsyncFn(usize) -> Arc<dyn Broker>) {
    let broker = open(10).await;
    publish(&*broker, "a", 0..7).await;
    assert_eq!(try_publish(&*broker, "a", 7..11).await, Published::Full);
    publish(&*broker, "a", 7..10).await;
    let mut consumer = consume(&broker, "a", 100).await;
    assert_eq!(received(&collect(&mut *consumer, 10).await), ids(0..10));
    nothing_comes(&mut *consumer).await;
}

pub async fn a_publish_beyond_the_limit_is_taken_by_an_empty_queue(
    open: impl AsyncFn(usize) -> Arc<dyn Broker>,
) {
    let broker = open(10).await;
    publish(&*broker, "a", 0..25).await;
    assert_eq!(try_publish(&*broker, "a", 25..26).await, Published::Full);
    let mut consumer = consume(&broker, "a", 100).await;
    assert_eq!(received(&collect(&mut *consumer, 25).await), ids(0..25));
}

pub async fn a_full_queue_does_not_block_another(open: impl AsyncFn(usize) -> Arc<dyn Broker>) {
    let broker = open(10).await;
    publish(&*broker, "a", 0..10).await;
    assert_eq!(try_publish(&*broker, "a", 10..11).await, Published::Full);
    assert!(!broker.is_full("b"));
    publish(&*broker, "b", 0..10).await;
    let mut consumer = consume(&broker, "b", 10).await;
    assert_eq!(received(&collect(&mut *consumer, 10).await), ids(0..10));
}

pub async fn dead_letters_have_no_limit(open: impl AsyncFn(usize) -> Arc<dyn Broker>) {
    let broker = open(10).await;
    let mut consumer = consume(&broker, "a", 10).await;
    for round in 0..3 {
        publish_when_there_is_capacity(&*broker, "a", round * 10..(round + 1) * 10).await;
        let deliveries = collect(&mut *consumer, 10).await;
        within(consumer.reject(&tags(&deliveries))).await.expect("the broker is there");
    }
    assert!(!broker.is_full(DEAD_LETTER_QUEUE));
    let mut undertaker = consume(&broker, DEAD_LETTER_QUEUE, 100).await;
    assert_eq!(received(&collect(&mut *undertaker, 30).await), ids(0..30));
}

pub async fn capacity_wakes_after_acks(open: impl AsyncFn(usize) -> Arc<dyn Broker>) {
    let broker = open(10).await;
    publish(&*broker, "a", 0..10).await;
    let mut consumer = consume(&broker, "a", 10).await;
    tokio::join!(publish_when_there_is_capacity(&*broker, "a", 10..14), async {
        let deliveries = collect(&mut *consumer, 10).await;
        ack(&mut *consumer, &deliveries[..2]).await;
        ack(&mut *consumer, &deliveries[2..4]).await;
    });
    assert_eq!(received(&collect(&mut *consumer, 4).await), ids(10..14));
}

pub async fn capacity_wakes_after_rejects(open: impl AsyncFn(usize) -> Arc<dyn Broker>) {
    let broker = open(10).await;
    publish(&*broker, "a", 0..10).await;
    let mut consumer = consume(&broker, "a", 10).await;
    tokio::join!(publish_when_there_is_capacity(&*broker, "a", 10..11), async {
        let deliveries = collect(&mut *consumer, 10).await;
        within(consumer.reject(&tags(&deliveries[..1]))).await.expect("the broker is there");
    });
    assert_eq!(received(&collect(&mut *consumer, 1).await), ids(10..11));
}

/// The future is not polled before the acknowledgement, and nothing wakes it after that.
pub async fn capacity_counts_from_its_call(open: impl AsyncFn(usize) -> Arc<dyn Broker>) {
    let broker = open(10).await;
    publish(&*broker, "a", 0..10).await;
    let mut consumer = consume(&broker, "a", 10).await;
    let deliveries = collect(&mut *consumer, 10).await;
    let capacity = broker.wait_for_capacity("a");
    assert!(broker.is_full("a"));
    ack(&mut *consumer, &deliveries).await;
    within(capacity).await;
    publish_when_there_is_capacity(&*broker, "a", 10..20).await;
}

/// Each wake-up costs the publisher a query to the database.
pub async fn capacity_is_notified_once_there_is_enough_and_to_nobody_else(
    open: impl AsyncFn(usize) -> Arc<dyn Broker>,
) {
    let broker = open(10).await;
    publish(&*broker, "a", 0..10).await;
    publish(&*broker, "b", 0..10).await;
    let mut consumer = consume(&broker, "a", 10).await;
    let deliveries = collect(&mut *consumer, 10).await;
    // No publish has found it full.
    let capacity = broker.wait_for_capacity("a");
    ack(&mut *consumer, &deliveries[..1]).await;
    stays_silent(capacity).await;
    assert!(broker.is_full("b"));
    assert_eq!(try_publish(&*broker, "a", 10..15).await, Published::Full);
    let (capacity, elsewhere) = (broker.wait_for_capacity("a"), broker.wait_for_capacity("b"));
    ack(&mut *consumer, &deliveries[1..4]).await;
    // The queue has room for four, but the refused publish had five.
    assert!(broker.is_full("a"));
    stays_silent(capacity).await;
    let capacity = broker.wait_for_capacity("a");
    ack(&mut *consumer, &deliveries[4..5]).await;
    within(capacity).await;
    assert!(!broker.is_full("a"));
    publish(&*broker, "a", 10..15).await;
    stays_silent(elsewhere).await;
}

pub async fn a_queue_that_does_not_exist_never_reports_capacity(
    open: impl AsyncFn(usize) -> Arc<dyn Broker>,
) {
    let broker = open(10).await;
    stays_silent(broker.wait_for_capacity("nowhere")).await;
}

pub async fn prefetch_bounds_what_a_consumer_holds(open: impl AsyncFn(usize) -> Arc<dyn Broker>) {
    let broker = open(10).await;
    publish(&*broker, "a", 0..8).await;
    let mut consumer = consume(&broker, "a", 3).await;
    let first = within(consumer.receive(10, super::QUIET)).await.expect("the broker is there");
    assert_eq!(received(&first), ids(0..3));
    nothing_comes(&mut *consumer).await;
    let mut other = consume(&broker, "a", 5).await;
    assert_eq!(received(&collect(&mut *other, 5).await), ids(3..8));
    publish(&*broker, "a", 8..9).await;
    nothing_comes(&mut *consumer).await;
    ack(&mut *consumer, &first[..1]).await;
    assert_eq!(received(&collect(&mut *consumer, 1).await), ids(8..9));
}

pub async fn depths_count_what_is_not_acknowledged(open: impl AsyncFn(usize) -> Arc<dyn Broker>) {
    let broker = open(10).await;
    publish(&*broker, "a", 0..5).await;
    depth_becomes(&*broker, "a", 5).await;
    let mut consumer = consume(&broker, "a", 3).await;
    let deliveries = collect(&mut *consumer, 3).await;
    depth_becomes(&*broker, "a", 5).await;
    ack(&mut *consumer, &deliveries[..1]).await;
    depth_becomes(&*broker, "a", 4).await;
    within(consumer.reject(&tags(&deliveries[1..2]))).await.expect("the broker is there");
    depth_becomes(&*broker, "a", 3).await;
    depth_becomes(&*broker, DEAD_LETTER_QUEUE, 1).await;
    drop(consumer);
    depth_becomes(&*broker, "a", 3).await;
    depth_becomes(&*broker, "b", 0).await;
}

/// Depths are for metrics, so a broker may update them late and without a signal. This polls.
async fn depth_becomes(broker: &dyn Broker, queue: &str, expected: usize) {
    let mut poll = interval(Duration::from_millis(10));
    poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
    within(async {
        while !broker.depths().contains(&(queue.to_owned(), expected)) {
            poll.tick().await;
        }
    })
    .await;
}
