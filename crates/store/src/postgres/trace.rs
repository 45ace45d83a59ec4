//! Reading what happened.

use async_trait::async_trait;
use campanile_domain::id::{EventId, UserRef};
use campanile_domain::status::EventStatus;
use tokio_postgres::types::ToSql;

use super::transaction::Transaction;
use super::{Params, Postgres, read, statement};
use crate::stored;
use crate::{EventFilter, JsonRow, StoreError, Trace, TraceFilter, TraceStore};

#[async_trait]
impl TraceStore for Postgres {
    async fn trace(&self, event_id: &EventId, filter: TraceFilter) -> Result<Option<Trace>, StoreError> {
        let snapshot = self.snapshot().await?;
        trace(&snapshot, event_id.as_str(), &filter).await
    }

    async fn list_events(&self, filter: EventFilter) -> Result<Vec<JsonRow>, StoreError> {
        let after = filter.after.unwrap_or(if filter.newest_first { i64::MAX } else { 0 });
        let limit = i64::try_from(filter.limit).unwrap_or(i64::MAX);
        let mut params: Vec<&(dyn ToSql + Sync)> = vec![&after, &limit];
        if let Some(event_type) = &filter.event_type {
            params.push(event_type);
        }
        let sql = listing(filter.status, filter.event_type.is_some(), filter.newest_first);
        read::json_rows(&self.query(&sql, &params).await?)
    }

    async fn list_captured(
        &self,
        event_id: Option<String>,
        after: i64,
        limit: usize,
    ) -> Result<Vec<JsonRow>, StoreError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows = match event_id {
            Some(event_id) => self.query(statement::LIST_CAPTURED_OF, &[&event_id, &after, &limit]).await?,
            None => self.query(statement::LIST_CAPTURED, &[&after, &limit]).await?,
        };
        read::json_rows(&rows)
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
        Some(EventStatus::Failed | EventStatus::Cancelled) => " AND event_type || '' = $3",
        Some(EventStatus::Pending | EventStatus::Published | EventStatus::Processed) | None => {
            " AND event_type = $3"
        }
    };
    let (beyond, order) = if newest_first { ('<', " DESC") } else { ('>', "") };
    format!(
        "SELECT id, event_id, event_type, aggregate_type, aggregate_id, priority, status, retry_count, last_error,
                occurred_at, created_at, published_at, processed_at
         FROM campanile.event_outbox
         WHERE id {beyond} $1{status_is}{type_is}
         ORDER BY id{order}
         LIMIT $2"
    )
}

async fn trace(
    snapshot: &Transaction,
    event_id: &str,
    filter: &TraceFilter,
) -> Result<Option<Trace>, StoreError> {
    let event = snapshot.query(statement::TRACE_EVENT, &[&event_id]).await?;
    let Some(event) = event.first() else { return Ok(None) };
    let processed = snapshot.query(statement::TRACE_PROCESSED, &[&event_id]).await?;
    let mut processed = processed.first().map(read::json_row).transpose()?;
    let decisions = processed.as_mut().and_then(|p| p.remove("decisions")).filter(|d| !d.is_null());
    let page = page(snapshot, event_id, filter).await?;
    let rows = async |sql: &str| match &page {
        None => Ok(Vec::new()),
        Some(UserPage { first, last, .. }) => {
            let params: Params = &[&event_id, &first.0, &first.1, &last.0, &last.1];
            read::json_rows(&snapshot.query(sql, params).await?)
        }
    };
    let recipients = snapshot.query(statement::TRACE_RECIPIENTS, &[&event_id]).await?;
    let trace = Trace {
        event: read::json_row(event)?,
        processed,
        decisions,
        recipients: read::json_rows(&recipients)?,
        outbox: rows(statement::TRACE_OUTBOX).await?,
        notifications: rows(statement::TRACE_NOTIFICATIONS).await?,
        sends: rows(statement::TRACE_SENDS).await?,
        dead_letters: dead_letters(snapshot, event_id, filter.user.as_ref()).await?,
        next: page.and_then(|page| page.next),
    };
    Ok(Some(trace.with_stages()))
}

async fn dead_letters(
    snapshot: &Transaction,
    event_id: &str,
    user: Option<&UserRef>,
) -> Result<Vec<JsonRow>, StoreError> {
    let user_type = user.map(|user| user.user_type.as_str());
    let user_id = user.map(|user| user.user_id.as_str());
    let params: Params = &[&event_id, &user_type, &user_id];
    read::json_rows(&snapshot.query(statement::TRACE_DEAD_LETTERS, params).await?)
}

/// Users from one up to another, as (type, id), both included.
struct UserPage {
    first: (String, String),
    last: (String, String),
    next: Option<UserRef>,
}

async fn page(
    snapshot: &Transaction,
    event_id: &str,
    filter: &TraceFilter,
) -> Result<Option<UserPage>, StoreError> {
    let pair = |user: &UserRef| (user.user_type.to_string(), user.user_id.to_string());
    if let Some(user) = &filter.user {
        return Ok(Some(UserPage { first: pair(user), last: pair(user), next: None }));
    }
    // Ids have no control characters, so nobody stands between a user and this.
    let first_after = |user: &UserRef| (user.user_type.to_string(), format!("{}\u{1}", user.user_id));
    let last_from = async |first: &(String, String), limit: usize| {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let params: Params = &[&event_id, &first.0, &first.1, &limit];
        let rows = snapshot.query(statement::TRACE_USERS, params).await?;
        rows.first().map(stored::recipient_of).transpose()
    };
    let first = filter.after.as_ref().map(first_after).unwrap_or_default();
    let Some(last) = last_from(&first, filter.limit).await? else { return Ok(None) };
    let more = last_from(&first_after(&last), 1).await?.is_some();
    Ok(Some(UserPage { first, last: pair(&last), next: more.then_some(last) }))
}
