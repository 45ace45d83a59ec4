//! Events that are being fanned out now. One engine owns the file, so it is enough to remember them.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use campanile_domain::id::EventSeq;

#[derive(Debug, Clone, Default)]
pub struct ClaimedEvents(Arc<Mutex<HashSet<EventSeq>>>);

impl ClaimedEvents {
    /// To be asked before events are read: one that was let go of meanwhile may have been read as it was before.
    pub fn snapshot(&self) -> HashSet<EventSeq> {
        self.lock().clone()
    }

    /// Takes the first so many that nobody holds, and nobody held before.
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

    /// Nothing panics half-way through a change, so what a poisoned lock guards is whole.
    fn lock(&self) -> MutexGuard<'_, HashSet<EventSeq>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Dropped, it lets go of them.
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
