//! Reads traces, the list of events, and captured messages.

use async_trait::async_trait;
use campanile_domain::id::{EventId, UserRef};
use campanile_domain::priority::Lane;
use campanile_domain::status::EventStatus;
use campanile_domain::time::Timestamp;
use tokio_postgres::types::ToSql;

use super::transaction::Transaction;
use super::{Params, Postgres, read, statement};
use crate::event_search::{ArrivalSearch, EventIndex, scanned_event};
use crate::{CapturedRow, DeadLetterRow, EventFilter, EventPage, StoreError, Trace, TraceFilter, TraceStore};
use crate::{dead_letter, decode, send_row, trace};

#[async_trait]
impl TraceStore for Postgres {
    async fn trace(&self, event_id: &EventId, filter: TraceFilter) -> Result<Option<Trace>, StoreError> {
        let snapshot = self.snapshot().await?;
        trace_of(&snapshot, event_id.as_str(), &filter).await
    }

    async fn search_events(&self, filter: EventFilter) -> Result<EventPage, StoreError> {
        let index = filter.index();
        let sql = search(index, filter.newest_first);
        let limit = i64::try_from(filter.scan_limit()).unwrap_or(i64::MAX);
        let (low, high) = self.range(&filter).await?;
        let user = filter.user.as_ref();
        let (user_type, user_id) = user.map(|user| (user.user_type.as_str(), user.user_id.as_str())).unzip();
        let mut params: Vec<&(dyn ToSql + Sync)> = vec![&low, &high, &limit, &user_type, &user_id];
        match (index, &filter.event_type, &filter.aggregate) {
            (EventIndex::Type, Some(event_type), _) => params.push(event_type),
            (EventIndex::Aggregate, _, Some((aggregate_type, aggregate_id))) => {
                params.extend([aggregate_type as &(dyn ToSql + Sync), aggregate_id]);
            }
            _ => {}
        }
        let rows = self.query(&sql, &params).await?;
        let scanned = rows.iter().map(scanned_event).collect::<Result<_, _>>()?;
        Ok(filter.page(scanned))
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

impl Postgres {
    /// The range of arrival numbers to read, both exclusive.
    async fn range(&self, filter: &EventFilter) -> Result<(i64, i64), StoreError> {
        let (mut low, mut high) = filter.range();
        let (since, until) = filter.arrival();
        if let Some(since) = since {
            low = low.max(self.first_from(since).await? - 1);
        }
        if let Some(until) = until {
            high = high.min(self.first_from(until).await?);
        }
        Ok((low, high))
    }

    /// The number of the first event that arrived from this time on.
    async fn first_from(&self, time: Timestamp) -> Result<i64, StoreError> {
        let rows = self.query(statement::LAST_EVENT, &[]).await?;
        let last = rows.first().map(|row| read::get(row, "id")).transpose()?;
        let mut search = ArrivalSearch::new(time, last.unwrap_or_default());
        while let Some(probe) = search.probe() {
            let rows = self.query(statement::NEXT_EVENT, &[&probe]).await?;
            let found = |row| Ok::<_, StoreError>((read::get(row, "id")?, read::get(row, "created_at")?));
            search.record(probe, rows.first().map(found).transpose()?);
        }
        Ok(search.first())
    }
}

/// The columns of a listed event. The unique key of notifications tells whether it concerns the user of the filter.
const COLUMNS: &str = "e.id, e.event_id, e.event_type, e.aggregate_type, e.aggregate_id, e.priority, e.status, \
    e.retry_count, e.last_error, e.occurred_at, e.created_at, e.published_at, e.processed_at, \
    $4::text IS NULL OR EXISTS (SELECT FROM campanile.notification n \
        WHERE n.event_id = e.event_id AND n.user_type = $4 AND n.user_id = $5) AS concerns_user";

/// The statement that follows this index. Each status has its own text, because a partial index is used only if its
/// condition is in the text.
pub(super) fn search(index: EventIndex, newest_first: bool) -> String {
    let order = if newest_first { " DESC" } else { "" };
    let by_arrival = |condition: &str| {
        format!(
            "SELECT {COLUMNS} FROM campanile.event_outbox e
             WHERE {condition}e.id > $1 AND e.id < $2
             ORDER BY e.id{order} LIMIT $3"
        )
    };
    let by_search = |condition: &str| {
        format!(
            "SELECT {COLUMNS}
             FROM (SELECT id FROM campanile.event_search WHERE {condition} AND id > $1 AND id < $2
                   ORDER BY id{order} LIMIT $3) s
             CROSS JOIN LATERAL (SELECT * FROM campanile.event_outbox o WHERE o.id = s.id LIMIT 1) e
             ORDER BY s.id{order}"
        )
    };
    match index {
        EventIndex::Arrival => by_arrival(""),
        EventIndex::Type => by_search("event_type = $6"),
        EventIndex::Aggregate => by_search("aggregate_type = $6 AND aggregate_id = $7"),
        // Pending events are indexed by lane, and those that have begun separately.
        EventIndex::Status(EventStatus::Pending) => {
            let parts = ["IS NULL", "IS NOT NULL"].into_iter().flat_map(|cursor| {
                Lane::ALL.map(|lane| {
                    let condition = format!(
                        "e.status = 'PENDING' AND e.fan_out_cursor {cursor} AND e.lane = {} AND ",
                        lane.number()
                    );
                    format!("({})", by_arrival(&condition))
                })
            });
            let parts: Vec<String> = parts.collect();
            format!("{} ORDER BY id{order} LIMIT $3", parts.join(" UNION ALL "))
        }
        EventIndex::Status(status) => by_arrival(&format!("e.status = '{}' AND ", status.as_str())),
    }
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
