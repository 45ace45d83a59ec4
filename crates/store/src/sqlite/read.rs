//! From rows to types and to JSON. What was checked when it was written is trusted when it is read; what others wrote
//! into the tables by hand is an error that names the column.

use std::fmt::Display;
use std::str::FromStr;

use campanile_domain::event::payload::{self, Payload};
use campanile_domain::event::{BodyHash, Event};
use campanile_domain::id::{EntityId, EntityRef, EntityType, EventId, EventType, NotificationId, SendKey};
use campanile_domain::id::{UserId, UserRef, UserTypeName};
use campanile_domain::send::{Deferral, History};
use campanile_domain::time::{self, Timestamp};
use rusqlite::Row;
use rusqlite::types::{FromSql, ToSqlOutput, ValueRef};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::session::{Named, Session};
use crate::{ClaimId, Devices, JsonRow, SendJob, StoreError};

/// A value that does not fit its column's meaning.
pub fn bad(column: &str, error: impl Display) -> StoreError {
    StoreError::Refused(format!("column {column} holds an invalid value: {error}"))
}

pub fn parsed<T: FromStr<Err: Display>>(row: &Row, column: &str) -> Result<T, StoreError> {
    let text: String = row.get(column)?;
    text.parse().map_err(|e| bad(column, e))
}

pub fn maybe_parsed<T: FromStr<Err: Display>>(row: &Row, column: &str) -> Result<Option<T>, StoreError> {
    let text: Option<String> = row.get(column)?;
    text.map(|text| text.parse().map_err(|e| bad(column, e))).transpose()
}

/// Producers in other processes may write times in most forms that SQLite understands. It also takes days that no
/// calendar has, such as 30 February; those are errors.
pub fn maybe_time(row: &Row, column: &str) -> Result<Option<Timestamp>, StoreError> {
    let text: Option<String> = row.get(column)?;
    text.map(|text| time_of(&text).ok_or_else(|| bad(column, "no moment of the calendar"))).transpose()
}

fn time_of(text: &str) -> Option<Timestamp> {
    time::from_text(text)
        .or_else(|| time::from_text(&format!("{}Z", text.replace(' ', "T"))))
        .or_else(|| time::from_text(&format!("{text}T00:00:00Z")))
}

/// An event that nobody has decided about yet: producers write rows as they like, so everything is checked.
pub fn event(row: &Row) -> Result<Event, StoreError> {
    let event = Event { occurred_at: maybe_time(row, "occurred_at")?, ..decided_event(row, "priority")? };
    event.check().map_err(|error| bad(error.column, error.detail))?;
    Ok(event)
}

/// What is remembered of an event. One that can't be read has no hash, so that no other body is the same.
pub fn body_hash(row: &Row) -> BodyHash {
    event(row).map_or_else(|_| BodyHash::stored(""), |event| event.body_hash())
}

/// An event that was checked when it was claimed.
pub fn decided_event(row: &Row, priority: &str) -> Result<Event, StoreError> {
    let payload: String = row.get("payload")?;
    Ok(Event {
        event_id: EventId::stored(row.get::<_, String>("event_id")?),
        event_type: EventType::stored(row.get::<_, String>("event_type")?),
        aggregate_type: row.get("aggregate_type")?,
        aggregate_id: row.get("aggregate_id")?,
        payload: Payload::stored(payload).map_err(|e| bad("payload", e))?,
        priority: maybe_parsed(row, priority)?,
        occurred_at: maybe_time(row, "occurred_at").unwrap_or_default(),
        created_at: maybe_time(row, "created_at")?.unwrap_or_default(),
    })
}

pub fn recipient_of(row: &Row) -> Result<UserRef, StoreError> {
    Ok(UserRef {
        user_type: UserTypeName::stored(row.get::<_, String>("recipient_type")?),
        user_id: UserId::stored(row.get::<_, String>("recipient_id")?),
    })
}

pub fn entity_of(row: &Row) -> Result<Option<EntityRef>, StoreError> {
    let entity_type: Option<String> = row.get("entity_type")?;
    let entity_id: Option<String> = row.get("entity_id")?;
    Ok(entity_type.zip(entity_id).map(|(entity_type, entity_id)| EntityRef {
        entity_type: EntityType::stored(entity_type),
        entity_id: EntityId::stored(entity_id),
    }))
}

pub fn key_of(row: &Row) -> Result<SendKey, StoreError> {
    let id: String = row.get("notification_id")?;
    let id = id.parse().map_err(|e| bad("notification_id", e))?;
    Ok(SendKey { notification_id: NotificationId(id), channel: parsed(row, "channel")? })
}

pub fn job(row: &Row, claim: ClaimId) -> Result<SendJob, StoreError> {
    job_of(&mut InOrder::new(row), claim)
}

/// From the columns with which the row begins.
pub fn job_of(row: &mut InOrder, claim: ClaimId) -> Result<SendJob, StoreError> {
    Ok(SendJob {
        key: SendKey {
            notification_id: NotificationId(row.parsed("notification_id")?),
            channel: row.parsed("channel")?,
        },
        claim,
        event_id: EventId::stored(row.get::<String>("event_id")?),
        event_type: EventType::stored(row.get::<String>("event_type")?),
        user: UserRef {
            user_type: UserTypeName::stored(row.get::<String>("recipient_type")?),
            user_id: UserId::stored(row.get::<String>("recipient_id")?),
        },
        address: row.get("recipient_address")?,
        history: History::default(),
        devices: Devices::All,
        title: row.get("title")?,
        body: row.get("body")?,
        priority: row.parsed("priority")?,
        attempt: row.get::<u32>("attempt_count")? + 1,
        event_created_at: row
            .get::<Option<String>>("created_at")?
            .as_deref()
            .and_then(time_of)
            .unwrap_or_default(),
    })
}

