//! API keys in memory, so that a request seldom waits for the database. A key is read again after two seconds, and
//! never used longer than four after it was read: a revoked key is refused everywhere within five seconds.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use campanile_domain::access::api_key::{ApiKeyHash, ApiKeyId};
use campanile_store::{Store, StoreError, StoredApiKey};

/// After this time, the next request reads the key again, while others still use the old one.
const FRESH_FOR: Duration = Duration::from_secs(2);
/// After this time, every request reads the key.
const USABLE_FOR: Duration = Duration::from_secs(4);
/// How often the use of a key is recorded.
const RECORD_INTERVAL: Duration = Duration::from_mins(1);
/// More keys than an installation has. If there are more, all are forgotten and read again.
const MAX_KEYS: usize = 10_000;

#[derive(Debug, Default)]
pub struct ApiKeyCache(Mutex<HashMap<ApiKeyId, Entry>>);

#[derive(Debug)]
struct Entry {
    key: Arc<StoredApiKey>,
    /// When the read of the key began.
    read_at: Instant,
    /// A request is reading the key again.
    refreshing: bool,
    use_recorded_at: Option<Instant>,
}

impl ApiKeyCache {
    /// The key with this id. Only keys that exist are kept: whoever guesses ids fills no memory.
    pub async fn find(
        &self,
        store: &dyn Store,
        id: &ApiKeyId,
    ) -> Result<Option<Arc<StoredApiKey>>, StoreError> {
        let read_at = Instant::now();
        if let Some(key) = self.usable(id, read_at) {
            return Ok(Some(key));
        }
        let found = store.find_api_key(id).await;
        let mut keys = self.lock();
        match found {
            Ok(Some(key)) => {
                let key = Arc::new(key);
                if keys.len() >= MAX_KEYS && !keys.contains_key(id) {
                    keys.clear();
                }
                let use_recorded_at = keys.get(id).and_then(|entry| entry.use_recorded_at);
                let entry = Entry { key: Arc::clone(&key), read_at, refreshing: false, use_recorded_at };
                keys.insert(id.clone(), entry);
                Ok(Some(key))
            }
            Ok(None) => {
                keys.remove(id);
                Ok(None)
            }
            Err(error) => {
                if let Some(entry) = keys.get_mut(id) {
                    entry.refreshing = false;
                }
                Err(error)
            }
        }
    }

    /// The key as it was read before, unless this caller is to read it again.
    fn usable(&self, id: &ApiKeyId, now: Instant) -> Option<Arc<StoredApiKey>> {
        let mut keys = self.lock();
        let entry = keys.get_mut(id)?;
        let age = now.duration_since(entry.read_at);
        if age < FRESH_FOR || (age < USABLE_FOR && entry.refreshing) {
            return Some(Arc::clone(&entry.key));
        }
        entry.refreshing = true;
        None
    }

    /// The hash of a key that was read before, however long ago.
    pub fn known_hash(&self, id: &ApiKeyId) -> Option<ApiKeyHash> {
        self.lock().get(id).map(|entry| entry.key.hash.clone())
    }

    /// Whether the use of this key is to be recorded now. Asked again within a minute, it answers no.
    pub fn records_use(&self, id: &ApiKeyId, now: Instant) -> bool {
        let mut keys = self.lock();
        let Some(entry) = keys.get_mut(id) else { return false };
        let is_due = entry.use_recorded_at.is_none_or(|at| now.duration_since(at) >= RECORD_INTERVAL);
        if is_due {
            entry.use_recorded_at = Some(now);
        }
        is_due
    }

    /// Forgets a key that was changed.
    pub fn forget(&self, id: &ApiKeyId) {
        self.lock().remove(id);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ApiKeyId, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Compares in constant time, so that response times reveal nothing about the hash.
pub fn is_same(presented: &ApiKeyHash, stored: &ApiKeyHash) -> bool {
    use subtle::ConstantTimeEq;
    presented.as_str().as_bytes().ct_eq(stored.as_str().as_bytes()).into()
}
