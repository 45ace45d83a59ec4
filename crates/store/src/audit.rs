//! The record of changes: written in the transaction of each change, and listed for administrators.

use async_trait::async_trait;
use campanile_domain::access::audit::{ActorKind, AuditAction};
use campanile_domain::schema::JsonObject;
use campanile_domain::time::{Moment, Timestamp};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::columns::Columns;
use crate::{Shown, StoreError};

/// A change, as it is listed.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct AuditRow {
    pub id: i64,
    #[schema(value_type = Moment)]
    pub at: Shown<Moment>,
    #[schema(value_type = ActorKind)]
    pub actor_kind: Shown<ActorKind>,
    /// The id of the API key; empty for the admin key.
    pub actor_id: String,
    pub actor_name: String,
    #[schema(value_type = AuditAction)]
    pub action: Shown<AuditAction>,
    /// The kind of the changed thing, such as `recipient` or `api_key`.
    #[schema(example = "event_audience")]
    pub object_type: String,
    /// Its id, or a JSON array of the columns of its key.
    #[schema(example = "[\"ORDER_CREATED\",\"staff\"]")]
    pub object_id: String,
    /// The row before the change, without secrets. Null if it is new.
    #[schema(value_type = Option<JsonObject>)]
    pub before: Option<Value>,
    /// The row after the change, without secrets. Null if it was deleted.
    #[schema(value_type = Option<JsonObject>)]
    pub after: Option<Value>,
}

/// Selects changes: of a thing, by an actor, or all. They are listed from the newest to the oldest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuditOf {
    Everything,
    Type(String),
    Object { object_type: String, object_id: String },
    Actor(String),
}

#[async_trait]
pub trait AuditStore {
    /// Lists at most `limit` changes with an id below `before`.
    async fn list_audit(
        &self,
        of: AuditOf,
        before: Option<i64>,
        limit: usize,
    ) -> Result<Vec<AuditRow>, StoreError>;

    /// Deletes at most `limit` of the oldest changes made before this time. Returns their number.
    async fn delete_old_audit(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError>;
}

pub(crate) fn audit_row(row: &impl Columns) -> Result<AuditRow, StoreError> {
    Ok(AuditRow {
        id: row.integer("id")?,
        at: row.shown("at")?,
        actor_kind: row.shown("actor_kind")?,
        actor_id: row.lossy_text("actor_id")?,
        actor_name: row.lossy_text("actor_name")?,
        action: row.shown("action")?,
        object_type: row.lossy_text("object_type")?,
        object_id: row.lossy_text("object_id")?,
        before: row.maybe_json("before")?,
        after: row.maybe_json("after")?,
    })
}
