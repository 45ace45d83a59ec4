//! How often to look for what is hardly ever there. PostgreSQL keeps the index entries of what is gone until it vacuums, and can't as long as
//! anybody has a snapshot from before, such as a backup: every look walks through all of them. So a look that took long is followed by a long
//! rest.

use std::time::{Duration, Instant};

/// Looking takes no more than this part of the time.
const PART_OF_TIME: u32 = 10;
/// Whatever made the look so long: what a dead instance left is found by then.
const LONGEST: Duration = Duration::from_mins(1);

#[derive(Debug, Default)]
pub struct Rest {
    until: Option<Instant>,
}

impl Rest {
    /// After a look that took so long.
    pub fn after(took: Duration, now: Instant) -> Self {
        Rest { until: Some(now + (took * PART_OF_TIME).min(LONGEST)) }
    }

    pub fn is_over(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| now >= until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_never_looked_does_not_rest() {
        assert!(Rest::default().is_over(Instant::now()));
    }

    #[test]
    fn a_long_look_is_followed_by_a_rest_ten_times_as_long() {
        let (took, now) = (Duration::from_millis(300), Instant::now());
        let rest = Rest::after(took, now);
        assert!(!rest.is_over(now));
        assert!(!rest.is_over(now + took * 9));
        assert!(rest.is_over(now + took * 10));
    }

    #[test]
    fn nobody_rests_for_longer_than_a_minute() {
        let now = Instant::now();
        let rest = Rest::after(Duration::from_mins(5), now);
        assert!(!rest.is_over(now + LONGEST / 2));
        assert!(rest.is_over(now + LONGEST));
    }
}
