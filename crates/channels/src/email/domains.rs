//! Limits per recipient domain: a domain that would think us too eager gets no more at a time, and no more a second, than it
//! likes. A few wait a moment for it; the others are let go and come back one after the other, so that a busy domain holds up nobody
//! else.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, timeout};

use crate::RateLimit;

const PATIENCE: Duration = Duration::from_secs(1);
/// So many wait for a domain besides those that have a turn. Each holds up one of the channel's attempts meanwhile.
const MAX_WAITING: usize = 2;
/// Who is let go comes back by then, however many others there are: things may be better than they look.
const LONGEST_WAIT: Duration = Duration::from_mins(15);
/// Domains that are remembered; beyond it those that nobody writes to are forgotten.
const MAX_DOMAINS: usize = 10_000;

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DomainLimits {
    pub at_once: Option<usize>,
    pub per_second: Option<f64>,
}

#[derive(Debug)]
pub struct Domains {
    limits: DomainLimits,
    known: Mutex<HashMap<String, Arc<Domain>>>,
}

#[derive(Debug)]
struct Domain {
    limits: DomainLimits,
    turns: Option<Arc<Semaphore>>,
    rate_limit: Option<RateLimit>,
    waiting: Semaphore,
    line: Mutex<Line>,
}

/// Those that were let go.
#[derive(Debug)]
struct Line {
    /// When the last of them comes back.
    ends: Instant,
    /// How long a turn takes at present.
    turn: Duration,
}

/// Held while a message to the domain is under way.
#[derive(Debug)]
pub struct Turn {
    domain: Arc<Domain>,
    since: Instant,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Domains {
    pub fn new(limits: DomainLimits) -> Self {
        Domains { limits, known: Mutex::default() }
    }

    /// Waits for a turn until then, or says after how long to come back. Without limits there are no turns.
    pub async fn turn(&self, name: &str, until: Instant) -> Result<Option<Turn>, Duration> {
        if self.limits == (DomainLimits { at_once: None, per_second: None }) {
            return Ok(None);
        }
        let domain = self.domain(name);
        let until = until.min(Instant::now() + PATIENCE);
        match domain.take(until).await {
            Some(permit) => Ok(Some(Turn { since: Instant::now(), _permit: permit, domain })),
            None => Err(domain.let_go(Instant::now())),
        }
    }

    fn domain(&self, name: &str) -> Arc<Domain> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if known.len() >= MAX_DOMAINS && !known.contains_key(name) {
            known.retain(|_, domain| domain.is_busy(now) || Arc::strong_count(domain) > 1);
        }
        Arc::clone(known.entry(name.to_owned()).or_insert_with(|| Arc::new(Domain::new(self.limits, now))))
    }
}

impl Domain {
    fn new(limits: DomainLimits, now: Instant) -> Self {
        Domain {
            limits,
            turns: limits.at_once.map(|turns| Arc::new(Semaphore::new(turns))),
            rate_limit: limits.per_second.map(RateLimit::new),
            waiting: Semaphore::new(MAX_WAITING),
            line: Mutex::new(Line { ends: now, turn: Duration::ZERO }),
        }
    }

    /// A turn, where turns are counted; nothing at all if there is none in time, or too many wait for one.
    async fn take(&self, until: Instant) -> Option<Option<OwnedSemaphorePermit>> {
        let mut place = None;
        let turn = match &self.turns {
            None => None,
            Some(turns) => Some(if let Ok(turn) = Arc::clone(turns).try_acquire_owned() {
                turn
            } else {
                place = Some(self.waiting.try_acquire().ok()?);
                let left = until.saturating_duration_since(Instant::now());
                timeout(left, Arc::clone(turns).acquire_owned()).await.ok()?.ok()?
            }),
        };
        if let Some(rate_limit) = &self.rate_limit {
            let now = Instant::now();
            if place.is_none() && !rate_limit.wait(now).is_zero() {
                place = Some(self.waiting.try_acquire().ok()?);
            }
            sleep(rate_limit.reserve(now, until.saturating_duration_since(now)).ok()?).await;
        }
        drop(place);
        Some(turn)
    }

    /// The next place in the line of those that come back: after all others, as far apart as they can be served.
    fn let_go(&self, now: Instant) -> Duration {
        let mut line = self.line();
        let turns = u32::try_from(self.limits.at_once.unwrap_or(1)).unwrap_or(u32::MAX);
        let by_pace =
            self.limits.per_second.map_or(Duration::ZERO, |rate| Duration::from_secs_f64(1.0 / rate));
        let apart = by_pace.max(line.turn / turns).max(LEAST_APART);
        let soonest = now
            + PATIENCE
                .max(self.rate_limit.as_ref().map_or(Duration::ZERO, |rate_limit| rate_limit.wait(now)));
        line.ends = (line.ends.max(soonest) + apart).min(now + LONGEST_WAIT);
        line.ends - now
    }

