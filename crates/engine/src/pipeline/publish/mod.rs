//! Publishes outbox rows to the broker, with confirms. Fan-out hands chunks over in memory. Chunks that exceeded the
//! hand-over's capacity, or whose holder died, come from the database. Each queue has its own loop, so that no queue
//! delays another.

mod chunks;
mod confirm;
mod handover;
mod tasks;

use std::pin::pin;
use std::time::{Duration, Instant};

use campanile_broker::{BrokerError, Message, Published, Stamp};
use campanile_domain::message;
use campanile_domain::queue::Queue;
use campanile_store::{Chunk, ChunkRow, StoreError};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use crate::Engine;
use crate::backoff::Backoff;
use crate::idle_backoff::IdleBackoff;
use confirm::record_confirms;
use handover::{HANDOVER_CHUNKS, groups};
use tasks::{PublishTasks, Source};

pub use chunks::chunks;
pub use handover::{ChunkReceiver, Handover, QueueCapacity, handover};

/// A chunk waits for capacity in its queue for this fraction of its lease. Then it is released, so that any instance
/// may claim it.
const LEASE_DIVISOR: u32 = 4;
/// Lower bound of the poll interval, whatever is configured.
const SHORTEST_TICK: Duration = Duration::from_millis(1);

/// Publishes to one queue. Each round takes all chunks that were handed over since the last one, because most chunks
/// are small and confirms are slow.
pub async fn run(engine: Engine, queue: Queue, handed: ChunkReceiver, stop: CancellationToken) {
    let mut handed = handed.lock().await;
    let mut backoff = Backoff::new();
    let chunk_signal = engine.signals.chunks(&queue);
    // The database is polled after a signal, after the queue has capacity again, and at a tick. Ticks are skipped while
    // the idle backoff lasts.
    let (mut polled_version, mut idle_backoff) = (None, IdleBackoff::default());
    // The broker reports regained capacity only once, so this future is kept across rounds until it completes.
    let mut capacity = engine.broker.wait_for_capacity(queue.as_str());
    let (mut in_progress, mut handed_over) = (PublishTasks::default(), Vec::new());
    // The tick does not depend on signals, because no signal reports an expired lease.
    let mut tick = interval(engine.config.publish.poll_interval.max(SHORTEST_TICK));
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while !stop.is_cancelled() {
        let signal = chunk_signal.notified();
        let version = chunk_signal.version();
        if polled_version != Some(version) && in_progress.may_poll() {
            in_progress.poll(&engine, &queue, version, &stop);
        }
        let ended = tokio::select! {
            () = stop.cancelled() => break,
            ended = in_progress.next() => ended,
            1.. = handed.recv_many(&mut handed_over, HANDOVER_CHUNKS), if in_progress.has_capacity() => {
                for group in groups(std::mem::take(&mut handed_over)) {
                    in_progress.publish(&engine, group, &stop);
                }
                continue;
            }
            () = signal => continue,
            () = &mut capacity => {
                capacity = engine.broker.wait_for_capacity(queue.as_str());
                polled_version = None;
                continue;
            }
            _ = tick.tick() => {
                if idle_backoff.is_over(Instant::now()) {
                    polled_version = None;
                }
                continue;
            }
        };
        if ended.1.is_ok() {
            engine.signals.database.record_success("publish");
        }
        match ended {
            (_, Ok(PublishOutcome::Done)) => backoff.reset(),
            (Source::Database(version), Ok(PublishOutcome::NonePending { took })) => {
                polled_version = Some(version);
                idle_backoff = IdleBackoff::after(took, Instant::now());
            }
            (Source::Database(version), Ok(PublishOutcome::QueueFull)) => polled_version = Some(version),
            (Source::Handover, Ok(PublishOutcome::NonePending { .. } | PublishOutcome::QueueFull)) => {}
            (_, Err(error)) => {
                if backoff.is_worth_logging() {
                    error.record(&engine, "publish");
                }
                backoff.wait(&stop).await;
            }
        }
    }
    in_progress.finish().await;
}

