//! The record of changes.

use async_trait::async_trait;
use campanile_domain::access::audit::{Actor, AuditEntry};
use campanile_domain::time::Timestamp;
use serde_json::Value;

use super::transaction::Transaction;
use super::{Params, Postgres, statement};
use crate::StoreError;
use crate::audit::{AuditOf, AuditRow, AuditStore, audit_row};

#[async_trait]
impl AuditStore for Postgres {
    async fn list_audit(
        &self,
        of: AuditOf,
        before: Option<i64>,
        limit: usize,
    ) -> Result<Vec<AuditRow>, StoreError> {
        let (before, limit) = (before.unwrap_or(i64::MAX), i64::try_from(limit).unwrap_or(i64::MAX));
        let rows = match &of {
            AuditOf::Everything => self.query(statement::LIST_AUDIT, &[&before, &limit]).await,
            AuditOf::Type(object_type) => {
                self.query(statement::LIST_AUDIT_OF_TYPE, &[&before, &limit, object_type]).await
            }
            AuditOf::Object { object_type, object_id } => {
                let params: Params = &[&before, &limit, object_type, object_id];
                self.query(statement::LIST_AUDIT_OF_OBJECT, params).await
            }
            AuditOf::Actor(actor_id) => {
                self.query(statement::LIST_AUDIT_OF_ACTOR, &[&before, &limit, actor_id]).await
            }
        };
        rows?.iter().map(audit_row).collect()
    }

    async fn delete_old_audit(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.execute(statement::DELETE_OLD_AUDIT, &[&before, &limit]).await
    }
}

/// Records changes in the transaction of the changes.
pub async fn insert(
    transaction: &Transaction,
    actor: &Actor,
    entries: &[AuditEntry],
) -> Result<(), StoreError> {
    fn column<'a, T>(entries: &'a [AuditEntry], of: impl Fn(&'a AuditEntry) -> T) -> Vec<T> {
        entries.iter().map(of).collect()
    }
    if entries.is_empty() {
        return Ok(());
    }
    let params: Params = &[
        &actor.kind().as_str(),
        &actor.id(),
        &actor.name(),
        &column(entries, |entry| entry.action.as_str()),
        &column(entries, |entry| entry.object_type),
        &column(entries, |entry| entry.object_id.as_str()),
        &column(entries, |entry| entry.before.as_ref().map(Value::to_string)),
        &column(entries, |entry| entry.after.as_ref().map(Value::to_string)),
    ];
    transaction.execute(statement::INSERT_AUDIT, params).await.map(drop)
}
