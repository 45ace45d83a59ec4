//! Registers instances. An instance has a name and a number. Rows store the number, so that a trace can name the
//! instance at the cost of a few bytes.

use async_trait::async_trait;

use crate::StoreError;

/// The number that stands for an instance's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InstanceId(pub i32);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    pub id: InstanceId,
    pub name: String,
}

#[async_trait]
pub trait InstanceStore {
    /// Registers an instance when it starts. A name keeps its number.
    async fn register_instance(&self, name: &str) -> Result<Instance, StoreError>;

    /// Writes one small row. A database that still answers queries may be unable to write.
    async fn write_probe(&self, instance: InstanceId) -> Result<(), StoreError>;
}

/// An update that changed no row means that the row of this instance is gone.
pub(crate) fn expect_one_row(rows: u64) -> Result<(), StoreError> {
    match rows {
        1 => Ok(()),
        _ => Err(StoreError::Unusable(
            "the table `instance` has no row for this instance; restart the instance".into(),
        )),
    }
}
