//! Claiming events, loading whom they concern, committing what was decided. One engine owns the file, so a claim locks
//! nothing: the commit is refused if an event is no longer as the claim saw it.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use async_trait::async_trait;
use campanile_domain::channel::Channel;
use campanile_domain::event::{Event, Failure};
use campanile_domain::fan_out::{Cursor, OutboxRow, Page, Position};
use campanile_domain::id::{EntityId, EntityRef, EntityType, UserRef};
use campanile_domain::recipient::{Candidate, DeadAddress, Group, Recipient};
use campanile_domain::row::{Preference, Selector, Setting};
use campanile_domain::rules::Reach;
use campanile_domain::status::{EventStatus, ProcessedStatus};
use campanile_domain::time::{self, Timestamp};
use rusqlite::{Connection, Row, named_params};
use serde_json::json;

use super::{Sqlite, read, send, statement};
use crate::{
    Chunk, ChunkId, Claim, ClaimedEvent, DeadLetter, FanOutClaim, FanOutCommit, FanOutStep, FanOutStore,
    NewChunk, Step, StoreError,
};

#[async_trait]
impl FanOutStore for Sqlite {
    async fn claim_events(&self, claim: Claim) -> Result<Option<Box<dyn FanOutClaim>>, StoreError> {
        let rows = self.read(move |connection| claimed(connection, &claim)).await?;
        let (mut events, mut unreadable) = (Vec::new(), Vec::new());
        for row in rows {
            match row {
                Ok(event) => events.push(event),
                Err(event) => unreadable.push(event),
            }
        }
        if !unreadable.is_empty() {
            self.write(move |connection, now| unreadable.iter().try_for_each(|e| e.fail(connection, now)))
                .await?;
        }
        if events.is_empty() {
            return Ok(None);
        }
        Ok(Some(Box::new(SqliteClaim { store: self.clone(), events, now: self.clock() })))
    }
}

fn claimed(
    connection: &Connection,
    claim: &Claim,
) -> Result<Vec<Result<ClaimedEvent, Unreadable>>, StoreError> {
    let read = |row: &Row| match claimed_event(row) {
        Ok(event) => Ok(Ok(event)),
        Err(error) => Unreadable::new(row, &error).map(Err),
    };
    match claim {
        Claim::Fresh { limit } => {
            read::all(connection, statement::CLAIM_FRESH, named_params! { ":limit": limit }, read)
        }
        Claim::Unfinished => {
            read::all(connection, statement::CLAIM_UNFINISHED, named_params! { ":limit": 1 }, read)
        }
        Claim::These(ids) => {
            let ids = json!(ids).to_string();
            read::all(connection, statement::CLAIM_THESE, named_params! { ":ids": ids }, read)
        }
    }
}

/// An event that got past the checks of its table, such as one whose text is not UTF-8. It fails at once and alone: left
/// `PENDING` it would stand in the way of every claim.
#[derive(Debug)]
struct Unreadable {
    seq: i64,
    event_id: String,
    failure: Failure,
}

impl Unreadable {
    fn new(row: &Row, error: &StoreError) -> Result<Self, StoreError> {
        let event_id = row.get_ref("event_id")?.as_bytes().unwrap_or_default();
        Ok(Unreadable {
            seq: row.get("id")?,
            event_id: String::from_utf8_lossy(event_id).into_owned(),
            failure: Failure::new("UNREADABLE", error.to_string()),
        })
    }

    fn fail(&self, connection: &Connection, now: &str) -> Result<(), StoreError> {
        let error = self.failure.to_string();
        read::change(connection, statement::FAIL_EVENT, named_params! { ":id": self.seq, ":error": error })?;
        let letter = DeadLetter {
            stage: "fan_out",
            event_id: Some(self.event_id.clone()),
            reason: self.failure.code.to_owned(),
            error,
            ..DeadLetter::default()
        };
        send::dead_letter(connection, now, &letter)
    }
}

