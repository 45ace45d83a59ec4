//! API keys, the keys that sign tokens, idempotency keys, and the record of changes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use campanile_domain::access::api_key::{ApiKey, ApiKeyId, ApiKeyToken, NewApiKey, Refusal};
use campanile_domain::access::audit::Actor;
use campanile_domain::time::Timestamp;
use campanile_store::{
    ApiKeyPage, AuditOf, AuditRow, Begun, IdempotencyKey, SigningKey, StoreError, StoredAnswer,
};

use crate::Engine;
use crate::api_key_cache::is_same;

/// Whom a presented API key belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Authenticated {
    Valid(Arc<ApiKey>),
    /// There is no such key, or its secret is another.
    Unknown,
    Refused(Refusal),
}

impl Engine {
    /// Checks an API key that a client presents, and records its use.
    pub async fn authenticate(&self, token: &ApiKeyToken) -> Result<Authenticated, StoreError> {
        let store = self.store.as_ref();
        let Some(stored) = self.api_keys.find(store, &token.id).await? else {
            return Ok(Authenticated::Unknown);
        };
        if !is_same(&token.hash(), &stored.hash) {
            return Ok(Authenticated::Unknown);
        }
        if let Some(refusal) = stored.key.refusal(self.now()) {
            return Ok(Authenticated::Refused(refusal));
        }
        if self.api_keys.records_use(&token.id, Instant::now())
            && let Err(error) = store.record_api_key_use(&token.id).await
        {
            // The request itself will tell whether the database can be written.
            tracing::warn!(%error, key = %token.id, "the use of an API key could not be recorded");
        }
        Ok(Authenticated::Valid(Arc::clone(&stored.key)))
    }

    /// Whether this key was read before, and has this secret. It may be revoked or expired since.
    pub fn knows_api_key(&self, token: &ApiKeyToken) -> bool {
        self.api_keys.known_hash(&token.id).is_some_and(|hash| is_same(&token.hash(), &hash))
    }

    /// The time by the estimate of the database's clock.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub async fn create_api_key(
        &self,
        token: &ApiKeyToken,
        key: NewApiKey,
        actor: &Actor,
    ) -> Result<ApiKey, StoreError> {
        self.store.create_api_key(&token.id, &token.hash(), key, actor).await
    }

    pub async fn list_api_keys(&self, before: Option<i64>, limit: usize) -> Result<ApiKeyPage, StoreError> {
        self.store.list_api_keys(before, limit).await
    }

    /// Revokes a key: at once on this instance, within seconds on others. Returns whether the key exists.
    pub async fn revoke_api_key(&self, id: &ApiKeyId, actor: &Actor) -> Result<bool, StoreError> {
        let exists = self.store.revoke_api_key(id, actor).await?;
        self.api_keys.forget(id);
        Ok(exists)
    }

    /// The keys that sign tokens, the newest first. If there is none, `first_secret` becomes the first.
    pub async fn signing_keys(&self, first_secret: &str) -> Result<Vec<SigningKey>, StoreError> {
        self.store.signing_keys(first_secret).await
    }

    pub async fn rotate_signing_key(
        &self,
        secret: &str,
        revoke_old: bool,
        actor: &Actor,
    ) -> Result<i64, StoreError> {
        self.store.rotate_signing_key(secret, revoke_old, actor).await
    }

    pub async fn list_audit(
        &self,
        of: AuditOf,
        before: Option<i64>,
        limit: usize,
    ) -> Result<Vec<AuditRow>, StoreError> {
        self.store.list_audit(of, before, limit).await
    }

    pub async fn begin_request(
        &self,
        key: &IdempotencyKey,
        request_hash: &str,
        lease: Duration,
    ) -> Result<Begun, StoreError> {
        self.store.begin_request(key, request_hash, lease).await
    }

    pub async fn finish_request(
        &self,
        key: &IdempotencyKey,
        fence: i64,
        answer: StoredAnswer,
    ) -> Result<(), StoreError> {
        self.store.finish_request(key, fence, answer).await
    }

    pub async fn abandon_request(&self, key: &IdempotencyKey, fence: i64) -> Result<(), StoreError> {
        self.store.abandon_request(key, fence).await
    }
}
