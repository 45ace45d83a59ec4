//! Turns messages into notifications and sends. A batch is one transaction and is acknowledged after the commit. Sends
//! that the transaction claimed go to the stage `send` at once.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use campanile_broker::{BrokerError, Consumer, DEAD_LETTER_QUEUE, Delivery, Stamp, Tag};
use campanile_domain::channel::{Channel, PerChannel};
use campanile_domain::event::Failure;
use campanile_domain::id::SendKey;
use campanile_domain::queue::Queue;
use campanile_domain::status::SendStatus;
use campanile_domain::time::Timestamp;
use campanile_store::{FailedMessage, InstanceId, NewSend, PublishStamp, ReceivedKey, Signal, StoreError};
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::Engine;
use crate::backoff::Backoff;
use crate::lease_deadline::LeaseDeadline;
use crate::pipeline::MAX_FAILURES;
use crate::pipeline::send::InFlightQueue;
use crate::telemetry::stage_cpu::Timed;
use crate::telemetry::{RECEIVED, count_dead_letters, count_duplicates, count_sends};

const FORGED: &str = "UNKNOWN_MESSAGE";
const UNREADABLE: &str = "UNREADABLE_MESSAGE";
const REFUSED: &str = "RECEIVE_ERROR";
const DEAD: &str = "DEAD_LETTERED";
/// The maximum length of the excerpt of an unreadable message that is kept for operators.
const MAX_EXCERPT_CHARS: usize = 2_000;

/// From this rate on a queue counts as busy. Then a batch that is not full begins at the earliest `BUSY_LINGERS`
/// lingers after the last one: 1 × 1 5,900 → 7,400/s (decision 0024).
const BUSY_PER_SECOND: f64 = 2_000.0;
const BUSY_LINGERS: u32 = 5;

/// Batches up to this size do not wait until enough outcomes are settled. So `HIGH` batches do not wait either.
const SMALL_BATCH: usize = 20;

pub async fn run(engine: Engine, in_flight: Arc<InFlightQueue>, queue: Queue, stop: CancellationToken) {
    let mut backoff = Backoff::new();
    while !stop.is_cancelled() {
        if let Err(error) = consume(&engine, &in_flight, &queue, &stop, &mut backoff).await {
            if backoff.is_worth_logging() {
                engine.signals.record_broker_failure("receive", &error);
            }
            backoff.wait(&stop).await;
        }
    }
}

/// Consumes messages until the consumer ends. Messages that the consumer still holds return to the queue. Batches in
/// progress are finished first, so that the sends that they claimed reach the in-flight queue.
async fn consume(
    engine: &Engine,
    in_flight: &Arc<InFlightQueue>,
    queue: &Queue,
    stop: &CancellationToken,
    backoff: &mut Backoff,
) -> Result<(), BrokerError> {
    let mut consumer = engine.broker.consume(queue.as_str(), engine.config.receive.prefetch).await?;
    let mut in_progress = Batches::new(engine, in_flight, queue, stop);
    let ended = in_progress.run(consumer.as_mut(), backoff).await;
    while let Some(written) = in_progress.tasks.join_next().await {
        // A broken connection takes no acknowledgement. The batch is then redelivered and skipped as a duplicate.
        acknowledge(consumer.as_mut(), written).await.ok();
    }
    ended
}

/// The batches of one queue, several at a time: while one is written, the next one is gathered.
struct Batches<'a> {
    engine: &'a Engine,
    in_flight: &'a Arc<InFlightQueue>,
    /// Urgent batches wait neither for a permit nor for outcomes to be settled.
    urgent: bool,
    stop: &'a CancellationToken,
    /// Each task returns the messages that may be acknowledged.
    tasks: JoinSet<Vec<Tag>>,
    pace: Pace,
}

/// The rate of messages, which decides whether it is worth waiting for more of them.
#[derive(Debug)]
struct Pace {
    last_batch: Instant,
    per_second: f64,
}

impl Pace {
    fn new(now: Instant) -> Self {
        Pace { last_batch: now, per_second: 0.0 }
    }

    fn batch(&mut self, messages: usize, now: Instant) {
        let passed = now.saturating_duration_since(self.last_batch).max(Duration::from_millis(1));
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        let lately = messages as f64 / passed.as_secs_f64();
        self.per_second = 0.7 * self.per_second + 0.3 * lately;
        self.last_batch = now;
    }

