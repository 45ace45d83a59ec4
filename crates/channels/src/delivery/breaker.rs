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
        let news = match outcome {
            Outcome::Down { after: Some(wish), .. } => {
                News::ComeBack { at: Instant::now() + (*wish).min(LONGEST_WISH) }
            }
            Outcome::Down { after: None, .. }
            | Outcome::Unknown { .. }
            | Outcome::Unanswered { .. }
            | Outcome::Unclear { .. } => News::Failed,
            Outcome::Sent { .. }
            | Outcome::Retry { .. }
            | Outcome::Deferred { .. }
            | Outcome::Rejected { .. } => News::Well,
            // Nobody was asked, or only this address is busy.
            Outcome::NotAttempted { .. }
            | Outcome::RateLimited { .. }
            | Outcome::TemplateFailed { .. }
            | Outcome::Expired { .. } => return,
        };
        self.tell(news);
    }

    /// It refuses everybody, so that there is no need for further tries.
    pub fn refused(mut self) {
        self.tell(News::Refused);
    }

    fn tell(&mut self, news: News) {
        self.learned = true;
        let mut state = self.breaker.state();
        *state = after(*state, self.probes, news);
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

#[derive(Debug, Clone, Copy)]
enum News {
    Well,
    Failed,
    /// Failed, and not for the message's sake.
    Refused,
    /// Failed, with a wish.
    ComeBack {
        at: Instant,
    },
}

fn after(state: State, probes: bool, news: News) -> State {
    match (state, news) {
        (State::Closed { .. }, News::Well) => State::Closed { failures: 0 },
        (State::Closed { failures }, News::Failed) if failures + 1 < MAX_FAILURES => {
            State::Closed { failures: failures + 1 }
        }
        (State::Closed { .. }, News::Failed | News::Refused) => open(FIRST_PAUSE),
        (State::Closed { .. }, News::ComeBack { at }) => State::Open { until: at, pause: FIRST_PAUSE },
        (State::Probing { .. }, News::Well) if probes => State::Closed { failures: 0 },
        (State::Probing { pause }, News::Failed | News::Refused) if probes => {
            open((pause * 2).min(LONGEST_PAUSE))
        }
        (State::Probing { pause }, News::ComeBack { at }) => State::Open { until: at, pause },
        // Who was let through before it opened says nothing new, be it good or bad; only the longer wish counts.
        (State::Open { until, pause }, News::ComeBack { at }) => State::Open { until: until.max(at), pause },
        (State::Open { .. } | State::Probing { .. }, News::Well | News::Failed | News::Refused) => state,
    }
}

fn open(pause: Duration) -> State {
    State::Open { until: Instant::now() + pause, pause }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SENT: Outcome = Outcome::Sent { external_id: None };
    const A_MINUTE: Duration = Duration::from_mins(1);

    fn down(after: Option<Duration>) -> Outcome {
        Outcome::Down { after, error: "away".to_owned() }
    }

    fn passes<const N: usize>(breaker: &Breaker) -> [Pass<'_>; N] {
        std::array::from_fn(|_| breaker.admit(Instant::now()).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_under_way_when_it_opened_does_not_close_it() {
        let breaker = Breaker::default();
        let [first, late, later] = passes(&breaker);
        first.learn(&down(Some(A_MINUTE)));
        late.learn(&SENT);
        assert_eq!(breaker.closes_in(Instant::now()), Some(A_MINUTE));
        tokio::time::advance(A_MINUTE).await;
        let [probe] = passes(&breaker);
        later.learn(&SENT);
        assert!(breaker.admit(Instant::now()).is_err(), "only the one that finds out closes it");
        probe.learn(&SENT);
        assert_eq!(breaker.closes_in(Instant::now()), None);
    }

    #[tokio::test(start_paused = true)]
    async fn who_refuses_everybody_is_left_alone_at_once() {
        let breaker = Breaker::default();
        let [first] = passes(&breaker);
        first.refused();
        assert_eq!(breaker.closes_in(Instant::now()), Some(FIRST_PAUSE));
        tokio::time::advance(FIRST_PAUSE).await;
        let [probe] = passes(&breaker);
        probe.refused();
        assert_eq!(breaker.closes_in(Instant::now()), Some(FIRST_PAUSE * 2));
    }

    #[tokio::test(start_paused = true)]
    async fn of_several_wishes_the_longest_counts() {
        let breaker = Breaker::default();
        let [first, shorter, longer, none] = passes(&breaker);
        first.learn(&down(Some(A_MINUTE)));
        shorter.learn(&down(Some(Duration::from_secs(1))));
        none.learn(&down(None));
        assert_eq!(breaker.closes_in(Instant::now()), Some(A_MINUTE));
        longer.learn(&down(Some(A_MINUTE * 2)));
        assert_eq!(breaker.closes_in(Instant::now()), Some(A_MINUTE * 2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_wish_that_comes_while_one_finds_out_outlasts_its_success() {
        let breaker = Breaker::default();
        let [first, late] = passes(&breaker);
        first.learn(&down(Some(Duration::from_secs(1))));
        tokio::time::advance(Duration::from_secs(1)).await;
        let [probe] = passes(&breaker);
        late.learn(&down(Some(A_MINUTE)));
        probe.learn(&SENT);
        assert_eq!(breaker.closes_in(Instant::now()), Some(A_MINUTE));
    }
}