    fn is_busy(&self, now: Instant) -> bool {
        self.line().ends > now
            || self.rate_limit.as_ref().is_some_and(|rate_limit| !rate_limit.wait(now).is_zero())
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Until a turn was measured.
const LEAST_APART: Duration = Duration::from_millis(1);

impl Drop for Turn {
    fn drop(&mut self) {
        let mut line = self.domain.line();
        line.turn = (line.turn * 7 + self.since.elapsed()) / 8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::future::join_all;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(10)
    }

    fn at_once(turns: usize) -> Domains {
        Domains::new(DomainLimits { at_once: Some(turns), per_second: None })
    }

    #[tokio::test(start_paused = true)]
    async fn a_domain_has_its_own_turns() {
        let domains = at_once(1);
        let first = domains.turn("a.example", soon()).await.unwrap();
        assert!(domains.turn("b.example", soon()).await.is_ok());
        assert!(domains.turn("a.example", soon()).await.unwrap_err() > PATIENCE);
        drop(first);
        assert!(domains.turn("a.example", soon()).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_domain_has_its_own_pace() {
        let domains = Domains::new(DomainLimits { at_once: None, per_second: Some(0.5) });
        assert!(domains.turn("a.example", soon()).await.is_ok());
        assert!(domains.turn("b.example", soon()).await.is_ok());
        assert!(domains.turn("a.example", soon()).await.unwrap_err() > PATIENCE);
        sleep(Duration::from_secs(2)).await;
        assert!(domains.turn("a.example", soon()).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_longer_than_the_attempt_may() {
        let domains = at_once(1);
        let _first = domains.turn("a.example", soon()).await.unwrap();
        let (begun, little) = (Instant::now(), Duration::from_millis(100));
        assert!(domains.turn("a.example", begun + little).await.is_err());
        assert!((little..little * 2).contains(&begun.elapsed()), "{:?}", begun.elapsed());
        assert!(domains.turn("a.example", begun).await.is_err(), "it is too late already");
    }

    #[tokio::test(start_paused = true)]
    async fn a_few_wait_and_the_others_are_let_go_at_once() {
        for limits in [
            DomainLimits { at_once: Some(1), per_second: None },
            DomainLimits { at_once: None, per_second: Some(10.0) },
        ] {
            let domains = Domains::new(limits);
            let _first = domains.turn("a.example", soon()).await.unwrap();
            let begun = Instant::now();
            let waited = join_all((0..20).map(async |_| {
                let turn = domains.turn("a.example", soon()).await;
                (turn.err(), begun.elapsed())
            }));
            let at_once = waited.await.into_iter().filter(|(_, waited)| waited.is_zero()).count();
            assert_eq!(at_once, 20 - MAX_WAITING, "{limits:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_let_go_comes_back_one_after_the_other_as_fast_as_they_are_served() {
        let domains = at_once(2);
        // It takes a second and a half.
        for _ in 0..50 {
            let turn = domains.turn("a.example", soon()).await.unwrap();
            sleep(Duration::from_millis(1_500)).await;
            drop(turn);
        }
        let _turns = [domains.turn("a.example", soon()).await, domains.turn("a.example", soon()).await];
        let afters = join_all((0..102).map(|_| domains.turn("a.example", soon()))).await;
        let mut afters: Vec<Duration> = afters.into_iter().filter_map(Result::err).collect();
        afters.sort_unstable();
        assert!(afters.windows(2).all(|two| two[0] < two[1]), "{afters:?}");
        let last = afters.last().unwrap().as_secs_f64();
        // A hundred, two at a time.
        assert!((70.0..80.0).contains(&last), "{last}");
    }

    #[tokio::test(start_paused = true)]
    async fn domains_that_nobody_writes_to_are_forgotten() {
        let domains = at_once(1);
        let kept = domains.turn("kept.example", soon()).await.unwrap();
        for number in 0..MAX_DOMAINS {
            drop(domains.turn(&format!("{number}.example"), soon()).await);
        }
        assert!(domains.known.lock().unwrap().len() <= MAX_DOMAINS);
        assert!(domains.turn("kept.example", soon()).await.is_err(), "its turn is not forgotten");
        drop(kept);
    }
}
