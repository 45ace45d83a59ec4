//! How many undelivered messages a queue holds, as well as one can know from outside.
//!
//! A broker tells only how many are ready, and only when asked. In between, what this process publishes,
//! receives and settles is counted along. A look at the broker puts right what others did, unless this
//! process was busy with the queue at that moment and the two could not be told apart; then the next look
//! does.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::futures::Notified;

use crate::limit::{Demand, Limit};

/// How often a queue is looked at, and one that somebody found full.
const LOOK_EVERY: Duration = Duration::from_secs(2);
const LOOK_WHEN_WANTED_EVERY: Duration = Duration::from_millis(100);
/// A queue that is never quiet is looked at all the same, after so many looks in vain.
const MAX_LOOKS_IN_VAIN: u32 = 5;

#[derive(Debug)]
pub(super) struct Load {
    limit: Limit,
    count: Mutex<Count>,
}

#[derive(Debug, Default)]
struct Count {
    /// Waiting in the queue.
    ready: usize,
    /// In the hands of our consumers.
    held: usize,
    /// Part of `ready`: published, and not confirmed yet.
    under_way: usize,
    demand: Demand,
    /// Rises whenever one of these numbers changes.
    changes: u64,
    looked_at: Option<Instant>,
    looks_in_vain: u32,
}

impl Load {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit: Limit::new(limit), count: Mutex::default() }
    }

    pub(super) fn depth(&self) -> usize {
        self.lock().depth()
    }

    pub(super) fn is_full(&self) -> bool {
        let mut count = self.lock();
        let depth = count.depth();
        self.limit.is_full(depth, &mut count.demand)
    }

    /// Waits until it was full and no longer is.
    pub(super) fn wait_for_capacity(&self) -> Notified<'_> {
        self.limit.wait_for_capacity()
    }

    /// Wakes those who wait for room, for another reason.
    pub(super) fn notify(&self) {
        self.limit.notify();
    }

    /// Keeps room for all of these messages, or for none.
    pub(super) fn reserve(self: &Arc<Self>, messages: usize) -> Option<Place> {
        let mut count = self.changed();
        let depth = count.depth();
        if !self.limit.accepts(messages, depth, &mut count.demand) {
            return None;
        }
        count.ready += messages;
        count.under_way += messages;
        Some(Place { load: Arc::clone(self), messages, taken: 0 })
    }

    pub(super) fn arrived(&self) {
        let mut count = self.changed();
        count.ready = count.ready.saturating_sub(1);
        count.held += 1;
    }

    /// Counts messages that were held and left the queue for good.
    pub(super) fn left(&self, messages: usize) {
        let mut count = self.changed();
        count.held = count.held.saturating_sub(messages);
        self.depth_decreased(&mut count);
    }

    /// Counts messages that were held and went back.
    pub(super) fn came_back(&self, messages: usize) {
        let mut count = self.changed();
        count.held = count.held.saturating_sub(messages);
        count.ready += messages;
    }

    /// Whether it is time for a look, and what the look is to be compared with.
    pub(super) fn look_if_due(&self) -> Option<Look> {
        let count = self.lock();
        let urgent = count.demand.is_any() || count.looks_in_vain > 0;
        let every = if urgent { LOOK_WHEN_WANTED_EVERY } else { LOOK_EVERY };
        let due = count.looked_at.is_none_or(|looked_at| looked_at.elapsed() >= every);
        due.then(|| Look { changes: count.changes })
    }

    pub(super) fn look(&self) -> Look {
        Look { changes: self.lock().changes }
    }

    /// The broker said how many are ready.
    pub(super) fn looked(&self, look: Look, ready: usize) {
        let mut count = self.lock();
        count.looked_at = Some(Instant::now());
        let was_busy = count.under_way > 0 || count.changes != look.changes;
        if was_busy && count.looks_in_vain < MAX_LOOKS_IN_VAIN {
            count.looks_in_vain += 1;
            return;
        }
        count.looks_in_vain = 0;
        count.ready = ready.saturating_add(count.under_way);
        self.depth_decreased(&mut count);
    }

    fn depth_decreased(&self, count: &mut Count) {
        let depth = count.depth();
        self.limit.depth_decreased(depth, &mut count.demand);
    }

    fn changed(&self) -> MutexGuard<'_, Count> {
        let mut count = self.lock();
        count.changes += 1;
        count
    }

    /// Nothing panics half-way through a change, so what a poisoned lock guards is whole.
    fn lock(&self) -> MutexGuard<'_, Count> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Count {
    fn depth(&self) -> usize {
        self.ready.saturating_add(self.held)
    }
}

/// What had changed when the broker was asked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Look {
    changes: u64,
}

/// Room for messages that are under way. What was not taken in the end gives its room back.
#[derive(Debug)]
pub(super) struct Place {
    load: Arc<Load>,
    messages: usize,
    taken: usize,
}

impl Place {
    pub(super) fn take(mut self, messages: usize) {
        self.taken = messages;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut count = self.load.changed();
        count.under_way = count.under_way.saturating_sub(self.messages);
        count.ready = count.ready.saturating_sub(self.messages - self.taken);
        self.load.depth_decreased(&mut count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(limit: usize) -> Arc<Load> {
        Arc::new(Load::new(limit))
    }

    #[test]
    fn what_is_in_flight_takes_capacity_until_it_is_refused() {
        let load = load(10);
        let place = load.reserve(7).expect("it is empty");
        assert!(load.reserve(4).is_none());
        place.take(5);
        assert_eq!(load.depth(), 5);
        load.reserve(5).expect("two were refused").take(5);
        assert!(load.is_full());
    }

    #[test]
    fn a_look_puts_right_what_others_did() {
        let load = load(10);
        load.reserve(10).expect("it is empty").take(10);
        load.arrived();
        load.looked(load.look(), 3);
        assert_eq!(load.depth(), 4);
    }

    #[test]
    fn a_look_at_a_busy_queue_counts_only_after_some_in_vain() {
        let load = load(10);
        for _ in 0..=MAX_LOOKS_IN_VAIN {
            let look = load.look();
            assert_eq!(load.depth(), 0);
            load.reserve(1).expect("it is empty").take(0);
            load.looked(look, 9);
        }
        assert_eq!(load.depth(), 9);
    }
}
