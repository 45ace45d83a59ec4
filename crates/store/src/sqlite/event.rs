//! Accepts events, counts their failures, and closes them.

use std::collections::HashSet;

use async_trait::async_trait;
use campanile_domain::event::{BodyHash, Failure, NewEvent};
use campanile_domain::id::{EventId, EventSeq};
use campanile_domain::priority::Priority;
use campanile_domain::time;
use rusqlite::named_params;

use super::session::Session;
use super::{Sqlite, settle, statement};
use crate::decode;
use crate::{Acceptance, DeadLetter, EventStore, StoreError};

#[async_trait]
impl EventStore for Sqlite {
    async fn accept(&self, events: Vec<NewEvent>) -> Result<Acceptance, StoreError> {
        self.write(move |session, now| accept(session, now, &events)).await
    }

    async fn count_failure(&self, seq: EventSeq, failure: Failure, max: u32) -> Result<bool, StoreError> {
        self.write(move |session, now| {
            let error = failure.to_string();
            let counted = session.first(
                statement::COUNT_FAILURE,
                named_params! { ":id": seq.0, ":error": error },
                |row| Ok((row.get::<_, u32>("retry_count")?, row.get::<_, String>("event_id")?)),
            )?;
            let Some((_, event_id)) = counted.filter(|(count, _)| *count >= max) else { return Ok(false) };
            give_up(session, now, seq, &event_id, &failure)?;
            Ok(true)
        })
        .await
    }

    async fn close_events(&self, candidates: Vec<EventId>) -> Result<u64, StoreError> {
        let ids: HashSet<&str> = candidates.iter().map(EventId::as_str).collect();
        let ids = serde_json::json!(ids).to_string();
        self.write(move |session, now| {
            let params = named_params! { ":event_ids": ids, ":now": now };
            Ok(session.change(statement::CLOSE_EVENTS, params)? as u64)
        })
        .await
    }

    async fn close_complete(&self, seqs: Vec<EventSeq>) -> Result<u64, StoreError> {
        self.write(move |session, now| {
            let close = |seq: &EventSeq| {
                session.change(statement::CLOSE_COMPLETE, named_params! { ":id": seq.0, ":now": now })
            };
            seqs.iter().map(close).try_fold(0, |sum, closed| Ok(sum + closed? as u64))
        })
        .await
    }

    async fn open_events(
        &self,
        after: EventSeq,
        limit: usize,
    ) -> Result<Vec<(EventSeq, EventId)>, StoreError> {
        self.read(move |session| open_events(session, after, limit)).await
    }
}

pub fn open_events(
    session: &Session,
    after: EventSeq,
    limit: usize,
) -> Result<Vec<(EventSeq, EventId)>, StoreError> {
    let params = named_params! { ":after": after.0, ":limit": limit };
    session.all(statement::OPEN_EVENTS, params, |row| {
        Ok((EventSeq(row.get("id")?), EventId::stored(row.get::<_, String>("event_id")?)))
    })
}

/// Gives an event up and writes its dead letter. An event with rows becomes `PUBLISHED`, so that they are delivered and
/// close it; any other becomes `FAILED`.
pub fn give_up(
    session: &Session,
    now: &str,
    seq: EventSeq,
    event_id: &str,
    failure: &Failure,
) -> Result<(), StoreError> {
    let error = failure.to_string();
    let params = named_params! { ":id": seq.0, ":error": error, ":now": now };
    if session.change(statement::GIVE_UP_EVENT, params)? == 0 {
        return Ok(());
    }
    session.change(statement::GIVE_UP_PROCESSED, named_params! { ":id": seq.0 })?;
    settle::insert_dead_letter(session, now, &DeadLetter::of_event(event_id, failure))
}

/// Checks all events before it writes any, so that a conflict leaves no trace.
fn accept(session: &Session, now: &str, events: &[NewEvent]) -> Result<Acceptance, StoreError> {
    let mut created = Vec::with_capacity(events.len());
    let mut conflicts = Vec::new();
    for (position, event) in events.iter().enumerate() {
        let known = known_body(session, &event.event_id)?;
        created.push(known.is_none());
        if known.is_some_and(|hash| hash != event.body_hash()) {
            conflicts.push(position);
        }
    }
    if !conflicts.is_empty() {
        return Ok(Acceptance::Conflicts(conflicts));
    }
    for (event, _) in events.iter().zip(&created).filter(|(_, created)| **created) {
        session.change(
            statement::ACCEPT_EVENT,
            named_params! {
                ":event_id": event.event_id.as_str(),
                ":event_type": event.event_type.as_str(),
                ":aggregate_type": event.aggregate_type,
                ":aggregate_id": event.aggregate_id,
                ":payload": event.payload.as_str(),
                ":priority": event.priority.map(Priority::as_str),
                ":occurred_at": event.occurred_at.map(time::to_text),
                ":now": now,
            },
        )?;
    }
    Ok(Acceptance::Accepted(created))
}

/// The body hash of this id, from a stored or from a remembered event.
fn known_body(session: &Session, event_id: &EventId) -> Result<Option<BodyHash>, StoreError> {
    let params = named_params! { ":event_id": event_id.as_str() };
    if let Some(hash) = session.first(statement::KNOWN_EVENT, params, |row| Ok(decode::body_hash(row)))? {
        return Ok(Some(hash));
    }
    session.first(statement::KNOWN_HASH, params, |row| Ok(BodyHash::stored(row.get::<_, String>(0)?)))
}
