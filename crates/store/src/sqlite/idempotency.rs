//! Idempotency keys of HTTP clients.

use std::time::Duration;

use async_trait::async_trait;
use campanile_domain::time;
use rusqlite::named_params;

use super::outbox::lease_until;
use super::{Sqlite, statement};
use crate::StoreError;
use crate::columns::Columns;
use crate::idempotency::{
    Begun, IDEMPOTENCY_KEY_LIFETIME, IdempotencyKey, IdempotencyStore, StoredAnswer, taken_key,
};

#[async_trait]
impl IdempotencyStore for Sqlite {
    async fn begin_request(
        &self,
        key: &IdempotencyKey,
        request_hash: &str,
        lease: Duration,
    ) -> Result<Begun, StoreError> {
        let (IdempotencyKey { caller, key }, request_hash) = (key.clone(), request_hash.to_owned());
        let forgotten_before = self.forgotten_before();
        self.write(move |session, now| {
            let params = named_params! {
                ":caller": caller, ":key": key, ":request_hash": request_hash, ":now": now,
                ":lease_until": lease_until(now, lease), ":forgotten_before": forgotten_before,
            };
            let started = session.first(statement::BEGIN_REQUEST, params, |row| Ok(row.get("fence")?))?;
            if let Some(fence) = started {
                return Ok(Begun::Started { fence });
            }
            let params = named_params! { ":caller": caller, ":key": key };
            let taken = session.first(statement::TAKEN_IDEMPOTENCY_KEY, params, |row| {
                let until = row.time("lease_until")?;
                let remaining = time::from_text(now).map(|now| time::between(now, until));
                taken_key(row, remaining.unwrap_or_default())
            })?;
            let taken = taken.ok_or_else(|| {
                StoreError::Unavailable("an idempotency key could be neither taken nor read".into())
            })?;
            Ok(taken.begun(&request_hash))
        })
        .await
    }

    async fn finish_request(
        &self,
        key: &IdempotencyKey,
        fence: i64,
        answer: StoredAnswer,
    ) -> Result<(), StoreError> {
        let IdempotencyKey { caller, key } = key.clone();
        self.write(move |session, _| {
            let params = named_params! {
                ":caller": caller, ":key": key, ":fence": fence, ":status": answer.status,
                ":content_type": answer.content_type, ":body": answer.body,
            };
            session.change(statement::FINISH_REQUEST, params).map(drop)
        })
        .await
    }

    async fn abandon_request(&self, key: &IdempotencyKey, fence: i64) -> Result<(), StoreError> {
        let IdempotencyKey { caller, key } = key.clone();
        self.write(move |session, _| {
            let params = named_params! { ":caller": caller, ":key": key, ":fence": fence };
            session.change(statement::ABANDON_REQUEST, params).map(drop)
        })
        .await
    }

    async fn delete_old_idempotency_keys(&self, limit: usize) -> Result<u64, StoreError> {
        let forgotten_before = self.forgotten_before();
        self.write(move |session, _| {
            let params = named_params! { ":forgotten_before": forgotten_before, ":limit": limit };
            Ok(session.change(statement::DELETE_OLD_IDEMPOTENCY_KEYS, params)? as u64)
        })
        .await
    }
}

impl Sqlite {
    fn forgotten_before(&self) -> String {
        time::to_text(time::earlier(self.clock(), IDEMPOTENCY_KEY_LIFETIME))
    }
}
