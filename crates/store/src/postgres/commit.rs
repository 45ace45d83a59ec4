//! Writes the results of a fan-out in the transaction of its claim: the next states of events, the decisions, the
//! outbox rows and their chunks.

use std::collections::{HashMap, HashSet};

use campanile_domain::event::transition::Transition;
use campanile_domain::fan_out::{OutboxRow, Summary};
use campanile_domain::id::{EventSeq, SendKey};
use campanile_domain::priority::Lane;
use campanile_domain::queue::Queue;
use campanile_domain::status::ProcessedStatus;
use deadpool_postgres::Object;
use serde_json::json;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::transaction::Transaction;
use super::{execute_prepared, prepare, query_prepared, read, settle, statement};
use crate::decode;
use crate::error::explained;
use crate::{Chunk, ChunkId, DeadLetter, FanOutCommit, FanOutStep, NewChunk, StoreError};

type Params<'a> = Vec<&'a (dyn ToSql + Sync)>;

/// Whether rows of the claimed events may exist already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExistingRows {
    /// Several events for which nothing has been written. Keys are inserted without a search for existing ones.
    None,
    /// A decision of an event failed before, or some of its rows were written. A single event also counts as this, so
    /// that bisecting a batch ends.
    Possible,
}

impl ExistingRows {
    fn choose(self, upsert: &'static str, insert_only: &'static str) -> &'static str {
        match self {
            ExistingRows::None => insert_only,
            ExistingRows::Possible => upsert,
        }
    }

    /// Translates an error. If a row of a supposedly new event exists already, the batch is refused. The caller then
    /// bisects it until that event is alone.
    fn failed(self, client: &Object, error: tokio_postgres::Error) -> StoreError {
        if self == ExistingRows::None && error.code() == Some(&SqlState::UNIQUE_VIOLATION) {
            return StoreError::Refused(explained(
                "rows of one of the events already exist".to_owned(),
                error,
            ));
        }
        super::failed(client, error)
    }
}

/// Writes everything and commits.
pub async fn write(
    transaction: Transaction,
    commit: FanOutCommit,
    cursors: &HashMap<EventSeq, String>,
    existing: ExistingRows,
) -> Result<Vec<Chunk>, StoreError> {
    let FanOutCommit { instance, steps, chunks, failed_rows, lease } = commit;
    let (finished, processed, mut dead_letters) = columns_of(&steps, cursors);
    let shared = SharedColumns::new(&steps);
    let new_chunks = ChunkColumns::new(&chunks);
    let seconds = lease.as_secs_f64();
    let [finish, remember, share, insert_chunk] = prepare(
        &transaction,
        [
            statement::FINISH_EVENT,
            existing.choose(statement::WRITE_PROCESSED, statement::INSERT_NEW_PROCESSED),
            existing.choose(statement::INSERT_EVENT_NOTIFICATION, statement::INSERT_NEW_EVENT_NOTIFICATION),
            statement::INSERT_CHUNK,
        ],
    )
    .await?;
    let (finish_params, processed_params) = (finished.params(), processed.params(&instance));
    let (shared_params, chunk_params) = (shared.params(), new_chunks.params(&seconds));
    let client = transaction.client();
    let failed = |error| existing.failed(client, error);
    // Awaits all of them: after a failed statement, PostgreSQL reports for the others only that the transaction failed.
    let (changed, remembered, shared, ids) = tokio::join!(
        biased;
        execute_prepared(client, &finish, &finish_params),
        async { client.execute(&remember, &processed_params).await.map_err(failed) },
        async { client.execute(&share, &shared_params).await.map_err(failed) },
        query_prepared(client, &insert_chunk, &chunk_params),
    );
    let (changed, _, _, ids) = (changed?, remembered?, shared?, ids?);
    if changed < steps.len() as u64 {
        return Err(StoreError::Lost("one of the events was changed by another instance".into()));
    }
    let mut ids = ids.iter().map(|row| read::get(row, "id")).collect::<Result<Vec<i64>, _>>()?;
    ids.sort_unstable();
    dead_letters.extend(failed_rows.iter().map(DeadLetter::of_failed_row));
    settle::insert_dead_letters(&transaction, &dead_letters).await?;
    let of_chunks =
        chunks.iter().zip(&ids).flat_map(|(c, id)| c.rows.iter().map(move |r| (&r.row, Some(*id))));
    let rows: Vec<(&OutboxRow, Option<i64>)> =
        of_chunks.chain(failed_rows.iter().map(|row| (row, None))).collect();
    let written = insert(transaction, &rows, existing).await?;
    let chunk = |(chunk, id): (NewChunk, &i64)| {
        let NewChunk { queue, lane, mut rows, leased } = chunk;
        rows.retain(|row| written.has(row.row.key));
        leased.then_some(Chunk { id: ChunkId(*id), queue, lane, rows })
    };
    Ok(chunks.into_iter().zip(&ids).filter_map(chunk).collect())
}

