//! The hand-over of chunks from fan-out to publish, in memory, with a bounded number of rows for each queue.

use std::collections::HashMap;
use std::sync::Arc;

use campanile_domain::fan_out::MAX_CHUNK_ROWS;
use campanile_domain::queue::Queue;
use campanile_store::{Chunk, NewChunk};
use tokio::sync::mpsc::{self, OwnedPermit, Receiver, Sender};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};

/// Limits of each queue: the number of chunks in memory, and the number of rows in all of them. Most chunks are small.
pub const HANDOVER_CHUNKS: usize = 256;
const HANDOVER_ROWS: usize = 4 * MAX_CHUNK_ROWS;

/// The capacity of the hand-over.
pub trait QueueCapacity {
    /// How many more rows these queues accept.
    fn free_rows(&self, queues: &[Queue]) -> usize;

    /// Whether a queue accepts at least one more chunk with this many rows.
    fn has_capacity(&self, queue: &Queue, rows: usize) -> bool;
}

/// Fan-out's side of the hand-over. It reserves a slot before it commits. So publish always receives a chunk that is
/// leased when it is inserted.
#[derive(Debug, Clone)]
pub struct Handover {
    queues: Arc<HashMap<Queue, Slots>>,
}

/// The free slots of one queue, for chunks and for rows.
#[derive(Debug)]
struct Slots {
    chunks: Sender<HandedChunk>,
    rows: Arc<Semaphore>,
}

/// A reserved slot for one chunk.
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

pub fn handover(queues: Vec<Queue>) -> (Handover, Vec<(Queue, ChunkReceiver)>) {
    let mut slots = HashMap::new();
    let mut handed = Vec::new();
    for queue in queues {
        let (chunks, receiver) = mpsc::channel(HANDOVER_CHUNKS);
        slots.insert(queue.clone(), Slots { chunks, rows: Arc::new(Semaphore::new(HANDOVER_ROWS)) });
        handed.push((queue, Arc::new(Mutex::new(receiver))));
    }
    (Handover { queues: Arc::new(slots) }, handed)
}

impl Handover {
    /// Reserves slots, and marks each chunk that got one as leased. Returns the slots in the order of their chunks.
    pub fn reserve<'a>(&self, chunks: impl Iterator<Item = &'a mut NewChunk>) -> Vec<Slot> {
        let reserve = |chunk: &mut NewChunk| {
            let slot = self.queues.get(&chunk.queue)?.reserve(chunk.rows.len());
            chunk.leased = slot.is_some();
            slot
        };
        chunks.filter_map(reserve).collect()
    }
}

/// A queue that another instance publishes to has no limit here, because its chunks wait in the database.
impl QueueCapacity for Handover {
    fn free_rows(&self, queues: &[Queue]) -> usize {
        let slots = queues.iter().filter_map(|queue| self.queues.get(queue));
        slots.map(|slots| slots.rows.available_permits()).sum()
    }

    fn has_capacity(&self, queue: &Queue, rows: usize) -> bool {
        self.queues
            .get(queue)
            .is_none_or(|slots| slots.chunks.capacity() > 0 && slots.rows.available_permits() >= rows)
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

/// Groups chunks so that each group has at most the rows of one full chunk. A queue accepts all of a group or none.
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
