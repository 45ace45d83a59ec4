//! Remembers the events that are being fanned out now. One engine owns the file, so memory is enough.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use campanile_domain::id::EventSeq;

#[derive(Debug, Clone, Default)]
pub struct ClaimedEvents(Arc<Mutex<HashSet<EventSeq>>>);

impl ClaimedEvents {
    /// The claimed events. Take the snapshot before reading events. An event that is released in between may have been
    /// read in its old state.
    pub fn snapshot(&self) -> HashSet<EventSeq> {
        self.lock().clone()
    }

    /// Claims at most `limit` events that are not claimed now and were not claimed in the snapshot `before`.
    pub fn claim(
        &self,
        seqs: impl Iterator<Item = EventSeq>,
        before: &HashSet<EventSeq>,
        limit: usize,
    ) -> ClaimedEventsGuard {
        let mut claimed = self.lock();
        let seqs: HashSet<EventSeq> =
            seqs.filter(|seq| !before.contains(seq) && !claimed.contains(seq)).take(limit).collect();
        claimed.extend(&seqs);
        ClaimedEventsGuard { events: self.clone(), seqs }
    }

    /// No change can panic halfway, so the set is valid even if the lock is poisoned.
    fn lock(&self) -> MutexGuard<'_, HashSet<EventSeq>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Releases the events when it is dropped.
#[derive(Debug, Default)]
pub struct ClaimedEventsGuard {
    events: ClaimedEvents,
    seqs: HashSet<EventSeq>,
}

impl ClaimedEventsGuard {
    pub fn has(&self, seq: EventSeq) -> bool {
        self.seqs.contains(&seq)
    }
}

impl Drop for ClaimedEventsGuard {
    fn drop(&mut self) {
        let mut claimed = self.events.lock();
        for seq in &self.seqs {
            claimed.remove(seq);
        }
    }
}
