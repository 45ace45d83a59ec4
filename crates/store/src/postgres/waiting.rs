//! How long what waits has waited.

use async_trait::async_trait;
use campanile_domain::channel::Channel;

use super::{Postgres, read, statement};
use crate::{OldestWaiting, StoreError, WaitingStore};

#[async_trait]
impl WaitingStore for Postgres {
    async fn oldest_waiting(&self) -> Result<OldestWaiting, StoreError> {
        let channels = Channel::ALL.map(Channel::as_str).to_vec();
        let rows = self.query(statement::OLDEST_WAITING, &[&channels]).await?;
        let row = read::only(&rows)?;
        let since = [
            read::get(row, "fan_out")?,
            read::get(row, "publish")?,
            read::get(row, "receive")?,
            read::get(row, "send")?,
        ];
        Ok(OldestWaiting::at(read::get(row, "now")?, since))
    }
}
