//! Logs the failures of a provider: a warning when they begin, at most one a minute while they last, and a line when it
//! works again. A warning names the provider, a code and a count, and never an address.

use std::borrow::Cow;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use campanile_domain::send::Outcome;
use tokio::time::Instant;

use crate::Answer;

/// The time between two warnings of a lasting failure.
const REPEAT_INTERVAL: Duration = Duration::from_mins(1);
/// The most failures within that time that are logged as new. A provider that fails now and then would otherwise fill
/// the log.
const MAX_NEW_WARNINGS: u32 = 3;

/// Why a provider accepted nothing, in short.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// Such as `554 5.7.1`, `401` or `unreachable`. It contains nothing of a message.
    pub code: Cow<'static, str>,
    /// The provider refuses our credentials or our sender, so somebody has to correct the configuration.
    pub refuses_us: bool,
}

impl Cause {
    pub fn new(code: impl Into<Cow<'static, str>>) -> Self {
        Cause { code: code.into(), refuses_us: false }
    }

    pub fn refusal(code: impl Into<Cow<'static, str>>) -> Self {
        Cause { code: code.into(), refuses_us: true }
    }
}

/// Whether a provider is failing at present, and since when.
#[derive(Debug, Default)]
pub struct FailureLog(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// `None` while the provider works.
    failing: Option<Failing>,
    /// When a failure was last logged as new, and how many were within [`REPEAT_INTERVAL`].
    new: Option<(Instant, u32)>,
}

#[derive(Debug)]
struct Failing {
    since: Instant,
    failures: u64,
    /// Failures since the last warning.
    unreported: u64,
    warned_at: Option<Instant>,
    /// The code with which it refused our credentials or sender, until it accepts a message.
    refusal: Option<Cow<'static, str>>,
}

impl FailureLog {
    /// Records an answer of the provider with this name, and logs what is new.
    pub fn record(&self, provider: &str, answer: &Answer) {
        let was_asked = !matches!(
            answer.outcome,
            Outcome::RateLimited { .. }
                | Outcome::NotAttempted { .. }
                | Outcome::TemplateFailed { .. }
                | Outcome::Expired { .. }
        );
        if answer.is_failure() {
            self.record_failure(provider, answer.cause.clone().unwrap_or_else(|| Cause::new("unknown")));
        } else if was_asked {
            self.record_success(provider);
        }
    }

    /// The code of its last refusal, if it has accepted nothing since.
    pub fn refusal(&self) -> Option<Cow<'static, str>> {
        self.state().failing.as_ref()?.refusal.clone()
    }

    pub fn is_healthy(&self) -> bool {
        self.state().failing.is_none()
    }

    fn record_failure(&self, provider: &str, Cause { code, refuses_us }: Cause) {
        let now = Instant::now();
        let mut state = self.state();
        let State { failing, new } = &mut *state;
        let failing = failing.get_or_insert_with(|| Failing::since(now));
        failing.failures += 1;
        failing.unreported += 1;
        let starts_refusing = refuses_us && failing.refusal.is_none();
        if refuses_us {
            failing.refusal = Some(code.clone());
        }
        let is_new = starts_refusing || failing.warned_at.is_none();
        let warn = if is_new {
            may_warn_about_new(new, now)
        } else {
            failing.warned_at.is_some_and(|at| now.duration_since(at) >= REPEAT_INTERVAL)
        };
        if !warn {
            return;
        }
        failing.warned_at = Some(now);
        let failures = std::mem::take(&mut failing.unreported);
        let seconds = now.duration_since(failing.since).as_secs();
        if refuses_us {
            tracing::warn!(provider, %code, failures, seconds,
                "a provider rejects our credentials or sender; run `campanile doctor`");
        } else {
            tracing::warn!(provider, %code, failures, seconds, "a provider is failing");
        }
    }

    fn record_success(&self, provider: &str) {
        let Some(failing) = self.state().failing.take() else { return };
        // A failure that was not logged needs no end.
        if failing.warned_at.is_some() {
            let seconds = failing.since.elapsed().as_secs();
            tracing::info!(provider, failures = failing.failures, seconds, "a provider has recovered");
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Failing {
    fn since(now: Instant) -> Self {
        Failing { since: now, failures: 0, unreported: 0, warned_at: None, refusal: None }
    }
}

fn may_warn_about_new(new: &mut Option<(Instant, u32)>, now: Instant) -> bool {
    let (_, count) = match new {
        Some((at, count)) if now.duration_since(*at) < REPEAT_INTERVAL => (at, count),
        _ => {
            let (at, count) = new.insert((now, 0));
            (at, count)
        }
    };
    *count += 1;
    *count <= MAX_NEW_WARNINGS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_kept_until_the_provider_was_asked_and_took_something() {
        let failure_log = FailureLog::default();
        let refused = Answer::from(Outcome::Down { after: None, error: "no".to_owned() });
        failure_log.record("fcm", &refused.with_cause(Cause::refusal("403")));
        let unasked = [
            Outcome::Expired { error: String::new() },
            Outcome::TemplateFailed { error: String::new() },
            Outcome::RELEASED,
        ];
        for outcome in unasked {
            failure_log.record("fcm", &outcome.into());
            assert_eq!(failure_log.refusal().as_deref(), Some("403"));
        }
        failure_log.record("fcm", &Outcome::Sent { external_id: None }.into());
        assert!(failure_log.is_healthy() && failure_log.refusal().is_none());
    }
}
