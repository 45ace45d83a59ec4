//! What wakes a stage before its tick. Nothing depends on a signal arriving.

pub mod notify;
pub mod outage;
pub mod suppress;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use campanile_broker::BrokerError;
use campanile_domain::channel::{Channel, PerChannel};
use campanile_domain::queue::Queue;
use campanile_store::Signal;
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, watch};

use crate::signals::outage::OutageLog;

/// Whether chunks of a queue wait in the database.
#[derive(Debug, Default)]
pub struct ChunkSignal {
    changed: Notify,
    version: AtomicU64,
}

impl ChunkSignal {
    /// Chunks wait now.
    pub fn notify(&self) {
        self.version.fetch_add(1, Ordering::SeqCst);
        self.changed.notify_waiters();
    }

    /// Rises whenever chunks began to wait.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::SeqCst)
    }

    pub fn notified(&self) -> Notified<'_> {
        self.changed.notified()
    }
}

#[derive(Debug)]
pub struct Signals {
    /// An event was accepted; for one of the fan-out's workers.
    pub events: Notify,
    /// Whether events come so fast that the fan-out claims at a fixed interval.
    pub burst: watch::Sender<bool>,
    chunks: HashMap<Queue, Arc<ChunkSignal>>,
    due: PerChannel<Notify>,
    last_death: Mutex<Option<Instant>>,
    /// Each stage says when it fails for want of it and when it succeeds.
    pub database: OutageLog,
    /// That it is back the broker tells by itself.
    broker: OutageLog,
}

impl Signals {
    pub fn new(queues: Vec<Queue>) -> Self {
        let chunks = queues.into_iter().map(|queue| (queue, Arc::default())).collect();
        Signals {
            events: Notify::default(),
            burst: watch::Sender::default(),
            chunks,
            due: PerChannel::default(),
            last_death: Mutex::default(),
            database: OutageLog::of("database"),
            broker: OutageLog::of("broker"),
        }
    }

    pub fn notify_events(&self) {
        self.events.notify_one();
    }

    /// Of one queue; a queue that nobody knows has nothing that waits.
    pub fn chunks(&self, queue: &Queue) -> Arc<ChunkSignal> {
        self.chunks.get(queue).cloned().unwrap_or_default()
    }

    pub fn notify_all_chunks(&self) {
        self.chunks.values().for_each(|signal| signal.notify());
    }

    /// Another instance says that something waits.
    pub fn dispatch(&self, signal: Signal) {
        match signal {
            Signal::Events => self.notify_events(),
            Signal::Chunks => self.notify_all_chunks(),
            Signal::Sends => Channel::ALL.into_iter().for_each(|channel| self.due(channel).notify_waiters()),
        }
    }

    /// Of a queue that is lost the broker tells by itself; it is made again in a moment.
    pub fn record_broker_failure(&self, stage: &'static str, error: &BrokerError) {
        match error {
            BrokerError::Lost(queue) => {
                tracing::debug!(queue, stage, "stage waiting until its queue is recreated");
            }
            BrokerError::Unreachable(_)
            | BrokerError::Closed
            | BrokerError::NoSuchQueue(_)
            | BrokerError::Misconfigured(_) => self.broker.record_failure(stage, error),
        }
    }

    /// A loop died; it is started again.
    pub fn record_death(&self) {
        *self.last_death.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    pub fn last_death(&self) -> Option<Instant> {
        *self.last_death.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A send of the channel waits in the database.
    pub fn due(&self, channel: Channel) -> &Notify {
        self.due.get(channel)
    }
}
