//! Wakes a stage before its next poll. Nothing depends on a signal's arrival. `notify` exchanges signals with other
//! instances; `outage` logs outages.

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

/// Signals that chunks of one queue wait in the database.
#[derive(Debug, Default)]
pub struct ChunkSignal {
    changed: Notify,
    version: AtomicU64,
}

impl ChunkSignal {
    /// Reports that chunks wait.
    pub fn notify(&self) {
        self.version.fetch_add(1, Ordering::SeqCst);
        self.changed.notify_waiters();
    }

    /// Increases whenever chunks are reported.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::SeqCst)
    }

    pub fn notified(&self) -> Notified<'_> {
        self.changed.notified()
    }
}

#[derive(Debug)]
pub struct Signals {
    /// An event was accepted. Wakes one worker of the fan-out.
    pub events: Notify,
    /// Whether events arrive so fast that the fan-out claims at a fixed interval.
    pub burst: watch::Sender<bool>,
    chunks: HashMap<Queue, Arc<ChunkSignal>>,
    due: PerChannel<Notify>,
    last_death: Mutex<Option<Instant>>,
    /// Outages of the database: every stage records its failures and successes here.
    pub database: OutageLog,
    /// Outages of the broker. Only failures are recorded, because the broker itself logs when it is available again.
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

    /// The signal of one queue. An unknown queue gets a signal that never fires.
    pub fn chunks(&self, queue: &Queue) -> Arc<ChunkSignal> {
        self.chunks.get(queue).cloned().unwrap_or_default()
    }

    pub fn notify_all_chunks(&self) {
        self.chunks.values().for_each(|signal| signal.notify());
    }

    /// Passes on a signal from another instance.
    pub fn dispatch(&self, signal: Signal) {
        match signal {
            Signal::Events => self.notify_events(),
            Signal::Chunks => self.notify_all_chunks(),
            Signal::Sends => Channel::ALL.into_iter().for_each(|channel| self.due(channel).notify_waiters()),
        }
    }

    /// Records that a stage could not reach the broker. A lost queue is only logged at debug level: the broker itself
    /// reports it, and the queue is soon recreated.
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

    /// Records that a task died; the supervisor starts it again.
    pub fn record_death(&self) {
        *self.last_death.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    pub fn last_death(&self) -> Option<Instant> {
        *self.last_death.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fires when a send of the channel waits in the database.
    pub fn due(&self, channel: Channel) -> &Notify {
        self.due.get(channel)
    }
}
