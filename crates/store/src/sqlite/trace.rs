//! Reading what happened.

use async_trait::async_trait;
use campanile_domain::id::{EventId, UserRef};
use campanile_domain::status::EventStatus;
use rusqlite::{ToSql, named_params};

use super::session::Session;
use super::{Sqlite, read, statement};
use crate::stored;
use crate::{EventFilter, JsonRow, StoreError, Trace, TraceFilter, TraceStore};

#[async_trait]
impl TraceStore for Sqlite {
    async fn trace(&self, event_id: &EventId, filter: TraceFilter) -> Result<Option<Trace>, StoreError> {
        let event_id = event_id.to_string();
        self.read(move |session| trace(session, &event_id, &filter)).await
    }

    async fn list_events(&self, filter: EventFilter) -> Result<Vec<JsonRow>, StoreError> {
        self.read(move |session| {
            let start = if filter.newest_first { i64::MAX } else { 0 };
            let (after, limit) = (filter.after.unwrap_or(start), filter.limit);
            let mut params: Vec<(&str, &dyn ToSql)> = vec![(":after", &after), (":limit", &limit)];
            if let Some(event_type) = &filter.event_type {
                params.push((":event_type", event_type));
            }
            let sql = listing(filter.status, filter.event_type.is_some(), filter.newest_first);
            session.all(&sql, &params[..], read::json_row)
        })
        .await
    }

    async fn list_captured(
        &self,
        event_id: Option<String>,
        after: i64,
        limit: usize,
    ) -> Result<Vec<JsonRow>, StoreError> {
        self.read(move |session| {
            if let Some(event_id) = event_id {
                let params = named_params! { ":event_id": event_id, ":after": after, ":limit": limit };
                return session.all(statement::LIST_CAPTURED_OF, params, read::json_row);
            }
            let params = named_params! { ":after": after, ":limit": limit };
            session.all(statement::LIST_CAPTURED, params, read::json_row)
        })
        .await
    }
}

/// Events in the order of their arrival, or backwards. Each status is a statement of its own, because a partial index
/// is used only where its condition is in the text: `event_outbox_failed`, `event_outbox_cancelled`,
/// `event_outbox_open`. A type has `event_outbox_type`; few events have failed, so that there the type is looked at on
/// the way. All else walks the primary key.
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

fn trace(session: &Session, event_id: &str, filter: &TraceFilter) -> Result<Option<Trace>, StoreError> {
    let this_event = named_params! { ":event_id": event_id };
    let Some(event) = session.first(statement::TRACE_EVENT, this_event, read::json_row)? else {
        return Ok(None);
    };
    let mut processed = session.first(statement::TRACE_PROCESSED, this_event, read::json_row)?;
    let decisions = processed.as_mut().and_then(|p| p.remove("decisions")).filter(|d| !d.is_null());
    let page = page(session, event_id, filter)?;
    let rows = |sql| match &page {
        None => Ok(Vec::new()),
        Some(page) => {
            let params = named_params! {
                ":event_id": event_id, ":first_type": page.first.0, ":first_id": page.first.1,
                ":last_type": page.last.0,
                ":last_id": page.last.1,
            };
            session.all(sql, params, read::json_row)
        }
    };
    let trace = Trace {
        event,
        processed,
        decisions,
        recipients: session.all(statement::TRACE_RECIPIENTS, this_event, read::json_row)?,
        outbox: rows(statement::TRACE_OUTBOX)?,
        notifications: rows(statement::TRACE_NOTIFICATIONS)?,
        sends: rows(statement::TRACE_SENDS)?,
        dead_letters: dead_letters(session, event_id, filter.user.as_ref())?,
        next: page.and_then(|page| page.next),
    };
    Ok(Some(trace.with_stages()))
}

fn dead_letters(
    session: &Session,
    event_id: &str,
    user: Option<&UserRef>,
) -> Result<Vec<JsonRow>, StoreError> {
    let params = named_params! {
        ":event_id": event_id, ":user_type": user.map(|user| user.user_type.as_str()),
        ":user_id": user.map(|user| user.user_id.as_str()),
    };
    session.all(statement::TRACE_DEAD_LETTERS, params, read::json_row)
}

/// Users from one up to another, as (type, id), both included.
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
    // Ids have no control characters, so nobody stands between a user and this.
    let first_after = |user: &UserRef| (user.user_type.to_string(), format!("{}\u{1}", user.user_id));
    let last_from = |first: &(String, String), limit: usize| {
        let params = named_params! {
            ":event_id": event_id, ":first_type": first.0, ":first_id": first.1, ":limit": limit,
        };
        session.first(statement::TRACE_USERS, params, |row| stored::recipient_of(row))
    };
    let first = filter.after.as_ref().map(first_after).unwrap_or_default();
    let Some(last) = last_from(&first, filter.limit)? else { return Ok(None) };
    let more = last_from(&first_after(&last), 1)?.is_some();
    Ok(Some(UserPage { first, last: pair(&last), next: more.then_some(last) }))
}
