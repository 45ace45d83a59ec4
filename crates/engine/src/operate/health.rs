//! The health of this instance, as `/readyz` and `/metrics` report it.

use std::time::Instant;

use campanile_channels::Providers;
use campanile_store::StoreError;
use tokio::sync::watch;

use crate::Engine;

/// Whether the broker can be used by this instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BrokerState {
    /// This instance has no role that publishes or receives.
    NotUsed,
    Ready,
    Unavailable {
        reason: String,
    },
    /// These queues hold their limit of undelivered messages.
    Full {
        queues: Vec<String>,
    },
}

impl Engine {
    /// Tries a small write: a database that answers queries may still be unable to write.
    pub async fn probe_writes(&self) -> Result<(), StoreError> {
        self.store.write_probe(self.instance.id).await
    }

    pub fn broker_state(&self) -> BrokerState {
        if !self.config.roles.use_broker() {
            return BrokerState::NotUsed;
        }
        if let Some(reason) = self.broker.unavailable_reason() {
            return BrokerState::Unavailable { reason };
        }
        let queues: Vec<String> = self
            .broker
            .depths()
            .into_iter()
            .map(|(queue, _)| queue)
            .filter(|queue| self.broker.is_full(queue))
            .collect();
        if queues.is_empty() { BrokerState::Ready } else { BrokerState::Full { queues } }
    }

    /// Undelivered messages per queue; none where this instance does not use the broker.
    pub fn undelivered(&self) -> Vec<(String, usize)> {
        if self.config.roles.use_broker() { self.broker.depths() } else { Vec::new() }
    }

    /// When a task of this instance last died and was started again.
    pub fn last_death(&self) -> Option<Instant> {
        self.signals.last_death()
    }

    /// Whether events come so fast that this instance claims them without waiting for notifications.
    pub fn burst(&self) -> watch::Receiver<bool> {
        self.signals.burst.subscribe()
    }

    pub fn providers(&self) -> &Providers {
        &self.providers
    }

    /// The latency histograms in the format of `/metrics`.
    pub fn render_latencies(&self) -> String {
        self.latencies.render()
    }
}