fn claimed_event(row: &Row) -> Result<ClaimedEvent, StoreError> {
    let cursor: Option<String> = row.get("fan_out_cursor")?;
    let cursor: Option<Cursor> = cursor
        .map(|text| serde_json::from_str(&text).map_err(|e| read::bad("fan_out_cursor", e)))
        .transpose()?;
    let processed: Option<ProcessedStatus> = read::maybe_parsed(row, "processed")?;
    let known = match processed {
        Some(ProcessedStatus::Success) => true,
        Some(ProcessedStatus::Processing) => cursor.is_none(),
        Some(ProcessedStatus::Failed) | None => false,
    };
    let cancelled: bool = row.get("cancelled")?;
    let reason: Option<String> = row.get("reason")?;
    Ok(ClaimedEvent {
        seq: row.get("id")?,
        event: Arc::new(read::event(row)?),
        cursor,
        known,
        cancelled: cancelled.then(|| reason.unwrap_or_default()),
    })
}

#[derive(Debug)]
pub struct SqliteClaim {
    pub store: Sqlite,
    pub events: Vec<ClaimedEvent>,
    pub now: Timestamp,
}

#[async_trait]
impl FanOutClaim for SqliteClaim {
    fn events(&self) -> &[ClaimedEvent] {
        &self.events
    }

    fn now(&self) -> Timestamp {
        self.now
    }

    async fn candidates(&mut self, pages: Vec<Page>) -> Result<Vec<Vec<Candidate>>, StoreError> {
        self.store
            .read(move |connection| {
                let recipients =
                    pages.iter().map(|page| recipients(connection, page)).collect::<Result<Vec<_>, _>>()?;
                with_their_rules(connection, recipients)
            })
            .await
    }

    async fn groups(&mut self, entities: Vec<EntityRef>) -> Result<HashMap<EntityRef, Group>, StoreError> {
        self.store.read(move |connection| groups(connection, &entities)).await
    }

    async fn commit(self: Box<Self>, commit: FanOutCommit) -> Result<Vec<Chunk>, StoreError> {
        self.store.write(move |connection, now| write(connection, now, commit)).await
    }
}

fn recipients(connection: &Connection, page: &Page) -> Result<Vec<Recipient>, StoreError> {
    let start = Position { entity_id: String::new(), rank: -1, user_id: String::new() };
    let after = page.after.as_ref().unwrap_or(&start);
    let roles = page.roles.as_ref().map(|roles| json!(roles).to_string());
    let user_type = page.reach.user_type().as_str();
    match &page.reach {
        Reach::User(_) if page.after.is_some() => Ok(Vec::new()),
        Reach::User(user) => {
            let params =
                named_params! { ":user_type": user_type, ":user_id": user.user_id.as_str(), ":roles": roles };
            read::all(connection, statement::PAGE_USER, params, read::typed)
        }
        Reach::Entity { entity, .. } => {
            let params = named_params! {
                ":user_type": user_type, ":entity_id": entity.entity_id.as_str(),
                ":entity_type": entity.entity_type.as_str(), ":rank": after.rank, ":user_id": after.user_id,
                ":roles": roles, ":limit": page.limit,
            };
            read::all(connection, statement::PAGE_ENTITY, params, read::typed)
        }
        Reach::Everybody(_) => {
            let params = named_params! {
                ":user_type": user_type, ":entity_id": after.entity_id, ":rank": after.rank, ":user_id": after.user_id,
                ":roles": roles, ":limit": page.limit,
            };
            read::all(connection, statement::PAGE_EVERYBODY, params, read::typed)
        }
    }
}

/// Preferences and dead addresses of all pages in one go each.
fn with_their_rules(
    connection: &Connection,
    pages: Vec<Vec<Recipient>>,
) -> Result<Vec<Vec<Candidate>>, StoreError> {
    // Somebody may be on two pages, and an address may be of two people: each is looked up once.
    let everybody = || pages.iter().flatten();
    let users: BTreeSet<_> = everybody().map(|r| (&r.user_type, &r.user_id)).collect();
    let mut preferences: HashMap<UserRef, Vec<Preference>> = HashMap::new();
    let params = named_params! { ":users": json!(users).to_string() };
    for preference in read::all(connection, statement::PREFERENCES_OF, params, read::typed::<Preference>)? {
        let user = UserRef { user_type: preference.user_type.clone(), user_id: preference.user_id.clone() };
        preferences.entry(user).or_default().push(preference);
    }
    let addresses: BTreeSet<_> = everybody().flat_map(addresses_of).collect();
    let params = named_params! { ":addresses": json!(addresses).to_string() };
    let dead: Vec<DeadAddress> = read::all(connection, statement::DEAD_ADDRESSES_OF, params, read::typed)?;
    let dead: HashMap<_, _> = dead.iter().map(|d| ((d.channel, d.address.as_str()), d)).collect();
    let candidate = |recipient: Recipient| Candidate {
        preferences: preferences.get(&recipient.user()).cloned().unwrap_or_default(),
        dead_addresses: addresses_of(&recipient).filter_map(|a| dead.get(&a).copied().cloned()).collect(),
        recipient,
    };
    Ok(pages.into_iter().map(|page| page.into_iter().map(&candidate).collect()).collect())
}

