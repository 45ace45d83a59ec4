//! Claims events, and commits the decisions about them. `audience` reads their audience. One engine owns the file, so a
//! claim locks nothing in it. The commit is refused if an event has changed since the claim.

use std::collections::HashMap;

use async_trait::async_trait;
use campanile_domain::event::Failure;
use campanile_domain::event::transition::Transition;
use campanile_domain::fan_out::{OutboxRow, Page, Summary};
use campanile_domain::id::{EntityRef, EventSeq};
use campanile_domain::people::recipient::{Candidate, Group};
use campanile_domain::status::ProcessedStatus;
use campanile_domain::time::Timestamp;
use rusqlite::{Row, named_params};
use serde_json::json;

use super::claimed_events::ClaimedEventsGuard;
use super::session::Session;
use super::{Sqlite, audience, event, outbox, settle, statement};
use crate::decode::{self, ClaimedRow};
use crate::fan_out::unreadable;
use crate::{
    AudienceReader, Chunk, ChunkId, Claim, ClaimedEvent, DeadLetter, FanOutClaim, FanOutCommit, FanOutStep,
    FanOutStore, NewChunk, StoreError,
};

#[async_trait]
impl FanOutStore for Sqlite {
    async fn claim_events(&self, claim: Claim) -> Result<Option<Box<dyn FanOutClaim>>, StoreError> {
        let before = self.shared.claimed_events.snapshot();
        let (limit, extra) = (claim.limit(), before.len());
        let rows = self.read(move |session| claimed(session, &claim, extra)).await?;
        let seq = |row: &Result<ClaimedRow, Unreadable>| {
            row.as_ref().map_or_else(|row| row.seq, |row| row.event.seq)
        };
        let guard = self.shared.claimed_events.claim(rows.iter().map(seq), &before, limit);
        let (mut events, mut cursors, mut unreadable) = (Vec::new(), HashMap::new(), Vec::new());
        for row in rows.into_iter().filter(|row| guard.has(seq(row))) {
            match row {
                Ok(ClaimedRow { event, cursor, .. }) => {
                    cursors.extend(cursor.map(|text| (event.seq, text)));
                    events.push(event);
                }
                Err(event) => unreadable.push(event),
            }
        }
        let failed = unreadable.len() as u64;
        if failed > 0 {
            self.write(move |session, now| unreadable.iter().try_for_each(|e| e.fail(session, now))).await?;
        }
        if events.is_empty() && failed == 0 {
            return Ok(None);
        }
        let (store, now) = (self.clone(), self.clock());
        Ok(Some(Box::new(SqliteClaim { store, events, unreadable: failed, cursors, now, _guard: guard })))
    }
}

/// Reads `extra` more events than requested, because other claims may hold some.
fn claimed(
    session: &Session,
    claim: &Claim,
    extra: usize,
) -> Result<Vec<Result<ClaimedRow, Unreadable>>, StoreError> {
    let read = |row: &Row| match decode::claimed_event(row) {
        Ok(event) => Ok(Ok(event)),
        Err(error) => Unreadable::new(row, &error).map(Err),
    };
    match claim {
        Claim::New { limit } | Claim::Urgent { limit } => {
            let params = named_params! { ":limit": limit + extra, ":lane": claim.last_lane().number() };
            session.all(statement::CLAIM_NEW, params, read)
        }
        Claim::Continuing { after } | Claim::UrgentContinuing { after } => {
            let params = named_params! { ":after": after.0, ":lane": claim.last_lane().number() };
            session.all(statement::CLAIM_CONTINUING, params, read)
        }
        Claim::ByIds(seqs) => {
            let ids = json!(seqs.iter().map(|seq| seq.0).collect::<Vec<_>>()).to_string();
            session.all(statement::CLAIM_BY_IDS, named_params! { ":ids": ids }, read)
        }
    }
}

