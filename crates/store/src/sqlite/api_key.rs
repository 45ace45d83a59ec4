//! API keys.

use std::time::Duration;

use async_trait::async_trait;
use campanile_domain::access::api_key::{ApiKey, ApiKeyHash, ApiKeyId, NewApiKey};
use campanile_domain::access::audit::Actor;
use campanile_domain::time::{self, Moment};
use rusqlite::named_params;

use super::{Sqlite, audit, statement};
use crate::StoreError;
use crate::api_key::{self, ApiKeyPage, ApiKeyStore, StoredApiKey};

#[async_trait]
impl ApiKeyStore for Sqlite {
    async fn create_api_key(
        &self,
        id: &ApiKeyId,
        hash: &ApiKeyHash,
        key: NewApiKey,
        actor: &Actor,
    ) -> Result<ApiKey, StoreError> {
        let (id, hash, actor) = (id.clone(), hash.clone(), actor.clone());
        self.write(move |session, now| {
            let created_at = time::from_text(now)
                .ok_or_else(|| StoreError::Unusable("the clock of the database can't be read".into()))?;
            let key = api_key::created(&id, key, created_at);
            let params = named_params! {
                ":id": id.as_str(), ":name": key.name, ":prefix": key.prefix, ":hash": hash.as_str(),
                ":scopes": api_key::scopes_json(key.scopes), ":now": now,
                ":expires_at": key.expires_at.map(|Moment(at)| time::to_text(at)),
            };
            session.change(statement::INSERT_API_KEY, params)?;
            audit::insert(session, now, &actor, &api_key::creation(&key))?;
            Ok(key)
        })
        .await
    }

    async fn list_api_keys(&self, before: Option<i64>, limit: usize) -> Result<ApiKeyPage, StoreError> {
        self.read(move |session| {
            let params = named_params! { ":before": before.unwrap_or(i64::MAX), ":limit": limit };
            let found = session.all(statement::LIST_API_KEYS, params, |row| api_key::listed_api_key(row))?;
            Ok(api_key::page(found, limit))
        })
        .await
    }

    async fn revoke_api_key(&self, id: &ApiKeyId, actor: &Actor) -> Result<bool, StoreError> {
        let (id, actor) = (id.clone(), actor.clone());
        self.write(move |session, now| {
            let params = named_params! { ":id": id.as_str(), ":now": now };
            let revoked: Option<String> =
                session.first(statement::REVOKE_API_KEY, params, |row| Ok(row.get("name")?))?;
            if let Some(name) = revoked {
                audit::insert(session, now, &actor, &api_key::revocation(&id, &name))?;
                return Ok(true);
            }
            let params = named_params! { ":id": id.as_str() };
            Ok(session.first(statement::FIND_API_KEY, params, |_| Ok(()))?.is_some())
        })
        .await
    }

    async fn find_api_key(&self, id: &ApiKeyId) -> Result<Option<StoredApiKey>, StoreError> {
        let id = id.clone();
        self.read(move |session| {
            let params = named_params! { ":id": id.as_str() };
            session.first(statement::FIND_API_KEY, params, |row| api_key::stored_api_key(row))
        })
        .await
    }

    async fn record_api_key_use(&self, id: &ApiKeyId) -> Result<(), StoreError> {
        let id = id.clone();
        let minute_ago = time::to_text(time::earlier(self.clock(), Duration::from_mins(1)));
        self.write(move |session, now| {
            let params = named_params! { ":id": id.as_str(), ":now": now, ":minute_ago": minute_ago };
            session.change(statement::RECORD_API_KEY_USE, params).map(drop)
        })
        .await
    }
}
