//! Named leases among many instances.

use std::time::Duration;

use async_trait::async_trait;

use super::{Postgres, read, statement};
use crate::{Acquisition, LeaseStore, StoreError};

#[async_trait]
impl LeaseStore for Postgres {
    async fn acquire(&self, name: &str, holder: &str, lease: Duration) -> Result<Acquisition, StoreError> {
        loop {
            if self.execute(statement::ACQUIRE_LEASE, &[&name, &holder, &lease.as_secs_f64()]).await? > 0 {
                return Ok(Acquisition::Acquired);
            }
            // The lease was released in between. The next attempt takes it.
            if let Some(row) = self.query(statement::LEASE_HOLDER, &[&name]).await?.first() {
                let remaining = Duration::try_from_secs_f64(read::get(row, "remaining")?).unwrap_or_default();
                return Ok(Acquisition::HeldBy { holder: read::get(row, "holder")?, remaining });
            }
        }
    }

    async fn release(&self, name: &str, holder: &str) -> Result<(), StoreError> {
        self.execute(statement::RELEASE_LEASE, &[&name, &holder]).await.map(drop)
    }
}
