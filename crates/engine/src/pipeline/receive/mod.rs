//! Messages → notifications and sends. A batch is one transaction, and is acknowledged after it has committed. What it
//! claimed goes to send at once.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use campanile_broker::{BrokerError, Consumer, DEAD_LETTER_QUEUE, Delivery, Stamp, Tag};
use campanile_domain::channel::Channel;
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
/// Of a message that can't be read, what is kept for a person to look at.
const MAX_EXCERPT_CHARS: usize = 2_000;

/// So many messages of a queue are many: then batches begin no more often than every so many lingers, unless they are
/// full.
const BUSY_PER_SECOND: f64 = 2_000.0;
const BUSY_LINGERS: u32 = 5;

/// So few messages don't wait for others to be settled.
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

/// Ends with the consumer; whatever it still holds goes back to the queue. Batches that are under way are finished
/// first: what they claimed must reach its desk.
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
        // A connection that broke takes no acknowledgement; then the batch comes again, and is skipped.
        acknowledge(consumer.as_mut(), written).await.ok();
    }
    ended
}

/// The batches of one queue, several at a time: while one is written, the next is gathered.
struct Batches<'a> {
    engine: &'a Engine,
    in_flight: &'a Arc<InFlightQueue>,
    /// What is urgent does not wait for others to be received, or to be settled.
    urgent: bool,
    stop: &'a CancellationToken,
    /// Each answers what may be acknowledged.
    tasks: JoinSet<Vec<Tag>>,
    pace: Pace,
}

/// How fast messages come, and so whether it is worth while to wait for more of them.
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

    /// How long to gather. Whoever comes while nothing is under way need not wait for others. Small batches beside
    /// others cost more than they gain; and where many come, a batch costs so much less per message that even a longer
    /// wait gets all of them through sooner.
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
            // While the database is away the batch is kept, unacknowledged: giving it back would only send it in a
            // circle.
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

/// A batch that panicked is not acknowledged, and comes again.
async fn acknowledge(
    consumer: &mut dyn Consumer,
    written: Result<Vec<Tag>, JoinError>,
) -> Result<(), BrokerError> {
    match written {
        Ok(tags) => consumer.ack(&tags).await,
        Err(error) => Err(BrokerError::Unreachable(format!("the task that received a batch ended: {error}"))),
    }
}

/// Writes a batch; what can't be read or is unknown becomes a dead letter, and the rest goes on.
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
    // In key order, so that concurrent batches do not wait for each other in a circle.
    keys.sort_unstable_by_key(|arrived| arrived.key);
    let with_repetitions = keys.len();
    keys.dedup_by_key(|arrived| arrived.key);
    failed.extend(receive_keys(engine, in_flight, &keys).await?);
    count_duplicates("receive", (with_repetitions - keys.len()) as u64);
    fail_messages(engine, failed).await
}

/// A message that can be read.
#[derive(Debug, Clone, Copy)]
struct Arrived {
    key: SendKey,
    published: Option<PublishStamp>,
}

/// Whoever may write to a queue can write any stamp: one that no database would take is none.
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

/// A batch that the database refuses is bisected until the culprit is alone. Answers what has failed.
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
    count_sends(Channel::Websocket, SendStatus::Sent, written.sent);
    record_latencies(engine, &written.new);
    let waiting: HashSet<Channel> =
        received.iter().filter(|key| !key.claim).map(|key| key.key.channel).collect();
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

/// A web socket's is sent by being received.
fn record_latencies(engine: &Engine, new: &[NewSend]) {
    let now = engine.clock.now();
    for NewSend { channel, priority, event_created_at, .. } in new {
        engine.latencies.received.observe(*channel, *priority, *event_created_at, now);
        if *channel == Channel::Websocket {
            engine.latencies.sent.observe(*channel, *priority, *event_created_at, now);
        }
    }
}

fn excerpt(delivery: &Delivery) -> String {
    String::from_utf8_lossy(&delivery.message.body).chars().take(MAX_EXCERPT_CHARS).collect()
}

/// What the broker gave up on: the row fails visibly, or `recover` would publish it again for ever.
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
