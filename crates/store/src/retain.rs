//! Retention: deletes old events with everything that belongs to them. The ids and hashes of events are never deleted.

use std::time::Duration;

use async_trait::async_trait;
use campanile_domain::id::EventSeq;
use campanile_domain::time::{self, Timestamp};

use crate::StoreError;

/// The number of events that one call of `retain` reads. They are read in order of arrival. If this many events are too
/// young, all later ones are too young as well.
pub(crate) const MAX_PAGE_EVENTS: usize = 1_000;

/// The result of one batch.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Retained {
    pub rows: u64,
    /// Where the next batch continues, if there may be more.
    pub next: Option<EventSeq>,
}

/// Rows that arrived before this time may be deleted. The database stores the horizon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Horizon {
    pub before: Timestamp,
    /// How often the horizon was moved. Only a caller that knows the current number may move it.
    pub version: i64,
}

/// The new horizon. It follows the clock by at most `by`, and never moves back.
pub(crate) fn advanced_horizon(stored: Timestamp, now: Timestamp, age: Duration, by: Duration) -> Timestamp {
    stored.max(time::earlier(now, age).min(time::later(stored, by)))
}

/// The time before which rows are deleted now. If the clock was ahead once, the stored horizon is later than this time.
pub(crate) fn effective_horizon(stored: Timestamp, now: Timestamp, age: Duration) -> Timestamp {
    stored.min(time::earlier(now, age))
}

#[async_trait]
pub trait RetainStore {
    /// Returns the horizon for rows that are kept for `age`, and moves it by at most `by`. It is moved only if
    /// `known_version` is its current version. It begins at the oldest row. Returns `None` while there are no rows.
    async fn move_horizon(
        &self,
        age: Duration,
        known_version: Option<i64>,
        by: Duration,
    ) -> Result<Option<Horizon>, StoreError>;

    /// Deletes about `limit` rows. It deletes events after `after` that arrived `before` this time, with everything
    /// that belongs to them. An event that is not closed stays. An event with an unsettled send stays as well, but its
    /// finished rows are deleted. `processed_event` keeps the id and the hash, and loses the decisions. After the last
    /// event, old dead letters without an event and old captured messages are deleted.
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
