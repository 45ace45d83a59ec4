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
pub struct ApiKeyCache(Mutex<Keys>);

#[derive(Debug, Default)]
struct Keys {
    by_id: HashMap<ApiKeyId, Entry>,
    /// Rises when a key is forgotten. What was read before is not kept then.
    generation: u64,
}

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
    /// The key with this id. Only keys that exist are kept: invented ids fill no memory.
    pub async fn find(
        &self,
        store: &dyn Store,
        id: &ApiKeyId,
    ) -> Result<Option<Arc<StoredApiKey>>, StoreError> {
        let now = Instant::now();
        let generation = match self.usable(id, now) {
            Ok(key) => return Ok(Some(key)),
            Err(generation) => generation,
        };
        match store.find_api_key(id).await {
            Ok(found) => Ok(self.keep(id, found, now, generation)),
            Err(error) => {
                if let Some(entry) = self.lock().by_id.get_mut(id) {
                    entry.refreshing = false;
                }
                Err(error)
            }
        }
    }

    /// The key as it was read before, unless this caller is to read it again: then the generation.
    fn usable(&self, id: &ApiKeyId, now: Instant) -> Result<Arc<StoredApiKey>, u64> {
        let mut keys = self.lock();
        let generation = keys.generation;
        let entry = keys.by_id.get_mut(id).ok_or(generation)?;
        let age = now.duration_since(entry.read_at);
        if age < FRESH_FOR || (age < USABLE_FOR && entry.refreshing) {
            return Ok(Arc::clone(&entry.key));
        }
        entry.refreshing = true;
        Err(generation)
    }

    /// Keeps what was read, from `read_at` on.
    fn keep(
        &self,
        id: &ApiKeyId,
        found: Option<StoredApiKey>,
        read_at: Instant,
        generation: u64,
    ) -> Option<Arc<StoredApiKey>> {
        let mut keys = self.lock();
        let Some(key) = found.map(Arc::new) else {
            keys.by_id.remove(id);
            return None;
        };
        if keys.generation == generation {
            if keys.by_id.len() >= MAX_KEYS && !keys.by_id.contains_key(id) {
                keys.by_id.clear();
            }
            let use_recorded_at = keys.by_id.get(id).and_then(|entry| entry.use_recorded_at);
            let entry = Entry { key: Arc::clone(&key), read_at, refreshing: false, use_recorded_at };
            keys.by_id.insert(id.clone(), entry);
        }
        Some(key)
    }

    /// The hash of a key that was read before, however long ago.
    pub fn known_hash(&self, id: &ApiKeyId) -> Option<ApiKeyHash> {
        self.lock().by_id.get(id).map(|entry| entry.key.hash.clone())
    }

    /// Whether the use of this key is to be recorded now. Asked again within a minute, it answers no.
    pub fn records_use(&self, id: &ApiKeyId, now: Instant) -> bool {
        let mut keys = self.lock();
        let Some(entry) = keys.by_id.get_mut(id) else { return false };
        let is_due = entry.use_recorded_at.is_none_or(|at| now.duration_since(at) >= RECORD_INTERVAL);
        if is_due {
            entry.use_recorded_at = Some(now);
        }
        is_due
    }

    /// Forgets a key that was changed.
    pub fn forget(&self, id: &ApiKeyId) {
        let mut keys = self.lock();
        keys.by_id.remove(id);
        keys.generation += 1;
    }

    fn lock(&self) -> MutexGuard<'_, Keys> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Compares in constant time, so that response times reveal nothing about the hash.
pub fn is_same(presented: &ApiKeyHash, stored: &ApiKeyHash) -> bool {
    use subtle::ConstantTimeEq;
    presented.as_str().as_bytes().ct_eq(stored.as_str().as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use campanile_domain::access::api_key::{ApiKey, ApiKeyToken};
    use campanile_domain::time::{Moment, Timestamp};

    use super::*;

    fn stored() -> (ApiKeyId, StoredApiKey) {
        let token = ApiKeyToken::new([1; 8], [2; 32]);
        let key = ApiKey {
            id: token.id.clone(),
            name: "shop".to_owned(),
            prefix: ApiKey::prefix_of(&token.id),
            scopes: [].into_iter().collect(),
            created_at: Moment(Timestamp::UNIX_EPOCH),
            last_used_at: None,
            expires_at: None,
            revoked_at: None,
        };
        (token.id.clone(), StoredApiKey { key: Arc::new(key), hash: token.hash() })
    }

    #[test]
    fn one_caller_reads_a_key_again_after_two_seconds_and_every_caller_after_four() {
        let (cache, now, (id, key)) = (ApiKeyCache::default(), Instant::now(), stored());
        let at = |milliseconds| now + Duration::from_millis(milliseconds);
        assert!(cache.usable(&id, now).is_err());
        cache.keep(&id, Some(key.clone()), now, 0);
        assert!(cache.usable(&id, at(1_999)).is_ok());
        assert!(cache.usable(&id, at(2_000)).is_err(), "the first caller reads it");
        assert!(cache.usable(&id, at(2_000)).is_ok(), "others use the old one meanwhile");
        assert!(cache.usable(&id, at(4_000)).is_err() && cache.usable(&id, at(4_000)).is_err());
        cache.keep(&id, Some(key), at(4_000), 0);
        assert!(cache.usable(&id, at(5_999)).is_ok());
        cache.keep(&id, None, at(6_000), 0);
        assert!(cache.usable(&id, at(6_000)).is_err());
    }

    #[test]
    fn what_was_read_before_a_key_was_revoked_is_not_kept() {
        let (cache, now, (id, key)) = (ApiKeyCache::default(), Instant::now(), stored());
        let generation = cache.usable(&id, now).unwrap_err();
        cache.forget(&id);
        assert!(cache.keep(&id, Some(key), now, generation).is_some(), "this request goes on");
        assert!(cache.usable(&id, now).is_err());
    }

    #[test]
    fn a_use_is_recorded_once_a_minute() {
        let (cache, now, (id, key)) = (ApiKeyCache::default(), Instant::now(), stored());
        assert!(!cache.records_use(&id, now), "an unknown key");
        cache.keep(&id, Some(key), now, 0);
        assert!(cache.records_use(&id, now) && !cache.records_use(&id, now + Duration::from_secs(59)));
        assert!(cache.records_use(&id, now + Duration::from_mins(1)));
    }
}