    /// How long to gather a batch.
    ///
    /// With no batch in progress, a message does not wait. If another batch is in progress, it waits a little, because
    /// small concurrent batches wait for each other. PostgreSQL: 77 → 62 µs per notification (decision 0024). On a busy
    /// queue a larger batch costs so much less per message that a longer wait gets all messages through sooner.
    fn linger(&self, linger: Duration, in_progress: bool, now: Instant) -> Duration {
        if self.per_second >= BUSY_PER_SECOND {
            (linger * BUSY_LINGERS).saturating_sub(now.saturating_duration_since(self.last_batch))
        } else if in_progress {
            linger
        } else {
            Duration::ZERO
        }
    }
}

impl<'a> Batches<'a> {
    fn new(
        engine: &'a Engine,
        in_flight: &'a Arc<InFlightQueue>,
        queue: &Queue,
        stop: &'a CancellationToken,
    ) -> Self {
        Batches {
            engine,
            in_flight,
            urgent: queue.is_urgent(),
            stop,
            tasks: JoinSet::new(),
            pace: Pace::new(Instant::now()),
        }
    }

    async fn run(&mut self, consumer: &mut dyn Consumer, backoff: &mut Backoff) -> Result<(), BrokerError> {
        let config = &self.engine.config.receive;
        loop {
            let linger = self.pace.linger(config.linger, !self.tasks.is_empty(), Instant::now());
            tokio::select! {
                () = self.stop.cancelled() => return Ok(()),
                Some(written) = self.tasks.join_next() => {
                    backoff.reset();
                    acknowledge(consumer, written).await?;
                }
                deliveries = consumer.receive(config.batch, linger), if self.tasks.len() < config.workers => {
                    self.start(deliveries?);
                }
            }
        }
    }

    fn start(&mut self, deliveries: Vec<Delivery>) {
        self.pace.batch(deliveries.len(), Instant::now());
        let (engine, in_flight, stop) = (self.engine.clone(), Arc::clone(self.in_flight), self.stop.clone());
        let urgent = self.urgent;
        let written = async move {
            let mut backoff = Backoff::new();
            if !urgent && deliveries.len() > SMALL_BATCH {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = in_flight.settle_capacity() => {}
                }
            }
            let _permit = if urgent { None } else { engine.batches.acquire().await.ok() };
            // During an outage of the database the batch is kept unacknowledged. Returning it to the broker would only
            // redeliver it in a loop.
            while let Err(error) = receive(&engine, &in_flight, &deliveries).await {
                if stop.is_cancelled() {
                    return Vec::new();
                }
                engine.signals.database.record_failure("receive", &error);
                backoff.wait(&stop).await;
            }
            engine.signals.database.record_success("receive");
            fail::fail_point!("receive.after_commit");
            deliveries.iter().map(|delivery| delivery.tag).collect()
        };
        self.tasks.spawn(Timed::new("receive", written));
    }
}

/// Acknowledges a written batch. If its task panicked, the error ends the consumer and the messages are redelivered.
async fn acknowledge(
    consumer: &mut dyn Consumer,
    written: Result<Vec<Tag>, JoinError>,
) -> Result<(), BrokerError> {
    match written {
        Ok(tags) => consumer.ack(&tags).await,
        Err(error) => Err(BrokerError::Unreachable(format!("the task that received a batch ended: {error}"))),
    }
}

/// Writes a batch. Unreadable and unknown messages become dead letters; the other messages are received.
pub async fn receive(
    engine: &Engine,
    in_flight: &InFlightQueue,
    deliveries: &[Delivery],
) -> Result<(), StoreError> {
    let mut keys = Vec::with_capacity(deliveries.len());
    let mut failed = Vec::new();
    for delivery in deliveries {
        match delivery.message.id.parse::<SendKey>() {
            Ok(key) => keys.push(Arrived { key, published: delivery.message.stamp.and_then(published) }),
            Err(error) => failed.push(FailedMessage {
                key: None,
                failure: Failure::new(UNREADABLE, error.to_string()),
                message: Some(excerpt(delivery)),
            }),
        }
    }
    // Rows are locked in key order, so that concurrent batches cannot deadlock.
    keys.sort_unstable_by_key(|arrived| arrived.key);
    let with_repetitions = keys.len();
    keys.dedup_by_key(|arrived| arrived.key);
    failed.extend(receive_keys(engine, in_flight, &keys).await?);
    count_duplicates("receive", (with_repetitions - keys.len()) as u64);
    fail_messages(engine, failed).await
}

