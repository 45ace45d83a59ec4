//! Reads traces, the list of events, and captured messages.

use async_trait::async_trait;
use campanile_domain::id::{EventId, UserRef};
use campanile_domain::status::EventStatus;
use tokio_postgres::types::ToSql;

use super::transaction::Transaction;
use super::{Params, Postgres, statement};
use crate::{
    CapturedRow, DeadLetterRow, EventFilter, ListedEvent, StoreError, Trace, TraceFilter, TraceStore,
};
use crate::{dead_letter, decode, send_row, trace};

#[async_trait]
impl TraceStore for Postgres {
    async fn trace(&self, event_id: &EventId, filter: TraceFilter) -> Result<Option<Trace>, StoreError> {
        let snapshot = self.snapshot().await?;
        trace_of(&snapshot, event_id.as_str(), &filter).await
    }

    async fn list_events(&self, filter: EventFilter) -> Result<Vec<ListedEvent>, StoreError> {
        let after = filter.after.unwrap_or(if filter.newest_first { i64::MAX } else { 0 });
        let limit = i64::try_from(filter.limit).unwrap_or(i64::MAX);
        let mut params: Vec<&(dyn ToSql + Sync)> = vec![&after, &limit];
        if let Some(event_type) = &filter.event_type {
            params.push(event_type);
        }
        let sql = listing(filter.status, filter.event_type.is_some(), filter.newest_first);
        self.query(&sql, &params).await?.iter().map(trace::listed_event).collect()
    }

    async fn list_captured(
        &self,
        event_id: Option<String>,
        after: i64,
        limit: usize,
    ) -> Result<Vec<CapturedRow>, StoreError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows = match event_id {
            Some(event_id) => {
                self.query(statement::LIST_CAPTURED_OF_EVENT, &[&event_id, &after, &limit]).await?
            }
            None => self.query(statement::LIST_CAPTURED, &[&after, &limit]).await?,
        };
        rows.iter().map(trace::captured_row).collect()
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

async fn trace_of(
    snapshot: &Transaction,
    event_id: &str,
    filter: &TraceFilter,
) -> Result<Option<Trace>, StoreError> {
    let events = snapshot.query(statement::TRACE_EVENT, &[&event_id]).await?;
    let Some(event) = events.first() else { return Ok(None) };
    let decided = snapshot.query(statement::TRACE_PROCESSED, &[&event_id]).await?;
    let processed = decided.first().map(trace::processed_row).transpose()?;
    let recipients = snapshot.query(statement::TRACE_RECIPIENTS, &[&event_id]).await?;
    let mut trace = Trace {
        event: trace::traced_event(event, processed.as_ref())?,
        processed,
        decisions: decided.first().map(trace::decisions).transpose()?.flatten(),
        recipients: recipients.iter().map(trace::recipient_name).collect::<Result<_, _>>()?,
        outbox: Vec::new(),
        notifications: Vec::new(),
        sends: Vec::new(),
        dead_letters: dead_letters(snapshot, event_id, filter.user.as_ref()).await?,
        next: None,
    };
    if let Some(UserPage { first, last, next }) = page(snapshot, event_id, filter).await? {
        let of_page: Params = &[&event_id, &first.0, &first.1, &last.0, &last.1];
        let outbox = snapshot.query(statement::TRACE_OUTBOX, of_page).await?;
        trace.outbox = outbox.iter().map(trace::outbox_view).collect::<Result<_, _>>()?;
        let notifications = snapshot.query(statement::TRACE_NOTIFICATIONS, of_page).await?;
        trace.notifications = notifications.iter().map(trace::notification_row).collect::<Result<_, _>>()?;
        let sends = snapshot.query(statement::TRACE_SENDS, of_page).await?;
        trace.sends = sends.iter().map(send_row::traced_send).collect::<Result<_, _>>()?;
        trace.next = next;
    }
    Ok(Some(trace))
}

async fn dead_letters(
    snapshot: &Transaction,
    event_id: &str,
    user: Option<&UserRef>,
) -> Result<Vec<DeadLetterRow>, StoreError> {
    let user_type = user.map(|user| user.user_type.as_str());
    let user_id = user.map(|user| user.user_id.as_str());
    let params: Params = &[&event_id, &user_type, &user_id];
    let rows = snapshot.query(statement::TRACE_DEAD_LETTERS, params).await?;
    rows.iter().map(dead_letter::dead_letter_row).collect()
}

/// The users between two users, both included, as (type, id).
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
    // Ids contain no control characters, so no user sorts between a user and this key.
    let first_after = |user: &UserRef| (user.user_type.to_string(), format!("{}\u{1}", user.user_id));
    let last_from = async |first: &(String, String), limit: usize| {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let params: Params = &[&event_id, &first.0, &first.1, &limit];
        let rows = snapshot.query(statement::TRACE_PAGE_END, params).await?;
        rows.first().map(decode::recipient_of).transpose()
    };
    let first = filter.after.as_ref().map(first_after).unwrap_or_default();
    let Some(last) = last_from(&first, filter.limit).await? else { return Ok(None) };
    let more = last_from(&first_after(&last), 1).await?.is_some();
    Ok(Some(UserPage { first, last: pair(&last), next: more.then_some(last) }))
}
