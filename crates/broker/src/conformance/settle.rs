//! Checks of what happens to a message after it was received.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;

use super::{ack, collect, consume, ids, nothing_comes, publish, received, received_sorted, tags, within};
use crate::{Broker, DEAD_LETTER_QUEUE, DELIVERY_LIMIT};

pub async fn acked_messages_never_return(open: impl AsyncFn(usize) -> Arc<dyn Broker>) {
    let broker = open(10).await;
    publish(&*broker, "a", 0..5).await;
    let mut consumer = consume(&broker, "a", 10).await;
    let deliveries = collect(&mut *consumer, 5).await;
    ack(&mut *consumer, &deliveries).await;
    nothing_comes(&mut *consumer).await;
    drop(consumer);
    nothing_comes(&mut *consume(&broker, "a", 10).await).await;
}

/// An acknowledgement of "all up to this tag" would remove more than it should.
pub async fn a_part_of_a_batch_is_acked_without_the_rest(open: impl AsyncFn(usize) -> Arc<dyn Broker>) {
    let broker = open(10).await;
    publish(&*broker, "a", 0..6).await;
    let mut consumer = consume(&broker, "a", 10).await;
    let (acked, kept): (Vec<_>, Vec<_>) =
        collect(&mut *consumer, 6).await.into_iter().partition(|delivery| delivery.tag.0 % 2 == 0);
    ack(&mut *consumer, &acked).await;
    drop(consumer);
    let mut successor = consume(&broker, "a", 10).await;
    let again = collect(&mut *successor, kept.len()).await;
    assert_eq!(received_sorted(&again), received_sorted(&kept));
    nothing_comes(&mut *successor).await;
}

pub async fn settling_twice_changes_nothing(open: impl AsyncFn(usize) -> Arc<dyn Broker>) {
    let broker = open(10).await;
    publish(&*broker, "a", 0..2).await;
    let mut consumer = consume(&broker, "a", 10).await;
    let deliveries = collect(&mut *consumer, 2).await;
    ack(&mut *consumer, &deliveries[..1]).await;
    ack(&mut *consumer, &deliveries[..1]).await;
    let stale = tags(&deliveries);
    within(consumer.release(&stale)).await.expect("the broker is there");
    within(consumer.reject(&stale)).await.expect("the broker is there");
    let again = collect(&mut *consumer, 1).await;
    assert_eq!(received(&again), ids(1..2));
    // The same consumer holds the message again, but the old tag no longer names it.
    ack(&mut *consumer, &deliveries).await;
    drop(consumer);
    let mut successor = consume(&broker, "a", 10).await;
    assert_eq!(received(&collect(&mut *successor, 1).await), ids(1..2));
    nothing_comes(&mut *consume(&broker, DEAD_LETTER_QUEUE, 10).await).await;
}

pub async fn an_unacknowledged_message_is_delivered_again_when_its_consumer_goes(
    open: impl AsyncFn(usize) -> Arc<dyn Broker>,
) {
    let broker = open(10).await;
    publish(&*broker, "a", 0..4).await;
    let mut consumer = consume(&broker, "a", 10).await;
    let seen = received(&collect(&mut *consumer, 2).await);
    drop(consumer);
    let mut successor = consume(&broker, "a", 10).await;
    let deliveries = collect(&mut *successor, 4).await;
    assert_eq!(received_sorted(&deliveries), ids(0..4));
    for delivery in deliveries.iter().filter(|delivery| seen.contains(&delivery.message.id)) {
        assert!(delivery.redelivered);
        assert_eq!(delivery.delivery_count, 1);
    }
}

pub async fn a_waiting_consumer_gets_what_another_gives_back(open: impl AsyncFn(usize) -> Arc<dyn Broker>) {
    let broker = open(10).await;
    publish(&*broker, "a", 0..2).await;
    let mut one = consume(&broker, "a", 2).await;
    let held = collect(&mut *one, 2).await;
    let mut other = consume(&broker, "a", 2).await;
    let (released, ()) = tokio::join!(collect(&mut *other, 1), async {
        within(one.release(&tags(&held[..1]))).await.expect("the broker is there");
        drop(one);
    });
    assert_eq!(released.len() + collect(&mut *other, 1).await.len(), 2);
}