/// The rows that are new. Chunks are returned without the other rows, because their recipients are not notified again.
#[derive(Debug)]
enum Written {
    All,
    Some(HashSet<SendKey>),
}

impl Written {
    fn has(&self, key: SendKey) -> bool {
        match self {
            Written::All => true,
            Written::Some(keys) => keys.contains(&key),
        }
    }
}

/// Inserts the outbox rows as the last step, and commits.
async fn insert(
    transaction: Transaction,
    rows: &[(&OutboxRow, Option<i64>)],
    existing: ExistingRows,
) -> Result<Written, StoreError> {
    if rows.is_empty() {
        transaction.commit().await?;
        return Ok(Written::All);
    }
    let columns = columns(rows);
    let params: Params = columns.iter().map(|column| &**column as &(dyn ToSql + Sync)).collect();
    let sql = existing.choose(statement::INSERT_OUTBOX, statement::INSERT_NEW_OUTBOX);
    let [insert] = prepare(&transaction, [sql]).await?;
    let client = transaction.client();
    let inserted = client.query(&insert, &params).await.map_err(|error| existing.failed(client, error))?;
    transaction.commit().await?;
    match existing {
        ExistingRows::None => Ok(Written::All),
        ExistingRows::Possible => {
            inserted.iter().map(decode::key_of).collect::<Result<_, _>>().map(Written::Some)
        }
    }
}

/// Outbox rows, as columns in the order of the statements.
fn columns<'a>(rows: &[(&'a OutboxRow, Option<i64>)]) -> Vec<Box<dyn ToSql + Send + Sync + 'a>> {
    fn column<'a, T>(
        rows: &[(&'a OutboxRow, Option<i64>)],
        of: impl Fn(&'a OutboxRow) -> T,
    ) -> Box<dyn ToSql + Send + Sync + 'a>
    where
        T: Send + 'a,
        Vec<T>: ToSql + Sync,
    {
        Box::new(rows.iter().map(|(row, _)| of(row)).collect::<Vec<T>>())
    }
    vec![
        column(rows, |r| r.key.notification_id.0),
        column(rows, |r| r.key.channel.as_str()),
        column(rows, |r| r.event_id.as_str()),
        column(rows, |r| r.recipient.user_type.as_str()),
        column(rows, |r| r.recipient.user_id.as_str()),
        column(rows, |r| r.address.as_str()),
        column(rows, |r| r.title.as_str()),
        column(rows, |r| r.body.as_str()),
        column(rows, |r| r.inbox.as_ref().map(|text| text.title.as_str())),
        column(rows, |r| r.inbox.as_ref().map(|text| text.body.as_str())),
        column(rows, |r| r.priority.as_str()),
        column(rows, |r| r.audience.as_str()),
        column(rows, |r| r.entity.as_ref().map(|e| e.entity_type.as_str())),
        column(rows, |r| r.entity.as_ref().map(|e| e.entity_id.as_str())),
        column(rows, |r| r.shared_read),
        column(rows, |r| r.queue.as_str()),
        Box::new(rows.iter().map(|(_, chunk)| *chunk).collect::<Vec<_>>()),
        column(rows, |r| r.failure.as_ref().map(|_| "FAILED")),
        column(rows, |r| r.failure.as_ref().map(ToString::to_string)),
    ]
}

/// The results of the steps: the next states, the remembered events, and the dead letters.
fn columns_of<'a>(
    steps: &'a [FanOutStep],
    cursors: &HashMap<EventSeq, String>,
) -> (EventColumns, ProcessedColumns<'a>, Vec<DeadLetter>) {
    let (mut finished, mut remembered) = (EventColumns::default(), ProcessedColumns::default());
    let mut dead_letters = Vec::new();
    for step in steps {
        let Transition { status, cursor, error, processed, dead_letter } = step.transition();
        finished.ids.push(step.seq.0);
        finished.statuses.push(status.as_str());
        finished.cursors_after.push(cursor.map(|cursor| json!(cursor).to_string()));
        finished.errors.push(error);
        finished.cursors_before.push(step.cursor_text_before(cursors.get(&step.seq)));
        if let Some((status, summary)) = processed {
            remembered.add(step, status, &summary);
        }
        let event_id = step.event.event_id.as_str();
        dead_letters.extend(dead_letter.map(|failure| DeadLetter::of_event(event_id, failure)));
    }
    (finished, remembered, dead_letters)
}

