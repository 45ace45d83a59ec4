//! How the time of one attempt is shared out: what we wait for among ourselves comes off the beginning, so that it
//! never makes a doubt. A message that is begun has a quarter of the time at least to be written; its answer has a time
//! of its own.

use std::time::Duration;

use tokio::time::Instant;

#[derive(Debug, Clone, Copy)]
pub struct Budget {
    until: Instant,
    quarter: Duration,
    answer_timeout: Duration,
}

impl Budget {
    pub fn starting_now(deadline: Duration, answer_timeout: Duration) -> Self {
        Budget { until: Instant::now() + deadline, quarter: deadline / 4, answer_timeout }
    }

    /// The latest time to wait for a connection permit.
    pub fn permit_deadline(self) -> Instant {
        self.until - self.quarter * 2
    }

    /// The deadline for opening a connection that is started now. Waiting longer would leave no time for the next
    /// server.
    pub fn open_deadline(self) -> Instant {
        (Instant::now() + self.quarter).min(self.envelope_deadline())
    }

    /// Until then the server must have agreed to take the message.
    pub fn envelope_deadline(self) -> Instant {
        self.until - self.quarter
    }

    pub fn has_time_for_another(self) -> bool {
        Instant::now() < self.envelope_deadline()
    }

    /// Until then the message must be out.
    pub fn content_deadline(self) -> Instant {
        self.until
    }

    /// Until then a message that is out now must be answered.
    pub fn answer_deadline(self) -> Instant {
        Instant::now() + self.answer_timeout
    }
}
