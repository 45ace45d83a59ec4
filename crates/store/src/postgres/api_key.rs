//! API keys.

use async_trait::async_trait;
use campanile_domain::access::api_key::{ApiKey, ApiKeyHash, ApiKeyId, NewApiKey};
use campanile_domain::access::audit::Actor;
use campanile_domain::time::Moment;

use super::{Params, Postgres, audit, read, statement};
use crate::StoreError;
use crate::api_key::{self, ApiKeyPage, ApiKeyStore, StoredApiKey};
use crate::columns::Columns;

#[async_trait]
impl ApiKeyStore for Postgres {
    async fn create_api_key(
        &self,
        id: &ApiKeyId,
        hash: &ApiKeyHash,
        key: NewApiKey,
        actor: &Actor,
    ) -> Result<ApiKey, StoreError> {
        let transaction = self.begin().await?;
        let expires_at = key.expires_at.map(|Moment(at)| at);
        let scopes = api_key::scopes_json(key.scopes);
        let prefix = ApiKey::prefix_of(id);
        let params: Params = &[&id.as_str(), &key.name, &hash.as_str(), &scopes, &expires_at, &prefix];
        let rows = transaction.query(statement::INSERT_API_KEY, params).await?;
        let key = api_key::created(id, key, read::only_row(&rows)?.time("created_at")?);
        audit::insert(&transaction, actor, &[api_key::creation(&key)]).await?;
        transaction.commit().await?;
        Ok(key)
    }

    async fn list_api_keys(&self, before: Option<i64>, limit: usize) -> Result<ApiKeyPage, StoreError> {
        let rows_limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let params: Params = &[&before.unwrap_or(i64::MAX), &rows_limit];
        let rows = self.query(statement::LIST_API_KEYS, params).await?;
        let found = rows.iter().map(api_key::listed_api_key).collect::<Result<_, _>>()?;
        Ok(api_key::page(found, limit))
    }

    async fn revoke_api_key(&self, id: &ApiKeyId, actor: &Actor) -> Result<bool, StoreError> {
        let transaction = self.begin().await?;
        let revoked = transaction.query(statement::REVOKE_API_KEY, &[&id.as_str()]).await?;
        let Some(row) = revoked.first() else {
            return Ok(!transaction.query(statement::FIND_API_KEY, &[&id.as_str()]).await?.is_empty());
        };
        audit::insert(&transaction, actor, &[api_key::revocation(id, row.str("name")?)]).await?;
        transaction.commit().await?;
        Ok(true)
    }

    async fn find_api_key(&self, id: &ApiKeyId) -> Result<Option<StoredApiKey>, StoreError> {
        let rows = self.query(statement::FIND_API_KEY, &[&id.as_str()]).await?;
        rows.first().map(api_key::stored_api_key).transpose()
    }

    async fn record_api_key_use(&self, id: &ApiKeyId) -> Result<(), StoreError> {
        self.execute(statement::RECORD_API_KEY_USE, &[&id.as_str()]).await.map(drop)
    }
}
