//! Outbox rows → broker, with confirms. A chunk comes from fan-out by hand, or out of the database when there was no
//! room or its holder died. Each queue has a loop of its own, so that nothing stands in the way of anything else.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use campanile_broker::{BrokerError, Confirm, Message, Published, Stamp};
use campanile_domain::fan_out::MAX_CHUNK_ROWS;
use campanile_domain::id::SendKey;
use campanile_domain::message;
use campanile_domain::priority::Lane;
use campanile_domain::queue::Queue;
use campanile_store::{Chunk, ChunkRow, NewChunk, StoreError};
use tokio::sync::mpsc::{self, OwnedPermit, Receiver, Sender};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use crate::Engine;
use crate::backoff::Backoff;
use crate::idle_backoff::IdleBackoff;
use crate::pipeline::fan_out::backpressure::{Backpressure, QueueCapacity};
use crate::telemetry::stage_cpu::Timed;
use crate::telemetry::{PUBLISHED, REFUSED, count_dead_letters, count_lost};

/// Between fan-out and publish, for each queue, in memory: so many chunks, most of which are small, and so many rows in
/// all of them.
const HANDOVER_CHUNKS: usize = 256;
const HANDOVER_ROWS: usize = 4 * MAX_CHUNK_ROWS;
/// How many loops fan out large batches: each may have one under way.
pub const FAN_OUT_WORKERS: usize = 2;
/// How often the confirms of one queue are awaited at the same time, each for all that had been handed over by then.
const MAX_PUBLISH_TASKS: usize = 4;
/// A chunk waits for room in its queue for this part of its lease; then it goes back, for somebody else.
const LEASE_DIVISOR: u32 = 4;
/// Whatever is configured.
const SHORTEST_TICK: Duration = Duration::from_millis(1);

/// Groups rows into chunks of one queue and lane, in a fixed order; at most `size` rows in each.
pub fn chunks(rows: Vec<ChunkRow>, size: usize) -> Vec<NewChunk> {
    let size = size.clamp(1, MAX_CHUNK_ROWS);
    let mut by_queue: HashMap<(Lane, Queue), Vec<ChunkRow>> = HashMap::new();
    for row in rows {
        by_queue.entry((row.row.priority.lane(), row.row.queue.clone())).or_default().push(row);
    }
    let mut grouped: Vec<_> = by_queue.into_iter().collect();
    grouped.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    let mut chunks = Vec::new();
    for ((lane, queue), mut rows) in grouped {
        while !rows.is_empty() {
            let remaining = rows.split_off(rows.len().min(size));
            chunks.push(NewChunk { queue: queue.clone(), lane, rows, leased: false });
            rows = remaining;
        }
    }
    chunks
}

/// Fan-out's side of the hand-over: it reserves a place before it commits, so that a chunk that is born leased is also
/// taken.
#[derive(Debug, Clone)]
pub struct Handover {
    queues: Arc<HashMap<Queue, Slots>>,
    backpressure: Arc<Backpressure>,
}

/// Those of one queue: so many chunks, and no more rows than this in all of them.
#[derive(Debug)]
struct Slots {
    chunks: Sender<HandedChunk>,
    rows: Arc<Semaphore>,
}

/// A place for one chunk.
#[derive(Debug)]
pub struct Slot {
    chunk: OwnedPermit<HandedChunk>,
    rows: OwnedSemaphorePermit,
}

#[derive(Debug)]
pub struct HandedChunk {
    chunk: Chunk,
    rows: OwnedSemaphorePermit,
}

/// Publish's side: the chunks of one queue.
pub type ChunkReceiver = Arc<Mutex<Receiver<HandedChunk>>>;

pub fn handover(queues: Vec<Queue>) -> (Handover, Vec<(Queue, ChunkReceiver)>) {
    let mut slots = HashMap::new();
    let mut handed = Vec::new();
    for queue in queues {
        let (chunks, receiver) = mpsc::channel(HANDOVER_CHUNKS);
        slots.insert(queue.clone(), Slots { chunks, rows: Arc::new(Semaphore::new(HANDOVER_ROWS)) });
        handed.push((queue, Arc::new(Mutex::new(receiver))));
    }
    (Handover { queues: Arc::new(slots), backpressure: Arc::default() }, handed)
}

impl Handover {
    /// Whether a queue has no room, so that only what is urgent is fanned out.
    pub fn update_blocked(&self) -> bool {
        self.backpressure.update_blocked(self, Instant::now())
    }

    /// These queues have no room for another batch.
    pub fn record_full_queues(&self, queues: Vec<Queue>) {
        self.backpressure.record_full(queues, self, Instant::now());
    }