fn addresses_of(recipient: &Recipient) -> impl Iterator<Item = (Channel, &str)> {
    Channel::ALL.into_iter().flat_map(|c| recipient.addresses(c).into_iter().map(move |a| (c, a)))
}

fn groups(connection: &Connection, entities: &[EntityRef]) -> Result<HashMap<EntityRef, Group>, StoreError> {
    let keys: BTreeSet<_> = entities.iter().map(|e| (&e.entity_type, &e.entity_id)).collect();
    let keys = json!(keys).to_string();
    let mut groups: HashMap<EntityRef, Group> = HashMap::new();
    read::all(connection, statement::GROUPS, named_params! { ":entities": keys }, |row| {
        let entity = EntityRef {
            entity_type: EntityType::stored(row.get::<_, String>("entity_type")?),
            entity_id: EntityId::stored(row.get::<_, String>("entity_id")?),
        };
        groups.entry(entity).or_default().kind = row.get("kind")?;
        Ok(())
    })?;
    let params = named_params! { ":entities": keys };
    for setting in read::all(connection, statement::GROUP_SETTINGS, params, read::typed::<Setting>)? {
        if let Selector::Only(entity_id) = &setting.entity_id {
            let entity = EntityRef { entity_type: setting.entity_type.clone(), entity_id: entity_id.clone() };
            groups.entry(entity).or_default().settings.push(setting);
        }
    }
    Ok(groups)
}

fn write(connection: &Connection, now: &str, commit: FanOutCommit) -> Result<Vec<Chunk>, StoreError> {
    for step in &commit.steps {
        write_step(connection, now, &commit.instance, step)?;
    }
    for row in &commit.failed_rows {
        if !write_row(connection, now, row, None)? {
            continue;
        }
        let failure = row.failure.as_ref();
        send::dead_letter(
            connection,
            now,
            &DeadLetter {
                stage: "fan_out",
                event_id: Some(row.event_id.to_string()),
                recipient: Some(row.recipient.clone()),
                channel: Some(row.key.channel),
                reason: failure.map(|f| f.code.to_owned()).unwrap_or_default(),
                error: failure.map(ToString::to_string).unwrap_or_default(),
                ..DeadLetter::default()
            },
        )?;
    }
    let lease_until = time::from_text(now).map(|at| time::to_text(time::later(at, commit.lease)));
    let mut leased = Vec::new();
    for chunk in commit.chunks {
        let lease_until = lease_until.as_deref().filter(|_| chunk.leased);
        let is_leased = chunk.leased;
        let chunk = write_chunk(connection, now, chunk, lease_until)?;
        if is_leased {
            leased.push(chunk);
        }
    }
    Ok(leased)
}

