//! Reading what happened.

use async_trait::async_trait;
use campanile_domain::event::Event;
use campanile_domain::id::{EventId, UserRef};
use campanile_domain::status::EventStatus;
use rusqlite::{Connection, named_params};

use super::{Sqlite, fan_out, read, statement};
use crate::{EventFilter, FanOutClaim, JsonRow, StoreError, Trace, TraceFilter, TraceStore};

#[async_trait]
impl TraceStore for Sqlite {
    async fn trace(&self, event_id: &EventId, filter: TraceFilter) -> Result<Option<Trace>, StoreError> {
        let event_id = event_id.to_string();
        self.read(move |connection| trace(connection, &event_id, &filter)).await
    }

    async fn list_events(&self, filter: EventFilter) -> Result<Vec<JsonRow>, StoreError> {
        self.read(move |connection| {
            let (sql, start) = if filter.newest_first {
                (statement::LIST_EVENTS_NEWEST, i64::MAX)
            } else {
                (statement::LIST_EVENTS_OLDEST, 0)
            };
            let params = named_params! {
                ":after": filter.after.unwrap_or(start), ":status": filter.status.map(EventStatus::as_str),
                ":event_type": filter.event_type, ":limit": filter.limit,
            };
            read::all(connection, sql, params, read::json_row)
        })
        .await
    }

    async fn list_captured(
        &self,
        event_id: Option<String>,
        after: i64,
        limit: usize,
    ) -> Result<Vec<JsonRow>, StoreError> {
        self.read(move |connection| {
            if let Some(event_id) = event_id {
                let params = named_params! { ":event_id": event_id, ":after": after, ":limit": limit };
                return read::all(connection, statement::LIST_CAPTURED_OF, params, read::json_row);
            }
            let params = named_params! { ":after": after, ":limit": limit };
            read::all(connection, statement::LIST_CAPTURED, params, read::json_row)
        })
        .await
    }

    async fn look_up(&self, event: Event) -> Result<Box<dyn FanOutClaim>, StoreError> {
        Ok(Box::new(fan_out::look_up(self, event)))
    }
}

fn trace(connection: &Connection, event_id: &str, filter: &TraceFilter) -> Result<Option<Trace>, StoreError> {
    let this_event = named_params! { ":event_id": event_id };
    let Some(event) = read::first(connection, statement::TRACE_EVENT, this_event, read::json_row)? else {
        return Ok(None);
    };
    let mut processed = read::first(connection, statement::TRACE_PROCESSED, this_event, read::json_row)?;
    let decisions = processed.as_mut().and_then(|p| p.remove("decisions")).filter(|d| !d.is_null());
    let page = page(connection, event_id, filter)?;
    let rows = |sql| match &page {
        None => Ok(Vec::new()),
        Some(page) => {
            let params = named_params! {
                ":event_id": event_id, ":first_type": page.first.0, ":first_id": page.first.1, ":last_type": page.last.0,
                ":last_id": page.last.1,
            };
            read::all(connection, sql, params, read::json_row)
        }
    };
    Ok(Some(Trace {
        event,
        processed,
        decisions,
        people: read::all(connection, statement::TRACE_PEOPLE, this_event, read::json_row)?,
        outbox: rows(statement::TRACE_OUTBOX)?,
        notifications: rows(statement::TRACE_NOTIFICATIONS)?,
        sends: rows(statement::TRACE_SENDS)?,
        dead_letters: read::all(connection, statement::TRACE_DEAD_LETTERS, this_event, read::json_row)?,
        next: page.and_then(|page| page.next),
    }))
}

/// Users from one up to another, as (type, id), both included.
struct UserPage {
    first: (String, String),
    last: (String, String),
    next: Option<UserRef>,
}

fn page(
    connection: &Connection,
    event_id: &str,
    filter: &TraceFilter,
) -> Result<Option<UserPage>, StoreError> {
    let pair = |user: &UserRef| (user.user_type.to_string(), user.user_id.to_string());
    if let Some(user) = &filter.user {
        return Ok(Some(UserPage { first: pair(user), last: pair(user), next: None }));
    }
    // Ids have no control characters, so nobody stands between a user and this.
    let behind = |user: &UserRef| (user.user_type.to_string(), format!("{}\u{1}", user.user_id));
    let last_from = |first: &(String, String), limit: usize| {
        let params = named_params! {
            ":event_id": event_id, ":first_type": first.0, ":first_id": first.1, ":limit": limit,
        };
        read::first(connection, statement::TRACE_USERS, params, read::recipient_of)
    };
    let first = filter.after.as_ref().map(behind).unwrap_or_default();
    let Some(last) = last_from(&first, filter.limit)? else { return Ok(None) };
    let more = last_from(&behind(&last), 1)?.is_some();
    Ok(Some(UserPage { first, last: pair(&last), next: more.then_some(last) }))
}