/// A message with a readable key.
#[derive(Debug, Clone, Copy)]
struct Arrived {
    key: SendKey,
    published: Option<PublishStamp>,
}

/// The stamp of a message, if the database accepts its time. Any client that may write to a queue can write any stamp.
fn published(stamp: Stamp) -> Option<PublishStamp> {
    let at = Timestamp::from_millisecond(stamp.at_ms).ok().filter(|at| *at >= Timestamp::UNIX_EPOCH)?;
    Some(PublishStamp { at, by: InstanceId(stamp.instance) })
}

async fn fail_messages(engine: &Engine, failed: Vec<FailedMessage>) -> Result<(), StoreError> {
    if failed.is_empty() {
        return Ok(());
    }
    let dead_letters = failed.len() as u64;
    engine.store.fail_messages(failed).await?;
    count_dead_letters("receive", dead_letters);
    Ok(())
}

/// Stores the messages of a batch and returns those that failed. If the database refuses a batch, it is bisected until
/// the refused message is alone.
async fn receive_keys(
    engine: &Engine,
    in_flight: &InFlightQueue,
    keys: &[Arrived],
) -> Result<Vec<FailedMessage>, StoreError> {
    let mut failed = Vec::new();
    let mut batches: Vec<(&[Arrived], u32)> = vec![(keys, 1)];
    while let Some((batch, tries)) = batches.pop() {
        match receive_batch(engine, in_flight, batch).await {
            Ok(unknown) => failed.extend(unknown.into_iter().map(|key| FailedMessage {
                key: Some(key),
                failure: Failure::new(
                    FORGED,
                    format!(
                        "no outbox row with the key {key}: the message is forged, \
                    or its row has been deleted by retention"
                    ),
                ),
                message: None,
            })),
            Err(StoreError::Refused(_)) if batch.len() > 1 => {
                let (left, right) = batch.split_at(batch.len() / 2);
                batches.extend([(right, 1), (left, 1)]);
            }
            Err(StoreError::Refused(_)) if tries < MAX_FAILURES => batches.push((batch, tries + 1)),
            Err(StoreError::Refused(error)) => {
                tracing::error!(key = %batch[0].key, %error, "a message could not be stored; a dead letter is written");
                failed.push(FailedMessage {
                    key: Some(batch[0].key),
                    failure: Failure::new(REFUSED, error.to_string()),
                    message: None,
                });
            }
            Err(error) => return Err(error),
        }
    }
    Ok(failed)
}

async fn receive_batch(
    engine: &Engine,
    in_flight: &InFlightQueue,
    arrived: &[Arrived],
) -> Result<Vec<SendKey>, StoreError> {
    if arrived.is_empty() {
        return Ok(Vec::new());
    }
    let mut permits = in_flight.reserve(arrived.iter().map(|arrived| arrived.key.channel));
    let received: Vec<ReceivedKey> = arrived
        .iter()
        .map(|&Arrived { key, published }| ReceivedKey { key, claim: permits.take(key.channel), published })
        .collect();
    let lease_deadline = LeaseDeadline::after(engine.config.lease);
    fail::fail_point!("receive.before_commit");
    let written = engine.store.receive(received.clone(), &engine.instance, engine.config.lease).await?;
    let known = (arrived.len() - written.unknown.len()) as u64;
    metrics::counter!(RECEIVED).increment(known - written.redelivered);
    count_duplicates("receive", written.redelivered);
    record_new(engine, &written.new);
    let due = received.iter().filter(|key| key.birth() == SendStatus::Due);
    let waiting: HashSet<Channel> = due.map(|key| key.key.channel).collect();
    in_flight.enqueue(written.jobs, lease_deadline, permits);
    if !waiting.is_empty() {
        engine.notify(Signal::Sends);
    }
    for channel in waiting {
        engine.signals.due(channel).notify_waiters();
    }
    engine.completion.received(written.new.into_iter().map(|new| new.event_id));
    engine.completion.add_candidates(written.redelivered_events);
    Ok(written.unknown)
}