/// Three tasks repeatedly open a consumer, acknowledge half of what they receive, and drop it.
pub async fn nothing_is_lost_while_consumers_come_and_go(open: impl AsyncFn(usize) -> Arc<dyn Broker>) {
    const COUNT: usize = 300;
    let broker = open(COUNT).await;
    publish(&*broker, "a", 0..COUNT).await;
    let (acked, _) = watch::channel(Vec::new());
    let mut workers = JoinSet::new();
    for _ in 0..3 {
        let (broker, acked, mut watched) = (Arc::clone(&broker), acked.clone(), acked.subscribe());
        workers.spawn(async move {
            loop {
                let mut consumer = consume(&broker, "a", 50).await;
                let deliveries = tokio::select! {
                    received = consumer.receive(50, Duration::ZERO) => received.expect("the broker is there"),
                    _ = watched.wait_for(|acked| acked.len() >= COUNT) => return,
                };
                let half = &deliveries[..deliveries.len().div_ceil(2)];
                ack(&mut *consumer, half).await;
                acked.send_modify(|acked| acked.extend(received(half)));
            }
        });
    }
    while let Some(worker) = within(workers.join_next()).await {
        worker.expect("no worker panics");
    }
    let acked = acked.borrow();
    let distinct: BTreeSet<_> = acked.iter().cloned().collect();
    assert_eq!(acked.len(), COUNT);
    assert_eq!(distinct, ids(0..COUNT).into_iter().collect());
}

pub async fn released_messages_come_back_marked(open: impl AsyncFn(usize) -> Arc<dyn Broker>) {
    let broker = open(10).await;
    publish(&*broker, "a", 0..3).await;
    let mut consumer = consume(&broker, "a", 10).await;
    for times in 1..=2 {
        let deliveries = collect(&mut *consumer, 3).await;
        within(consumer.release(&tags(&deliveries))).await.expect("the broker is there");
        let again = collect(&mut *consumer, 3).await;
        assert_eq!(received_sorted(&again), ids(0..3));
        assert!(again.iter().all(|delivery| delivery.redelivered));
        assert!(again.iter().all(|delivery| delivery.delivery_count == times * 2 - 1), "{again:?}");
        within(consumer.release(&tags(&again))).await.expect("the broker is there");
    }
}

pub async fn rejected_messages_reach_the_dead_letter_queue(open: impl AsyncFn(usize) -> Arc<dyn Broker>) {
    let broker = open(10).await;
    publish(&*broker, "a", 0..4).await;
    let mut consumer = consume(&broker, "a", 10).await;
    let deliveries = collect(&mut *consumer, 4).await;
    within(consumer.reject(&tags(&deliveries[1..3]))).await.expect("the broker is there");
    let mut undertaker = consume(&broker, DEAD_LETTER_QUEUE, 10).await;
    let dead = collect(&mut *undertaker, 2).await;
    assert_eq!(received(&dead), ids(1..3));
    assert_eq!(dead[0].message, deliveries[1].message);
    ack(&mut *undertaker, &dead).await;
    nothing_comes(&mut *undertaker).await;
    nothing_comes(&mut *consumer).await;
}

pub async fn a_rejected_dead_letter_stays_a_dead_letter(open: impl AsyncFn(usize) -> Arc<dyn Broker>) {
    let broker = open(10).await;
    publish(&*broker, DEAD_LETTER_QUEUE, 0..1).await;
    let mut undertaker = consume(&broker, DEAD_LETTER_QUEUE, 10).await;
    let dead = collect(&mut *undertaker, 1).await;
    within(undertaker.reject(&tags(&dead))).await.expect("the broker is there");
    assert_eq!(received(&collect(&mut *undertaker, 1).await), ids(0..1));
}

pub async fn poison_goes_to_the_dead_letters_after_the_delivery_limit(
    open: impl AsyncFn(usize) -> Arc<dyn Broker>,
) {
    let broker = open(10).await;
    publish(&*broker, "a", 0..1).await;
    let mut consumer = consume(&broker, "a", 10).await;
    for count in 0..=DELIVERY_LIMIT {
        let delivery = collect(&mut *consumer, 1).await;
        assert_eq!(delivery[0].delivery_count, count);
        within(consumer.release(&tags(&delivery))).await.expect("the broker is there");
    }
    nothing_comes(&mut *consumer).await;
    let mut undertaker = consume(&broker, DEAD_LETTER_QUEUE, 10).await;
    // A dead letter stays in the queue, however often it is returned.
    for _ in 0..=DELIVERY_LIMIT {
        let dead = collect(&mut *undertaker, 1).await;
        assert_eq!(received(&dead), ids(0..1));
        within(undertaker.release(&tags(&dead))).await.expect("the broker is there");
    }
    assert_eq!(received(&collect(&mut *undertaker, 1).await), ids(0..1));
}
