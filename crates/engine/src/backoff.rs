//! Waiting when the infrastructure fails: longer each time, at once shorter when it is back.

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

    /// Whether what is waited for has been away longer than a moment, so that somebody should know.
    pub fn is_worth_logging(&self) -> bool {
        self.next > FIRST * 4
    }

    /// Ends early when the engine stops.
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
