//! How long what waits has waited, for whoever watches over the stages.

use std::time::Duration;

use async_trait::async_trait;
use campanile_domain::time::{Timestamp, between};

use crate::StoreError;

/// The age of the oldest that waits for each stage, by the clock of the database; zero where nothing waits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueueAges {
    /// Since its arrival: the oldest event that is `PENDING`. One with a large audience waits until its last step.
    pub fan_out: Duration,
    /// Since its first row was written: the oldest chunk that is not published.
    pub publish: Duration,
    /// Since its fan-out: the oldest event of which something was not received. What waits to be published waits here,
    /// too.
    pub receive: Duration,
    /// Since it was due: the oldest send that nobody has taken. Sends of a claim count from when its lease has passed.
    pub send: Duration,
}

impl QueueAges {
    /// From moments since when something waits, or will.
    pub(crate) fn at(now: Timestamp, [fan_out, publish, receive, send]: [Option<Timestamp>; 4]) -> QueueAges {
        let age = |since: Option<Timestamp>| since.map(|since| between(since, now)).unwrap_or_default();
        QueueAges { fan_out: age(fan_out), publish: age(publish), receive: age(receive), send: age(send) }
    }
}

#[async_trait]
pub trait QueueAgeStore {
    /// Costs the same whatever waits: it looks at the beginnings of queues, and counts nothing.
    async fn queue_ages(&self) -> Result<QueueAges, StoreError>;
}
