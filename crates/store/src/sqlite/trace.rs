//! Reads traces, the list of events, and captured messages.

use async_trait::async_trait;
use campanile_domain::id::{EventId, UserRef};
use campanile_domain::priority::Lane;
use campanile_domain::status::EventStatus;
use campanile_domain::time::Timestamp;
use rusqlite::{ToSql, named_params};

use super::session::Session;
use super::{Sqlite, statement};
use crate::columns::Columns;
use crate::event_search::{ArrivalSearch, EventIndex, ScannedEvent, scanned_event};
use crate::{CapturedRow, DeadLetterRow, EventFilter, EventPage, StoreError, Trace, TraceFilter, TraceStore};
use crate::{dead_letter, decode, send_row, trace};

#[async_trait]
impl TraceStore for Sqlite {
    async fn trace(&self, event_id: &EventId, filter: TraceFilter) -> Result<Option<Trace>, StoreError> {
        let event_id = event_id.to_string();
        self.read(move |session| trace_of(session, &event_id, &filter)).await
    }

    async fn search_events(&self, filter: EventFilter) -> Result<EventPage, StoreError> {
        self.read(move |session| Ok(filter.page(scan(session, &filter)?))).await
    }

    async fn list_captured(
        &self,
        event_id: Option<String>,
        after: i64,
        limit: usize,
    ) -> Result<Vec<CapturedRow>, StoreError> {
        self.read(move |session| {
            if let Some(event_id) = event_id {
                let params = named_params! { ":event_id": event_id, ":after": after, ":limit": limit };
                return session
                    .all(statement::LIST_CAPTURED_OF_EVENT, params, |row| trace::captured_row(row));
            }
            let params = named_params! { ":after": after, ":limit": limit };
            session.all(statement::LIST_CAPTURED, params, |row| trace::captured_row(row))
        })
        .await
    }
}

fn scan(session: &Session, filter: &EventFilter) -> Result<Vec<ScannedEvent>, StoreError> {
    let (index, limit) = (filter.index(), filter.scan_limit());
    let sql = search(index, filter.newest_first);
    let (low, high) = range(session, filter)?;
    let user = filter.user.as_ref();
    let (user_type, user_id) = user.map(|user| (user.user_type.as_str(), user.user_id.as_str())).unzip();
    let mut params: Vec<(&str, &dyn ToSql)> = vec![
        (":low", &low),
        (":high", &high),
        (":limit", &limit),
        (":user_type", &user_type),
        (":user_id", &user_id),
    ];
    match (index, &filter.event_type, &filter.aggregate) {
        (EventIndex::Type, Some(event_type), _) => params.push((":event_type", event_type)),
        (EventIndex::Aggregate, _, Some((aggregate_type, aggregate_id))) => {
            params
                .extend([(":aggregate_type", aggregate_type as &dyn ToSql), (":aggregate_id", aggregate_id)]);
        }
        _ => {}
    }
    session.all(&sql, &params[..], |row| scanned_event(row))
}

/// The range of arrival numbers to read, both exclusive.
fn range(session: &Session, filter: &EventFilter) -> Result<(i64, i64), StoreError> {
    let (mut low, mut high) = filter.range();
    let (since, until) = filter.arrival();
    if let Some(since) = since {
        low = low.max(first_from(session, since)? - 1);
    }
    if let Some(until) = until {
        high = high.min(first_from(session, until)?);
    }
    Ok((low, high))
}

/// The number of the first event that arrived from this time on.
fn first_from(session: &Session, time: Timestamp) -> Result<i64, StoreError> {
    let last: Option<i64> = session.first(statement::LAST_EVENT, &[], |row| Ok(row.get("id")?))?;
    let mut search = ArrivalSearch::new(time, last.unwrap_or_default());
    while let Some(probe) = search.probe() {
        let found = session.first(statement::NEXT_EVENT, named_params! { ":id": probe }, |row| {
            Ok((row.get("id")?, row.maybe_time("created_at").unwrap_or_default()))
        })?;
        search.record(probe, found);
    }
    Ok(search.first())
}

/// The columns of a listed event. The unique key of notifications tells whether it concerns the user of the filter.
const COLUMNS: &str = "e.id, e.event_id, e.event_type, e.aggregate_type, e.aggregate_id, e.priority, e.status, \
    e.retry_count, e.last_error, e.occurred_at, e.created_at, e.published_at, e.processed_at, \
    :user_type IS NULL OR EXISTS (SELECT 1 FROM notification n \
        WHERE n.event_id = e.event_id AND n.user_type = :user_type AND n.user_id = :user_id) AS concerns_user";