/// An event that passed the checks of its table and still can't be read, for example because its text is not UTF-8.
#[derive(Debug)]
struct Unreadable {
    seq: EventSeq,
    event_id: String,
    failure: Failure,
}

impl Unreadable {
    fn new(row: &Row, error: &StoreError) -> Result<Self, StoreError> {
        let event_id = row.get_ref("event_id")?.as_bytes().unwrap_or_default();
        Ok(Unreadable {
            seq: EventSeq(row.get("id")?),
            event_id: String::from_utf8_lossy(event_id).into_owned(),
            failure: unreadable(error),
        })
    }

    fn fail(&self, session: &Session, now: &str) -> Result<(), StoreError> {
        event::give_up(session, now, self.seq, &self.event_id, &self.failure)
    }
}

#[derive(Debug)]
struct SqliteClaim {
    store: Sqlite,
    events: Vec<ClaimedEvent>,
    unreadable: u64,
    /// The text of each cursor as it was read. Another release may write the same cursor as different text.
    cursors: HashMap<EventSeq, String>,
    now: Timestamp,
    /// Held until the commit is over.
    _guard: ClaimedEventsGuard,
}

#[async_trait]
impl AudienceReader for SqliteClaim {
    fn now(&self) -> Timestamp {
        self.now
    }

    async fn candidates(&mut self, pages: Vec<Page>) -> Result<Vec<Vec<Candidate>>, StoreError> {
        self.store.read(move |session| audience::candidates(session, &pages)).await
    }

    async fn groups(&mut self, entities: Vec<EntityRef>) -> Result<HashMap<EntityRef, Group>, StoreError> {
        self.store.read(move |session| audience::groups(session, &entities)).await
    }
}

#[async_trait]
impl FanOutClaim for SqliteClaim {
    fn events(&self) -> &[ClaimedEvent] {
        &self.events
    }

    fn unreadable(&self) -> u64 {
        self.unreadable
    }

    async fn commit(self: Box<Self>, commit: FanOutCommit) -> Result<Vec<Chunk>, StoreError> {
        let cursors = self.cursors;
        self.store.write(move |session, now| write(session, now, commit, &cursors)).await
    }
}

fn write(
    session: &Session,
    now: &str,
    commit: FanOutCommit,
    cursors: &HashMap<EventSeq, String>,
) -> Result<Vec<Chunk>, StoreError> {
    for step in &commit.steps {
        let cursor_before = step.cursor_text_before(cursors.get(&step.seq));
        write_step(session, now, &commit.instance, step, cursor_before.as_deref())?;
    }
    for row in &commit.failed_rows {
        if !write_row(session, now, row, None)? {
            continue;
        }
        settle::insert_dead_letter(session, now, &DeadLetter::of_failed_row(row))?;
    }
    let lease_until = outbox::lease_until(now, commit.lease);
    let mut leased = Vec::new();
    for chunk in commit.chunks {
        let lease_until = chunk.leased.then_some(lease_until.as_str());
        let is_leased = chunk.leased;
        let chunk = write_chunk(session, now, chunk, lease_until)?;
        if is_leased {
            leased.push(chunk);
        }
    }
    Ok(leased)
}

fn write_step(
    session: &Session,
    now: &str,
    instance: &str,
    step: &FanOutStep,
    cursor_before: Option<&str>,
) -> Result<(), StoreError> {
    let Transition { status, cursor, error, processed, dead_letter } = step.transition();
    let cursor_after = cursor.map(|cursor| json!(cursor).to_string());
    let changed = session.change(statement::FINISH_EVENT,
        named_params! {
            ":id": step.seq.0, ":status": status.as_str(), ":cursor_after": cursor_after, ":error": error, ":now": now,
            ":cursor_before": cursor_before,
        },
    )?;
    if changed == 0 {
        let reason = format!("event {} was changed by another process", step.event.event_id);
        return Err(StoreError::Lost(reason.into()));
    }
    if let Some((status, summary)) = processed {
        write_processed(session, now, instance, step, status, &summary)?;
    }
    if let Some(failure) = dead_letter {
        let dead_letter = DeadLetter::of_event(step.event.event_id.as_str(), failure);
        settle::insert_dead_letter(session, now, &dead_letter)?;
    }
    for (entity, shared_read) in &step.entities {
        session.change(
            statement::INSERT_EVENT_NOTIFICATION,
            named_params! {
                ":event_id": step.event.event_id.as_str(), ":entity_type": entity.entity_type.as_str(),
                ":entity_id": entity.entity_id.as_str(), ":shared_read": shared_read,
            },
        )?;
    }
    Ok(())
}

