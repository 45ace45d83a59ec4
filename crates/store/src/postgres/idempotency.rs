//! Idempotency keys of HTTP clients.

use std::time::Duration;

use async_trait::async_trait;

use super::{Params, Postgres, read, statement};
use crate::StoreError;
use crate::idempotency::{
    Begun, IDEMPOTENCY_KEY_LIFETIME, IdempotencyKey, IdempotencyStore, StoredAnswer, taken_key,
};

#[async_trait]
impl IdempotencyStore for Postgres {
    async fn begin_request(
        &self,
        key: &IdempotencyKey,
        request_hash: &str,
        lease: Duration,
    ) -> Result<Begun, StoreError> {
        let IdempotencyKey { caller, key } = key;
        let lifetime = IDEMPOTENCY_KEY_LIFETIME.as_secs_f64();
        loop {
            let params: Params = &[caller, key, &request_hash, &lease.as_secs_f64(), &lifetime];
            if let Some(row) = self.query(statement::BEGIN_REQUEST, params).await?.first() {
                return Ok(Begun::Started { fence: read::get(row, "fence")? });
            }
            // The key was deleted in between. The next attempt takes it.
            if let Some(row) = self.query(statement::TAKEN_IDEMPOTENCY_KEY, &[caller, key]).await?.first() {
                let remaining = Duration::try_from_secs_f64(read::get(row, "remaining")?).unwrap_or_default();
                return Ok(taken_key(row, remaining)?.begun(request_hash));
            }
        }
    }

    async fn finish_request(
        &self,
        IdempotencyKey { caller, key }: &IdempotencyKey,
        fence: i64,
        answer: StoredAnswer,
    ) -> Result<(), StoreError> {
        let StoredAnswer { status, content_type, body } = answer;
        let params: Params = &[caller, key, &fence, &i32::from(status), &content_type, &body];
        self.execute(statement::FINISH_REQUEST, params).await.map(drop)
    }

    async fn abandon_request(
        &self,
        IdempotencyKey { caller, key }: &IdempotencyKey,
        fence: i64,
    ) -> Result<(), StoreError> {
        self.execute(statement::ABANDON_REQUEST, &[caller, key, &fence]).await.map(drop)
    }

    async fn delete_old_idempotency_keys(&self, limit: usize) -> Result<u64, StoreError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let lifetime = IDEMPOTENCY_KEY_LIFETIME.as_secs_f64();
        self.execute(statement::DELETE_OLD_IDEMPOTENCY_KEYS, &[&lifetime, &limit]).await
    }
}
