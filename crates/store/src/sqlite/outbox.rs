//! Claims, confirms and releases chunks of outbox rows, and puts lost rows into chunks again.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use campanile_domain::event::Event;
use campanile_domain::fan_out::MAX_CHUNK_ROWS;
use campanile_domain::id::{EventSeq, SendKey};
use campanile_domain::priority::{Lane, Priority};
use campanile_domain::queue::Queue;
use campanile_domain::time;
use rusqlite::named_params;
use serde_json::json;

use super::event::open_events;
use super::session::Session;
use super::{Sqlite, settle, statement};
use crate::columns::Columns;
use crate::decode;
use crate::outbox::REPUBLISH_PAGE_EVENTS;
use crate::{Chunk, ChunkId, ChunkRow, DeadLetter, OutboxStore, RepublishCursor, Republished, StoreError};

#[async_trait]
impl OutboxStore for Sqlite {
    async fn claim_chunk(&self, queue: &Queue, lease: Duration) -> Result<Option<Chunk>, StoreError> {
        let queue = queue.clone();
        self.write(move |session, now| claim(session, now, &queue, lease)).await
    }

    async fn chunks_published(&self, chunks: &[ChunkId]) -> Result<u64, StoreError> {
        let chunks = chunks.to_vec();
        self.write(move |session, _| {
            let delete =
                |chunk: &ChunkId| session.change(statement::DELETE_CHUNK, named_params! { ":id": chunk.0 });
            chunks.iter().map(delete).try_fold(0, |sum, deleted| Ok(sum + deleted? as u64))
        })
        .await
    }

    async fn release_chunks(&self, chunks: &[ChunkId]) -> Result<(), StoreError> {
        let chunks = chunks.to_vec();
        self.write(move |session, _| chunks.iter().try_for_each(|chunk| release(session, *chunk, None))).await
    }

    async fn rows_refused(
        &self,
        chunk: ChunkId,
        refused: Vec<(SendKey, String)>,
        max: u32,
        delay: Duration,
    ) -> Result<u64, StoreError> {
        self.write(move |session, now| {
            let (mut waiting, mut dead_letters) = (Vec::new(), 0);
            for (key, error) in &refused {
                match count_refusal(session, now, *key, error, max)? {
                    Refused::Waits => waiting.push(key.to_string()),
                    Refused::Failed => dead_letters += 1,
                    Refused::AlreadyFinal => {}
                }
            }
            if waiting.is_empty() {
                session.change(statement::DELETE_CHUNK, named_params! { ":id": chunk.0 })?;
                return Ok(dead_letters);
            }
            let params = named_params! { ":chunk_id": chunk.0, ":refused": json!(waiting).to_string() };
            session.change(statement::CONFIRM_ROWS, params)?;
            release(session, chunk, Some(&lease_until(now, delay)))?;
            Ok(dead_letters)
        })
        .await
    }

    async fn republish(
        &self,
        queues: Vec<Queue>,
        older_than: Duration,
        from: RepublishCursor,
        limit: usize,
    ) -> Result<Republished, StoreError> {
        self.write(move |session, now| republish(session, &queues, &earlier(now, older_than), &from, limit))
            .await
    }
}

pub fn lease_until(now: &str, lease: Duration) -> String {
    time::from_text(now).map(|at| time::to_text(time::later(at, lease))).unwrap_or_default()
}

/// The time `by` before `now`. If that is out of range, an empty text, which sorts before every time.
pub fn earlier(now: &str, by: Duration) -> String {
    time::from_text(now).and_then(|at| at.checked_sub(by).ok()).map(time::to_text).unwrap_or_default()
}

fn claim(session: &Session, now: &str, queue: &Queue, lease: Duration) -> Result<Option<Chunk>, StoreError> {
    let params =
        named_params! { ":queue": queue.as_str(), ":now": now, ":lease_until": lease_until(now, lease) };
    let claimed = session.first(statement::CLAIM_CHUNK, params, |row| {
        let range: (String, String) = (row.get("first_id")?, row.get("last_id")?);
        let chunk = Chunk {
            id: ChunkId(row.get("id")?),
            queue: Queue::named(row.get::<_, String>("queue")?),
            lane: Lane::from_number(row.get("lane")?),
            rows: Vec::new(),
        };
        Ok((chunk, range))
    })?;
    let Some((mut chunk, (first_id, last_id))) = claimed else { return Ok(None) };
    let params = named_params! { ":chunk_id": chunk.id.0, ":first_id": first_id, ":last_id": last_id };
    let mut events: HashMap<EventSeq, Arc<Event>> = HashMap::new();
    chunk.rows = session.all(statement::CHUNK_ROWS, params, |row| {
        let seq = EventSeq(row.get("id")?);
        let event = match events.get(&seq) {
            Some(event) => Arc::clone(event),
            None => Arc::new(decode::decided_event(row, "event_priority")?),
        };
        events.insert(seq, Arc::clone(&event));
        Ok(ChunkRow { row: decode::outbox_row(row, &event)?, event })
    })?;
    Ok(Some(chunk))
}

