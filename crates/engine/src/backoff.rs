//! Exponential backoff while the database or the broker is unavailable: 50 ms, doubling to 5 s. A success resets it.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub struct Backoff {
    next: Duration,
}

impl Backoff {
    pub fn new() -> Self {
        Backoff { next: FIRST }
    }

    pub fn reset(&mut self) {
        self.next = FIRST;
    }

    /// Whether several attempts have failed in a row. A single failure is not worth a warning.
    pub fn is_worth_logging(&self) -> bool {
        self.next > FIRST * 4
    }

    /// Waits for the current delay and doubles the next one. Returns early when the engine stops.
    pub async fn wait(&mut self, stop: &CancellationToken) {
        let delay = self.next_delay();
        tokio::select! {
            () = stop.cancelled() => {}
            () = tokio::time::sleep(delay) => {}
        }
    }

    /// How long to wait now. The next time it is longer.
    pub fn next_delay(&mut self) -> Duration {
        let delay = self.next;
        self.next = (delay * 2).min(LONGEST);
        delay
    }
}