/// The statement that follows this index. Each status has its own text, because a partial index is used only if its
/// condition is in the text.
pub(super) fn search(index: EventIndex, newest_first: bool) -> String {
    let order = if newest_first { " DESC" } else { "" };
    let by_arrival = |condition: &str| {
        format!(
            "SELECT {COLUMNS} FROM event_outbox e
             WHERE {condition}e.id > :low AND e.id < :high
             ORDER BY e.id{order} LIMIT :limit"
        )
    };
    match index {
        EventIndex::Arrival => by_arrival(""),
        EventIndex::Type => by_arrival("e.event_type = :event_type AND "),
        EventIndex::Aggregate => {
            by_arrival("e.aggregate_type = :aggregate_type AND e.aggregate_id = :aggregate_id AND ")
        }
        // Pending events are indexed by lane, and those that have begun separately.
        EventIndex::Status(EventStatus::Pending) => {
            let parts = ["IS NULL", "IS NOT NULL"].into_iter().flat_map(|cursor| {
                Lane::ALL.map(|lane| {
                    let condition = format!(
                        "e.status = 'PENDING' AND e.fan_out_cursor {cursor} AND e.lane = {} AND ",
                        lane.number()
                    );
                    format!("SELECT * FROM ({})", by_arrival(&condition))
                })
            });
            let parts: Vec<String> = parts.collect();
            format!("SELECT * FROM ({}) ORDER BY id{order} LIMIT :limit", parts.join(" UNION ALL "))
        }
        EventIndex::Status(status) => by_arrival(&format!("e.status = '{}' AND ", status.as_str())),
    }
}

fn trace_of(session: &Session, event_id: &str, filter: &TraceFilter) -> Result<Option<Trace>, StoreError> {
    let this_event = named_params! { ":event_id": event_id };
    let decided = session.first(statement::TRACE_PROCESSED, this_event, |row| {
        Ok((trace::processed_row(row)?, trace::decisions(row)?))
    })?;
    let (processed, decisions) = decided.unzip();
    let event = session
        .first(statement::TRACE_EVENT, this_event, |row| trace::traced_event(row, processed.as_ref()))?;
    let Some(event) = event else { return Ok(None) };
    let recipients =
        session.all(statement::TRACE_RECIPIENTS, this_event, |row| trace::recipient_name(row))?;
    let mut trace = Trace {
        event,
        processed,
        decisions: decisions.flatten(),
        recipients,
        outbox: Vec::new(),
        notifications: Vec::new(),
        sends: Vec::new(),
        dead_letters: dead_letters(session, event_id, filter.user.as_ref())?,
        next: None,
    };
    if let Some(UserPage { first, last, next }) = page(session, event_id, filter)? {
        let of_page = named_params! {
            ":event_id": event_id, ":first_type": first.0, ":first_id": first.1, ":last_type": last.0,
            ":last_id": last.1,
        };
        trace.outbox = session.all(statement::TRACE_OUTBOX, of_page, |row| trace::outbox_view(row))?;
        trace.notifications =
            session.all(statement::TRACE_NOTIFICATIONS, of_page, |row| trace::notification_row(row))?;
        trace.sends = session.all(statement::TRACE_SENDS, of_page, |row| send_row::traced_send(row))?;
        trace.next = next;
    }
    Ok(Some(trace))
}

fn dead_letters(
    session: &Session,
    event_id: &str,
    user: Option<&UserRef>,
) -> Result<Vec<DeadLetterRow>, StoreError> {
    let params = named_params! {
        ":event_id": event_id, ":user_type": user.map(|user| user.user_type.as_str()),
        ":user_id": user.map(|user| user.user_id.as_str()),
    };
    session.all(statement::TRACE_DEAD_LETTERS, params, |row| dead_letter::dead_letter_row(row))
}

/// The users between two users, both included, as (type, id).
struct UserPage {
    first: (String, String),
    last: (String, String),
    next: Option<UserRef>,
}

fn page(session: &Session, event_id: &str, filter: &TraceFilter) -> Result<Option<UserPage>, StoreError> {
    let pair = |user: &UserRef| (user.user_type.to_string(), user.user_id.to_string());
    if let Some(user) = &filter.user {
        return Ok(Some(UserPage { first: pair(user), last: pair(user), next: None }));
    }
    // Ids contain no control characters, so no user sorts between a user and this key.
    let first_after = |user: &UserRef| (user.user_type.to_string(), format!("{}\u{1}", user.user_id));
    let last_from = |first: &(String, String), limit: usize| {
        let params = named_params! {
            ":event_id": event_id, ":first_type": first.0, ":first_id": first.1, ":limit": limit,
        };
        session.first(statement::TRACE_PAGE_END, params, |row| decode::recipient_of(row))
    };
    let first = filter.after.as_ref().map(first_after).unwrap_or_default();
    let Some(last) = last_from(&first, filter.limit)? else { return Ok(None) };
    let more = last_from(&first_after(&last), 1)?.is_some();
    Ok(Some(UserPage { first, last: pair(&last), next: more.then_some(last) }))
}
