//! Checks of delivery, from `publish` to `receive`.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::yield_now;
use tokio::time::Instant;

use super::{
    GUARD, QUIET, ack, collect, consume, ids, messages, nothing_comes, publish,
    publish_when_there_is_capacity, received, received_sorted, try_publish, within,
};
use crate::{Broker, BrokerError, Confirm, Published};

pub async fn what_is_published_is_received_in_order(open: impl AsyncFn(usize) -> Arc<dyn Broker>) {
    let broker = open(100).await;
    publish(&*broker, "a", 0..7).await;
    let mut consumer = consume(&broker, "a", 100).await;
    publish(&*broker, "a", 7..50).await;
    assert_eq!(received(&collect(&mut *consumer, 50).await), ids(0..50));
    nothing_comes(&mut *consumer).await;
}

pub async fn a_message_arrives_as_it_was_sent(open: impl AsyncFn(usize) -> Arc<dyn Broker>) {
    let broker = open(10).await;
    publish(&*broker, "a", 2..4).await;
    let mut consumer = consume(&broker, "a", 10).await;
    let deliveries = collect(&mut *consumer, 2).await;
    for (delivery, sent) in deliveries.iter().zip(messages(2..4)) {
        assert_eq!((&delivery.message, delivery.message.stamp), (&sent, sent.stamp));
        assert!(!delivery.redelivered);
        assert_eq!(delivery.delivery_count, 0);
    }
}

pub async fn a_queue_that_does_not_exist_refuses_each_message(open: impl AsyncFn(usize) -> Arc<dyn Broker>) {
    let broker = open(10).await;
    assert!(!broker.is_full("nowhere"));
    let Published::Confirmed(confirms) = try_publish(&*broker, "nowhere", 0..3).await else {
        panic!("a queue that does not exist cannot be full");
    };
    assert_eq!(confirms.len(), 3);
    for confirm in confirms {
        assert!(matches!(&confirm, Confirm::Refused { reason } if !reason.is_empty()), "{confirm:?}");
    }
    publish(&*broker, "a", 0..3).await;
}

pub async fn a_queue_that_does_not_exist_cannot_be_consumed(open: impl AsyncFn(usize) -> Arc<dyn Broker>) {
    let broker = open(10).await;
    let refused = within(broker.consume("nowhere", 10)).await;
    assert!(matches!(&refused, Err(BrokerError::NoSuchQueue(name)) if name == "nowhere"), "{refused:?}");
}

pub async fn a_publish_of_nothing_is_confirmed(open: impl AsyncFn(usize) -> Arc<dyn Broker>) {
    let broker = open(10).await;
    publish(&*broker, "a", 0..10).await;
    assert_eq!(try_publish(&*broker, "a", 0..0).await, Published::Confirmed(vec![]));
}

pub async fn receive_waits_for_the_first_message(open: impl AsyncFn(usize) -> Arc<dyn Broker>) {
    let broker = open(10).await;
    let mut consumer = consume(&broker, "a", 10).await;
    nothing_comes(&mut *consumer).await;
    let (deliveries, ()) = tokio::join!(collect(&mut *consumer, 1), publish(&*broker, "a", 0..1));
    assert_eq!(received(&deliveries), ids(0..1));
}

pub async fn receive_takes_no_more_than_asked(open: impl AsyncFn(usize) -> Arc<dyn Broker>) {
    let broker = open(10).await;
    publish(&*broker, "a", 0..5).await;
    let mut consumer = consume(&broker, "a", 10).await;
    let first = within(consumer.receive(2, QUIET)).await.expect("the broker is there");
    assert_eq!(received(&first), ids(0..2));
    let rest = within(consumer.receive(10, QUIET)).await.expect("the broker is there");
    assert_eq!(received(&rest), ids(2..5));
}

pub async fn receive_returns_what_is_there_when_linger_ends(open: impl AsyncFn(usize) -> Arc<dyn Broker>) {
    let broker = open(10).await;
    publish(&*broker, "a", 0..2).await;
    let mut consumer = consume(&broker, "a", 10).await;
    let deliveries = within(consumer.receive(3, QUIET)).await.expect("the broker is there");
    assert_eq!(received(&deliveries), ids(0..2));
}

