//! Outbox rows → broker, with confirms. A chunk comes from fan-out by hand, or out of the database when there was no room
//! or its holder died. Each queue has a loop of its own, so that nothing stands in the way of anything else.

use std::collections::HashMap;
use std::sync::Arc;

use campanile_broker::{BrokerError, Confirm, Message, Published};
use campanile_domain::fan_out::MAX_CHUNK_ROWS;
use campanile_domain::message;
use campanile_store::{Chunk, ChunkRow, NewChunk, StoreError};
use tokio::sync::Mutex;
use tokio::sync::mpsc::{self, OwnedPermit, Receiver, Sender};
use tokio_util::sync::CancellationToken;

use crate::Engine;
use crate::backoff::Backoff;
use crate::signals::Outage;
use crate::telemetry::{PUBLISHED, REFUSED, count_letters, count_lost};

/// Chunks in memory between fan-out and publish, for each queue.
const HANDOVER_CHUNKS: usize = 4;

/// Groups rows into chunks of one queue and lane, in a fixed order; at most `size` rows in each.
pub fn chunks(rows: Vec<ChunkRow>, size: usize) -> Vec<NewChunk> {
    let size = size.clamp(1, MAX_CHUNK_ROWS);
    let mut by_queue: HashMap<(i64, String), Vec<ChunkRow>> = HashMap::new();
    for row in rows {
        by_queue.entry((row.row.priority.lane(), row.row.queue.clone())).or_default().push(row);
    }
    let mut grouped: Vec<_> = by_queue.into_iter().collect();
    grouped.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    let mut chunks = Vec::new();
    for ((lane, queue), mut rows) in grouped {
        while !rows.is_empty() {
            let rest = rows.split_off(rows.len().min(size));
            chunks.push(NewChunk { queue: queue.clone(), lane, rows, leased: false });
            rows = rest;
        }
    }
    chunks
}

/// Fan-out's side of the hand-over: it reserves a place before it commits, so that a chunk that is born leased is also
/// taken.
#[derive(Debug, Clone)]
pub struct Handover {
    queues: Arc<HashMap<String, Sender<Chunk>>>,
}

/// Publish's side: the chunks of one queue.
pub type Handed = Arc<Mutex<Receiver<Chunk>>>;

pub fn handover(queues: Vec<String>) -> (Handover, Vec<(String, Handed)>) {
    let mut senders = HashMap::new();
    let mut handed = Vec::new();
    for queue in queues {
        let (put, take) = mpsc::channel(HANDOVER_CHUNKS);
        senders.insert(queue.clone(), put);
        handed.push((queue, Arc::new(Mutex::new(take))));
    }
    (Handover { queues: Arc::new(senders) }, handed)
}

impl Handover {
    /// Whether a chunk of the queue could be handed over; one that is published elsewhere waits in the database anyway.
    pub fn has_place(&self, queue: &str) -> bool {
        self.queues.get(queue).is_none_or(|chunks| chunks.capacity() > 0)
    }

    /// Marks chunks for which there is a place as leased, and keeps the places, in order.
    pub fn reserve<'a>(&self, chunks: impl Iterator<Item = &'a mut NewChunk>) -> Vec<OwnedPermit<Chunk>> {
        let reserve = |chunk: &mut NewChunk| {
            let place = self.queues.get(&chunk.queue)?.clone().try_reserve_owned().ok();
            chunk.leased = place.is_some();
            place
        };
        chunks.filter_map(reserve).collect()
    }
}

