//! The checks that every broker passes.
//!
//! [`for_each_check!`](crate::for_each_check) lists all checks; a broker's test file makes one test of each. A check
//! that is missing in the list is dead code, which the compiler reports.
//!
//! Each check opens a new broker by `open(limit)`, with the queues [`QUEUES`] and at most `limit` undelivered messages
//! per queue. A check does not rely on properties of memory: messages may arrive one by one, returned messages may
//! change their order, and a consumer may hold more than it has handed out. No check sleeps. To see that nothing comes,
//! a check waits for [`QUIET`], which is instant in virtual time.

mod deliver;
mod limit;
mod settle;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use crate::{
    Broker, CapacityWait, Confirm, Consumer, DEAD_LETTER_QUEUE, Delivery, Message, Published, Stamp, Tag,
};

/// The queues of the broker that a check opens.
pub const QUEUES: [&str; 3] = ["a", "b", DEAD_LETTER_QUEUE];

/// How long a check waits to see that nothing comes.
pub const QUIET: Duration = Duration::from_millis(200);

/// How long a check waits for something that must come.
pub const GUARD: Duration = Duration::from_secs(30);

/// Calls the given macro with the list of checks, as `group::check`.
#[macro_export]
macro_rules! for_each_check {
    ($with:ident) => {
        $with! {
            deliver::what_is_published_is_received_in_order
            deliver::a_message_arrives_as_it_was_sent
            deliver::a_queue_that_does_not_exist_refuses_each_message
            deliver::a_queue_that_does_not_exist_cannot_be_consumed
            deliver::a_publish_of_nothing_is_confirmed
            deliver::receive_waits_for_the_first_message
            deliver::receive_takes_no_more_than_asked
            deliver::receive_returns_what_is_there_when_linger_ends
            deliver::receive_does_not_linger_once_it_has_what_was_asked
            deliver::receive_is_cancel_safe
            deliver::two_consumers_share_a_queue_and_no_message_is_given_twice
            deliver::ten_thousand_messages_arrive_exactly_once
            deliver::a_consumer_whose_broker_is_gone_hears_that_it_is_closed
            deliver::losses_are_reported_until_they_are_made_good
            settle::acked_messages_never_return
            settle::a_part_of_a_batch_is_acked_without_the_rest
            settle::settling_twice_changes_nothing
            settle::an_unacknowledged_message_is_delivered_again_when_its_consumer_goes
            settle::a_waiting_consumer_gets_what_another_gives_back
            settle::nothing_is_lost_while_consumers_come_and_go
            settle::released_messages_come_back_marked
            settle::rejected_messages_reach_the_dead_letter_queue
            settle::a_rejected_dead_letter_stays_a_dead_letter
            settle::poison_goes_to_the_dead_letters_after_the_delivery_limit
            limit::a_full_queue_takes_nothing_and_says_so
            limit::a_publish_is_taken_whole_or_not_at_all
            limit::a_publish_beyond_the_limit_is_taken_by_an_empty_queue
            limit::a_full_queue_does_not_block_another
            limit::dead_letters_have_no_limit
            limit::capacity_wakes_after_acks
            limit::capacity_wakes_after_rejects
            limit::capacity_counts_from_its_call
            limit::capacity_is_notified_once_there_is_enough_and_to_nobody_else
            limit::a_queue_that_does_not_exist_never_reports_capacity
            limit::prefetch_bounds_what_a_consumer_holds
            limit::depths_count_what_is_not_acknowledged
        }
    };
}

macro_rules! export {
    ($($group:ident :: $check:ident)+) => { $(pub use $group::$check;)+ };
}
for_each_check!(export);

/// Messages with these numbers as ids, padded with zeros so that they sort.
fn messages(numbers: Range<usize>) -> Vec<Message> {
    numbers
        .map(|number| Message {
            id: id(number),
            body: format!("{{\"n\":{number}}}").into_bytes().into(),
            stamp: (number % 2 == 1).then_some(Stamp { instance: 17, at_ms: 1_789_000_000_123 }),
        })
        .collect()
}

fn id(number: usize) -> String {
    format!("{number:05}")
}

fn ids(numbers: Range<usize>) -> Vec<String> {
    numbers.map(id).collect()
}

/// Publishes these messages and expects each to be accepted.
async fn publish(broker: &dyn Broker, queue: &str, numbers: Range<usize>) {
    let accepted = Published::Confirmed(vec![Confirm::Accepted; numbers.len()]);
    assert_eq!(try_publish(broker, queue, numbers).await, accepted);
}

async fn try_publish(broker: &dyn Broker, queue: &str, numbers: Range<usize>) -> Published {
    within(broker.publish(queue, messages(numbers))).await.expect("the broker is there")
}

/// Publishes these messages as soon as there is room for them.
async fn publish_when_there_is_capacity(broker: &dyn Broker, queue: &str, numbers: Range<usize>) {
    loop {
        let capacity = broker.wait_for_capacity(queue);
        match try_publish(broker, queue, numbers.clone()).await {
            Published::Full => within(capacity).await,
            Published::Confirmed(confirms) => {
                return assert_eq!(confirms, vec![Confirm::Accepted; numbers.len()]);
            }
        }
    }
}

async fn consume(broker: &Arc<dyn Broker>, queue: &str, prefetch: usize) -> Box<dyn Consumer> {
    within(broker.consume(queue, prefetch)).await.expect("the queue exists")
}

/// Receives until it has `count` messages.
async fn collect(consumer: &mut dyn Consumer, count: usize) -> Vec<Delivery> {
    let mut collected = Vec::with_capacity(count);
    while collected.len() < count {
        let rest = count - collected.len();
        let received = within(consumer.receive(rest, Duration::ZERO)).await.expect("the broker is there");
        assert!((1..=rest).contains(&received.len()), "asked for {rest}, received {}", received.len());
        collected.extend(received);
    }
    collected
}

async fn ack(consumer: &mut dyn Consumer, deliveries: &[Delivery]) {
    within(consumer.ack(&tags(deliveries))).await.expect("the broker is there");
}

async fn stays_silent(capacity: CapacityWait<'_>) {
    timeout(QUIET, capacity).await.expect_err("nobody was to be woken");
}

async fn nothing_comes(consumer: &mut dyn Consumer) {
    if let Ok(received) = timeout(QUIET, consumer.receive(1, Duration::ZERO)).await {
        panic!("nothing was to come, but {received:?}");
    }
}

fn tags(deliveries: &[Delivery]) -> Vec<Tag> {
    deliveries.iter().map(|delivery| delivery.tag).collect()
}

fn received(deliveries: &[Delivery]) -> Vec<String> {
    deliveries.iter().map(|delivery| delivery.message.id.clone()).collect()
}

/// The received ids, sorted.
fn received_sorted(deliveries: &[Delivery]) -> Vec<String> {
    let mut ids = received(deliveries);
    ids.sort();
    ids
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    timeout(GUARD, future).await.expect("this takes no time worth mentioning")
}
