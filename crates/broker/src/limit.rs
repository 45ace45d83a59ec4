//! When a queue is full, and who has to hear that it no longer is. The rule of all brokers, each of which counts
//! in its own way.

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// What is published at once at most. A queue with less room than that is not worth a publish.
const CHUNK_MESSAGES: usize = 1_000;
/// In a small queue, a chunk would be most of it: there, this part of the limit has to be free.
const SMALLEST_SHARE: usize = 5;

/// How many undelivered messages a queue holds at most.
#[derive(Debug)]
pub(crate) struct Limit {
    messages: usize,
    /// Told when those who found the queue full have room.
    room: Notify,
}

/// How many places those wait for who found the queue full; zero when nobody did. It stands beside the count of
/// the queue, under the same lock.
#[derive(Debug, Default)]
pub(crate) struct Wanted(usize);

impl Limit {
    pub(crate) fn new(messages: usize) -> Self {
        Self { messages, room: Notify::new() }
    }

    /// Whether a queue of this depth takes so many. If not, they are wanted.
    pub(crate) fn takes(&self, messages: usize, depth: usize, wanted: &mut Wanted) -> bool {
        let takes = self.has_room(messages, depth);
        if !takes {
            wanted.0 = wanted.0.max(messages);
        }
        takes
    }

    /// A queue that was full stays so until it has room for all that was wanted, so that whoever waits is not
    /// called for each place.
    pub(crate) fn is_full(&self, depth: usize, wanted: &mut Wanted) -> bool {
        let worth_it = CHUNK_MESSAGES.min(self.messages / SMALLEST_SHARE).max(1);
        !self.takes(wanted.0.max(worth_it), depth, wanted)
    }

    /// To be called whenever a queue may hold less than before.
    pub(crate) fn shrunk(&self, depth: usize, wanted: &mut Wanted) {
        if wanted.0 > 0 && self.has_room(wanted.0, depth) {
            wanted.0 = 0;
            self.tell();
        }
    }

    /// Wakes those who wait, whether or not there is room.
    pub(crate) fn tell(&self) {
        self.room.notify_waiters();
    }

    pub(crate) fn room(&self) -> Notified<'_> {
        self.room.notified()
    }

    /// All or none, and what is larger than the limit is taken by an empty queue.
    fn has_room(&self, messages: usize, depth: usize) -> bool {
        depth == 0 || messages <= self.messages.saturating_sub(depth)
    }
}

impl Wanted {
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
        let full = |limit, depth| Limit::new(limit).is_full(depth, &mut Wanted::default());
        assert!(!full(10_000, 9_000) && full(10_000, 9_001));
        assert!(!full(100, 80) && full(100, 81));
        assert!(!full(3, 2) && full(3, 3));
        assert!(!full(0, 0) && full(0, 1));
        assert!(!full(usize::MAX, 1_000_000));
    }

    #[test]
    fn a_queue_stays_full_until_it_takes_what_it_turned_away() {
        let (limit, mut wanted) = (Limit::new(2_000), Wanted::default());
        assert!(!limit.is_full(1_500, &mut wanted));
        assert!(!limit.takes(1_000, 1_500, &mut wanted));
        limit.shrunk(1_001, &mut wanted);
        assert!(limit.is_full(1_001, &mut wanted));
        limit.shrunk(1_000, &mut wanted);
        assert!(!wanted.is_any() && !limit.is_full(1_000, &mut wanted));
    }
}
