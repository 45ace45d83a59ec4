//! Registers instances by name and number.

use async_trait::async_trait;
use rusqlite::named_params;

use super::{Sqlite, statement};
use crate::instance::expect_one_row;
use crate::{Instance, InstanceId, InstanceStore, StoreError};

#[async_trait]
impl InstanceStore for Sqlite {
    async fn register_instance(&self, name: &str) -> Result<Instance, StoreError> {
        let name = name.to_owned();
        self.write(move |session, now| {
            let params = named_params! { ":name": name, ":now": now };
            let id = session.first(statement::REGISTER_INSTANCE, params, |row| Ok(row.get("id")?))?;
            let id = id.ok_or_else(|| {
                StoreError::Unusable("the database returned no id for this instance".into())
            })?;
            Ok(Instance { id: InstanceId(id), name: name.clone() })
        })
        .await
    }

    async fn write_probe(&self, InstanceId(id): InstanceId) -> Result<(), StoreError> {
        self.write(move |session, now| {
            let rows = session.change(statement::WRITE_PROBE, named_params! { ":id": id, ":now": now })?;
            expect_one_row(rows.try_into().unwrap_or(u64::MAX))
        })
        .await
    }
}
