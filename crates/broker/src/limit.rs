//! When a queue is full, and who has to hear that it no longer is. The rule of all brokers, each of which counts
//! in its own way.

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// What is published at once at most. A queue with less room than that is not worth a publish.
const CHUNK_MESSAGES: usize = 1_000;
/// In a small queue, a chunk would be most of it: there, this part of the limit has to be free.
const SMALL_QUEUE_DIVISOR: usize = 5;

/// How many undelivered messages a queue holds at most.
#[derive(Debug)]
pub(crate) struct Limit {
    messages: usize,
    /// Told when those who found the queue full have room.
    capacity: Notify,
}

/// How many places those wait for who found the queue full; zero when nobody did. It stands beside the count of
/// the queue, under the same lock.
#[derive(Debug, Default)]
pub(crate) struct Demand(usize);

impl Limit {
    pub(crate) fn new(messages: usize) -> Self {
        Self { messages, capacity: Notify::new() }
    }

    /// Whether a queue of this depth takes so many. If not, they are wanted.
    pub(crate) fn accepts(&self, messages: usize, depth: usize, demand: &mut Demand) -> bool {
        let accepts = self.has_capacity(messages, depth);
        if !accepts {
            demand.0 = demand.0.max(messages);
        }
        accepts
    }

    /// A queue that was full stays so until it has room for all that was wanted, so that whoever waits is not
    /// called for each place.
    pub(crate) fn is_full(&self, depth: usize, demand: &mut Demand) -> bool {
        let min_useful = CHUNK_MESSAGES.min(self.messages / SMALL_QUEUE_DIVISOR).max(1);
        !self.accepts(demand.0.max(min_useful), depth, demand)
    }

    /// To be called whenever a queue may hold less than before.
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

    /// All or none, and what is larger than the limit is taken by an empty queue.
    fn has_capacity(&self, messages: usize, depth: usize) -> bool {
        depth == 0 || messages <= self.messages.saturating_sub(depth)
    }
}

impl Demand {
    /// Whether somebody waits.
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