    /// Whether a few events may be looked at although there is a crowd.
    pub fn may_probe(&self) -> bool {
        self.backpressure.may_probe(Instant::now())
    }

    /// They were, and some were for a queue without room, or none.
    pub fn record_probe(&self, found_blocked: bool) {
        self.backpressure.record_probe(found_blocked, Instant::now());
    }

    /// Marks chunks for which there is a place as leased, and keeps the places, in order.
    pub fn reserve<'a>(&self, chunks: impl Iterator<Item = &'a mut NewChunk>) -> Vec<Slot> {
        let reserve = |chunk: &mut NewChunk| {
            let slot = self.queues.get(&chunk.queue)?.reserve(chunk.rows.len());
            chunk.leased = slot.is_some();
            slot
        };
        chunks.filter_map(reserve).collect()
    }
}

/// One that is published elsewhere waits in the database anyway.
impl QueueCapacity for Handover {
    fn free_rows(&self, queues: &[Queue]) -> usize {
        let slots = queues.iter().filter_map(|queue| self.queues.get(queue));
        slots.map(|slots| slots.rows.available_permits()).sum()
    }

    fn has_capacity(&self, queue: &Queue) -> bool {
        self.queues.get(queue).is_none_or(|slots| {
            slots.chunks.capacity() > 0 && slots.rows.available_permits() >= FAN_OUT_WORKERS * MAX_CHUNK_ROWS
        })
    }
}

impl Slots {
    fn reserve(&self, rows: usize) -> Option<Slot> {
        let rows = Arc::clone(&self.rows).try_acquire_many_owned(u32::try_from(rows).ok()?).ok()?;
        Some(Slot { chunk: self.chunks.clone().try_reserve_owned().ok()?, rows })
    }
}

impl Slot {
    pub fn send(self, chunk: Chunk) {
        self.chunk.send(HandedChunk { chunk, rows: self.rows });
    }
}

/// Publishes to one queue, all that has been handed over at a time: most chunks are small, and confirms take their
/// time.
pub async fn run(engine: Engine, queue: Queue, handed: ChunkReceiver, stop: CancellationToken) {
    let mut handed = handed.lock().await;
    let mut backoff = Backoff::new();
    let chunk_signal = engine.signals.chunks(&queue);
    // What waits in the database is looked for when something began to wait, when there is room, and at a tick unless
    // the last look took long.
    let (mut polled_version, mut idle_backoff) = (None, IdleBackoff::default());
    // It is told once, so it is kept until it is heard, whatever happens in between.
    let mut capacity = engine.broker.wait_for_capacity(queue.as_str());
    let (mut in_progress, mut handed_over) = (PublishTasks::default(), Vec::new());
    // Whatever else happens: nobody tells of a lease that has passed.
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

/// No more rows in each than a chunk may have: a queue takes all of them or none.
fn groups(handed: Vec<HandedChunk>) -> Vec<Vec<HandedChunk>> {
    let mut groups: Vec<Vec<HandedChunk>> = Vec::new();
    let mut remaining_rows = 0;
    for handed in handed {
        let rows = handed.chunk.rows.len();
        match groups.last_mut() {
            Some(group) if rows <= remaining_rows => group.push(handed),
            _ => {
                remaining_rows = MAX_CHUNK_ROWS;
                groups.push(vec![handed]);
            }
        }
        remaining_rows = remaining_rows.saturating_sub(rows);
    }
    groups
}

/// Chunks of one queue that are being published.
#[derive(Debug, Default)]
struct PublishTasks {
    tasks: JoinSet<(Source, Result<PublishOutcome, PublishError>)>,
    /// How many of them are looks into the database.
    polls: usize,
    /// Whether the last look found something, so that several are worth while.
    found: bool,
}

/// Where a chunk comes from: by hand, or out of the database, with what had begun to wait when it was looked for.
#[derive(Debug, Clone, Copy)]
enum Source {
    Handover,
    Database(u64),
}

impl PublishTasks {
    fn has_capacity(&self) -> bool {
        self.tasks.len() < MAX_PUBLISH_TASKS
    }

    /// What waits is older than what comes by hand, and must not starve, nor starve that.
    fn may_poll(&self) -> bool {
        self.polls < if self.found { MAX_PUBLISH_TASKS / 2 } else { 1 }
    }

    fn publish(&mut self, engine: &Engine, handed: Vec<HandedChunk>, stop: &CancellationToken) {
        let (engine, stop) = (engine.clone(), stop.clone());
        let publishing = async move {
            let (chunks, _rows): (Vec<_>, Vec<_>) = handed.into_iter().map(|h| (h.chunk, h.rows)).unzip();
            (Source::Handover, publish(&engine, chunks, &stop).await)
        };
        self.tasks.spawn(Timed::new("publish", publishing));
    }

    fn poll(&mut self, engine: &Engine, queue: &Queue, version: u64, stop: &CancellationToken) {
        let (engine, queue, stop) = (engine.clone(), queue.clone(), stop.clone());
        let polling =
            async move { (Source::Database(version), publish_pending_chunk(&engine, &queue, &stop).await) };
        self.tasks.spawn(Timed::new("publish", polling));
        self.polls += 1;
    }

    /// What became of the next one; never, while there is none.
    async fn next(&mut self) -> (Source, Result<PublishOutcome, PublishError>) {
        let (source, result) = match self.tasks.join_next().await {
            Some(Ok(ended)) => ended,
            Some(Err(died)) => match died.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => std::future::pending().await,
            },
            None => std::future::pending().await,
        };
        if let Source::Database(_) = source {
            self.polls -= 1;
            self.found = matches!(result, Ok(PublishOutcome::Done));
        }
        (source, result)
    }

    async fn finish(&mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}

/// Whether it is worth going on at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PublishOutcome {
    Done,
    /// Wait for more. To find it out took so long.
    NonePending {
        took: Duration,
    },
    /// Wait for room.
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
    /// Says which of the two is away.
    pub fn record(&self, engine: &Engine, stage: &'static str) {
        match self {
            PublishError::Store(error) => engine.signals.database.record_failure(stage, error),
            PublishError::Broker(error) => engine.signals.record_broker_failure(stage, error),
        }
    }
}

