//! Claims, confirms and releases chunks of outbox rows, and puts lost rows into chunks again.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use campanile_domain::channel::Channel;
use campanile_domain::event::Event;
use campanile_domain::fan_out::MAX_CHUNK_ROWS;
use campanile_domain::id::{EventSeq, SendKey};
use campanile_domain::priority::{Lane, Priority};
use campanile_domain::queue::Queue;
use tokio_postgres::Row;
use uuid::Uuid;

use super::commit::ChunkColumns;
use super::event::open_events;
use super::transaction::Transaction;
use super::{Params, Postgres, read, settle, statement};
use crate::columns::Columns;
use crate::decode;
use crate::outbox::REPUBLISH_PAGE_EVENTS;
use crate::{Chunk, ChunkId, ChunkRow, DeadLetter, OutboxStore, RepublishCursor, Republished, StoreError};

#[async_trait]
impl OutboxStore for Postgres {
    async fn claim_chunk(&self, queue: &Queue, lease: Duration) -> Result<Option<Chunk>, StoreError> {
        let claimed = self.query(statement::CLAIM_CHUNK, &[&queue.as_str(), &lease.as_secs_f64()]).await?;
        let Some(chunk) = claimed.first() else { return Ok(None) };
        let range: (Uuid, Uuid) = (read::get(chunk, "first_id")?, read::get(chunk, "last_id")?);
        let id = read::get(chunk, "id")?;
        let lane = Lane::from_number(read::get(chunk, "lane")?);
        // The chunk is leased to this instance, so its rows may be read in a second statement.
        let rows = self.query(statement::CHUNK_ROWS, &[&id, &range.0, &range.1]).await?;
        let queue = Queue::named(read::get::<&str>(chunk, "queue")?);
        Ok(Some(Chunk { id: ChunkId(id), queue, lane, rows: chunk_rows(&rows)? }))
    }

    async fn chunks_published(&self, chunks: &[ChunkId]) -> Result<u64, StoreError> {
        self.execute(statement::DELETE_CHUNK, &[&numbers(chunks)]).await
    }

    async fn release_chunks(&self, chunks: &[ChunkId]) -> Result<(), StoreError> {
        self.execute(statement::RELEASE_CHUNK, &[&numbers(chunks), &None::<f64>]).await.map(drop)
    }

    async fn rows_refused(
        &self,
        chunk: ChunkId,
        refused: Vec<(SendKey, String)>,
        max: u32,
        delay: Duration,
    ) -> Result<u64, StoreError> {
        let transaction = self.begin().await?;
        let (waiting, dead_letters) = count_refusals(&transaction, refused, max).await?;
        if waiting.is_empty() {
            transaction.execute(statement::DELETE_CHUNK, &[&vec![chunk.0]]).await?;
        } else {
            let (ids, channels) = columns(waiting);
            transaction.execute(statement::CONFIRM_ROWS, &[&chunk.0, &ids, &channels]).await?;
            let delay = Some(delay.as_secs_f64());
            transaction.execute(statement::RELEASE_CHUNK, &[&vec![chunk.0], &delay]).await?;
        }
        transaction.commit().await?;
        Ok(dead_letters)
    }

    async fn republish(
        &self,
        queues: Vec<Queue>,
        older_than: Duration,
        from: RepublishCursor,
        limit: usize,
    ) -> Result<Republished, StoreError> {
        let transaction = self.begin().await?;
        let max_rows = i64::try_from(limit).unwrap_or(i64::MAX);
        let names: Vec<&str> = queues.iter().map(Queue::as_str).collect();
        let seconds = older_than.as_secs_f64();
        transaction.query(statement::LOCK_REPUBLISH, &[]).await?;
        let page = i64::try_from(REPUBLISH_PAGE_EVENTS).unwrap_or(i64::MAX);
        let events =
            open_events(&transaction.query(statement::OPEN_EVENTS, &[&from.after().0, &page]).await?)?;
        let (seqs, ids): (Vec<i64>, Vec<&str>) = events.iter().map(|(seq, id)| (seq.0, id.as_str())).unzip();
        let (user, channel) = from.row.as_ref().map(|(user, channel)| (user, channel.as_str())).unzip();
        let user_type = user.map(|user| user.user_type.as_str()).unwrap_or_default();
        let user_id = user.map(|user| user.user_id.as_str()).unwrap_or_default();
        let channel = channel.unwrap_or_default();
        let params: Params =
            &[&seqs, &ids, &names, &seconds, &from.seq.0, &user_type, &user_id, &channel, &max_rows];
        let rows = transaction.query(statement::LOST_ROWS, params).await?;
        let mut lost: HashMap<(Queue, Lane), Vec<SendKey>> = HashMap::new();
        for row in &rows {
            let priority: Priority = row.parsed("priority")?;
            let queue = Queue::named(row.str("queue")?);
            lost.entry((queue, priority.lane())).or_default().push(decode::key_of(row)?);
        }
        insert_chunks(&transaction, lost).await?;
        transaction.commit().await?;
        let cursor = |row| {
            let at = (decode::recipient_of(row)?, decode::key_of(row)?.channel);
            Ok::<_, StoreError>(RepublishCursor { seq: EventSeq(read::get(row, "seq")?), row: Some(at) })
        };
        let end = rows.last().map(cursor).transpose()?;
        Ok(Republished::of_page(&events, rows.len(), end, limit))
    }
}

