//! Being the only one: a named lease in the database, for what must not run twice.

use std::time::Duration;

use async_trait::async_trait;

use crate::StoreError;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Held {
    /// By the caller, from now for as long as it asked.
    Ours,
    By {
        holder: String,
        /// How long it still holds.
        rest: Duration,
    },
}

#[async_trait]
pub trait LeaseStore {
    /// Takes the lease if nobody holds it, or renews it; by the clock of the database.
    async fn hold(&self, name: &str, holder: &str, lease: Duration) -> Result<Held, StoreError>;

    /// Gives the lease back, if the holder has it.
    async fn let_go(&self, name: &str, holder: &str) -> Result<(), StoreError>;
}
