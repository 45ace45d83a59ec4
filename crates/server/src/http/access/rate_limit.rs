//! Rate limits of this instance, by key, by user and by address. Each is a bucket that refills evenly: a full bucket
//! allows a minute's requests at once. Memory is bounded, whoever asks.
//!
//! `governor` was considered: it cannot look at a bucket without taking from it, and does not bound its memory.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, HeaderName, HeaderValue};

const MINUTE: Duration = Duration::from_mins(1);
/// Buckets that are remembered. A full bucket is forgotten first, because it is as good as none.
const MAX_BUCKETS: usize = 100_000;
/// Minimum time between two searches for full buckets.
const PURGE_INTERVAL: Duration = Duration::from_secs(1);

/// Buckets of the same size. `None` as the key is a bucket for all who found no place of their own.
#[derive(Debug)]
pub struct RateLimit<K> {
    per_minute: u32,
    max_buckets: usize,
    state: Mutex<State<K>>,
}

#[derive(Debug)]
struct State<K> {
    /// When each bucket is full again.
    full_at: HashMap<Option<K>, Instant>,
    next_purge: Option<Instant>,
}

/// What remains of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remaining {
    limit: u32,
    requests: u32,
    full_in: Duration,
    /// How long until the next request is allowed, if this one is not.
    wait: Option<Duration>,
}

impl<K: Hash + Eq> RateLimit<K> {
    /// Without a limit, everything is allowed.
    pub fn new(per_minute: u32) -> Self {
        RateLimit::with_buckets(per_minute, MAX_BUCKETS)
    }

    fn with_buckets(per_minute: u32, max_buckets: usize) -> Self {
        let state = State { full_at: HashMap::new(), next_purge: None };
        RateLimit { per_minute, max_buckets, state: Mutex::new(state) }
    }

    /// Takes a request from the bucket, if it has one. `None` without a limit.
    pub fn take(&self, key: K, now: Instant) -> Option<Remaining> {
        self.draw(key, now, true)
    }

    /// Tells whether the bucket has a request left, and leaves it there.
    pub fn peek(&self, key: K, now: Instant) -> Option<Remaining> {
        self.draw(key, now, false)
    }

    fn draw(&self, key: K, now: Instant, take: bool) -> Option<Remaining> {
        let interval = MINUTE.checked_div(self.per_minute)?;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let key = state.place(key, self.max_buckets, now);
        let full_at = state.full_at.get(&key).copied().unwrap_or(now).max(now);
        let taken = full_at + interval;
        // An interval's worth of a bucket is a request.
        let missing = taken.duration_since(now);
        let wait = missing.checked_sub(MINUTE).filter(|wait| !wait.is_zero());
        let full_at = if take && wait.is_none() { taken } else { full_at };
        if take && wait.is_none() {
            state.full_at.insert(key, full_at);
        }
        let full_in = full_at.duration_since(now);
        let left = MINUTE.saturating_sub(full_in).as_nanos() / interval.as_nanos().max(1);
        let requests = u32::try_from(left).unwrap_or(self.per_minute).min(self.per_minute);
        Some(Remaining { limit: self.per_minute, requests, full_in, wait })
    }
}

impl<K: Hash + Eq> State<K> {
    /// The key's own bucket, or the common one while there are too many.
    fn place(&mut self, key: K, max_buckets: usize, now: Instant) -> Option<K> {
        let key = Some(key);
        if self.full_at.contains_key(&key) || self.full_at.len() < max_buckets {
            return key;
        }
        if self.next_purge.is_none_or(|next| now >= next) {
            self.next_purge = Some(now + PURGE_INTERVAL);
            self.full_at.retain(|_, full_at| *full_at > now);
        }
        if self.full_at.len() < max_buckets { key } else { None }
    }
}

impl Remaining {
    /// The seconds after which the request may be repeated, if it is not allowed now.
    pub fn retry_after_seconds(&self) -> Option<u64> {
        self.wait.map(seconds)
    }

    /// Adds the headers that tell a client how much it may still ask.
    pub fn add_to(&self, headers: &mut HeaderMap) {
        for (name, number) in [
            (HeaderName::from_static("ratelimit-limit"), u64::from(self.limit)),
            (HeaderName::from_static("ratelimit-remaining"), u64::from(self.requests)),
            (HeaderName::from_static("ratelimit-reset"), seconds(self.full_in)),
        ] {
            headers.insert(name, HeaderValue::from(number));
        }
    }
}

/// Rounded up, so that a client that waits for it waits long enough.
fn seconds(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minutes_requests_may_come_at_once_and_then_evenly() {
        let (limit, now) = (RateLimit::new(60), Instant::now());
        for remaining in (0..60).rev() {
            let taken = limit.take("a", now).unwrap();
            assert_eq!((taken.requests, taken.wait), (remaining, None));
        }
        let refused = limit.take("a", now).unwrap();
        assert_eq!((refused.requests, refused.retry_after_seconds()), (0, Some(1)));
        assert_eq!(seconds(refused.full_in), 60);
        assert_eq!(limit.take("b", now).unwrap().wait, None, "others have buckets of their own");
        let later = now + Duration::from_secs(2);
        assert_eq!(limit.peek("a", later).unwrap().requests, 2);
        assert_eq!(limit.take("a", later).unwrap().requests, 1);
        assert_eq!(limit.take("a", now + MINUTE * 3).unwrap().requests, 59);
    }

    #[test]
    fn a_peek_takes_nothing() {
        let (limit, now) = (RateLimit::new(1), Instant::now());
        assert_eq!(limit.peek("a", now).unwrap().wait, None);
        assert_eq!(limit.peek("a", now).unwrap().wait, None);
        assert_eq!(limit.take("a", now).unwrap().wait, None);
        assert!(limit.peek("a", now).unwrap().wait.is_some());
    }

    #[test]
    fn zero_means_no_limit() {
        let limit = RateLimit::new(0);
        assert_eq!(limit.take("a", Instant::now()), None);
    }

    #[test]
    fn memory_is_bounded_and_a_flood_of_newcomers_shares_one_bucket() {
        let (limit, now) = (RateLimit::with_buckets(2, 3), Instant::now());
        for key in 0..3 {
            assert_eq!(limit.take(key, now).unwrap().wait, None);
        }
        let newcomers: Vec<bool> = (3..10).map(|key| limit.take(key, now).unwrap().wait.is_none()).collect();
        assert_eq!(newcomers, [true, true, false, false, false, false, false]);
        assert!(limit.state.lock().unwrap().full_at.len() <= 4);
        let known = limit.take(0, now).unwrap();
        assert_eq!(known.wait, None, "who has a bucket keeps it");
        let later = now + MINUTE * 2;
        assert_eq!(limit.take(11, later).unwrap().requests, 1, "full buckets are forgotten");
    }
}