/// Records the latency until each row was received. Messages of channels that are sent on receipt also count as sent.
fn record_new(engine: &Engine, new: &[NewSend]) {
    let now = engine.clock.now();
    let mut sent: PerChannel<u64> = PerChannel::default();
    for NewSend { channel, priority, event_created_at, .. } in new {
        engine.latencies.received.observe(*channel, *priority, *event_created_at, now);
        if channel.is_sent_on_receipt() {
            engine.latencies.sent.observe(*channel, *priority, *event_created_at, now);
            *sent.get_mut(*channel) += 1;
        }
    }
    for (channel, &sends) in sent.iter().filter(|(_, sends)| **sends > 0) {
        count_sends(channel, SendStatus::Sent, sends);
    }
}

fn excerpt(delivery: &Delivery) -> String {
    String::from_utf8_lossy(&delivery.message.body).chars().take(MAX_EXCERPT_CHARS).collect()
}

/// Fails the rows of messages that the broker dead-lettered. Otherwise `recover` would publish them again and again.
pub async fn run_dead_letters(engine: Engine, stop: CancellationToken) {
    let mut backoff = Backoff::new();
    while !stop.is_cancelled() {
        let consumed = async {
            let mut consumer =
                engine.broker.consume(DEAD_LETTER_QUEUE, engine.config.receive.prefetch).await?;
            consume_dead_letters(&engine, consumer.as_mut(), &stop).await
        };
        if let Err(error) = consumed.await {
            if backoff.is_worth_logging() {
                engine.signals.record_broker_failure("dead letters", &error);
            }
            backoff.wait(&stop).await;
        }
    }
}

async fn consume_dead_letters(
    engine: &Engine,
    consumer: &mut dyn Consumer,
    stop: &CancellationToken,
) -> Result<(), BrokerError> {
    let config = &engine.config.receive;
    let mut backoff = Backoff::new();
    loop {
        let deliveries = tokio::select! {
            () = stop.cancelled() => return Ok(()),
            deliveries = consumer.receive(config.batch, config.linger) => deliveries?,
        };
        let failed: Vec<FailedMessage> = deliveries
            .iter()
            .map(|delivery| FailedMessage {
                key: delivery.message.id.parse().ok(),
                failure: Failure::new(DEAD, "the broker moved the message to the dead-letter queue"),
                message: Some(excerpt(delivery)),
            })
            .collect();
        while let Err(error) = fail_messages(engine, failed.clone()).await {
            if stop.is_cancelled() {
                return Ok(());
            }
            engine.signals.database.record_failure("dead letters", &error);
            backoff.wait(stop).await;
        }
        backoff.reset();
        engine.signals.database.record_success("dead letters");
        consumer.ack(&deliveries.iter().map(|delivery| delivery.tag).collect::<Vec<_>>()).await?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINGER: Duration = Duration::from_millis(10);

    #[test]
    fn whoever_comes_alone_does_not_wait() {
        let (mut pace, mut now) = (Pace::new(Instant::now()), Instant::now());
        for _ in 0..100 {
            now += Duration::from_millis(100);
            assert_eq!(pace.linger(LINGER, false, now), Duration::ZERO);
            assert_eq!(pace.linger(LINGER, true, now), LINGER);
            pace.batch(100, now);
        }
    }

    #[test]
    fn where_many_come_batches_take_their_time() {
        let (mut pace, mut now) = (Pace::new(Instant::now()), Instant::now());
        for _ in 0..20 {
            now += LINGER;
            pace.batch(50, now);
        }
        assert_eq!(pace.linger(LINGER, false, now), LINGER * 5);
        assert_eq!(pace.linger(LINGER, true, now + LINGER * 2), LINGER * 3);
        assert_eq!(pace.linger(LINGER, true, now + LINGER * 9), Duration::ZERO);
        for _ in 0..20 {
            now += LINGER * 5;
            pace.batch(20, now);
        }
        assert_eq!(pace.linger(LINGER, false, now), Duration::ZERO, "it is calm again");
    }
}
