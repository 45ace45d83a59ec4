//! Reads how long the oldest item has waited for each stage.

use async_trait::async_trait;
use campanile_domain::channel::Channel;

use super::{Postgres, read, statement};
use crate::{QueueAgeStore, QueueAges, StoreError};

#[async_trait]
impl QueueAgeStore for Postgres {
    async fn queue_ages(&self) -> Result<QueueAges, StoreError> {
        let channels = Channel::ALL.map(Channel::as_str).to_vec();
        let rows = self.query(statement::QUEUE_AGES, &[&channels]).await?;
        let row = read::only_row(&rows)?;
        let since = [
            read::get(row, "fan_out")?,
            read::get(row, "publish")?,
            read::get(row, "receive")?,
            read::get(row, "send")?,
        ];
        Ok(QueueAges::at(read::get(row, "now")?, since))
    }
}
