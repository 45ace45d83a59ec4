//! Registers instances by name and number.

use async_trait::async_trait;

use super::{Postgres, read, statement};
use crate::instance::expect_one_row;
use crate::{Instance, InstanceId, InstanceStore, StoreError};

#[async_trait]
impl InstanceStore for Postgres {
    async fn register_instance(&self, name: &str) -> Result<Instance, StoreError> {
        let rows = self.query(statement::REGISTER_INSTANCE, &[&name]).await?;
        Ok(Instance { id: InstanceId(read::get(read::only_row(&rows)?, "id")?), name: name.to_owned() })
    }

    async fn write_probe(&self, InstanceId(id): InstanceId) -> Result<(), StoreError> {
        expect_one_row(self.execute(statement::WRITE_PROBE, &[&id]).await?)
    }
}