/// Publishes to one queue.
pub async fn run(engine: Engine, queue: String, handed: Handed, stop: CancellationToken) {
    let mut handed = handed.lock().await;
    let mut backoff = Backoff::new();
    let waiting = engine.signals.chunks(&queue);
    // What waits in the database is looked for when something began to wait, when there is room, and at each tick.
    let mut looked_at = None;
    // It is told once, so it is kept until it is heard, whatever happens in between.
    let mut room = engine.broker.room(&queue);
    while !stop.is_cancelled() {
        let signal = waiting.began();
        let version = waiting.version();
        // One by hand and one that waits, in turns: what waits is older and must not starve.
        let turn = async {
            let by_hand = match handed.try_recv() {
                Ok(chunk) => publish(&engine, chunk).await? == Turn::Made,
                Err(_) => false,
            };
            if looked_at == Some(version) {
                return Ok(by_hand);
            }
            let waited = publish_waiting(&engine, &queue).await? == Turn::Made;
            if !waited {
                looked_at = Some(version);
            }
            Ok::<bool, PublishError>(by_hand || waited)
        };
        match turn.await {
            Ok(true) => backoff.reset(),
            Ok(false) => tokio::select! {
                () = stop.cancelled() => return,
                Some(chunk) = handed.recv() => if let Err(error) = publish(&engine, chunk).await {
                    if backoff.is_worth_telling() {
                        error.note(&engine, "publish");
                    }
                    backoff.wait(&stop).await;
                },
                () = signal => {}
                () = &mut room => {
                    room = engine.broker.room(&queue);
                    looked_at = None;
                }
                () = tokio::time::sleep(engine.config.publish.poll_interval) => looked_at = None,
            },
            Err(error) => {
                if backoff.is_worth_telling() {
                    error.note(&engine, "publish");
                }
                backoff.wait(&stop).await;
            }
        }
    }
}

/// Whether it is worth going on at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    Made,
    /// Nothing waits, or the queue is full: wait for room or for more.
    Nothing,
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
    pub fn note(&self, engine: &Engine, stage: &'static str) {
        let of = match self {
            PublishError::Store(_) => Outage::Database,
            PublishError::Broker(_) => Outage::Broker,
        };
        engine.signals.note_outage(of, stage, self);
    }
}

/// Publishes one chunk of the queue that waits in the database, if there is one and the queue has room.
pub async fn publish_waiting(engine: &Engine, queue: &str) -> Result<Turn, PublishError> {
    if engine.broker.is_full(queue) {
        return Ok(Turn::Nothing);
    }
    match engine.store.claim_chunk(queue, engine.config.lease).await? {
        Some(chunk) => publish(engine, chunk).await,
        None => Ok(Turn::Nothing),
    }
}

/// A chunk that could not be published goes back and waits; published again, it is harmless.
pub async fn publish(engine: &Engine, chunk: Chunk) -> Result<Turn, PublishError> {
    let messages = chunk.rows.iter().map(|ChunkRow { row, event }| Message {
        id: row.key.to_string(),
        body: message::encode(event, row).into(),
    });
    fail::fail_point!("publish.before_confirm");
    let published = engine.broker.publish(&chunk.queue, messages.collect()).await;
    fail::fail_point!("publish.after_confirm");
    let confirms = match published {
        Ok(Published::Confirmed(confirms)) => confirms,
        Ok(Published::Full) => {
            engine.store.release_chunk(chunk.id).await?;
            return Ok(Turn::Nothing);
        }
        Err(error) => {
            engine.store.release_chunk(chunk.id).await?;
            return Err(error.into());
        }
    };
    let refused: Vec<_> = chunk
        .rows
        .iter()
        .zip(confirms)
        .filter_map(|(row, confirm)| match confirm {
            Confirm::Accepted => None,
            Confirm::Refused { reason } => Some((row.row.key, reason)),
        })
        .collect();
    metrics::counter!(PUBLISHED).increment((chunk.rows.len() - refused.len()) as u64);
    if refused.is_empty() {
        let ours = engine.store.chunk_published(chunk.id).await?;
        count_lost("chunk", u64::from(!ours));
        return Ok(Turn::Made);
    }
    metrics::counter!(REFUSED).increment(refused.len() as u64);
    tracing::error!(
        queue = chunk.queue,
        rows = refused.len(),
        reason = refused[0].1,
        "the broker refused rows"
    );
    let config = &engine.config.publish;
    let letters =
        engine.store.rows_refused(chunk.id, refused, config.max_refusals, config.poll_interval).await?;
    count_letters("publish", letters);
    engine.signals.maybe_complete(chunk.rows.into_iter().map(|row| row.row.event_id));
    Ok(Turn::Made)
}
