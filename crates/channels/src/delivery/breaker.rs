//! A circuit breaker. After repeated failures a provider gets no messages for a while; then a single message probes
//! whether it works again.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use campanile_domain::send::Outcome;
use tokio::time::Instant;

/// The breaker opens after this many failures in a row.
const MAX_FAILURES: u32 = 5;
/// The first time that it stays open. The time doubles after each failed probe, up to the maximum.
const MIN_OPEN_TIME: Duration = Duration::from_secs(5);
const MAX_OPEN_TIME: Duration = Duration::from_mins(1);
/// The longest time that a provider may ask to be left alone.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(15);

#[derive(Debug)]
pub struct Breaker(Mutex<State>);

#[derive(Debug, Clone, Copy)]
enum State {
    Closed {
        failures: u32,
    },
    /// No message is admitted before this time.
    Open {
        until: Instant,
        open_time: Duration,
    },
    /// One message is probing the provider.
    Probing {
        open_time: Duration,
    },
}

impl Default for Breaker {
    fn default() -> Self {
        Breaker(Mutex::new(State::Closed { failures: 0 }))
    }
}

impl Breaker {
    /// The time until a message may probe the provider. `None` while the breaker is closed.
    pub fn closes_in(&self, now: Instant) -> Option<Duration> {
        match *self.state() {
            State::Closed { .. } => None,
            State::Open { until, .. } => Some(until.saturating_duration_since(now)),
            State::Probing { .. } => Some(PROBE_POLL_INTERVAL),
        }
    }

    /// Admits a message, or returns how long none is admitted.
    pub fn admit(&self, now: Instant) -> Result<Permit<'_>, Duration> {
        let mut state = self.state();
        match *state {
            State::Closed { .. } => Ok(Permit { breaker: self, probes: false, recorded: false }),
            State::Open { until, open_time } if until <= now => {
                *state = State::Probing { open_time };
                Ok(Permit { breaker: self, probes: true, recorded: false })
            }
            State::Open { until, .. } => Err(until - now),
            State::Probing { .. } => Err(PROBE_POLL_INTERVAL),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How soon to ask again while another message is probing.
const PROBE_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// An admitted message. Its outcome must be recorded.
#[derive(Debug)]
pub struct Permit<'a> {
    breaker: &'a Breaker,
    probes: bool,
    recorded: bool,
}

impl Permit<'_> {
    pub fn record(mut self, outcome: &Outcome) {
        let result = match outcome {
            Outcome::Down { after: Some(retry_after), .. } => {
                CallResult::RetryAt { at: Instant::now() + (*retry_after).min(MAX_RETRY_AFTER) }
            }
            Outcome::Down { after: None, .. }
            | Outcome::Unknown { .. }
            | Outcome::Unanswered { .. }
            | Outcome::Unclear { .. } => CallResult::Failed,
            Outcome::Sent { .. }
            | Outcome::Retry { .. }
            | Outcome::Deferred { .. }
            | Outcome::Rejected { .. } => CallResult::Succeeded,
            // The provider was not asked, or only this address is busy.
            Outcome::NotAttempted { .. }
            | Outcome::RateLimited { .. }
            | Outcome::TemplateFailed { .. }
            | Outcome::Expired { .. } => return,
        };
        self.apply(result);
    }

    /// Opens the breaker at once: the provider refuses every message.
    pub fn refused(mut self) {
        self.apply(CallResult::Refused);
    }

    fn apply(&mut self, result: CallResult) {
        self.recorded = true;
        let mut state = self.breaker.state();
        *state = after(*state, self.probes, result);
    }

