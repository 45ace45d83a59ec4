//! The keys that sign tickets and other tokens of this installation. Instances share them through the database.

use std::fmt;

use async_trait::async_trait;
use campanile_domain::access::audit::{Actor, AuditAction, AuditEntry};
use serde_json::json;

use crate::StoreError;
use crate::columns::Columns;

#[derive(Clone, PartialEq, Eq)]
pub struct SigningKey {
    pub id: i64,
    /// 256 random bits in hexadecimal digits.
    pub secret: String,
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey").field("id", &self.id).finish_non_exhaustive()
    }
}

#[async_trait]
pub trait SigningKeyStore {
    /// Returns all keys, the newest first. If there is none, `first_secret` becomes the first. Of several instances
    /// that start at once, one succeeds, and all get its key.
    async fn signing_keys(&self, first_secret: &str) -> Result<Vec<SigningKey>, StoreError>;

    /// Adds a key, which signs from now on. Tokens of older keys stay valid, unless `revoke_old` deletes these keys.
    async fn rotate_signing_key(
        &self,
        secret: &str,
        revoke_old: bool,
        actor: &Actor,
    ) -> Result<i64, StoreError>;
}

pub(crate) fn signing_key(row: &impl Columns) -> Result<SigningKey, StoreError> {
    Ok(SigningKey { id: row.integer("id")?, secret: row.text("secret")? })
}

pub(crate) fn rotation(id: i64, revoke_old: bool) -> AuditEntry {
    AuditEntry {
        action: AuditAction::Rotate,
        object_type: "signing_key",
        object_id: id.to_string(),
        before: None,
        after: Some(json!({ "revoke_old": revoke_old })),
    }
}
