//! Searches for events. Each search follows one index and skips events that do not match its other filters. A page
//! reads a bounded number of events.

use std::time::Duration;

use campanile_domain::id::UserRef;
use campanile_domain::status::EventStatus;
use campanile_domain::time::{self, Timestamp};

use crate::StoreError;
use crate::columns::Columns;
use crate::trace::{ListedEvent, listed_event};

/// The number of events that a page reads, if some of them may not match.
const MAX_SCANNED_EVENTS: usize = 1_000;
/// Events arrive nearly in the order of their times. One of a long transaction may be older than those before it.
const DISORDER: Duration = Duration::from_mins(10);

/// Selects events. Each field that is set must match.
#[derive(Debug, Clone, Default)]
pub struct EventFilter {
    pub status: Option<EventStatus>,
    pub event_type: Option<String>,
    /// Type and id.
    pub aggregate: Option<(String, String)>,
    /// Only events that this user was notified of. No index has them: the events of the other filters are read.
    pub user: Option<UserRef>,
    /// Only events that arrived from this time on.
    pub since: Option<Timestamp>,
    /// Only events that arrived before this time.
    pub until: Option<Timestamp>,
    /// Only failed events whose error has this code.
    pub error_code: Option<String>,
    /// The arrival number of the last event of the previous page.
    pub after: Option<i64>,
    pub newest_first: bool,
    pub limit: usize,
}

/// A page of events. Fewer than `limit` do not mean that it is the last page; only a missing `next` does.
#[derive(Debug, Default, PartialEq)]
pub struct EventPage {
    pub items: Vec<ListedEvent>,
    pub next: Option<i64>,
}

/// The index that a search follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventIndex {
    /// The primary key.
    Arrival,
    Type,
    Aggregate,
    /// The events of a status that few events have.
    Status(EventStatus),
}

impl EventFilter {
    /// The index with the fewest events to skip.
    pub(crate) fn index(&self) -> EventIndex {
        if self.aggregate.is_some() {
            return EventIndex::Aggregate;
        }
        match self.status() {
            Some(
                status @ (EventStatus::Pending
                | EventStatus::Published
                | EventStatus::Failed
                | EventStatus::Cancelled),
            ) => EventIndex::Status(status),
            Some(EventStatus::Processed) | None if self.event_type.is_some() => EventIndex::Type,
            Some(EventStatus::Processed) | None => EventIndex::Arrival,
        }
    }

    /// Only failed events have the code of a failure.
    fn status(&self) -> Option<EventStatus> {
        self.status.or_else(|| self.error_code.as_ref().map(|_| EventStatus::Failed))
    }

    /// The number of events to read for a page.
    pub(crate) fn scan_limit(&self) -> usize {
        let by_index = match self.index() {
            EventIndex::Arrival => 0,
            EventIndex::Type | EventIndex::Aggregate | EventIndex::Status(_) => 1,
        };
        let filters = [
            self.status.is_some() || self.error_code.is_some(),
            self.event_type.is_some(),
            self.aggregate.is_some(),
            self.user.is_some(),
        ];
        let given = filters.iter().filter(|given| **given).count();
        let skips =
            given > by_index || self.error_code.is_some() || self.since.is_some() || self.until.is_some();
        if skips { MAX_SCANNED_EVENTS.max(self.limit) } else { self.limit }
    }

    /// The range of arrival numbers to read, both exclusive, without what the times rule out.
    pub(crate) fn range(&self) -> (i64, i64) {
        match self.after {
            Some(after) if self.newest_first => (0, after),
            Some(after) => (after, i64::MAX),
            None => (0, i64::MAX),
        }
    }

    /// The times between which matching events lie in the order of arrival.
    pub(crate) fn arrival(&self) -> (Option<Timestamp>, Option<Timestamp>) {
        let since = self.since.map(|since| time::earlier(since, DISORDER));
        (since, self.until.map(|until| time::later(until, DISORDER)))
    }

    /// The page, of the events that were read.
    pub(crate) fn page(&self, scanned: Vec<ScannedEvent>) -> EventPage {
        let is_end = scanned.len() < self.scan_limit();
        let last_scanned = scanned.last().map(|scanned| scanned.event.id.0);
        let mut matching = scanned.into_iter().filter(|scanned| self.matches(scanned));
        let items: Vec<ListedEvent> =
            matching.by_ref().take(self.limit).map(|scanned| scanned.event).collect();
        let is_full = items.len() == self.limit;
        let next = if is_full && (matching.next().is_some() || !is_end) {
            items.last().map(|event| event.id.0)
        } else if is_end {
            None
        } else {
            last_scanned
        };
        EventPage { items, next }
    }

