//! The hand-over of chunks from fan-out to publish, in memory, with a bounded number of rows for each queue.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use campanile_domain::fan_out::MAX_CHUNK_ROWS;
use campanile_store::{Chunk, NewChunk};
use tokio::sync::mpsc::{self, OwnedPermit, Receiver, Sender};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};

use crate::pipeline::fan_out::backpressure::{Backpressure, QueueCapacity};

/// Between fan-out and publish, for each queue, in memory: so many chunks, most of which are small, and so many rows in
/// all of them.
pub const HANDOVER_CHUNKS: usize = 256;
const HANDOVER_ROWS: usize = 4 * MAX_CHUNK_ROWS;
/// How many loops fan out large batches: each may have one under way.
pub const FAN_OUT_WORKERS: usize = 2;

/// Fan-out's side of the hand-over: it reserves a place before it commits, so that a chunk that is born leased is also
/// taken.
#[derive(Debug, Clone)]
pub struct Handover {
    queues: Arc<HashMap<String, Slots>>,
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
    pub chunk: Chunk,
    pub rows: OwnedSemaphorePermit,
}

/// Publish's side: the chunks of one queue.
pub type ChunkReceiver = Arc<Mutex<Receiver<HandedChunk>>>;

pub fn handover(queues: Vec<String>) -> (Handover, Vec<(String, ChunkReceiver)>) {
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
    pub fn record_full_queues(&self, queues: Vec<String>) {
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
    fn free_rows(&self, queues: &[String]) -> usize {
        let slots = queues.iter().filter_map(|queue| self.queues.get(queue));
        slots.map(|slots| slots.rows.available_permits()).sum()
    }

    fn has_capacity(&self, queue: &str) -> bool {
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

/// No more rows in each than a chunk may have: a queue takes all of them or none.
pub fn groups(handed: Vec<HandedChunk>) -> Vec<Vec<HandedChunk>> {
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
