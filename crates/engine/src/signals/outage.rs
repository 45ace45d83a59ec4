//! Logs when an outage begins, while it continues, and when it ends. All tasks notice an outage at the same time, so
//! one log line covers all of them.

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Minimum time between two warnings, whether of one outage or of several.
const WARN_INTERVAL: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub struct OutageLog {
    /// As in `database unavailable`.
    name: &'static str,
    /// Whether there is an outage. A success reads only this flag while there is none.
    is_ongoing: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    current: Option<Outage>,
    last_warning: Option<Instant>,
}

#[derive(Debug)]
struct Outage {
    since: Instant,
    /// The stage that noticed the outage first; its success ends the outage. Other stages may succeed meanwhile: while
    /// the disk is full, reading still works.
    stage: &'static str,
    warned: bool,
}

impl OutageLog {
    pub fn of(name: &'static str) -> Self {
        OutageLog { name, is_ongoing: AtomicBool::default(), state: Mutex::default() }
    }

    /// Records that a stage failed; it tries again until it succeeds.
    pub fn record_failure(&self, stage: &'static str, error: &dyn Display) {
        let mut log = self.lock();
        let now = Instant::now();
        let is_due = log.last_warning.is_none_or(|last| now.duration_since(last) >= WARN_INTERVAL);
        let outage = log.current.get_or_insert(Outage { since: now, stage, warned: false });
        if is_due {
            outage.warned = true;
            log.last_warning = Some(now);
            tracing::warn!(%error, stage, "{} unavailable; retrying", self.name);
        } else {
            tracing::debug!(%error, stage, "stage still waiting");
        }
        self.is_ongoing.store(true, Ordering::Relaxed);
    }

    /// Records that a stage succeeded.
    pub fn record_success(&self, stage: &'static str) {
        if !self.is_ongoing.load(Ordering::Relaxed) {
            return;
        }
        let mut log = self.lock();
        let Some(outage) = log.current.take_if(|outage| outage.stage == stage) else { return };
        self.is_ongoing.store(false, Ordering::Relaxed);
        // An outage that was not logged at its start is not logged at its end.
        if outage.warned {
            tracing::info!("the {} is back after {:.1?}", self.name, outage.since.elapsed());
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn current(log: &OutageLog) -> Option<(&'static str, bool)> {
        log.lock().current.as_ref().map(|outage| (outage.stage, outage.warned))
    }

    #[test]
    fn an_outage_is_over_when_who_noticed_it_first_succeeds() {
        let log = OutageLog::of("database");
        log.record_success("settle");
        assert_eq!(current(&log), None);
        log.record_failure("settle", &"full disk");
        log.record_failure("fan_out", &"full disk");
        log.record_success("rules");
        log.record_success("fan_out");
        assert_eq!(current(&log), Some(("settle", true)));
        log.record_success("settle");
        assert_eq!(current(&log), None);
    }

    #[test]
    fn a_second_outage_soon_after_the_first_is_logged_only_if_it_lasts() {
        let log = OutageLog::of("database");
        log.record_failure("settle", &"gone");
        log.record_success("settle");
        log.record_failure("rules", &"gone");
        assert_eq!(current(&log), Some(("rules", false)));
        log.lock().last_warning = Instant::now().checked_sub(WARN_INTERVAL);
        log.record_failure("rules", &"gone");
        assert_eq!(current(&log), Some(("rules", true)));
    }
}
