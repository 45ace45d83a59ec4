//! Limits log lines about failures that clients can cause at will: the first is logged at once, then one line a minute
//! with a count.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The minimum time between two log lines.
const LOG_INTERVAL: Duration = Duration::from_mins(1);

#[derive(Debug)]
pub struct LogLimit(Mutex<State>);

#[derive(Debug)]
struct State {
    last: Option<Instant>,
    /// Failures since the last line.
    count: u64,
}

impl LogLimit {
    pub const fn new() -> Self {
        LogLimit(Mutex::new(State { last: None, count: 0 }))
    }

    /// Counts a failure. Returns the number since the last line, if a line is due.
    pub fn count(&self) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.count += 1;
        if state.last.is_some_and(|last| last.elapsed() < LOG_INTERVAL) {
            return None;
        }
        state.last = Some(Instant::now());
        Some(std::mem::take(&mut state.count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_told_at_once_and_the_others_together() {
        let limit = LogLimit::new();
        assert_eq!(limit.count(), Some(1));
        assert!((0..5).all(|_| limit.count().is_none()));
        limit.0.lock().unwrap().last = Instant::now().checked_sub(LOG_INTERVAL);
        assert_eq!(limit.count(), Some(6));
        assert_eq!(limit.count(), None);
    }
}
