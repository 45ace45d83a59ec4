//! Limits per recipient domain. A domain gets at most a number of messages at a time and a second, because servers
//! refuse senders that exceed this. A few messages wait for a permit. The others are released and return one after the
//! other, so that a busy domain delays no other.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, timeout};

use crate::RateLimit;

const WAIT_TIMEOUT: Duration = Duration::from_secs(1);
/// How many messages wait for a domain besides those that have a permit. Each of them occupies one of the channel's
/// attempts.
const MAX_WAITING: usize = 2;
/// The longest time until a released message returns, however many there are: the estimate may be too pessimistic.
const MAX_WAIT: Duration = Duration::from_mins(15);
/// The most domains that are remembered. Beyond it, unused ones are forgotten.
const MAX_DOMAINS: usize = 10_000;

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DomainLimits {
    pub concurrency: Option<usize>,
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
    permits: Option<Arc<Semaphore>>,
    rate_limit: Option<RateLimit>,
    waiting: Semaphore,
    return_queue: Mutex<ReturnQueue>,
}

/// The messages that were released.
#[derive(Debug)]
struct ReturnQueue {
    /// When the last of them returns.
    ends: Instant,
    /// How long a permit is held at present.
    hold_time: Duration,
}

/// Held while a message to the domain is being sent.
#[derive(Debug)]
pub struct DomainPermit {
    domain: Arc<Domain>,
    since: Instant,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Domains {
    pub fn new(limits: DomainLimits) -> Self {
        Domains { limits, known: Mutex::default() }
    }

    /// Waits for a permit until the deadline, or returns after how long to come back. Without limits there are no
    /// permits.
    pub async fn acquire(&self, name: &str, until: Instant) -> Result<Option<DomainPermit>, Duration> {
        if self.limits == (DomainLimits { concurrency: None, per_second: None }) {
            return Ok(None);
        }
        let domain = self.domain(name);
        let until = until.min(Instant::now() + WAIT_TIMEOUT);
        match domain.take(until).await {
            Some(permit) => Ok(Some(DomainPermit { since: Instant::now(), _permit: permit, domain })),
            None => Err(domain.schedule_return(Instant::now())),
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
            permits: limits.concurrency.map(|permits| Arc::new(Semaphore::new(permits))),
            rate_limit: limits.per_second.map(RateLimit::new),
            waiting: Semaphore::new(MAX_WAITING),
            return_queue: Mutex::new(ReturnQueue { ends: now, hold_time: Duration::ZERO }),
        }
    }

    /// A permit, if there is a limit of concurrency. `None` if none is free in time, or if too many wait.
    async fn take(&self, until: Instant) -> Option<Option<OwnedSemaphorePermit>> {
        let mut waiting_permit = None;
        let permit = match &self.permits {
            None => None,
            Some(permits) => Some(if let Ok(permit) = Arc::clone(permits).try_acquire_owned() {
                permit
            } else {
                waiting_permit = Some(self.waiting.try_acquire().ok()?);
                let left = until.saturating_duration_since(Instant::now());
                timeout(left, Arc::clone(permits).acquire_owned()).await.ok()?.ok()?
            }),
        };
        if let Some(rate_limit) = &self.rate_limit {
            let now = Instant::now();
            if waiting_permit.is_none() && !rate_limit.wait(now).is_zero() {
                waiting_permit = Some(self.waiting.try_acquire().ok()?);
            }
            sleep(rate_limit.reserve(now, until.saturating_duration_since(now)).ok()?).await;
        }
        drop(waiting_permit);
        Some(permit)
    }

    /// The return time of a released message: after all others, at the rate at which the domain accepts messages.
    fn schedule_return(&self, now: Instant) -> Duration {
        let mut return_queue = self.return_queue();
        let permits = u32::try_from(self.limits.concurrency.unwrap_or(1)).unwrap_or(u32::MAX);
        let by_rate =
            self.limits.per_second.map_or(Duration::ZERO, |rate| Duration::from_secs_f64(1.0 / rate));
        let spacing = by_rate.max(return_queue.hold_time / permits).max(MIN_SPACING);
        let soonest = now
            + WAIT_TIMEOUT
                .max(self.rate_limit.as_ref().map_or(Duration::ZERO, |rate_limit| rate_limit.wait(now)));
        return_queue.ends = (return_queue.ends.max(soonest) + spacing).min(now + MAX_WAIT);
        return_queue.ends - now
    }

    fn is_busy(&self, now: Instant) -> bool {
        self.return_queue().ends > now
            || self.rate_limit.as_ref().is_some_and(|rate_limit| !rate_limit.wait(now).is_zero())
    }

    fn return_queue(&self) -> MutexGuard<'_, ReturnQueue> {
        self.return_queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Used until the hold time of a permit has been measured.
const MIN_SPACING: Duration = Duration::from_millis(1);

impl Drop for DomainPermit {
    fn drop(&mut self) {
        let mut return_queue = self.domain.return_queue();
        return_queue.hold_time = (return_queue.hold_time * 7 + self.since.elapsed()) / 8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::future::join_all;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(10)
    }

    fn with_concurrency(permits: usize) -> Domains {
        Domains::new(DomainLimits { concurrency: Some(permits), per_second: None })
    }

    #[tokio::test(start_paused = true)]
    async fn a_domain_has_its_own_permits() {
        let domains = with_concurrency(1);
        let first = domains.acquire("a.example", soon()).await.unwrap();
        assert!(domains.acquire("b.example", soon()).await.is_ok());
        assert!(domains.acquire("a.example", soon()).await.unwrap_err() > WAIT_TIMEOUT);
        drop(first);
        assert!(domains.acquire("a.example", soon()).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_domain_has_its_own_rate_limit() {
        let domains = Domains::new(DomainLimits { concurrency: None, per_second: Some(0.5) });
        assert!(domains.acquire("a.example", soon()).await.is_ok());
        assert!(domains.acquire("b.example", soon()).await.is_ok());
        assert!(domains.acquire("a.example", soon()).await.unwrap_err() > WAIT_TIMEOUT);
        sleep(Duration::from_secs(2)).await;
        assert!(domains.acquire("a.example", soon()).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_longer_than_the_attempt_may() {
        let domains = with_concurrency(1);
        let _first = domains.acquire("a.example", soon()).await.unwrap();
        let (begun, little) = (Instant::now(), Duration::from_millis(100));
        assert!(domains.acquire("a.example", begun + little).await.is_err());
        assert!((little..little * 2).contains(&begun.elapsed()), "{:?}", begun.elapsed());
        assert!(domains.acquire("a.example", begun).await.is_err(), "it is too late already");
    }

    #[tokio::test(start_paused = true)]
    async fn a_few_wait_and_the_others_are_let_go_at_once() {
        for limits in [
            DomainLimits { concurrency: Some(1), per_second: None },
            DomainLimits { concurrency: None, per_second: Some(10.0) },
        ] {
            let domains = Domains::new(limits);
            let _first = domains.acquire("a.example", soon()).await.unwrap();
            let begun = Instant::now();
            let waited = join_all((0..20).map(async |_| {
                let permit = domains.acquire("a.example", soon()).await;
                (permit.err(), begun.elapsed())
            }));
            let at_once = waited.await.into_iter().filter(|(_, waited)| waited.is_zero()).count();
            assert_eq!(at_once, 20 - MAX_WAITING, "{limits:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_let_go_comes_back_one_after_the_other_as_fast_as_they_are_served() {
        let domains = with_concurrency(2);
        // Each message takes 1.5 s.
        for _ in 0..50 {
            let permit = domains.acquire("a.example", soon()).await.unwrap();
            sleep(Duration::from_millis(1_500)).await;
            drop(permit);
        }
        let _permits =
            [domains.acquire("a.example", soon()).await, domains.acquire("a.example", soon()).await];
        let afters = join_all((0..102).map(|_| domains.acquire("a.example", soon()))).await;
        let mut afters: Vec<Duration> = afters.into_iter().filter_map(Result::err).collect();
        afters.sort_unstable();
        assert!(afters.windows(2).all(|two| two[0] < two[1]), "{afters:?}");
        let last = afters.last().unwrap().as_secs_f64();
        // 100 messages, two at a time.
        assert!((70.0..80.0).contains(&last), "{last}");
    }

    #[tokio::test(start_paused = true)]
    async fn domains_that_nobody_writes_to_are_forgotten() {
        let domains = with_concurrency(1);
        let kept = domains.acquire("kept.example", soon()).await.unwrap();
        for number in 0..MAX_DOMAINS {
            drop(domains.acquire(&format!("{number}.example"), soon()).await);
        }
        assert!(domains.known.lock().unwrap().len() <= MAX_DOMAINS);
        assert!(domains.acquire("kept.example", soon()).await.is_err(), "its turn is not forgotten");
        drop(kept);
    }
}
