//! What wakes a stage before its tick. Nothing depends on a signal arriving.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use campanile_domain::channel::{Channel, PerChannel};
use campanile_domain::id::EventId;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

#[derive(Debug, Default)]
pub struct Signals {
    /// An event was accepted.
    pub events: Notify,
    chunks: Notify,
    chunks_seen: AtomicU64,
    /// Events may be complete.
    pub closing: Notify,
    complete: Mutex<HashSet<EventId>>,
    due: PerChannel<Notify>,
}

impl Signals {
    /// Chunks wait in the database.
    pub fn chunks_wait(&self) {
        self.chunks_seen.fetch_add(1, Ordering::SeqCst);
        self.chunks.notify_waiters();
    }

    /// Rises whenever chunks began to wait.
    pub fn chunks_version(&self) -> u64 {
        self.chunks_seen.load(Ordering::SeqCst)
    }

    pub fn chunks(&self) -> Notified<'_> {
        self.chunks.notified()
    }

    /// A send of the channel waits in the database.
    pub fn due(&self, channel: Channel) -> &Notify {
        self.due.get(channel)
    }

    /// Something of these events was received or failed: they may be complete now.
    pub fn maybe_complete(&self, events: impl IntoIterator<Item = EventId>) {
        self.complete.lock().unwrap_or_else(PoisonError::into_inner).extend(events);
        self.closing.notify_one();
    }

    pub fn take_complete(&self) -> Vec<EventId> {
        std::mem::take(&mut *self.complete.lock().unwrap_or_else(PoisonError::into_inner))
            .into_iter()
            .collect()
    }
}
