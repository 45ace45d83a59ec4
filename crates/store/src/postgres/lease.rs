//! Being the only one among many instances.

use std::time::Duration;

use async_trait::async_trait;

use super::{Postgres, read, statement};
use crate::{Held, LeaseStore, StoreError};

#[async_trait]
impl LeaseStore for Postgres {
    async fn hold(&self, name: &str, holder: &str, lease: Duration) -> Result<Held, StoreError> {
        loop {
            if self.execute(statement::HOLD_LEASE, &[&name, &holder, &lease.as_secs_f64()]).await? > 0 {
                return Ok(Held::Ours);
            }
            // Let go in between, it is free, and the next try takes it.
            if let Some(row) = self.query(statement::LEASE_HOLDER, &[&name]).await?.first() {
                let rest = Duration::try_from_secs_f64(read::get(row, "rest")?).unwrap_or_default();
                return Ok(Held::By { holder: read::get(row, "holder")?, rest });
            }
        }
    }

    async fn let_go(&self, name: &str, holder: &str) -> Result<(), StoreError> {
        self.execute(statement::LET_LEASE_GO, &[&name, &holder]).await.map(drop)
    }
}
