//! Reads traces, the list of events, and captured messages.

use async_trait::async_trait;
use campanile_domain::id::{EventId, UserRef};
use campanile_domain::status::EventStatus;
use rusqlite::{ToSql, named_params};

use super::session::Session;
use super::{Sqlite, statement};
use crate::{
    CapturedRow, DeadLetterRow, EventFilter, ListedEvent, StoreError, Trace, TraceFilter, TraceStore,
};
use crate::{dead_letter, decode, send_row, trace};

#[async_trait]
impl TraceStore for Sqlite {
    async fn trace(&self, event_id: &EventId, filter: TraceFilter) -> Result<Option<Trace>, StoreError> {
        let event_id = event_id.to_string();
        self.read(move |session| trace_of(session, &event_id, &filter)).await
    }

    async fn list_events(&self, filter: EventFilter) -> Result<Vec<ListedEvent>, StoreError> {
        self.read(move |session| {
            let start = if filter.newest_first { i64::MAX } else { 0 };
            let (after, limit) = (filter.after.unwrap_or(start), filter.limit);
            let mut params: Vec<(&str, &dyn ToSql)> = vec![(":after", &after), (":limit", &limit)];
            if let Some(event_type) = &filter.event_type {
                params.push((":event_type", event_type));
            }
            let sql = listing(filter.status, filter.event_type.is_some(), filter.newest_first);
            session.all(&sql, &params[..], |row| trace::listed_event(row))
        })
        .await
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

/// Events in the order of their arrival, or in the opposite order. Each status has its own statement, because a partial
/// index is used only if its condition is in the text: `event_outbox_failed`, `event_outbox_cancelled`,
/// `event_outbox_open`. A search by type uses `event_outbox_type`. Few events have failed or are cancelled, so there
/// the type is only a filter. All other searches use the primary key.
pub(super) fn listing(status: Option<EventStatus>, of_type: bool, newest_first: bool) -> String {
    let status_is = status.map(|status| format!(" AND status = '{}'", status.as_str())).unwrap_or_default();
    let type_is = match status {
        _ if !of_type => "",
        Some(EventStatus::Failed | EventStatus::Cancelled) => " AND +event_type = :event_type",
        Some(EventStatus::Pending | EventStatus::Published | EventStatus::Processed) | None => {
            " AND event_type = :event_type"
        }
    };
    let (beyond, order) = if newest_first { ('<', " DESC") } else { ('>', "") };
    format!(
        "SELECT id, event_id, event_type, aggregate_type, aggregate_id, priority, status, retry_count, last_error,
                occurred_at, created_at, published_at, processed_at
         FROM event_outbox
         WHERE id {beyond} :after{status_is}{type_is}
         ORDER BY id{order}
         LIMIT :limit"
    )
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