fn write_processed(
    session: &Session,
    now: &str,
    instance: &str,
    step: &FanOutStep,
    status: ProcessedStatus,
    summary: &Summary,
) -> Result<(), StoreError> {
    session.change(
        statement::WRITE_PROCESSED,
        named_params! {
            ":event_id": step.event.event_id.as_str(),
            ":body_hash": step.body_hash.as_str(),
            ":status": status.as_str(),
            ":recipients": i64::try_from(summary.recipients).unwrap_or(i64::MAX),
            ":sends": i64::try_from(summary.sends).unwrap_or(i64::MAX),
            ":counts": summary.counts.to_json(),
            ":decisions": step.decisions,
            ":instance": instance,
            ":now": now,
        },
    )?;
    Ok(())
}

/// Writes a chunk. Returns it without rows that existed before, because their recipients are not notified again.
fn write_chunk(
    session: &Session,
    now: &str,
    chunk: NewChunk,
    lease_until: Option<&str>,
) -> Result<Chunk, StoreError> {
    let ids = || chunk.rows.iter().map(|r| r.row.key.notification_id);
    session.change(
        statement::INSERT_CHUNK,
        named_params! {
            ":queue": chunk.queue.as_str(), ":lane": chunk.lane.number(), ":lease_until": lease_until,
            ":first_id": ids().min().map(|id| id.to_string()).unwrap_or_default(),
            ":last_id": ids().max().map(|id| id.to_string()).unwrap_or_default(),
        },
    )?;
    let id = ChunkId(session.last_insert_rowid());
    let mut rows = Vec::with_capacity(chunk.rows.len());
    for row in chunk.rows {
        if write_row(session, now, &row.row, Some(id))? {
            rows.push(row);
        }
    }
    Ok(Chunk { id, queue: chunk.queue, lane: chunk.lane, rows })
}

/// Writes an outbox row. Returns whether it is new.
fn write_row(
    session: &Session,
    now: &str,
    row: &OutboxRow,
    chunk: Option<ChunkId>,
) -> Result<bool, StoreError> {
    let written = session.change(
        statement::INSERT_OUTBOX,
        named_params! {
            ":notification_id": row.key.notification_id.to_string(),
            ":channel": row.key.channel.as_str(),
            ":event_id": row.event_id.as_str(),
            ":recipient_type": row.recipient.user_type.as_str(),
            ":recipient_id": row.recipient.user_id.as_str(),
            ":recipient_address": row.address,
            ":title": row.title,
            ":body": row.body,
            ":inbox_title": row.inbox.as_ref().map(|text| &text.title),
            ":inbox_body": row.inbox.as_ref().map(|text| &text.body),
            ":priority": row.priority.as_str(),
            ":audience": row.audience,
            ":entity_type": row.entity.as_ref().map(|e| e.entity_type.as_str()),
            ":entity_id": row.entity.as_ref().map(|e| e.entity_id.as_str()),
            ":shared_read": row.shared_read,
            ":queue": row.queue.as_str(),
            ":chunk_id": chunk.map(|id| id.0),
            ":status": row.failure.as_ref().map(|_| "FAILED"),
            ":last_error": row.failure.as_ref().map(ToString::to_string),
            ":now": now,
        },
    )?;
    Ok(written > 0)
}
