//! Faults of `RabbitMQ` at run time, after which Campanile goes on.

use crate::support::proxy::Proxy;
use crate::support::witness::Witness;
use crate::support::{Place, make_good, messages, publish, receive, receive_and_ack, until, within};
use campanile_testkit::log::Log;
use std::sync::Arc;
use std::time::Duration;

use campanile_broker::{
    Broker, BrokerError, Confirm, DEAD_LETTER_QUEUE, Published, RabbitMq, RabbitMqConfig,
};
use tokio::time::timeout;

async fn open_by(proxy: &Proxy, place: &Place) -> RabbitMq {
    let config = RabbitMqConfig { url: proxy.url(), ..place.config() };
    let broker = RabbitMq::open(config).await.expect("RabbitMQ is there");
    make_good(&broker).await;
    broker
}

#[tokio::test]
async fn publishers_and_consumers_go_on_after_the_connection_was_cut() {
    let (place, mut proxy) = (Place::new(&["a"]), Proxy::up().await);
    let broker = open_by(&proxy, &place).await;
    let mut consumer = broker.consume("a", 100).await.expect("it is there");
    publish(&broker, "a", 0..10).await;
    let held = receive(&mut *consumer, 100).await;
    for round in 0..3 {
        proxy.cut().await;
        until("the cut is noticed", async || broker.publish("a", messages(0..1)).await.err()).await;
        proxy.restore().await;
        publish(&broker, "a", 10 + round..11 + round).await;
    }
    // Held messages are lost with the connection: their tags are invalid, and they are redelivered.
    let tags: Vec<_> = held.iter().map(|delivery| delivery.tag).collect();
    consumer.ack(&tags).await.ok();
    receive_and_ack(&mut *consumer, 0..13).await;
    assert_eq!(broker.losses(), Vec::<String>::new());
    until("the queue is as deep as expected", async || (broker.depths()[0].1 == 0).then_some(())).await;
    drop(broker);
    place.remove().await;
}

#[tokio::test]
async fn a_waiting_consumer_hears_of_the_cut_and_receives_afterwards() {
    let (place, mut proxy) = (Place::new(&["a"]), Proxy::up().await);
    let broker = open_by(&proxy, &place).await;
    let mut consumer = broker.consume("a", 100).await.expect("it is there");
    let (heard, ()) = tokio::join!(within(consumer.receive(1, Duration::ZERO)), proxy.cut());
    assert!(matches!(heard, Err(BrokerError::Unreachable(_))), "{heard:?}");
    proxy.restore().await;
    publish(&broker, "a", 0..5).await;
    receive_and_ack(&mut *consumer, 0..5).await;
    drop(broker);
    place.remove().await;
}

#[tokio::test]
async fn a_consumer_keeps_its_prefetch_over_a_cut() {
    let (place, mut proxy) = (Place::new(&["a"]), Proxy::up().await);
    let broker = open_by(&proxy, &place).await;
    let mut consumer = broker.consume("a", 3).await.expect("it is there");
    proxy.cut().await;
    until("the cut is noticed", async || broker.publish("a", messages(0..1)).await.err()).await;
    proxy.restore().await;
    publish(&broker, "a", 0..8).await;
    let mut held = receive(&mut *consumer, 10).await;
    while held.len() < 3 {
        held.extend(receive(&mut *consumer, 10).await);
    }
    assert_eq!(held.len(), 3);
    // Another consumer gets all the others.
    let mut other = broker.consume("a", 10).await.expect("it is there");
    receive_and_ack(&mut *other, 3..8).await;
    drop((broker, consumer, other));
    place.remove().await;
}

#[tokio::test]
async fn messages_that_were_under_way_at_the_cut_arrive() {
    let (place, mut proxy) = (Place::new(&["a"]), Proxy::up().await);
    let broker = open_by(&proxy, &place).await;
    let publishing = async {
        for batch in 0..20 {
            let cutting = async {
                if batch % 5 == 4 {
                    proxy.cut().await;
                    proxy.restore().await;
                }
            };
            tokio::join!(publish(&broker, "a", batch * 100..(batch + 1) * 100), cutting);
        }
    };
    let consuming = async {
        let mut consumer =
            until("the queue can be consumed", async || broker.consume("a", 500).await.ok()).await;
        receive_and_ack(&mut *consumer, 0..2_000).await;
    };
    tokio::join!(publishing, consuming);
    drop(broker);
    place.remove().await;
}

