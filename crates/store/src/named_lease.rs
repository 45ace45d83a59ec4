//! Named leases: at most one process at a time does work that must not run twice.

use std::time::Duration;

use async_trait::async_trait;

use crate::StoreError;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Acquisition {
    /// The caller holds the lease, from now on for the requested time.
    Acquired,
    HeldBy {
        holder: String,
        /// The remaining time of the other holder's lease.
        remaining: Duration,
    },
}

#[async_trait]
pub trait LeaseStore {
    /// Takes the lease if it is free, or renews it. The clock is that of the database.
    async fn acquire(&self, name: &str, holder: &str, lease: Duration) -> Result<Acquisition, StoreError>;

    /// Releases the lease, if this holder has it.
    async fn release(&self, name: &str, holder: &str) -> Result<(), StoreError>;
}
