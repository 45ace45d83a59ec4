//! When a queue is full, and who is told that it has room again. All brokers share this rule; each counts messages in
//! its own way.

use campanile_domain::fan_out::MAX_CHUNK_ROWS;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// In a small queue a chunk would be most of the limit. There, this part of the limit must be free.
const SMALL_QUEUE_DIVISOR: usize = 5;

/// The most undelivered messages of a queue.
#[derive(Debug)]
pub(crate) struct Limit {
    messages: usize,
    /// Notified when a full queue has enough room again.
    capacity: Notify,
}

/// How much room is wanted by those who found the queue full; zero if nobody did. It is kept next to the queue's count,
/// under the same lock.
#[derive(Debug, Default)]
pub(crate) struct Demand(usize);

impl Limit {
    pub(crate) fn new(messages: usize) -> Self {
        Self { messages, capacity: Notify::new() }
    }

    /// Whether a queue of this depth accepts this many messages. If not, it records that they are wanted.
    pub(crate) fn accepts(&self, messages: usize, depth: usize, demand: &mut Demand) -> bool {
        let accepts = self.has_capacity(messages, depth);
        if !accepts {
            demand.0 = demand.0.max(messages);
        }
        accepts
    }

    /// Whether the queue counts as full. After a refusal it stays full until it has room for everything refused, so
    /// that waiting publishers are not woken for each free place.
    pub(crate) fn is_full(&self, depth: usize, demand: &mut Demand) -> bool {
        // A queue with less room than a chunk has rows is not worth a publish.
        let min_useful = MAX_CHUNK_ROWS.min(self.messages / SMALL_QUEUE_DIVISOR).max(1);
        !self.accepts(demand.0.max(min_useful), depth, demand)
    }

    /// Must be called whenever the depth may have decreased.
    pub(crate) fn depth_decreased(&self, depth: usize, demand: &mut Demand) {
        if demand.0 > 0 && self.has_capacity(demand.0, depth) {
            demand.0 = 0;
            self.notify();
        }
    }

    /// Wakes those who wait, whether or not there is room.
    pub(crate) fn notify(&self) {
        self.capacity.notify_waiters();
    }

    pub(crate) fn wait_for_capacity(&self) -> Notified<'_> {
        self.capacity.notified()
    }

    /// A publish is accepted whole or not at all. An empty queue accepts one that is larger than the limit.
    fn has_capacity(&self, messages: usize, depth: usize) -> bool {
        depth == 0 || messages <= self.messages.saturating_sub(depth)
    }
}

impl Demand {
    /// Whether anybody waits for room.
    pub(crate) fn is_any(&self) -> bool {
        self.0 > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_full_when_a_chunk_no_longer_fits() {
        let full = |limit, depth| Limit::new(limit).is_full(depth, &mut Demand::default());
        assert!(!full(10_000, 9_000) && full(10_000, 9_001));
        assert!(!full(100, 80) && full(100, 81));
        assert!(!full(3, 2) && full(3, 3));
        assert!(!full(0, 0) && full(0, 1));
        assert!(!full(usize::MAX, 1_000_000));
    }

    #[test]
    fn a_queue_stays_full_until_it_takes_what_it_turned_away() {
        let (limit, mut demand) = (Limit::new(2_000), Demand::default());
        assert!(!limit.is_full(1_500, &mut demand));
        assert!(!limit.accepts(1_000, 1_500, &mut demand));
        limit.depth_decreased(1_001, &mut demand);
        assert!(limit.is_full(1_001, &mut demand));
        limit.depth_decreased(1_000, &mut demand);
        assert!(!demand.is_any() && !limit.is_full(1_000, &mut demand));
    }
}