fn release(session: &Session, chunk: ChunkId, lease_until: Option<&str>) -> Result<(), StoreError> {
    let params = named_params! { ":id": chunk.0, ":lease_until": lease_until };
    session.change(statement::RELEASE_CHUNK, params).map(drop)
}

/// The result of a refusal for a row.
enum Refused {
    Waits,
    /// The row has failed and has a dead letter.
    Failed,
    /// The row was received or had failed before.
    AlreadyFinal,
}

fn count_refusal(
    session: &Session,
    now: &str,
    key: SendKey,
    error: &str,
    max: u32,
) -> Result<Refused, StoreError> {
    let error = format!("REFUSED: {error}");
    let params = named_params! {
        ":notification_id": key.notification_id.to_string(), ":channel": key.channel.as_str(), ":error": error,
        ":max": max,
    };
    let counted = session.first(statement::COUNT_REFUSAL, params, |row| {
        let failed = row.get::<_, Option<String>>("status")?.is_some();
        Ok((failed, row.get::<_, String>("event_id")?, decode::recipient_of(row)?))
    })?;
    let Some((failed, event_id, recipient)) = counted else { return Ok(Refused::AlreadyFinal) };
    if !failed {
        return Ok(Refused::Waits);
    }
    let dead_letter = DeadLetter::of_refused_row(event_id, recipient, key.channel, error);
    settle::insert_dead_letter(session, now, &dead_letter)?;
    Ok(Refused::Failed)
}

fn republish(
    session: &Session,
    queues: &[Queue],
    written_before: &str,
    from: &RepublishCursor,
    limit: usize,
) -> Result<Republished, StoreError> {
    let queues = json!(queues).to_string();
    let events = open_events(session, from.after(), REPUBLISH_PAGE_EVENTS)?;
    let mut lost: HashMap<(Queue, Lane), Vec<SendKey>> = HashMap::new();
    let (mut found, mut end) = (0, None);
    for (seq, event_id) in &events {
        if found == limit {
            break;
        }
        let last_row = from.row.as_ref().filter(|_| *seq == from.seq);
        let params = named_params! {
            ":event_id": event_id.as_str(), ":queues": queues, ":written_before": written_before,
            ":limit": limit - found,
            ":recipient_type": last_row.map(|(user, _)| user.user_type.as_str()).unwrap_or_default(),
            ":recipient_id": last_row.map(|(user, _)| user.user_id.as_str()).unwrap_or_default(),
            ":channel": last_row.map(|(_, channel)| channel.as_str()).unwrap_or_default(),
        };
        let rows = session.all(statement::LOST_ROWS, params, |row| {
            let (key, priority): (_, Priority) = (decode::key_of(row)?, row.parsed("priority")?);
            lost.entry((Queue::named(row.str("queue")?), priority.lane())).or_default().push(key);
            Ok((decode::recipient_of(row)?, key.channel))
        })?;
        found += rows.len();
        end = rows.into_iter().next_back().map(|row| RepublishCursor { seq: *seq, row: Some(row) }).or(end);
    }
    for ((queue, lane), keys) in lost {
        insert_chunks(session, &queue, lane, keys)?;
    }
    Ok(Republished::of_page(&events, found, end, limit))
}

/// Makes chunks that are not leased. Reading a chunk also reads the rows between its own, so adjacent keys share a
/// chunk.
pub fn insert_chunks(
    session: &Session,
    queue: &Queue,
    lane: Lane,
    mut keys: Vec<SendKey>,
) -> Result<(), StoreError> {
    keys.sort_unstable();
    keys.chunks(MAX_CHUNK_ROWS).try_for_each(|chunk| insert_chunk_of(session, queue, lane, chunk))
}

fn insert_chunk_of(session: &Session, queue: &Queue, lane: Lane, keys: &[SendKey]) -> Result<(), StoreError> {
    session.change(
        statement::INSERT_CHUNK,
        named_params! {
            ":queue": queue.as_str(), ":lane": lane.number(), ":lease_until": None::<String>,
            ":first_id": keys.first().map(|key| key.notification_id.to_string()),
            ":last_id": keys.last().map(|key| key.notification_id.to_string()),
        },
    )?;
    let chunk = session.last_insert_rowid();
    for key in keys {
        session.change(
            statement::ASSIGN_CHUNK,
            named_params! {
                ":chunk_id": chunk, ":notification_id": key.notification_id.to_string(),
                ":channel": key.channel.as_str(),
            },
        )?;
    }
    Ok(())
}
