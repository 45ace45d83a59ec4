//! API keys: created, listed, revoked, and looked up for each request.

use std::sync::Arc;

use async_trait::async_trait;
use campanile_domain::access::api_key::{ApiKey, ApiKeyHash, ApiKeyId, NewApiKey};
use campanile_domain::access::audit::{Actor, AuditAction, AuditEntry};
use campanile_domain::access::scope::Scopes;
use campanile_domain::time::{Moment, Timestamp};
use serde_json::json;

use crate::StoreError;
use crate::columns::Columns;

/// A key as it is stored, with the hash that a presented secret must have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredApiKey {
    pub key: Arc<ApiKey>,
    pub hash: ApiKeyHash,
}

/// A page of keys, the newest first.
#[derive(Debug, Default, PartialEq)]
pub struct ApiKeyPage {
    pub items: Vec<ApiKey>,
    /// Where the next page begins, if there may be one.
    pub next: Option<i64>,
}

#[async_trait]
pub trait ApiKeyStore {
    async fn create_api_key(
        &self,
        id: &ApiKeyId,
        hash: &ApiKeyHash,
        key: NewApiKey,
        actor: &Actor,
    ) -> Result<ApiKey, StoreError>;

    async fn list_api_keys(&self, before: Option<i64>, limit: usize) -> Result<ApiKeyPage, StoreError>;

    /// Revokes a key. Revoking it again changes nothing. Returns whether the key exists.
    async fn revoke_api_key(&self, id: &ApiKeyId, actor: &Actor) -> Result<bool, StoreError>;

    async fn find_api_key(&self, id: &ApiKeyId) -> Result<Option<StoredApiKey>, StoreError>;

    /// Records that the key was used now, if the last record is older than a minute.
    async fn record_api_key_use(&self, id: &ApiKeyId) -> Result<(), StoreError>;
}

pub(crate) fn api_key(row: &impl Columns) -> Result<ApiKey, StoreError> {
    let moment = |column| Ok::<_, StoreError>(row.maybe_time(column)?.map(Moment));
    let id = ApiKeyId::stored(row.str("id")?);
    // A damaged value permits nothing, and keeps the key in the list, where it can be revoked.
    let scopes = serde_json::from_value(row.json("scopes")?).unwrap_or_default();
    Ok(ApiKey {
        id,
        name: row.text("name")?,
        prefix: row.text("prefix")?,
        scopes,
        created_at: Moment(row.time("created_at")?),
        last_used_at: moment("last_used_at")?,
        expires_at: moment("expires_at")?,
        revoked_at: moment("revoked_at")?,
    })
}

/// The key, and its place in the order of creation.
pub(crate) fn listed_api_key(row: &impl Columns) -> Result<(i64, ApiKey), StoreError> {
    Ok((row.integer("seq")?, api_key(row)?))
}

pub(crate) fn stored_api_key(row: &impl Columns) -> Result<StoredApiKey, StoreError> {
    Ok(StoredApiKey { key: Arc::new(api_key(row)?), hash: ApiKeyHash::stored(row.str("hash")?) })
}

pub(crate) fn page(found: Vec<(i64, ApiKey)>, limit: usize) -> ApiKeyPage {
    let next = found.last().filter(|_| found.len() == limit).map(|(seq, _)| *seq);
    ApiKeyPage { items: found.into_iter().map(|(_, key)| key).collect(), next }
}

/// The key that is created now.
pub(crate) fn created(id: &ApiKeyId, key: NewApiKey, now: Timestamp) -> ApiKey {
    let NewApiKey { name, scopes, expires_at } = key;
    ApiKey {
        id: id.clone(),
        name,
        prefix: ApiKey::prefix_of(id),
        scopes,
        created_at: Moment(now),
        last_used_at: None,
        expires_at,
        revoked_at: None,
    }
}

pub(crate) fn scopes_json(scopes: Scopes) -> String {
    json!(scopes).to_string()
}

pub(crate) fn creation(key: &ApiKey) -> AuditEntry {
    AuditEntry {
        action: AuditAction::Create,
        object_type: "api_key",
        object_id: key.id.to_string(),
        before: None,
        after: Some(json!({ "name": key.name, "scopes": key.scopes, "expires_at": key.expires_at })),
    }
}

pub(crate) fn revocation(id: &ApiKeyId, name: &str) -> AuditEntry {
    AuditEntry {
        action: AuditAction::Revoke,
        object_type: "api_key",
        object_id: id.to_string(),
        before: Some(json!({ "name": name })),
        after: None,
    }
}
