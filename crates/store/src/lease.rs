//! Being the only one: a named lease in the database, for what must not run twice.

use std::time::Duration;

use async_trait::async_trait;

use crate::StoreError;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Acquisition {
    /// By the caller, from now for as long as it asked.
    Acquired,
    HeldBy {
        holder: String,
        /// How long it still holds.
        remaining: Duration,
    },
}

#[async_trait]
pub trait LeaseStore {
    /// Takes the lease if nobody holds it, or renews it; by the clock of the database.
    async fn acquire(&self, name: &str, holder: &str, lease: Duration) -> Result<Acquisition, StoreError>;

    /// Gives the lease back, if the holder has it.
    async fn release(&self, name: &str, holder: &str) -> Result<(), StoreError>;
}
