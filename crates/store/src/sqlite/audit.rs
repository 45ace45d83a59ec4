//! The record of changes.

use async_trait::async_trait;
use campanile_domain::access::audit::{Actor, AuditEntry};
use campanile_domain::time::{self, Timestamp};
use rusqlite::{ToSql, named_params};
use serde_json::Value;

use super::session::Session;
use super::{Sqlite, statement};
use crate::StoreError;
use crate::audit::{AuditOf, AuditRow, AuditStore, audit_row};

#[async_trait]
impl AuditStore for Sqlite {
    async fn list_audit(
        &self,
        of: AuditOf,
        before: Option<i64>,
        limit: usize,
    ) -> Result<Vec<AuditRow>, StoreError> {
        self.read(move |session| {
            let before = before.unwrap_or(i64::MAX);
            let mut params: Vec<(&str, &dyn ToSql)> = vec![(":before_id", &before), (":limit", &limit)];
            let sql = match &of {
                AuditOf::Everything => statement::LIST_AUDIT,
                AuditOf::Type(object_type) => {
                    params.push((":object_type", object_type));
                    statement::LIST_AUDIT_OF_TYPE
                }
                AuditOf::Object { object_type, object_id } => {
                    params.extend([(":object_type", object_type as &dyn ToSql), (":object_id", object_id)]);
                    statement::LIST_AUDIT_OF_OBJECT
                }
                AuditOf::Actor(actor_id) => {
                    params.push((":actor_id", actor_id));
                    statement::LIST_AUDIT_OF_ACTOR
                }
            };
            session.all(sql, &params[..], |row| audit_row(row))
        })
        .await
    }

    async fn delete_old_audit(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError> {
        self.write(move |session, _| {
            let params = named_params! { ":before": time::to_text(before), ":limit": limit };
            Ok(session.change(statement::DELETE_OLD_AUDIT, params)? as u64)
        })
        .await
    }
}

/// Records a change in the transaction of the change.
pub fn insert(session: &Session, now: &str, actor: &Actor, entry: &AuditEntry) -> Result<(), StoreError> {
    let params = named_params! {
        ":now": now, ":actor_kind": actor.kind().as_str(), ":actor_id": actor.id(), ":actor_name": actor.name(),
        ":action": entry.action.as_str(), ":object_type": entry.object_type, ":object_id": entry.object_id,
        ":before": entry.before.as_ref().map(Value::to_string),
        ":after": entry.after.as_ref().map(Value::to_string),
    };
    session.change(statement::INSERT_AUDIT, params).map(drop)
}