/// The result of publishing, which decides whether to poll again at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PublishOutcome {
    Done,
    /// No chunk waits; wait for a signal. `took` is the duration of the poll.
    NonePending {
        took: Duration,
    },
    /// The queue is full; wait until it has capacity.
    QueueFull,
}

#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Broker(#[from] BrokerError),
}

impl PublishError {
    /// Records whether the database or the broker is unavailable.
    pub fn record(&self, engine: &Engine, stage: &'static str) {
        match self {
            PublishError::Store(error) => engine.signals.database.record_failure(stage, error),
            PublishError::Broker(error) => engine.signals.record_broker_failure(stage, error),
        }
    }
}

/// Publishes one chunk that waits in the database, if there is one. It is claimed even if the queue is full, and then
/// waits for capacity. Otherwise chunks that are handed over would always take the capacity first.
pub async fn publish_pending_chunk(
    engine: &Engine,
    queue: &Queue,
    stop: &CancellationToken,
) -> Result<PublishOutcome, PublishError> {
    let begun = Instant::now();
    match engine.store.claim_chunk(queue, engine.config.lease).await? {
        Some(chunk) => publish(engine, vec![chunk], stop).await,
        None => Ok(PublishOutcome::NonePending { took: begun.elapsed() }),
    }
}

/// Publishes chunks of one queue together. If the queue is full, they wait for capacity for a fraction of their lease,
/// or until this instance stops. Chunks that could not be published are released and wait in the database. Publishing a
/// row twice does no harm.
pub async fn publish(
    engine: &Engine,
    chunks: Vec<Chunk>,
    stop: &CancellationToken,
) -> Result<PublishOutcome, PublishError> {
    let Some(queue) = chunks.first().map(|chunk| chunk.queue.clone()) else {
        return Ok(PublishOutcome::Done);
    };
    let rows = chunks.iter().flat_map(|chunk| &chunk.rows);
    let encoded = |ChunkRow { row, event }: &ChunkRow| Message {
        id: row.key.to_string(),
        body: message::encode(event, row).into(),
        stamp: None,
    };
    let messages: Vec<Message> = rows.map(encoded).collect();
    let mut deadline = pin!(timeout(engine.config.lease / LEASE_DIVISOR, stop.cancelled()));
    fail::fail_point!("publish.before_confirm");
    let published = loop {
        let capacity = engine.broker.wait_for_capacity(queue.as_str());
        let published = engine.broker.publish(queue.as_str(), stamped(engine, &messages)).await;
        if !matches!(published, Ok(Published::Full)) {
            break published;
        }
        tokio::select! {
            biased;
            _ = &mut deadline => break published,
            () = capacity => {}
        }
    };
    fail::fail_point!("publish.after_confirm");
    match published {
        Ok(Published::Confirmed(confirms)) => {
            record_confirms(engine, chunks, confirms).await?;
            Ok(PublishOutcome::Done)
        }
        Ok(Published::Full) => {
            release(engine, &chunks).await?;
            Ok(PublishOutcome::QueueFull)
        }
        Err(error) => {
            release(engine, &chunks).await?;
            Err(error.into())
        }
    }
}

/// Stamps the messages with this instance and the current time. The receiver stores the stamp for the trace, so
/// publishing writes nothing.
fn stamped(engine: &Engine, messages: &[Message]) -> Vec<Message> {
    let stamp = Stamp { instance: engine.instance.id.0, at_ms: engine.clock.now().as_millisecond() };
    messages.iter().map(|message| Message { stamp: Some(stamp), ..message.clone() }).collect()
}

async fn release(engine: &Engine, chunks: &[Chunk]) -> Result<(), StoreError> {
    engine.store.release_chunks(&chunks.iter().map(|chunk| chunk.id).collect::<Vec<_>>()).await
}