    fn matches(&self, ScannedEvent { event, concerns_user }: &ScannedEvent) -> bool {
        let row = &event.row;
        let created_at = row.created_at.at();
        let code = row.last_error.as_deref().and_then(|error| error.split(':').next());
        *concerns_user
            && self.status().is_none_or(|status| row.status == status)
            && self.event_type.as_ref().is_none_or(|event_type| row.event_type.as_str() == event_type)
            && self.aggregate.as_ref().is_none_or(|(aggregate_type, aggregate_id)| {
                row.aggregate_type == *aggregate_type && row.aggregate_id == *aggregate_id
            })
            && self.since.is_none_or(|since| created_at.is_some_and(|at| at >= since))
            && self.until.is_none_or(|until| created_at.is_some_and(|at| at < until))
            && self.error_code.as_ref().is_none_or(|wanted| code == Some(wanted))
    }
}

/// An event that was read.
#[derive(Debug)]
pub(crate) struct ScannedEvent {
    event: ListedEvent,
    /// Whether the user of the filter was notified of it. True without a user.
    concerns_user: bool,
}

pub(crate) fn scanned_event(row: &impl Columns) -> Result<ScannedEvent, StoreError> {
    Ok(ScannedEvent { event: listed_event(row)?, concerns_user: row.flag("concerns_user")? })
}

/// Finds the first event that arrived from a time on, by halving: there is no index by time, and arrival numbers rise
/// with it.
#[derive(Debug)]
pub(crate) struct ArrivalSearch {
    time: Timestamp,
    /// Every event up to this number is too old.
    low: i64,
    /// Every event from this number on is new enough.
    high: i64,
}

impl ArrivalSearch {
    /// Searches among the numbers up to `last`.
    pub(crate) fn new(time: Timestamp, last: i64) -> Self {
        ArrivalSearch { time, low: 0, high: last.saturating_add(1) }
    }

    /// The number from which the next event is to be read. `None` at the end.
    pub(crate) fn probe(&self) -> Option<i64> {
        let middle = self.low + (self.high - self.low) / 2;
        (self.high - self.low > 1).then_some(middle)
    }

    /// Records the first event from `probe` on.
    pub(crate) fn record(&mut self, probe: i64, found: Option<(i64, Option<Timestamp>)>) {
        match found {
            Some((seq, Some(at))) if at < self.time => self.low = seq.min(self.high - 1).max(probe),
            // An unreadable time counts as new: then more is read, and nothing is missed.
            Some(_) | None => self.high = probe,
        }
    }

    /// The number of the first event that is new enough.
    pub(crate) fn first(&self) -> i64 {
        self.high
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    /// The first number of these events, as (number, second), from a second on.
    fn first(events: &[(i64, i64)], from: i64) -> i64 {
        let mut search = ArrivalSearch::new(at(from), events.last().map_or(0, |(seq, _)| *seq));
        let mut probes = 0;
        while let Some(probe) = search.probe() {
            let found = events.iter().find(|(seq, _)| *seq >= probe);
            search.record(probe, found.map(|(seq, second)| (*seq, Some(at(*second)))));
            probes += 1;
            assert!(probes < 70);
        }
        search.first()
    }

    #[test]
    fn the_first_event_from_a_time_on_is_found() {
        let events: Vec<(i64, i64)> = (1..=1_000).map(|n| (n * 7, n)).collect();
        for from in [1, 2, 3, 499, 500, 501, 999, 1_000] {
            let found = first(&events, from);
            assert!(found > (from - 1) * 7 && found <= from * 7, "{from}: {found}");
        }
        assert!(first(&events, 0) <= 7);
        assert!(first(&events, 1_001) > 7_000);
        assert_eq!(first(&[], 5), 1);
    }

    #[test]
    fn each_combination_of_filters_has_an_index() {
        let user = UserRef { user_type: "CUSTOMER".parse().unwrap(), user_id: "1".parse().unwrap() };
        let all = EventFilter {
            user: Some(user),
            aggregate: Some(("ORDER".to_owned(), "7".to_owned())),
            status: Some(EventStatus::Processed),
            event_type: Some("T".to_owned()),
            ..EventFilter::default()
        };
        assert_eq!(all.index(), EventIndex::Aggregate);
        let filter = all;
        let filter = EventFilter { aggregate: None, ..filter };
        assert_eq!(filter.index(), EventIndex::Type);
        let pending = EventFilter { status: Some(EventStatus::Pending), ..filter.clone() };
        assert_eq!(pending.index(), EventIndex::Status(EventStatus::Pending));
        let code = EventFilter { status: None, error_code: Some("NO_AUDIENCE".to_owned()), ..filter.clone() };
        assert_eq!(code.index(), EventIndex::Status(EventStatus::Failed));
        assert_eq!(EventFilter { event_type: None, ..filter }.index(), EventIndex::Arrival);
    }
}