#[tokio::test]
async fn a_queue_that_was_deleted_is_a_loss_and_is_there_again() {
    let (place, witness) = (Place::new(&["a", "b"]), Witness::new().await);
    let broker = place.open(100).await;
    let mut consumer = broker.consume("a", 10).await.expect("it is there");
    publish(&*broker, "a", 0..2).await;
    publish(&*broker, "b", 0..2).await;
    witness.delete_queue(&place.name("a")).await;
    assert_eq!(until("the lost queue is restored", async || some(make_good(&*broker).await)).await, ["a"]);
    // Until the queue is bound again, published messages reach no queue.
    let accepted = Published::Confirmed(vec![Confirm::Accepted; 2]);
    let again =
        async || broker.publish("a", messages(2..4)).await.ok().filter(|published| *published == accepted);
    until("it is lost again", again).await;
    receive_and_ack(&mut *consumer, 2..4).await;

    // Nothing consumes this queue, so only a probe notices.
    witness.delete_queue(&place.name("b")).await;
    assert_eq!(until("the lost queue is restored", async || some(make_good(&*broker).await)).await, ["b"]);
    until("the queue is as deep as expected", async || {
        (broker.depths()[1] == ("b".to_owned(), 0)).then_some(())
    })
    .await;
    drop((broker, consumer));
    place.remove().await;
}

#[tokio::test]
async fn a_message_to_a_queue_that_was_deleted_is_refused() {
    let (place, witness) = (Place::new(&["a"]), Witness::new().await);
    let broker = place.open(100).await;
    witness.delete_queue(&place.name("a")).await;
    let Ok(Published::Confirmed(confirms)) = broker.publish("a", messages(0..2)).await else {
        panic!("the broker is there");
    };
    assert!(confirms.iter().all(|confirm| matches!(confirm, Confirm::Refused { .. })), "{confirms:?}");
    assert_eq!(until("the lost queue is restored", async || some(make_good(&*broker).await)).await, ["a"]);
    drop(broker);
    place.remove().await;
}

#[tokio::test]
async fn a_queue_that_was_purged_is_no_loss_and_has_capacity() {
    let (place, witness) = (Place::new(&["a"]), Witness::new().await);
    let broker = place.open(10).await;
    publish(&*broker, "a", 0..10).await;
    let capacity = broker.wait_for_capacity("a");
    assert!(broker.is_full("a"));
    witness.purge(&place.name("a")).await;
    within(capacity).await;
    assert!(!broker.is_full("a"));
    publish(&*broker, "a", 10..12).await;
    receive_and_ack(&mut *broker.consume("a", 10).await.expect("it is there"), 10..12).await;
    assert_eq!(broker.losses(), Vec::<String>::new());
    drop(broker);
    place.remove().await;
}

/// Quorum queues may hang for good after a deletion that overlaps with a declaration, or after a purge. The rest of the
/// broker works.
#[tokio::test]
async fn a_queue_that_does_not_answer_holds_up_no_other() {
    let log = Log::listen();
    let (place, mut proxy) = (Place::new(&["hangs", "well"]), Proxy::up().await);
    let broker = open_by(&proxy, &place).await;
    let mut consumer = broker.consume("well", 10).await.expect("it is there");
    log.take();

    proxy.leave_unheard(Some(place.name("hangs")));
    until("the queue hangs", async || broker.consume("hangs", 10).await.err()).await;
    // The connection is the same as before, so what waited on it continues.
    publish(&broker, "well", 0..5).await;
    receive_and_ack(&mut *consumer, 0..5).await;
    assert_eq!(broker.unavailable_reason(), None);
    let refused = broker.publish("hangs", messages(0..1)).await.expect_err("it is left alone");
    assert!(refused.to_string().contains("the queue `hangs` does not answer"), "{refused}");
    let lines = log.take();
    let told = |line: &String| line.starts_with("WARN") && line.contains(&place.name("hangs"));
    assert!(!lines.is_empty() && lines.iter().all(told), "{lines:?}");

    // It does not prevent connecting either.
    proxy.cut().await;
    proxy.restore().await;
    publish(&broker, "well", 5..10).await;
    receive_and_ack(&mut *consumer, 5..10).await;
    assert_eq!(broker.losses(), Vec::<String>::new());

    proxy.leave_unheard(None);
    publish(&broker, "hangs", 0..3).await;
    receive_and_ack(
        &mut *until("the queue can be consumed", async || broker.consume("hangs", 10).await.ok()).await,
        0..3,
    )
    .await;
    drop((broker, consumer));
    place.remove().await;
}

