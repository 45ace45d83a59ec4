//! An estimate of the undelivered messages of a queue.
//!
//! A broker reports only the ready messages, and only when asked. In between, this process counts what it publishes,
//! receives and settles. A probe of the broker corrects the count for what other processes did. If this process was
//! busy with the queue during a probe, the two cannot be told apart, and the next probe corrects the count.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::futures::Notified;

use crate::limit::{Demand, Limit};

/// The time between two probes of a queue. The second applies to a queue that was found full, and after an inconclusive
/// probe.
const PROBE_INTERVAL: Duration = Duration::from_secs(2);
const PROBE_INTERVAL_WHEN_FULL: Duration = Duration::from_millis(100);
/// After this many inconclusive probes the next result is used even if the queue is busy.
const MAX_INCONCLUSIVE_PROBES: u32 = 5;

#[derive(Debug)]
pub(super) struct Load {
    limit: Limit,
    count: Mutex<Count>,
}

#[derive(Debug, Default)]
struct Count {
    /// Messages in the queue.
    ready: usize,
    /// Messages that this process's consumers hold.
    held: usize,
    /// The part of `ready` that was published and not confirmed yet.
    in_flight: usize,
    demand: Demand,
    /// Increases with each change of these numbers.
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

    /// Waits until a full queue has room again.
    pub(super) fn wait_for_capacity(&self) -> Notified<'_> {
        self.limit.wait_for_capacity()
    }

    /// Wakes those who wait for room, for another reason.
    pub(super) fn notify(&self) {
        self.limit.notify();
    }

    /// Reserves room for all of these messages, or for none.
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

    /// Counts held messages that left the queue for good.
    pub(super) fn left(&self, messages: usize) {
        let mut count = self.changed();
        count.held = count.held.saturating_sub(messages);
        self.depth_decreased(&mut count);
    }

    /// Counts held messages that were returned to the queue.
    pub(super) fn came_back(&self, messages: usize) {
        let mut count = self.changed();
        count.held = count.held.saturating_sub(messages);
        count.ready += messages;
    }

    /// Starts a probe if one is due. The result is compared with the state at its start.
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

    /// Records the number of ready messages that the broker reported.
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

    /// No change panics half-way, so the state behind a poisoned lock is consistent.
    fn lock(&self) -> MutexGuard<'_, Count> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Count {
    fn depth(&self) -> usize {
        self.ready.saturating_add(self.held)
    }
}

/// The state of the count when a probe began.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProbeStart {
    changes: u64,
}

/// Room for messages that are being published. Room that is not used is given back on drop.
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
