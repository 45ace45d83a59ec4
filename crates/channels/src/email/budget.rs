//! Divides the time of one attempt. Waiting for a connection comes off the beginning, so that it never causes a doubt.
//! At least a quarter of the time remains for writing the message. The answer has a time of its own.

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

    /// When the server must have accepted the envelope.
    pub fn envelope_deadline(self) -> Instant {
        self.until - self.quarter
    }

    pub fn has_time_for_another(self) -> bool {
        Instant::now() < self.envelope_deadline()
    }

    /// When the message must be written.
    pub fn content_deadline(self) -> Instant {
        self.until
    }

    /// The deadline for the answer to a message that is written now.
    pub fn answer_deadline(self) -> Instant {
        Instant::now() + self.answer_timeout
    }
}
