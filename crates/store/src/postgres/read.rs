//! From rows to types and to JSON. What was checked when it was written is trusted when it is read; what others wrote
//! into the tables by hand is an error that names the column.

use std::error::Error;
use std::fmt::Display;
use std::str::FromStr;

use campanile_domain::event::payload::{self, Payload};
use campanile_domain::event::{BodyHash, Event};
use campanile_domain::id::{EntityId, EntityRef, EntityType, EventId, EventType, NotificationId, SendKey};
use campanile_domain::id::{UserId, UserRef, UserTypeName};
use campanile_domain::send::{Deferral, History};
use campanile_domain::time::{self, Timestamp};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, Type};
use uuid::Uuid;

use crate::{ClaimId, Devices, JsonRow, NewSend, SendJob, StoreError};

/// A value that does not fit its column's meaning.
pub fn bad(column: &str, error: impl Display) -> StoreError {
    StoreError::Refused(format!("column {column} holds an invalid value: {error}"))
}

pub fn get<'a, T: FromSql<'a>>(row: &'a Row, column: &str) -> Result<T, StoreError> {
    row.try_get(column).map_err(|e| bad(column, e))
}

pub fn parsed<T: FromStr<Err: Display>>(row: &Row, column: &str) -> Result<T, StoreError> {
    get::<&str>(row, column)?.parse().map_err(|e| bad(column, e))
}

pub fn maybe_parsed<T: FromStr<Err: Display>>(row: &Row, column: &str) -> Result<Option<T>, StoreError> {
    get::<Option<&str>>(row, column)?.map(|text| text.parse().map_err(|e| bad(column, e))).transpose()
}

/// The one row that a statement always answers.
pub fn only_row(rows: &[Row]) -> Result<&Row, StoreError> {
    rows.first().ok_or_else(|| {
        StoreError::Unusable("a table with one required row is empty; restore it from a backup".to_owned())
    })
}

/// An event that nobody has decided about yet: producers write rows as they like, so everything is checked.
pub fn event(row: &Row) -> Result<Event, StoreError> {
    let event = decided_event(row, "priority")?;
    event.check().map_err(|error| bad(error.column, error.detail))?;
    Ok(event)
}

/// What is remembered of an event. One that can't be read has no hash, so that no other body is the same.
pub fn body_hash(row: &Row) -> BodyHash {
    event(row).map_or_else(|_| BodyHash::stored(""), |event| event.body_hash())
}

/// An event that was checked when it was claimed.
pub fn decided_event(row: &Row, priority: &str) -> Result<Event, StoreError> {
    Ok(Event {
        event_id: EventId::stored(get::<String>(row, "event_id")?),
        event_type: EventType::stored(get::<String>(row, "event_type")?),
        aggregate_type: get(row, "aggregate_type")?,
        aggregate_id: get(row, "aggregate_id")?,
        payload: Payload::stored(get(row, "payload")?).map_err(|e| bad("payload", e))?,
        priority: maybe_parsed(row, priority)?,
        occurred_at: get(row, "occurred_at")?,
        created_at: get(row, "created_at")?,
    })
}

pub fn recipient_of(row: &Row) -> Result<UserRef, StoreError> {
    Ok(UserRef {
        user_type: UserTypeName::stored(get::<String>(row, "recipient_type")?),
        user_id: UserId::stored(get::<String>(row, "recipient_id")?),
    })
}

pub fn entity_of(row: &Row) -> Result<Option<EntityRef>, StoreError> {
    let entity_type: Option<String> = get(row, "entity_type")?;
    let entity_id: Option<String> = get(row, "entity_id")?;
    Ok(entity_type.zip(entity_id).map(|(entity_type, entity_id)| EntityRef {
        entity_type: EntityType::stored(entity_type),
        entity_id: EntityId::stored(entity_id),
    }))
}

pub fn key_of(row: &Row) -> Result<SendKey, StoreError> {
    Ok(SendKey {
        notification_id: NotificationId(get(row, "notification_id")?),
        channel: parsed(row, "channel")?,
    })
}

pub fn job(row: &Row, claim: ClaimId) -> Result<SendJob, StoreError> {
    Ok(SendJob {
        key: key_of(row)?,
        claim,
        attempt: count(row, "attempt_count")? + 1,
        event_id: EventId::stored(get::<String>(row, "event_id")?),
        event_type: EventType::stored(get::<String>(row, "event_type")?),
        user: recipient_of(row)?,
        address: get(row, "recipient_address")?,
        history: History::default(),
        devices: Devices::All,
        title: get(row, "title")?,
        body: get(row, "body")?,
        priority: parsed(row, "priority")?,
        event_created_at: get(row, "created_at")?,
    })
}