fn numbers(chunks: &[ChunkId]) -> Vec<i64> {
    chunks.iter().map(|chunk| chunk.0).collect()
}

pub fn columns(keys: impl IntoIterator<Item = SendKey>) -> (Vec<Uuid>, Vec<&'static str>) {
    keys.into_iter().map(|key| (key.notification_id.0, key.channel.as_str())).unzip()
}

fn chunk_rows(rows: &[Row]) -> Result<Vec<ChunkRow>, StoreError> {
    let mut events: HashMap<EventSeq, Arc<Event>> = HashMap::new();
    let mut chunk = Vec::with_capacity(rows.len());
    for row in rows {
        let seq = EventSeq(read::get(row, "id")?);
        let event = match events.get(&seq) {
            Some(event) => Arc::clone(event),
            None => Arc::new(decode::decided_event(row, "event_priority")?),
        };
        events.insert(seq, Arc::clone(&event));
        chunk.push(ChunkRow { row: decode::outbox_row(row, &event)?, event });
    }
    Ok(chunk)
}

/// Counts refusals. Returns the rows that may be published again, and the number of new dead letters.
async fn count_refusals(
    transaction: &Transaction,
    refused: Vec<(SendKey, String)>,
    max: u32,
) -> Result<(Vec<SendKey>, u64), StoreError> {
    let (keys, errors): (Vec<SendKey>, Vec<String>) =
        refused.into_iter().map(|(key, error)| (key, format!("REFUSED: {error}"))).unzip();
    let (ids, channels) = columns(keys);
    let max = i32::try_from(max).unwrap_or(i32::MAX);
    let counted = transaction.query(statement::COUNT_REFUSAL, &[&ids, &channels, &errors, &max]).await?;
    let (mut waiting, mut dead_letters) = (Vec::new(), Vec::new());
    for row in &counted {
        let key = decode::key_of(row)?;
        if read::get::<Option<&str>>(row, "status")?.is_none() {
            waiting.push(key);
            continue;
        }
        let error = read::get(row, "last_error")?;
        let recipient = decode::recipient_of(row)?;
        dead_letters.push(DeadLetter::of_refused_row(
            read::get(row, "event_id")?,
            recipient,
            key.channel,
            error,
        ));
    }
    settle::insert_dead_letters(transaction, &dead_letters).await?;
    Ok((waiting, dead_letters.len() as u64))
}

/// Puts rows into new chunks, which any instance may claim.
pub async fn insert_chunks(
    transaction: &Transaction,
    rows: HashMap<(Queue, Lane), Vec<SendKey>>,
) -> Result<(), StoreError> {
    let mut groups: Vec<(&(Queue, Lane), &[SendKey])> = Vec::new();
    let mut rows: Vec<_> = rows.into_iter().collect();
    for (_, keys) in &mut rows {
        keys.sort_unstable();
    }
    for (queue_and_lane, keys) in &rows {
        groups.extend(keys.chunks(MAX_CHUNK_ROWS).map(|keys| (queue_and_lane, keys)));
    }
    if groups.is_empty() {
        return Ok(());
    }
    let mut chunks = ChunkColumns::default();
    for ((queue, lane), keys) in &groups {
        // The keys are sorted.
        let id = |key: Option<&SendKey>| key.map(|key| key.notification_id.0).unwrap_or_default();
        chunks.add(queue, *lane, (id(keys.first()), id(keys.last())), false);
    }
    let inserted = transaction.query(statement::INSERT_CHUNK, &chunks.params(&0.0)).await?;
    let mut ids = inserted.iter().map(|row| read::get(row, "id")).collect::<Result<Vec<i64>, _>>()?;
    ids.sort_unstable();
    let (mut chunk_ids, mut notification_ids, mut channels) = (Vec::new(), Vec::new(), Vec::new());
    for (id, (_, keys)) in ids.iter().zip(&groups) {
        for key in *keys {
            chunk_ids.push(*id);
            notification_ids.push(key.notification_id.0);
            channels.push(Channel::as_str(key.channel));
        }
    }
    let params: Params = &[&chunk_ids, &notification_ids, &channels];
    transaction.execute(statement::ASSIGN_CHUNK, params).await.map(drop)
}
