//! A rate limit in messages a second, spread evenly, with a small burst.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// This much of a second's messages may go at once.
const BURST: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub struct RateLimit {
    interval: Duration,
    /// When the next message is due.
    next: Mutex<Instant>,
}

impl RateLimit {
    /// `per_second` must be positive.
    pub fn new(per_second: f64) -> Self {
        let interval = Duration::from_secs_f64(1.0 / per_second);
        RateLimit { interval, next: Mutex::new(Instant::now()) }
    }

    pub fn per_second(&self) -> f64 {
        1.0 / self.interval.as_secs_f64()
    }

    /// How long until a message may go.
    pub fn wait(&self, now: Instant) -> Duration {
        let next = *self.next.lock().unwrap_or_else(PoisonError::into_inner);
        self.wait_for(next, now)
    }

    /// Reserves the next slot, unless it is further away than `max_wait`. Returns how long to wait.
    pub fn reserve(&self, now: Instant, max_wait: Duration) -> Result<Duration, Duration> {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let wait = self.wait_for(*next, now);
        if wait > max_wait {
            return Err(wait);
        }
        *next = (*next).max(now) + self.interval;
        Ok(wait)
    }

    fn wait_for(&self, next: Instant, now: Instant) -> Duration {
        next.saturating_duration_since(now).saturating_sub(BURST.saturating_sub(self.interval))
    }
}