/// The events' next states, as columns.
#[derive(Debug, Default)]
struct EventColumns {
    ids: Vec<i64>,
    statuses: Vec<&'static str>,
    cursors_after: Vec<Option<String>>,
    errors: Vec<Option<String>>,
    cursors_before: Vec<Option<String>>,
}

impl EventColumns {
    fn params(&self) -> Params<'_> {
        vec![&self.ids, &self.statuses, &self.cursors_after, &self.errors, &self.cursors_before]
    }
}

/// The rows of `processed_event`, as columns.
#[derive(Debug, Default)]
struct ProcessedColumns<'a> {
    ids: Vec<&'a str>,
    hashes: Vec<&'a str>,
    statuses: Vec<&'static str>,
    recipients: Vec<i64>,
    sends: Vec<i64>,
    counts: Vec<String>,
    decisions: Vec<Option<&'a str>>,
}

impl<'a> ProcessedColumns<'a> {
    fn add(&mut self, step: &'a FanOutStep, status: ProcessedStatus, summary: &Summary) {
        self.ids.push(step.event.event_id.as_str());
        self.hashes.push(step.body_hash.as_str());
        self.statuses.push(status.as_str());
        self.recipients.push(i64::try_from(summary.recipients).unwrap_or(i64::MAX));
        self.sends.push(i64::try_from(summary.sends).unwrap_or(i64::MAX));
        self.counts.push(summary.counts.to_json());
        self.decisions.push(step.decisions.as_deref());
    }

    fn params<'b>(&'b self, instance: &'b String) -> Params<'b> {
        let ProcessedColumns { ids, hashes, statuses, recipients, sends, counts, decisions } = self;
        vec![ids, hashes, statuses, recipients, sends, counts, decisions, instance]
    }
}

/// For each entity of an event, whether its members share the read state, as columns.
#[derive(Debug, Default)]
struct SharedColumns<'a> {
    event_ids: Vec<&'a str>,
    entity_types: Vec<&'a str>,
    entity_ids: Vec<&'a str>,
    flags: Vec<bool>,
}

impl<'a> SharedColumns<'a> {
    fn new(steps: &'a [FanOutStep]) -> Self {
        let mut shared = SharedColumns::default();
        for step in steps {
            for (entity, shared_read) in &step.entities {
                shared.event_ids.push(step.event.event_id.as_str());
                shared.entity_types.push(entity.entity_type.as_str());
                shared.entity_ids.push(entity.entity_id.as_str());
                shared.flags.push(*shared_read);
            }
        }
        shared
    }

    fn params(&self) -> Params<'_> {
        vec![&self.event_ids, &self.entity_types, &self.entity_ids, &self.flags]
    }
}

/// Chunks, as columns.
#[derive(Debug, Default)]
pub struct ChunkColumns<'a> {
    queues: Vec<&'a str>,
    lanes: Vec<i16>,
    first_ids: Vec<Uuid>,
    last_ids: Vec<Uuid>,
    leased: Vec<bool>,
}

impl<'a> ChunkColumns<'a> {
    fn new(chunks: &'a [NewChunk]) -> Self {
        let mut new = ChunkColumns::default();
        for chunk in chunks {
            let ids = || chunk.rows.iter().map(|row| row.row.key.notification_id.0);
            let range = (ids().min().unwrap_or_default(), ids().max().unwrap_or_default());
            new.add(&chunk.queue, chunk.lane, range, chunk.leased);
        }
        new
    }

    /// `range` holds the first and the last notification id.
    pub fn add(&mut self, queue: &'a Queue, lane: Lane, range: (Uuid, Uuid), leased: bool) {
        self.queues.push(queue.as_str());
        self.lanes.push(lane.number());
        self.first_ids.push(range.0);
        self.last_ids.push(range.1);
        self.leased.push(leased);
    }

    pub fn params<'b>(&'b self, lease_seconds: &'b f64) -> Params<'b> {
        vec![&self.queues, &self.lanes, &self.first_ids, &self.last_ids, &self.leased, lease_seconds]
    }
}
