//! Keeps the link: creates it, notices when it breaks or a queue goes missing, and creates it again.
//!
//! Consumers and publishers are not restored one by one. They find the new link and start again on it.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::link::{self, Link, warn_of_loss};
use super::topology::{self, QueueProber};
use super::{QueueChange, Shared, State};
use crate::BrokerError;

/// How often to check which queues are due for a probe.
const TICK: Duration = Duration::from_millis(100);
/// The most reasons that are logged per outage.
const MAX_REASONS: usize = 10;
const MIN_BACKOFF: Duration = Duration::from_millis(200);
const MAX_BACKOFF: Duration = Duration::from_secs(10);

pub(super) async fn run(shared: Arc<Shared>, first: Result<Link, BrokerError>) {
    let mut connected = first;
    let mut backoff = MIN_BACKOFF;
    let mut outage = Outage::default();
    loop {
        let error = match connected {
            Ok(link) => {
                if let Some(lasted) = outage.end() {
                    tracing::info!(broker = %shared.address, "RabbitMQ is back after {lasted:.1?}");
                } else {
                    tracing::info!(broker = %shared.address, "connected to RabbitMQ");
                }
                let (link, since) = (Arc::new(link), Instant::now());
                let error = supervise(&shared, &link).await;
                link.close();
                // A link that breaks right away does not reset the backoff.
                if since.elapsed() > MAX_BACKOFF {
                    backoff = MIN_BACKOFF;
                }
                error
            }
            Err(error) => error,
        };
        let reason = match error {
            BrokerError::Unreachable(reason) => reason,
            other => other.to_string(),
        };
        if outage.is_new_reason(&reason) {
            tracing::warn!(broker = %shared.address, reason, "RabbitMQ is unavailable; retrying");
        }
        shared.enter(State::Down(reason));
        sleep(jittered(backoff)).await;
        backoff = (backoff * 2).min(MAX_BACKOFF);
        connected = link::connect(&shared).await;
    }
}

/// The reasons of an outage that were logged. An outage may last hours, with an attempt every few seconds, so only new
/// reasons are logged.
#[derive(Debug, Default)]
struct Outage {
    reasons: BTreeSet<String>,
    since: Option<Instant>,
}

impl Outage {
    fn is_new_reason(&mut self, reason: &str) -> bool {
        self.since.get_or_insert_with(Instant::now);
        self.reasons.len() < MAX_REASONS && self.reasons.insert(reason.to_owned())
    }

    /// Ends the outage and returns its duration, if there was one.
    fn end(&mut self) -> Option<Duration> {
        mem::take(self).since.map(|since| since.elapsed())
    }
}

/// Supervises a link until it ends, and returns the reason.
async fn supervise(shared: &Arc<Shared>, link: &Arc<Link>) -> BrokerError {
    shared.enter(State::Up(Arc::clone(link)));
    let mut watches = JoinSet::new();
    for queue in shared.loads.keys() {
        watches.spawn(watch(Arc::clone(shared), Arc::clone(link), queue.clone()));
    }
    tokio::select! {
        fault = link.ended() => topology::broken(fault),
        Some(ended) = watches.join_next() => match ended {
            Ok(error) => error,
            Err(died) => BrokerError::Unreachable(format!("checking its queues failed: {died}")),
        }
    }
}

/// Probes one queue repeatedly, on a channel of its own, so that a queue that does not answer delays no other. A
/// missing queue is recorded as a loss; it is created again when the caller restores it.
async fn watch(shared: Arc<Shared>, link: Arc<Link>, queue: String) -> BrokerError {
    let load = &shared.loads[&queue];
    let mut prober = QueueProber::new(&shared.topology, link.consuming());
    let mut probe_now = shared.probe_now.subscribe();
    let mut tick = interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let due = tokio::select! {
            _ = probe_now.changed() => Some(load.start_probe()),
            _ = tick.tick() => load.probe_if_due(),
        };
        let Some(before) = due.filter(|_| !shared.is_quarantined(&queue)) else { continue };
        match prober.probe(&queue).await {
            Ok(result) => {
                if shared.record_probe(&queue, before, result) == QueueChange::Lost {
                    warn_of_loss(&queue);
                    link.begin_anew(&queue).await;
                }
            }
            Err(error) => return error,
        }
    }
}

/// Half to one and a half times the delay, so that instances that lost the broker together do not return together.
fn jittered(delay: Duration) -> Duration {
    let random = RandomState::new().hash_one(delay) % 1_000;
    delay / 2 + delay.mul_f64(f64::from(u32::try_from(random).unwrap_or_default()) / 1_000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_told_once_in_an_outage_and_there_is_an_end_to_reasons() {
        let mut outage = Outage::default();
        assert!(outage.end().is_none());
        assert!(outage.is_new_reason("refused") && outage.is_new_reason("reset"));
        assert!(!outage.is_new_reason("refused") && !outage.is_new_reason("reset"));
        assert!(outage.end().is_some() && outage.end().is_none());
        assert!((0..MAX_REASONS).all(|reason| outage.is_new_reason(&reason.to_string())));
        assert!(!outage.is_new_reason("one more"));
    }
}