/// A channel that lost confirms, as happens when a queue is deleted and created again, may never get any more.
#[tokio::test]
async fn what_was_never_confirmed_is_published_again_over_another_channel() {
    let (place, proxy) = (Place::new(&["a", "b"]), Proxy::up().await);
    let broker = open_by(&proxy, &place).await;
    publish(&broker, "b", 0..1).await;
    proxy.keep_confirms(true);
    let unconfirmed = timeout(Duration::from_mins(1), broker.publish("a", messages(0..1_000))).await;
    let unconfirmed = unconfirmed.expect("nobody waits for ever").expect_err("nobody heard");
    assert!(unconfirmed.to_string().contains("did not confirm"), "{unconfirmed}");
    proxy.keep_confirms(false);
    // More than may be unconfirmed at a time, so that a missing confirm would be noticed.
    let opened = proxy.channels_opened();
    publish(&broker, "a", 0..1_000).await;
    publish(&broker, "b", 1..2).await;
    assert_eq!(proxy.channels_opened() - opened, 1, "the other queue keeps its own");
    receive_and_ack(&mut *broker.consume("a", 1_000).await.expect("it is there"), 0..1_000).await;
    drop(broker);
    place.remove().await;
}

#[tokio::test]
async fn whoever_waits_for_confirms_of_a_lost_queue_holds_up_nobody_who_publishes_to_the_next() {
    let (place, proxy, witness) = (Place::new(&["a"]), Proxy::up().await, Witness::new().await);
    let broker = Arc::new(open_by(&proxy, &place).await);
    proxy.keep_confirms(true);
    let waiting = tokio::spawn({
        let broker = Arc::clone(&broker);
        async move { broker.publish("a", messages(0..1_000)).await }
    });
    // All that it may send before the first confirm.
    until("the messages wait in the queue", async || {
        (witness.count(&place.name("a")).await == 300).then_some(())
    })
    .await;
    witness.delete_queue(&place.name("a")).await;
    assert_eq!(until("the lost queue is restored", async || some(make_good(&*broker).await)).await, ["a"]);
    proxy.keep_confirms(false);
    let published = publish(&*broker, "a", 0..1_000);
    timeout(Duration::from_secs(15), published).await.expect("it waits for no confirm that will not come");
    assert!(!waiting.is_finished());
    waiting.abort();
    drop(broker);
    place.remove().await;
}

#[tokio::test]
async fn beside_something_urgent_little_is_unconfirmed() {
    let (place, proxy, witness) = (Place::new(&["a", "a.high"]), Proxy::up().await, Witness::new().await);
    let broker = Arc::new(open_by(&proxy, &place).await);
    proxy.keep_confirms(true);
    let publishing = |queue: &'static str, count: usize| {
        let broker = Arc::clone(&broker);
        tokio::spawn(async move { broker.publish(queue, messages(0..count)).await })
    };
    let urgent = publishing("a.high", 1);
    until("the messages wait in the queue", async || {
        (witness.count(&place.name("a.high")).await == 1).then_some(())
    })
    .await;
    let other = publishing("a", 1_000);
    until("the messages wait in the queue", async || {
        (witness.count(&place.name("a")).await >= 40).then_some(())
    })
    .await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(witness.count(&place.name("a")).await, 40);
    [urgent, other].iter().for_each(tokio::task::JoinHandle::abort);
    drop(broker);
    place.remove().await;
}

