//! The keys that sign tokens.

use async_trait::async_trait;
use campanile_domain::access::audit::Actor;
use rusqlite::named_params;

use super::{Sqlite, audit, statement};
use crate::StoreError;
use crate::signing_key::{SigningKey, SigningKeyStore, rotation, signing_key};

#[async_trait]
impl SigningKeyStore for Sqlite {
    async fn signing_keys(&self, first_secret: &str) -> Result<Vec<SigningKey>, StoreError> {
        let keys = self
            .read(|session| session.all(statement::LIST_SIGNING_KEYS, &[], |row| signing_key(row)))
            .await?;
        if !keys.is_empty() {
            return Ok(keys);
        }
        let secret = first_secret.to_owned();
        self.write(move |session, now| {
            let params = named_params! { ":secret": secret, ":now": now };
            session.change(statement::INSERT_FIRST_SIGNING_KEY, params)?;
            session.all(statement::LIST_SIGNING_KEYS, &[], |row| signing_key(row))
        })
        .await
    }

    async fn rotate_signing_key(
        &self,
        secret: &str,
        revoke_old: bool,
        actor: &Actor,
    ) -> Result<i64, StoreError> {
        let (secret, actor) = (secret.to_owned(), actor.clone());
        self.write(move |session, now| {
            let params = named_params! { ":secret": secret, ":now": now };
            let id = session.first(statement::INSERT_SIGNING_KEY, params, |row| Ok(row.get("id")?))?;
            let id =
                id.ok_or_else(|| StoreError::Unusable("the database returned no id for a key".into()))?;
            if revoke_old {
                session.change(statement::DELETE_OLDER_SIGNING_KEYS, named_params! { ":id": id })?;
            }
            audit::insert(session, now, &actor, &rotation(id, revoke_old))?;
            Ok(id)
        })
        .await
    }
}
