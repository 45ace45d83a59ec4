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
const PROBE_INTERVAL: Duration = Duration::from_secs(2);
const PROBE_INTERVAL_WHEN_FULL: Duration = Duration::from_millis(100);
/// A queue that is never quiet is looked at all the same, after so many looks in vain.
const MAX_INCONCLUSIVE_PROBES: u32 = 5;

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
    in_flight: usize,
    demand: Demand,
    /// Rises whenever one of these numbers changes.
    changes: u64,
    probed_at: Option<Instant>,
    inconclusive_probes: u32,
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
    pub(super) fn reserve(self: &Arc<Self>, messages: usize) -> Option<Reservation> {
        let mut count = self.changed();
        let depth = count.depth();
        if !self.limit.accepts(messages, depth, &mut count.demand) {
            return None;
        }
        count.ready += messages;
        count.in_flight += messages;
        Some(Reservation { load: Arc::clone(self), messages, taken: 0 })
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
    pub(super) fn probe_if_due(&self) -> Option<ProbeStart> {
        let count = self.lock();
        let urgent = count.demand.is_any() || count.inconclusive_probes > 0;
        let every = if urgent { PROBE_INTERVAL_WHEN_FULL } else { PROBE_INTERVAL };
        let due = count.probed_at.is_none_or(|probed_at| probed_at.elapsed() >= every);
        due.then(|| ProbeStart { changes: count.changes })
    }

    pub(super) fn start_probe(&self) -> ProbeStart {
        ProbeStart { changes: self.lock().changes }
    }

    /// The broker said how many are ready.
    pub(super) fn record_probe(&self, start: ProbeStart, ready: usize) {
        let mut count = self.lock();
        count.probed_at = Some(Instant::now());
        let was_busy = count.in_flight > 0 || count.changes != start.changes;
        if was_busy && count.inconclusive_probes < MAX_INCONCLUSIVE_PROBES {
            count.inconclusive_probes += 1;
            return;
        }
        count.inconclusive_probes = 0;
        count.ready = ready.saturating_add(count.in_flight);
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
pub(super) struct ProbeStart {
    changes: u64,
}

/// Room for messages that are under way. What was not taken in the end gives its room back.
#[derive(Debug)]
pub(super) struct Reservation {
    load: Arc<Load>,
    messages: usize,
    taken: usize,
}

impl Reservation {
    pub(super) fn take(mut self, messages: usize) {
        self.taken = messages;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut count = self.load.changed();
        count.in_flight = count.in_flight.saturating_sub(self.messages);
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
        let reservation = load.reserve(7).expect("it is empty");
        assert!(load.reserve(4).is_none());
        reservation.take(5);
        assert_eq!(load.depth(), 5);
        load.reserve(5).expect("two were refused").take(5);
        assert!(load.is_full());
    }

    #[test]
    fn a_probe_corrects_what_others_did() {
        let load = load(10);
        load.reserve(10).expect("it is empty").take(10);
        load.arrived();
        load.record_probe(load.start_probe(), 3);
        assert_eq!(load.depth(), 4);
    }

    #[test]
    fn a_probe_of_a_busy_queue_counts_only_after_some_that_were_inconclusive() {
        let load = load(10);
        for _ in 0..=MAX_INCONCLUSIVE_PROBES {
            let start = load.start_probe();
            assert_eq!(load.depth(), 0);
            load.reserve(1).expect("it is empty").take(0);
            load.record_probe(start, 9);
        }
        assert_eq!(load.depth(), 9);
    }
}
