//! Groups the rows of a fan-out into chunks. A chunk is published and leased as a whole.

use std::collections::HashMap;

use campanile_domain::fan_out::MAX_CHUNK_ROWS;
use campanile_domain::priority::Lane;
use campanile_domain::queue::Queue;
use campanile_store::{ChunkRow, NewChunk};

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