/// Every instance probes several times a second, and opening a channel costs the broker more than a probe.
#[tokio::test]
async fn probing_queues_opens_no_channel_each_time() {
    let (place, witness, proxy) = (Place::new(&["a"]), Witness::new().await, Proxy::up().await);
    let broker = open_by(&proxy, &place).await;
    // Each probe of a lost queue costs a channel.
    publish(&broker, "a", 0..5_000).await;
    let mut opened = Vec::new();
    for _ in 0..4 {
        let capacity = broker.wait_for_capacity("a");
        assert!(broker.is_full("a"));
        witness.purge(&place.name("a")).await;
        within(capacity).await;
        opened.push(proxy.channels_opened());
        publish(&broker, "a", 0..5_000).await;
    }
    // The first probe of the dead letters, which may come in between, opens the last channel.
    assert!(opened[0] > 0 && opened[3] - opened[0] <= 1, "{opened:?}");
    drop(broker);
    place.remove().await;
}

/// An outage of hours must not fill the log, and a first start must not look like an accident.
#[tokio::test]
async fn what_is_worth_a_line_is_logged_once() {
    let log = Log::listen();
    let (place, witness, mut proxy) = (Place::new(&["a", "b"]), Witness::new().await, Proxy::up().await);
    let broker = open_by(&proxy, &place).await;
    let lines = log.take();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].starts_with("INFO message=no Campanile queues exist in RabbitMQ yet"), "{lines:?}");
    assert!(lines[1].starts_with("INFO message=connected to RabbitMQ"), "{lines:?}");

    proxy.cut().await;
    within(proxy.slam(4)).await;
    proxy.restore().await;
    until("the broker is back", async || broker.unavailable_reason().is_none().then_some(())).await;
    let mut lines = log.take();
    let back = lines.pop().expect("there was an outage");
    let duration = back.strip_prefix("INFO message=RabbitMQ is back after ").expect("it says for how long");
    assert!(duration.starts_with(|digit: char| digit.is_ascii_digit()), "{back}");
    assert!(!lines.is_empty() && lines.iter().all(|line| line.starts_with("WARN ")), "{lines:?}");
    let said = lines.len();
    lines.sort();
    lines.dedup();
    assert_eq!(lines.len(), said, "{lines:?}");

    witness.delete_queue(&place.name("b")).await;
    until("the loss is noticed", async || some(broker.losses())).await;
    let lines = log.take();
    assert!(
        lines.len() == 1 && lines[0].starts_with("WARN ") && lines[0].contains("queue=\"b\""),
        "{lines:?}"
    );
    drop(broker);
    place.remove().await;
}

#[tokio::test]
async fn what_another_instance_acknowledges_frees_capacity() {
    let place = Place::new(&["a"]);
    let (one, other) = (place.open(10).await, place.open(10).await);
    publish(&*one, "a", 0..10).await;
    assert_eq!(one.publish("a", messages(10..11)).await.expect("it is there"), Published::Full);
    let capacity = one.wait_for_capacity("a");
    receive_and_ack(&mut *other.consume("a", 10).await.expect("it is there"), 0..10).await;
    within(capacity).await;
    publish(&*one, "a", 10..20).await;
    // A restart finds the existing messages.
    drop(one);
    let one = place.open(10).await;
    assert!(one.is_full("a"));
    drop((one, other));
    place.remove().await;
}

#[tokio::test]
async fn the_dead_letter_queue_is_restored_too() {
    let (place, witness) = (Place::new(&["a"]), Witness::new().await);
    let broker = place.open(10).await;
    witness.delete_queue(&place.name(DEAD_LETTER_QUEUE)).await;
    assert_eq!(
        until("the lost queue is restored", async || some(make_good(&*broker).await)).await,
        [DEAD_LETTER_QUEUE]
    );
    drop(broker);
    place.remove().await;
}

fn some(losses: Vec<String>) -> Option<Vec<String>> {
    Some(losses).filter(|losses| !losses.is_empty())
}
