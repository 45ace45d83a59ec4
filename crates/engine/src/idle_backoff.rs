//! How often to look for what is hardly ever there. PostgreSQL keeps the index entries of what is gone until it
//! vacuums, and can't as long as anybody has a snapshot from before, such as a backup: every look walks through all of
//! them. So a look that took long is followed by a long rest.

use std::time::{Duration, Instant};

/// Looking takes no more than this part of the time.
const BACKOFF_FACTOR: u32 = 10;
/// Whatever made the look so long: what a dead instance left is found by then.
const LONGEST: Duration = Duration::from_mins(1);

#[derive(Debug, Default)]
pub struct IdleBackoff {
    until: Option<Instant>,
}

impl IdleBackoff {
    /// After a look that took so long.
    pub fn after(took: Duration, now: Instant) -> Self {
        IdleBackoff { until: Some(now + (took * BACKOFF_FACTOR).min(LONGEST)) }
    }

    pub fn is_over(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| now >= until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_poll_there_is_no_backoff() {
        assert!(IdleBackoff::default().is_over(Instant::now()));
    }

    #[test]
    fn a_long_poll_is_followed_by_a_backoff_ten_times_as_long() {
        let (took, now) = (Duration::from_millis(300), Instant::now());
        let idle_backoff = IdleBackoff::after(took, now);
        assert!(!idle_backoff.is_over(now));
        assert!(!idle_backoff.is_over(now + took * 9));
        assert!(idle_backoff.is_over(now + took * 10));
    }

    #[test]
    fn no_backoff_is_longer_than_a_minute() {
        let now = Instant::now();
        let idle_backoff = IdleBackoff::after(Duration::from_mins(5), now);
        assert!(!idle_backoff.is_over(now + LONGEST / 2));
        assert!(idle_backoff.is_over(now + LONGEST));
    }
}