/// A row whose columns are read in the order in which the statement names them. Each is found at once, where by its
/// name alone it is looked for from the first one on; one that stands elsewhere is found all the same.
pub struct InOrder<'r> {
    row: &'r Row<'r>,
    next: usize,
}

impl<'r> InOrder<'r> {
    pub fn new(row: &'r Row<'r>) -> Self {
        Self { row, next: 0 }
    }

    pub fn get<T: FromSql>(&mut self, column: &str) -> Result<T, StoreError> {
        let index = self.index(column)?;
        Ok(self.row.get(index)?)
    }

    /// As it is, to be written elsewhere.
    pub fn value(&mut self, column: &str) -> Result<ToSqlOutput<'r>, StoreError> {
        let index = self.index(column)?;
        Ok(ToSqlOutput::Borrowed(self.row.get_ref(index)?))
    }

    fn index(&mut self, column: &str) -> Result<usize, StoreError> {
        let names = self.row.as_ref();
        let is_next = self.next < names.column_count() && names.column_name(self.next)? == column;
        let index = if is_next { self.next } else { names.column_index(column)? };
        self.next = index + 1;
        Ok(index)
    }

    fn parsed<T: FromStr<Err: Display>>(&mut self, column: &str) -> Result<T, StoreError> {
        self.get::<String>(column)?.parse().map_err(|e| bad(column, e))
    }
}

/// One that waited: others of its devices may be done with.
pub fn due_job(row: &Row, claim: ClaimId) -> Result<SendJob, StoreError> {
    let any_sent: Option<bool> = row.get("any_sent")?;
    let devices = any_sent.map_or(Devices::All, |any_sent| Devices::Remaining { any_sent });
    Ok(SendJob { devices, ..started_job(row, claim)? })
}

/// One that may have been tried before.
pub fn started_job(row: &Row, claim: ClaimId) -> Result<SendJob, StoreError> {
    let count: Option<u32> = row.get("deferrals")?;
    let deferral =
        maybe_time(row, "deferred_since")?.map(|since| Deferral { since, count: count.unwrap_or_default() });
    let unanswered: Option<bool> = row.get("unanswered")?;
    let history = History { deferral, unanswered: unanswered.unwrap_or_default() };
    Ok(SendJob { history, ..job(row, claim)? })
}

/// Columns that hold JSON, and those that are true or false, whatever table they are of.
const JSON_COLUMNS: [&str; 8] =
    ["properties", "counts", "decisions", "attempts", "addresses", "push_tokens", "roles", "place"];
const FLAG_COLUMNS: [&str; 4] = ["shared_read", "enabled", "mandatory", "active"];

/// A row as an object with its column names. What should be JSON or UTF-8 and is not comes as text: an event that
/// failed for it can still be looked at.
pub fn json_row(row: &Row) -> Result<JsonRow, StoreError> {
    let names = row.as_ref();
    let mut object = Map::new();
    for index in 0..names.column_count() {
        let name = names.column_name(index)?;
        object.insert(name.to_owned(), json_value(name, row.get_ref(index)?)?);
    }
    Ok(object)
}

fn json_value(column: &str, value: ValueRef) -> Result<Value, StoreError> {
    Ok(match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(flag) if FLAG_COLUMNS.contains(&column) => Value::Bool(flag != 0),
        ValueRef::Integer(number) => Value::from(number),
        ValueRef::Real(number) => Value::from(number),
        ValueRef::Text(text) => {
            let text = String::from_utf8_lossy(text);
            match column {
                "payload" => payload::shown(&text),
                _ if JSON_COLUMNS.contains(&column) => {
                    serde_json::from_str(&text).unwrap_or_else(|_| Value::from(text))
                }
                _ => Value::from(text),
            }
        }
        ValueRef::Blob(_) => return Err(bad(column, "binary data")),
    })
}

/// The rows of a table as the type that their column names spell. One that somebody wrote by hand and that can't be
/// used is skipped and named, so that it does not stand in the way of all others. `key` is what may be logged of it.
pub fn valid_rows<T: DeserializeOwned>(
    session: &Session,
    table: &str,
    key: &[&str],
    sql: &str,
    params: Named,
) -> Result<Vec<T>, StoreError> {
    let rows = session.all(sql, params, |row| {
        typed(table, row).map_or_else(
            |error| {
                let key = key.iter().map(|column| lossy(row, column)).collect::<Result<Vec<_>, _>>()?;
                tracing::error!(table, ?key, %error, "invalid row skipped");
                Ok(None)
            },
            |row| Ok(Some(row)),
        )
    })?;
    Ok(rows.into_iter().flatten().collect())
}

fn typed<T: DeserializeOwned>(table: &str, row: &Row) -> Result<T, StoreError> {
    serde_json::from_value(Value::Object(json_row(row)?))
        .map_err(|e| StoreError::Refused(format!("a row of {table} holds an invalid value: {e}")))
}

/// Text that need not be UTF-8.
pub fn lossy(row: &Row, column: &str) -> Result<String, StoreError> {
    Ok(maybe_lossy(row, column)?.unwrap_or_default())
}

pub fn maybe_lossy(row: &Row, column: &str) -> Result<Option<String>, StoreError> {
    let bytes = row.get_ref(column)?.as_bytes_or_null().map_err(|e| bad(column, e))?;
    Ok(bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned()))
}
