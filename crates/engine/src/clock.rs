//! Estimates the database's clock between two readings. The clocks of instances may differ, and asking the database for
//! each message would cost a round trip.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use campanile_domain::time::{self, Timestamp};
use campanile_store::{Store, StoreError};

/// The last reading of the database's clock, and when it was requested. The estimate is ahead of the clock by at most
/// one round trip, and never behind it. So a timestamp taken after a row was written is never before the row's own
/// timestamp. `rule_cache::run` refreshes the reading at least once a second.
#[derive(Debug)]
pub struct DatabaseClock(Mutex<(Timestamp, Instant)>);

impl DatabaseClock {
    pub async fn ask(store: &dyn Store) -> Result<Self, StoreError> {
        let asked = Instant::now();
        Ok(DatabaseClock(Mutex::new((store.now().await?, asked))))
    }

    /// Reads the database's clock and uses the answer from now on.
    pub async fn refresh(&self, store: &dyn Store) -> Result<Timestamp, StoreError> {
        let asked = Instant::now();
        let said = store.now().await?;
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = (said, asked);
        Ok(said)
    }

    pub fn now(&self) -> Timestamp {
        self.at(Instant::now())
    }

    pub fn at(&self, instant: Instant) -> Timestamp {
        let (said, asked) = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match instant.checked_duration_since(asked) {
            Some(passed) => time::later(said, passed),
            None => time::earlier(said, asked.duration_since(instant)),
        }
    }
}
