//! Burst mode. Above 500 events/s the fan-out claims only every 10 ms, because a batch of few events costs nearly as
//! much as one of many. Meanwhile producers do not send NOTIFY, because NOTIFY serialises commits
//! (`signals/suppress.rs`). The figures are for recipients × channels, with eight producers on the same cores. 1 × 1:
//! 2,470 and 2,420 → 4,780/s; 3 × 3: 13,000 and 12,700 → 17,700/s (decision 0024).

use std::time::Duration;

use tokio::time::Instant;

/// During a burst, the time between the starts of two rounds. It does not apply if a round left events unclaimed.
pub const CLAIM_INTERVAL: Duration = Duration::from_millis(10);
/// Events a second above which a burst begins, and below which it ends.
const START_EVENTS_PER_SECOND: f64 = 500.0;
const STOP_EVENTS_PER_SECOND: f64 = 200.0;
/// The time over which events are counted.
const WINDOW: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub struct BurstDetector {
    is_on: bool,
    window_start: Instant,
    events: usize,
}

impl BurstDetector {
    pub fn new(now: Instant) -> Self {
        BurstDetector { is_on: false, window_start: now, events: 0 }
    }

    /// Records that `events` were claimed by `now`. Returns whether there is a burst.
    pub fn record(&mut self, events: usize, now: Instant) -> bool {
        self.events += events;
        let passed = now - self.window_start;
        if passed >= WINDOW {
            #[expect(clippy::cast_precision_loss, reason = "an estimate")]
            let per_second = self.events as f64 / passed.as_secs_f64();
            self.is_on =
                per_second > if self.is_on { STOP_EVENTS_PER_SECOND } else { START_EVENTS_PER_SECOND };
            (self.window_start, self.events) = (now, 0);
        }
        self.is_on
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether there is a burst after this many events in each window.
    fn after(windows: &[usize]) -> bool {
        let begun = Instant::now();
        let mut burst = BurstDetector::new(begun);
        let record = |(number, events)| burst.record(events, begun + WINDOW * number);
        (1..).zip(windows.iter().copied()).map(record).last().unwrap_or_default()
    }

    #[test]
    fn it_begins_with_many_events_and_ends_with_few() {
        assert!(!after(&[90]), "450 a second are not enough to begin");
        assert!(after(&[110]));
        assert!(after(&[110, 50]), "and 250 a second are enough to go on");
        assert!(!after(&[110, 30]));
        assert!(!after(&[110, 30, 50]));
    }

    #[test]
    fn events_are_counted_over_a_while() {
        let begun = Instant::now();
        let mut burst = BurstDetector::new(begun);
        assert!(!burst.record(100, begun), "one batch tells nothing");
        assert!(burst.record(100, begun + WINDOW));
    }
}