fn write_step(
    connection: &Connection,
    now: &str,
    instance: &str,
    step: &FanOutStep,
) -> Result<(), StoreError> {
    let cursor_text = |cursor: &Cursor| json!(cursor).to_string();
    let (status, cursor_after, error) = match &step.step {
        Step::Finished(summary) if summary.sends == 0 => (EventStatus::Processed, None, None),
        Step::Finished(_) => (EventStatus::Published, None, None),
        Step::Continues(cursor) => (EventStatus::Pending, Some(cursor_text(cursor)), None),
        Step::Failed(failure) => (EventStatus::Failed, None, Some(failure.to_string())),
        Step::Stopped { failure, .. } => (EventStatus::Published, None, Some(failure.to_string())),
        Step::Known => (EventStatus::Processed, None, None),
        Step::Cancelled(reason) => (EventStatus::Cancelled, None, Some(format!("CANCELLED: {reason}"))),
    };
    let changed = read::change(
        connection,
        statement::FINISH_EVENT,
        named_params! {
            ":id": step.seq, ":status": status.as_str(), ":cursor_after": cursor_after, ":error": error, ":now": now,
            ":cursor_before": step.cursor_before.as_ref().map(cursor_text),
        },
    )?;
    if changed == 0 {
        return Err(StoreError::Lost(format!("event {} was changed by somebody else", step.event.event_id)));
    }
    write_processed(connection, now, instance, step)?;
    if let Step::Failed(failure) | Step::Stopped { failure, .. } = &step.step {
        send::dead_letter(
            connection,
            now,
            &DeadLetter {
                stage: "fan_out",
                event_id: Some(step.event.event_id.to_string()),
                reason: failure.code.to_owned(),
                error: failure.to_string(),
                ..DeadLetter::default()
            },
        )?;
    }
    for (entity, shared_read) in &step.entities {
        read::change(
            connection,
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
    connection: &Connection,
    now: &str,
    instance: &str,
    step: &FanOutStep,
) -> Result<(), StoreError> {
    let (status, summary) = match &step.step {
        Step::Finished(summary) | Step::Stopped { summary, .. } => {
            (ProcessedStatus::Success, summary.clone())
        }
        Step::Continues(cursor) => (ProcessedStatus::Processing, cursor.summary.clone()),
        Step::Failed(_) => (ProcessedStatus::Failed, campanile_domain::fan_out::Summary::default()),
        Step::Cancelled(_) => (ProcessedStatus::Success, campanile_domain::fan_out::Summary::default()),
        Step::Known => return Ok(()),
    };
    read::change(
        connection,
        statement::WRITE_PROCESSED,
        named_params! {
            ":event_id": step.event.event_id.as_str(),
            ":body_hash": step.body_hash.as_str(),
            ":status": status.as_str(),
            ":recipients": i64::try_from(summary.recipients).unwrap_or(i64::MAX),
            ":sends": i64::try_from(summary.sends).unwrap_or(i64::MAX),
            ":counts": json!(summary.counts).to_string(),
            ":decisions": step.decisions,
            ":instance": instance,
            ":now": now,
        },
    )?;
    Ok(())
}

/// Who has the row already is not told again, so the chunk is answered without it.
fn write_chunk(
    connection: &Connection,
    now: &str,
    chunk: NewChunk,
    lease_until: Option<&str>,
) -> Result<Chunk, StoreError> {
    let ids = || chunk.rows.iter().map(|r| r.row.key.notification_id);
    read::change(
        connection,
        statement::INSERT_CHUNK,
        named_params! {
            ":queue": chunk.queue, ":lane": chunk.lane, ":lease_until": lease_until,
            ":first_id": ids().min().map(|id| id.to_string()).unwrap_or_default(),
            ":last_id": ids().max().map(|id| id.to_string()).unwrap_or_default(),
        },
    )?;
    let id = ChunkId(connection.last_insert_rowid());
    let mut rows = Vec::with_capacity(chunk.rows.len());
    for row in chunk.rows {
        if write_row(connection, now, &row.row, Some(id))? {
            rows.push(row);
        }
    }
    Ok(Chunk { id, queue: chunk.queue, lane: chunk.lane, rows })
}

/// Answers whether the row is new.
fn write_row(
    connection: &Connection,
    now: &str,
    row: &OutboxRow,
    chunk: Option<ChunkId>,
) -> Result<bool, StoreError> {
    let written = read::change(
        connection,
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
            ":queue": row.queue,
            ":chunk_id": chunk.map(|id| id.0),
            ":status": row.failure.as_ref().map(|_| "FAILED"),
            ":last_error": row.failure.as_ref().map(ToString::to_string),
            ":now": now,
        },
    )?;
    Ok(written > 0)
}

/// A claim of an event that is not stored: it can be decided, and never committed.
pub fn look_up(store: &Sqlite, event: Event) -> SqliteClaim {
    let event = ClaimedEvent { seq: 0, event: Arc::new(event), cursor: None, known: false, cancelled: None };
    SqliteClaim { store: store.clone(), events: vec![event], now: store.clock() }
}