pub async fn receive_does_not_linger_once_it_has_what_was_asked(
    open: impl AsyncFn(usize) -> Arc<dyn Broker>,
) {
    let broker = open(10).await;
    publish(&*broker, "a", 0..1).await;
    let mut consumer = consume(&broker, "a", 10).await;
    let start = Instant::now();
    let (deliveries, ()) = tokio::join!(within(consumer.receive(3, GUARD)), publish(&*broker, "a", 1..3));
    assert_eq!(received(&deliveries.expect("the broker is there")), ids(0..3));
    assert!(start.elapsed() < GUARD / 2);
}

/// Drops calls of `receive` at each poll: before the first message, and while they linger for more.
pub async fn receive_is_cancel_safe(open: impl AsyncFn(usize) -> Arc<dyn Broker>) {
    let broker = open(100).await;
    let mut consumer = consume(&broker, "a", 100).await;
    let mut deliveries = Vec::new();
    for number in 0..40 {
        if number % 2 == 0 {
            publish(&*broker, "a", number..number + 2).await;
        }
        tokio::select! {
            biased;
            received = consumer.receive(7, QUIET) => deliveries.extend(received.expect("the broker is there")),
            () = yield_now() => {}
        }
    }
    let rest = 40 - deliveries.len();
    deliveries.extend(collect(&mut *consumer, rest).await);
    assert_eq!(received(&deliveries), ids(0..40));
    ack(&mut *consumer, &deliveries).await;
    nothing_comes(&mut *consumer).await;
}

pub async fn two_consumers_share_a_queue_and_no_message_is_given_twice(
    open: impl AsyncFn(usize) -> Arc<dyn Broker>,
) {
    let broker = open(10).await;
    let mut one = consume(&broker, "a", 5).await;
    let mut other = consume(&broker, "a", 5).await;
    let (mut deliveries, others, ()) =
        tokio::join!(collect(&mut *one, 5), collect(&mut *other, 5), publish(&*broker, "a", 0..10));
    deliveries.extend(others);
    assert_eq!(received_sorted(&deliveries), ids(0..10));
    assert!(deliveries.iter().all(|delivery| !delivery.redelivered));
}

pub async fn ten_thousand_messages_arrive_exactly_once(open: impl AsyncFn(usize) -> Arc<dyn Broker>) {
    let broker = open(5_000).await;
    let mut consumer = consume(&broker, "a", 2_000).await;
    let publisher = tokio::spawn({
        let broker = Arc::clone(&broker);
        async move {
            for batch in 0..10 {
                publish_when_there_is_capacity(&*broker, "a", batch * 1_000..(batch + 1) * 1_000).await;
            }
        }
    });
    let mut arrived = Vec::with_capacity(10_000);
    while arrived.len() < 10_000 {
        let linger = Duration::from_millis(5);
        let batch = within(consumer.receive(1_000, linger)).await.expect("the broker is there");
        ack(&mut *consumer, &batch).await;
        arrived.extend(received(&batch));
    }
    publisher.await.expect("the publisher does not panic");
    assert_eq!(arrived, ids(0..10_000));
    nothing_comes(&mut *consumer).await;
}

pub async fn a_consumer_whose_broker_is_gone_hears_that_it_is_closed(
    open: impl AsyncFn(usize) -> Arc<dyn Broker>,
) {
    let broker = open(10).await;
    publish(&*broker, "b", 0..1).await;
    let mut waiting = consume(&broker, "a", 10).await;
    let mut holding = consume(&broker, "b", 1).await;
    let held = collect(&mut *holding, 1).await;
    let (waited, held_all, ()) = tokio::join!(
        within(waiting.receive(1, Duration::ZERO)),
        within(holding.receive(1, Duration::ZERO)),
        async { drop(broker) },
    );
    assert!(matches!(waited, Err(BrokerError::Closed)), "{waited:?}");
    assert!(matches!(held_all, Err(BrokerError::Closed)), "{held_all:?}");
    let late = within(holding.ack(&[held[0].tag])).await;
    assert!(matches!(late, Err(BrokerError::Closed)), "{late:?}");
}

pub async fn losses_are_reported_until_they_are_made_good(open: impl AsyncFn(usize) -> Arc<dyn Broker>) {
    let broker = open(10).await;
    let lost = broker.losses();
    assert_eq!(broker.losses(), lost);
    broker.restore(&lost).await.expect("it is there");
    assert_eq!(broker.losses(), Vec::<String>::new());
    assert_eq!(broker.unavailable_reason(), None);
}
