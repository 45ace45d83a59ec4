//! A circuit breaker: who fails again and again is left alone for a while, then asked by one message whether all is well again.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use campanile_domain::send::Outcome;
use tokio::time::Instant;

/// So many failures in a row, and it opens.
const MAX_FAILURES: u32 = 5;
/// For so long at first, and twice as long each time that it is found to be down still.
const FIRST_PAUSE: Duration = Duration::from_secs(5);
const LONGEST_PAUSE: Duration = Duration::from_mins(1);
/// Who says itself when it wants to be asked again is believed, up to this.
const LONGEST_WISH: Duration = Duration::from_mins(15);

#[derive(Debug)]
pub struct Breaker(Mutex<State>);

#[derive(Debug, Clone, Copy)]
enum State {
    Closed {
        failures: u32,
    },
    /// Nobody is let through before this.
    Open {
        until: Instant,
        pause: Duration,
    },
    /// One message is on its way to find out.
    Probing {
        pause: Duration,
    },
}

impl Default for Breaker {
    fn default() -> Self {
        Breaker(Mutex::new(State::Closed { failures: 0 }))
    }
}

impl Breaker {
    /// How long until somebody may find out whether it is well again; nothing while all is well.
    pub fn closes_in(&self, now: Instant) -> Option<Duration> {
        match *self.state() {
            State::Closed { .. } => None,
            State::Open { until, .. } => Some(until.saturating_duration_since(now)),
            State::Probing { .. } => Some(A_MOMENT),
        }
    }

    /// Lets somebody through, or says for how long nobody is.
    pub fn admit(&self, now: Instant) -> Result<Pass<'_>, Duration> {
        let mut state = self.state();
        match *state {
            State::Closed { .. } => Ok(Pass { breaker: self, probes: false, learned: false }),
            State::Open { until, pause } if until <= now => {
                *state = State::Probing { pause };
                Ok(Pass { breaker: self, probes: true, learned: false })
            }
            State::Open { until, .. } => Err(until - now),
            State::Probing { .. } => Err(A_MOMENT),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How soon to look again while somebody finds out.
const A_MOMENT: Duration = Duration::from_millis(100);

/// Somebody who was let through, and will say how it went.
#[derive(Debug)]
pub struct Pass<'a> {
    breaker: &'a Breaker,
    probes: bool,
    learned: bool,
}

impl Pass<'_> {
    pub fn learn(mut self, outcome: &Outcome) {
        self.learned = true;
        let mut state = self.breaker.state();
        let failed = match outcome {
            Outcome::Down { after: Some(wish), .. } => {
                *state =
                    State::Open { until: Instant::now() + (*wish).min(LONGEST_WISH), pause: FIRST_PAUSE };
                return;
            }
            Outcome::Down { after: None, .. } | Outcome::Unknown { .. } => true,
            Outcome::Sent { .. } | Outcome::Retry { .. } | Outcome::Rejected { .. } => false,
            Outcome::NotAttempted { .. } | Outcome::Unwritable { .. } => {
                drop(state);
                return self.forget();
            }
        };
        *state = match *state {
            State::Closed { failures } if failed && failures + 1 < MAX_FAILURES => {
                State::Closed { failures: failures + 1 }
            }
            State::Closed { .. } if failed => open(FIRST_PAUSE),
            State::Probing { pause } if failed && self.probes => open((pause * 2).min(LONGEST_PAUSE)),
            // Who was let through before it opened says nothing new by failing, too.
            State::Open { .. } | State::Probing { .. } if failed => return,
            State::Closed { .. } | State::Open { .. } | State::Probing { .. } => {
                State::Closed { failures: 0 }
            }
        };
    }

    /// Nothing was found out: the next one may.
    fn forget(&self) {
        let mut state = self.breaker.state();
        if let (true, State::Probing { pause }) = (self.probes, *state) {
            *state = State::Open { until: Instant::now(), pause };
        }
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        if !self.learned {
            self.forget();
        }
    }
}

fn open(pause: Duration) -> State {
    State::Open { until: Instant::now() + pause, pause }
}