/// Publishes one chunk of the queue that waits in the database, if there is one. It is claimed although the queue may
/// be full, and waits for room beside what was handed over: else that, which is there already, would take all the room,
/// for ever.
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

/// Chunks of one queue, together. If it has no room, they wait for it, for a part of their lease and not while this
/// instance stops. Those that could not be published go back and wait in the database; published again, they are
/// harmless.
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

/// The same, with who publishes them and when: the trace gets it from the receiver, so that nothing is written here.
fn stamped(engine: &Engine, messages: &[Message]) -> Vec<Message> {
    let stamp = Stamp { instance: engine.instance.id.0, at_ms: engine.clock.now().as_millisecond() };
    messages.iter().map(|message| Message { stamp: Some(stamp), ..message.clone() }).collect()
}

async fn release(engine: &Engine, chunks: &[Chunk]) -> Result<(), StoreError> {
    engine.store.release_chunks(&chunks.iter().map(|chunk| chunk.id).collect::<Vec<_>>()).await
}

/// Confirms stand in the order of the chunks and their rows.
async fn record_confirms(
    engine: &Engine,
    chunks: Vec<Chunk>,
    confirms: Vec<Confirm>,
) -> Result<(), StoreError> {
    let mut confirms = confirms.into_iter();
    let (mut whole, mut partly_confirmed) = (Vec::new(), Vec::new());
    for chunk in chunks {
        let refused: Vec<_> = chunk
            .rows
            .iter()
            .zip(confirms.by_ref())
            .filter_map(|(row, confirm)| match confirm {
                Confirm::Accepted => None,
                Confirm::Refused { reason } => Some((row.row.key, reason)),
            })
            .collect();
        metrics::counter!(PUBLISHED).increment((chunk.rows.len() - refused.len()) as u64);
        if refused.is_empty() { whole.push(chunk.id) } else { partly_confirmed.push((chunk, refused)) }
    }
    if !whole.is_empty() {
        let deleted = engine.store.chunks_published(&whole).await?;
        count_lost("chunk", (whole.len() as u64).saturating_sub(deleted));
    }
    for (chunk, refused) in partly_confirmed {
        record_refusals(engine, chunk, refused).await?;
    }
    Ok(())
}

async fn record_refusals(
    engine: &Engine,
    chunk: Chunk,
    refused: Vec<(SendKey, String)>,
) -> Result<(), StoreError> {
    metrics::counter!(REFUSED).increment(refused.len() as u64);
    tracing::error!(
        queue = chunk.queue.as_str(),
        rows = refused.len(),
        reason = refused[0].1,
        "the broker refused outbox rows"
    );
    let config = &engine.config.publish;
    let dead_letters =
        engine.store.rows_refused(chunk.id, refused, config.max_refusals, config.poll_interval).await?;
    count_dead_letters("publish", dead_letters);
    engine.completion.add_candidates(chunk.rows.into_iter().map(|row| row.row.event_id));
    Ok(())
}
