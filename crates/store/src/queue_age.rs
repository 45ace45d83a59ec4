//! Reads how long the oldest item has waited for each stage, for metrics.

use std::time::Duration;

use async_trait::async_trait;
use campanile_domain::time::{Timestamp, between};

use crate::StoreError;

/// The age of the oldest item that waits for each stage, by the database's clock. Zero if nothing waits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueueAges {
    /// The oldest `PENDING` event, since its arrival. A large event waits until its last step.
    pub fan_out: Duration,
    /// The oldest chunk that is not published, since its first row was written.
    pub publish: Duration,
    /// The oldest event with a row that was not received, since its fan-out. Rows that wait to be published count as
    /// well.
    pub receive: Duration,
    /// The oldest send that is not claimed, since it was due. A claimed send counts from the end of its lease.
    pub send: Duration,
}

impl QueueAges {
    /// Converts times to ages. A time in the future has the age zero.
    pub(crate) fn at(now: Timestamp, [fan_out, publish, receive, send]: [Option<Timestamp>; 4]) -> QueueAges {
        let age = |since: Option<Timestamp>| since.map(|since| between(since, now)).unwrap_or_default();
        QueueAges { fan_out: age(fan_out), publish: age(publish), receive: age(receive), send: age(send) }
    }
}

#[async_trait]
pub trait QueueAgeStore {
    /// Reads the beginning of each queue and counts nothing, so its cost does not depend on how much waits.
    async fn queue_ages(&self) -> Result<QueueAges, StoreError>;
}
