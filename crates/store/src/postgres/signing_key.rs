//! The keys that sign tokens.

use async_trait::async_trait;
use campanile_domain::access::audit::Actor;

use super::{Postgres, audit, read, statement};
use crate::StoreError;
use crate::signing_key::{SigningKey, SigningKeyStore, rotation, signing_key};

#[async_trait]
impl SigningKeyStore for Postgres {
    async fn signing_keys(&self, first_secret: &str) -> Result<Vec<SigningKey>, StoreError> {
        let mut rows = self.query(statement::LIST_SIGNING_KEYS, &[]).await?;
        if rows.is_empty() {
            self.execute(statement::INSERT_FIRST_SIGNING_KEY, &[&first_secret]).await?;
            rows = self.query(statement::LIST_SIGNING_KEYS, &[]).await?;
        }
        rows.iter().map(signing_key).collect()
    }

    async fn rotate_signing_key(
        &self,
        secret: &str,
        revoke_old: bool,
        actor: &Actor,
    ) -> Result<i64, StoreError> {
        let transaction = self.begin().await?;
        transaction.query(statement::LOCK_SIGNING_KEYS, &[]).await?;
        let rows = transaction.query(statement::INSERT_SIGNING_KEY, &[&secret]).await?;
        let id: i64 = read::get(read::only_row(&rows)?, "id")?;
        if revoke_old {
            transaction.execute(statement::DELETE_OLDER_SIGNING_KEYS, &[&id]).await?;
        }
        audit::insert(&transaction, actor, &[rotation(id, revoke_old)]).await?;
        transaction.commit().await?;
        Ok(id)
    }
}