pub fn new_send(row: &Row, key: SendKey, event_id: EventId) -> Result<NewSend, StoreError> {
    let (priority, event_created_at) = (parsed(row, "priority")?, get(row, "created_at")?);
    Ok(NewSend { event_id, channel: key.channel, priority, event_created_at })
}

/// One that waited: others of its devices may be done with.
pub fn due_job(row: &Row) -> Result<SendJob, StoreError> {
    let any_sent: Option<bool> = get(row, "any_sent")?;
    let devices = any_sent.map_or(Devices::All, |any_sent| Devices::Remaining { any_sent });
    Ok(SendJob { devices, ..started_job(row, ClaimId(get(row, "claim")?))? })
}

/// One that may have been tried before.
pub fn started_job(row: &Row, claim: ClaimId) -> Result<SendJob, StoreError> {
    let since: Option<Timestamp> = get(row, "deferred_since")?;
    let count: Option<i32> = get(row, "deferrals")?;
    let deferral = since.map(|since| Deferral {
        since,
        count: count.and_then(|count| u32::try_from(count).ok()).unwrap_or_default(),
    });
    let unanswered: Option<bool> = get(row, "unanswered")?;
    let history = History { deferral, unanswered: unanswered.unwrap_or_default() };
    Ok(SendJob { history, ..job(row, claim)? })
}

pub fn count(row: &Row, column: &str) -> Result<u32, StoreError> {
    u32::try_from(get::<i32>(row, column)?).map_err(|e| bad(column, e))
}

/// Rows as objects with their column names.
pub fn json_rows(rows: &[Row]) -> Result<Vec<JsonRow>, StoreError> {
    rows.iter().map(json_row).collect()
}

pub fn json_row(row: &Row) -> Result<JsonRow, StoreError> {
    let mut object = Map::new();
    for (index, column) in row.columns().iter().enumerate() {
        object.insert(column.name().to_owned(), json_value(row, index)?);
    }
    Ok(object)
}

fn json_value(row: &Row, index: usize) -> Result<Value, StoreError> {
    fn read<'a, T: FromSql<'a>>(row: &'a Row, index: usize) -> Result<Option<T>, StoreError> {
        row.try_get(index).map_err(|e| bad(row.columns()[index].name(), e))
    }
    let value = match *row.columns()[index].type_() {
        Type::BOOL => read::<bool>(row, index)?.map(Value::from),
        Type::INT2 => read::<i16>(row, index)?.map(Value::from),
        Type::INT4 => read::<i32>(row, index)?.map(Value::from),
        Type::INT8 => read::<i64>(row, index)?.map(Value::from),
        Type::JSON | Type::JSONB => {
            read::<JsonText>(row, index)?.map(|JsonText(text)| match row.columns()[index].name() {
                "payload" => payload::shown(text),
                _ => serde_json::from_str(text).unwrap_or_else(|_| Value::from(text)),
            })
        }
        Type::UUID => read::<Uuid>(row, index)?.map(|id| Value::from(id.to_string())),
        Type::TIMESTAMPTZ => read::<Timestamp>(row, index)?.map(|at| Value::from(time::to_text(at))),
        _ => read::<String>(row, index)?.map(Value::from),
    };
    Ok(value.unwrap_or_default())
}

/// JSON as the database wrote it: it keeps some that can't be read, such as `1e400`.
struct JsonText<'a>(&'a str);

impl<'a> FromSql<'a> for JsonText<'a> {
    fn from_sql(ty: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        // `jsonb` begins with the version of its form, which is 1.
        let text =
            if *ty == Type::JSONB { raw.strip_prefix(&[1]).ok_or("unknown form of jsonb")? } else { raw };
        Ok(JsonText(std::str::from_utf8(text)?))
    }

    fn accepts(ty: &Type) -> bool {
        matches!(*ty, Type::JSON | Type::JSONB)
    }
}

/// The rows of a table as the type that their column names spell. One that somebody wrote by hand and that can't be
/// used is skipped and named, so that it does not stand in the way of all others. `key` is what may be logged of it.
pub fn valid_rows<T: DeserializeOwned>(
    table: &str,
    key: &[&str],
    rows: &[Row],
) -> Result<Vec<T>, StoreError> {
    let mut found = Vec::with_capacity(rows.len());
    for row in rows {
        match serde_json::from_value(Value::Object(json_row(row)?)) {
            Ok(row) => found.push(row),
            Err(error) => {
                let key: Vec<String> = key.iter().filter_map(|column| row.try_get(column).ok()).collect();
                tracing::error!(table, ?key, %error, "invalid row skipped");
            }
        }
    }
    Ok(found)
}
