//! Accepts events, counts their failures, and closes them.

use std::collections::{HashMap, HashSet};

use async_trait::async_trait;
use campanile_domain::event::{BodyHash, Failure, NewEvent};
use campanile_domain::id::{EventId, EventSeq};
use campanile_domain::priority::Priority;
use campanile_domain::time::Timestamp;
use tokio_postgres::Row;

use super::transaction::Transaction;
use super::{Params, Postgres, prepare, query_prepared, read, settle, statement};
use crate::columns::Columns;
use crate::decode;
use crate::{Acceptance, DeadLetter, EventStore, StoreError};

#[async_trait]
impl EventStore for Postgres {
    async fn accept(&self, events: Vec<NewEvent>) -> Result<Acceptance, StoreError> {
        loop {
            let transaction = self.begin().await?;
            if let Some(acceptance) = accept(&transaction, &events).await? {
                if matches!(acceptance, Acceptance::Accepted(_)) {
                    transaction.commit().await?;
                }
                return Ok(acceptance);
            }
            // Another transaction inserted one of these ids after the check. The next attempt sees it.
        }
    }

    async fn count_failure(&self, seq: EventSeq, failure: Failure, max: u32) -> Result<bool, StoreError> {
        let transaction = self.begin().await?;
        let counted = transaction.query(statement::COUNT_FAILURE, &[&seq.0, &failure.to_string()]).await?;
        let given_up = match counted.first() {
            Some(row) if row.integer::<u32>("retry_count")? >= max => {
                give_up(&transaction, seq, read::get(row, "event_id")?, &failure).await?;
                true
            }
            _ => false,
        };
        transaction.commit().await?;
        Ok(given_up)
    }

    async fn close_events(&self, candidates: Vec<EventId>) -> Result<u64, StoreError> {
        let ids: HashSet<&str> = candidates.iter().map(EventId::as_str).collect();
        close(self, statement::CLOSE_EVENTS, &[&Vec::from_iter(ids)]).await
    }

    async fn close_complete(&self, seqs: Vec<EventSeq>) -> Result<u64, StoreError> {
        let mut seqs = numbers(seqs);
        // In order, so that two transactions that close events never deadlock.
        seqs.sort_unstable();
        close(self, statement::CLOSE_COMPLETE, &[&seqs]).await
    }

    async fn open_events(
        &self,
        after: EventSeq,
        limit: usize,
    ) -> Result<Vec<(EventSeq, EventId)>, StoreError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        open_events(&self.query(statement::OPEN_EVENTS, &[&after.0, &limit]).await?)
    }
}

async fn close(store: &Postgres, statement: &'static str, events: Params<'_>) -> Result<u64, StoreError> {
    let transaction = store.begin().await?;
    let locked = transaction.query(statement::LOCK_CLOSE, &[]).await?;
    if !read::get::<bool>(read::only_row(&locked)?, "acquired")? {
        // A replay is in progress and may add rows to these events. A later call closes complete events.
        return Ok(0);
    }
    let closed = transaction.execute(statement, events).await?;
    transaction.commit().await?;
    Ok(closed)
}

pub fn open_events(rows: &[Row]) -> Result<Vec<(EventSeq, EventId)>, StoreError> {
    let open =
        |row| Ok((EventSeq(read::get(row, "id")?), EventId::stored(read::get::<String>(row, "event_id")?)));
    rows.iter().map(open).collect()
}

/// The numbers of events, as a column.
pub fn numbers(seqs: impl IntoIterator<Item = EventSeq>) -> Vec<i64> {
    seqs.into_iter().map(|seq| seq.0).collect()
}

/// Gives an event up and writes its dead letter. An event with rows becomes `PUBLISHED`, so that they are delivered and
/// close it; any other becomes `FAILED`.
pub async fn give_up(
    transaction: &Transaction,
    seq: EventSeq,
    event_id: &str,
    failure: &Failure,
) -> Result<(), StoreError> {
    if transaction.execute(statement::GIVE_UP_EVENT, &[&seq.0, &failure.to_string()]).await? == 0 {
        return Ok(());
    }
    transaction.execute(statement::GIVE_UP_PROCESSED, &[&seq.0]).await?;
    settle::insert_dead_letters(transaction, &[DeadLetter::of_event(event_id, failure)]).await
}

/// Checks all events before it writes any, so that a conflict leaves no trace. Returns `None` if another transaction
/// inserted an id in between.
async fn accept(transaction: &Transaction, events: &[NewEvent]) -> Result<Option<Acceptance>, StoreError> {
    let known = known_bodies(transaction, events).await?;
    let is_known = |event: &NewEvent| known.contains_key(event.event_id.as_str());
    let differs =
        |event: &NewEvent| known.get(event.event_id.as_str()).is_some_and(|h| *h != event.body_hash());
    let conflicts: Vec<usize> =
        events.iter().enumerate().filter(|(_, event)| differs(event)).map(|(position, _)| position).collect();
    if !conflicts.is_empty() {
        return Ok(Some(Acceptance::Conflicts(conflicts)));
    }
    let created: Vec<bool> = events.iter().map(|event| !is_known(event)).collect();
    let new: Vec<&NewEvent> = events.iter().filter(|event| !is_known(event)).collect();
    if insert(transaction, &new).await? < new.len() {
        return Ok(None);
    }
    Ok(Some(Acceptance::Accepted(created)))
}

async fn insert(transaction: &Transaction, events: &[&NewEvent]) -> Result<usize, StoreError> {
    if events.is_empty() {
        return Ok(0);
    }
    let ids: Vec<&str> = events.iter().map(|event| event.event_id.as_str()).collect();
    let types: Vec<&str> = events.iter().map(|event| event.event_type.as_str()).collect();
    let aggregate_types: Vec<&str> = events.iter().map(|event| event.aggregate_type.as_str()).collect();
    let aggregate_ids: Vec<&str> = events.iter().map(|event| event.aggregate_id.as_str()).collect();
    let payloads: Vec<&str> = events.iter().map(|event| event.payload.as_str()).collect();
    let priorities: Vec<Option<&str>> =
        events.iter().map(|event| event.priority.map(Priority::as_str)).collect();
    let times: Vec<Option<Timestamp>> = events.iter().map(|event| event.occurred_at).collect();
    let params: Params = &[&ids, &types, &aggregate_types, &aggregate_ids, &payloads, &priorities, &times];
    Ok(transaction.query(statement::ACCEPT_EVENT, params).await?.len())
}

/// The body hashes of these ids, from stored and from remembered events.
async fn known_bodies(
    transaction: &Transaction,
    events: &[NewEvent],
) -> Result<HashMap<String, BodyHash>, StoreError> {
    let ids: Vec<&str> = events.iter().map(|event| event.event_id.as_str()).collect();
    let [known_event, known_hash] =
        prepare(transaction, [statement::KNOWN_EVENT, statement::KNOWN_HASH]).await?;
    let (client, ids): (_, Params) = (transaction.client(), &[&ids]);
    let (stored, remembered) = tokio::try_join!(
        biased;
        query_prepared(client, &known_event, ids),
        query_prepared(client, &known_hash, ids),
    )?;
    let mut known = HashMap::new();
    for row in &remembered {
        known.insert(read::get(row, "event_id")?, BodyHash::stored(read::get::<String>(row, "body_hash")?));
    }
    for row in &stored {
        known.insert(read::get(row, "event_id")?, decode::body_hash(row));
    }
    Ok(known)
}
