//! Forgetting what is old. What an event id and its body were is never forgotten.

use std::time::Duration;

use async_trait::async_trait;
use campanile_domain::id::EventSeq;
use campanile_domain::time::{self, Timestamp};

use crate::StoreError;

/// What one batch came to.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Retained {
    pub rows: u64,
    /// Where the next batch goes on, if there may be more.
    pub next: Option<EventSeq>,
}

/// Up to which moment of arrival rows may be deleted. The database keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Horizon {
    pub before: Timestamp,
    /// How often it was moved: who knows the last number may move it.
    pub version: i64,
}

/// It follows the clock, by at most `by`, and never goes back.
pub(crate) fn advanced_horizon(stored: Timestamp, now: Timestamp, age: Duration, by: Duration) -> Timestamp {
    stored.max(time::earlier(now, age).min(time::later(stored, by)))
}

/// What may go by it: if the clock was ahead once, the horizon is ahead as well.
pub(crate) fn effective_horizon(stored: Timestamp, now: Timestamp, age: Duration) -> Timestamp {
    stored.min(time::earlier(now, age))
}

#[async_trait]
pub trait RetainStore {
    /// The horizon for rows that are kept for `age`. Moves it by at most `by` where nobody has moved it since it was
    /// `seen`; who has not seen it moves nothing. It begins at the oldest row that is there, and is missing while there
    /// is none.
    async fn move_horizon(
        &self,
        age: Duration,
        known_version: Option<i64>,
        by: Duration,
    ) -> Result<Option<Horizon>, StoreError>;

    /// Deletes events that arrived `before` this moment, with all that belongs to them, behind the event `after`; some
    /// `limit` rows. An event that is not closed stays, and so does one with a send that is not settled: of that, the
    /// rows that are done with go. `processed_event` keeps id and hash, and loses the decisions. Behind the last event,
    /// dead letters of no event and captured messages of that age go, too.
    async fn retain(&self, before: Timestamp, after: EventSeq, limit: usize) -> Result<Retained, StoreError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_hours(24);

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn the_horizon_follows_the_clock_and_no_jump_of_it() {
        let stored = at("2026-01-01T00:00:00Z");
        let age = 30 * DAY;
        let moved = |now: &str, by| advanced_horizon(stored, at(now), age, by);
        assert_eq!(moved("2026-02-01T00:00:00Z", 2 * DAY), at("2026-01-02T00:00:00Z"));
        assert_eq!(moved("2036-02-01T00:00:00Z", 2 * DAY), at("2026-01-03T00:00:00Z"));
        assert_eq!(moved("2036-02-01T00:00:00Z", Duration::ZERO), stored);
        assert_eq!(moved("2016-02-01T00:00:00Z", 2 * DAY), stored, "it never goes back");
        assert_eq!(effective_horizon(stored, at("2016-01-31T00:00:00Z"), age), at("2016-01-01T00:00:00Z"));
        assert_eq!(effective_horizon(stored, at("2036-02-01T00:00:00Z"), age), stored);
    }
}
