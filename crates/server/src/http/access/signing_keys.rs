//! The keys that sign tickets and other tokens: the configured one, or those that instances share by the database.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use campanile_domain::access::audit::Actor;
use campanile_engine::Engine;
use campanile_store::{SigningKey, StoreError};

use crate::data_folder::random;

/// After this time the keys are read again, so that a rotation on one instance reaches the others.
const FRESH_FOR: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub struct SigningKeys {
    /// From the configuration. It signs instead of those in the database.
    configured: Option<SigningKey>,
    known: Mutex<Option<(Instant, Arc<Vec<SigningKey>>)>>,
}

impl SigningKeys {
    pub fn new(configured: Option<String>) -> Self {
        let configured = configured.map(|secret| SigningKey { id: 0, secret });
        SigningKeys { configured, known: Mutex::default() }
    }

    /// The key that signs now.
    pub async fn current(&self, engine: &Engine) -> Result<SigningKey, StoreError> {
        if let Some(configured) = &self.configured {
            return Ok(configured.clone());
        }
        let keys = self.all(engine).await?;
        keys.first().cloned().ok_or_else(|| StoreError::Unusable("there is no signing key".into()))
    }

    /// Whether the configuration has the key, so that the database's is not used.
    pub fn is_configured(&self) -> bool {
        self.configured.is_some()
    }

    /// Replaces the key of the database.
    pub async fn rotate(&self, engine: &Engine, revoke_old: bool, actor: &Actor) -> Result<i64, StoreError> {
        let secret = new_secret()?;
        let id = engine.rotate_signing_key(&secret, revoke_old, actor).await?;
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = None;
        Ok(id)
    }

    async fn all(&self, engine: &Engine) -> Result<Arc<Vec<SigningKey>>, StoreError> {
        let now = Instant::now();
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((read_at, keys)) = known
            && now.duration_since(read_at) < FRESH_FOR
        {
            return Ok(keys);
        }
        let keys = Arc::new(engine.signing_keys(&new_secret()?).await?);
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = Some((now, Arc::clone(&keys)));
        Ok(keys)
    }
}

fn new_secret() -> Result<String, StoreError> {
    random::<32>().map_err(|error| StoreError::Unavailable(error.into_boxed_dyn_error()))
}
