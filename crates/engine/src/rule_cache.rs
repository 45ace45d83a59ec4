//! The rules in memory. A change through this instance is visible at once, any other change within a second. The same
//! task refreshes the estimate of the database's clock.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use campanile_domain::people::user_type::UserTypes;
use campanile_domain::rules::Rules;
use campanile_store::{Store, StoreError};
use tokio_util::sync::CancellationToken;

use crate::Engine;
use crate::blocking::run_blocking;

const REFRESH_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct RuleCache {
    user_types: UserTypes,
    current: RwLock<(i64, Arc<Rules>)>,
}

impl RuleCache {
    pub async fn load(store: &dyn Store, user_types: UserTypes) -> Result<Self, StoreError> {
        let current = RwLock::new(read(store, &user_types).await?);
        Ok(RuleCache { user_types, current })
    }

    pub fn current(&self) -> Arc<Rules> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner).1)
    }

    /// Loads the rules again if their version has changed.
    pub async fn refresh(&self, store: &dyn Store) -> Result<(), StoreError> {
        let version = store.rule_version().await?;
        if version != self.current.read().unwrap_or_else(PoisonError::into_inner).0 {
            let reread = read(store, &self.user_types).await?;
            let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
            if reread.0 > current.0 {
                *current = reread;
            }
        }
        Ok(())
    }
}

/// Reads the version before the rows: a change in between is then loaded twice instead of missed.
async fn read(store: &dyn Store, user_types: &UserTypes) -> Result<(i64, Arc<Rules>), StoreError> {
    let version = store.rule_version().await?;
    let rows = store.rule_rows().await?;
    // This compiles the templates, which may take long.
    let (rules, problems) = run_blocking(|| Rules::new(user_types.clone(), rows));
    for problem in problems {
        tracing::error!(%problem, "invalid rule row; PUT it again over HTTP to get the exact error");
    }
    Ok((version, Arc::new(rules)))
}

pub async fn run(engine: Engine, stop: CancellationToken) {
    while !stop.is_cancelled() {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(REFRESH_INTERVAL) => {}
        }
        let store = engine.store.as_ref();
        let refreshed = tokio::try_join!(engine.rules.refresh(store), engine.clock.refresh(store));
        match refreshed {
            Ok(_) => engine.signals.database.record_success("rules"),
            Err(error) => engine.signals.database.record_failure("rules", &error),
        }
    }
}