    /// Ends a probe without a result, so that the next message may probe.
    fn end_probe(&self) {
        let mut state = self.breaker.state();
        if let (true, State::Probing { open_time }) = (self.probes, *state) {
            *state = State::Open { until: Instant::now(), open_time };
        }
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        if !self.recorded {
            self.end_probe();
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum CallResult {
    Succeeded,
    Failed,
    /// A failure of the provider, whatever the message.
    Refused,
    /// A failure of the provider, with the time of the next try.
    RetryAt {
        at: Instant,
    },
}

fn after(state: State, probes: bool, result: CallResult) -> State {
    match (state, result) {
        (State::Closed { .. }, CallResult::Succeeded) => State::Closed { failures: 0 },
        (State::Closed { failures }, CallResult::Failed) if failures + 1 < MAX_FAILURES => {
            State::Closed { failures: failures + 1 }
        }
        (State::Closed { .. }, CallResult::Failed | CallResult::Refused) => open(MIN_OPEN_TIME),
        (State::Closed { .. }, CallResult::RetryAt { at }) => {
            State::Open { until: at, open_time: MIN_OPEN_TIME }
        }
        (State::Probing { .. }, CallResult::Succeeded) if probes => State::Closed { failures: 0 },
        (State::Probing { open_time }, CallResult::Failed | CallResult::Refused) if probes => {
            open((open_time * 2).min(MAX_OPEN_TIME))
        }
        (State::Probing { open_time }, CallResult::RetryAt { at }) => State::Open { until: at, open_time },
        // Results of messages that were admitted before the breaker opened change nothing, except that a longer wait
        // applies.
        (State::Open { until, open_time }, CallResult::RetryAt { at }) => {
            State::Open { until: until.max(at), open_time }
        }
        (
            State::Open { .. } | State::Probing { .. },
            CallResult::Succeeded | CallResult::Failed | CallResult::Refused,
        ) => state,
    }
}

fn open(open_time: Duration) -> State {
    State::Open { until: Instant::now() + open_time, open_time }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SENT: Outcome = Outcome::Sent { external_id: None };
    const A_MINUTE: Duration = Duration::from_mins(1);

    fn down(after: Option<Duration>) -> Outcome {
        Outcome::Down { after, error: "away".to_owned() }
    }

    fn permits<const N: usize>(breaker: &Breaker) -> [Permit<'_>; N] {
        std::array::from_fn(|_| breaker.admit(Instant::now()).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_under_way_when_it_opened_does_not_close_it() {
        let breaker = Breaker::default();
        let [first, late, later] = permits(&breaker);
        first.record(&down(Some(A_MINUTE)));
        late.record(&SENT);
        assert_eq!(breaker.closes_in(Instant::now()), Some(A_MINUTE));
        tokio::time::advance(A_MINUTE).await;
        let [probe] = permits(&breaker);
        later.record(&SENT);
        assert!(breaker.admit(Instant::now()).is_err(), "only the one that finds out closes it");
        probe.record(&SENT);
        assert_eq!(breaker.closes_in(Instant::now()), None);
    }

    #[tokio::test(start_paused = true)]
    async fn who_refuses_everybody_is_left_alone_at_once() {
        let breaker = Breaker::default();
        let [first] = permits(&breaker);
        first.refused();
        assert_eq!(breaker.closes_in(Instant::now()), Some(MIN_OPEN_TIME));
        tokio::time::advance(MIN_OPEN_TIME).await;
        let [probe] = permits(&breaker);
        probe.refused();
        assert_eq!(breaker.closes_in(Instant::now()), Some(MIN_OPEN_TIME * 2));
    }

    #[tokio::test(start_paused = true)]
    async fn of_several_retry_afters_the_longest_counts() {
        let breaker = Breaker::default();
        let [first, shorter, longer, none] = permits(&breaker);
        first.record(&down(Some(A_MINUTE)));
        shorter.record(&down(Some(Duration::from_secs(1))));
        none.record(&down(None));
        assert_eq!(breaker.closes_in(Instant::now()), Some(A_MINUTE));
        longer.record(&down(Some(A_MINUTE * 2)));
        assert_eq!(breaker.closes_in(Instant::now()), Some(A_MINUTE * 2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_retry_after_that_comes_during_a_probe_outlasts_its_success() {
        let breaker = Breaker::default();
        let [first, late] = permits(&breaker);
        first.record(&down(Some(Duration::from_secs(1))));
        tokio::time::advance(Duration::from_secs(1)).await;
        let [probe] = permits(&breaker);
        late.record(&down(Some(A_MINUTE)));
        probe.record(&SENT);
        assert_eq!(breaker.closes_in(Instant::now()), Some(A_MINUTE));
    }
}
