//! Instances by name and by number. Rows have the number, so that the trace can name who did what at the cost of a few
//! bytes.

use async_trait::async_trait;

use crate::StoreError;

/// The number of an instance's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InstanceId(pub i32);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    pub id: InstanceId,
    pub name: String,
}

#[async_trait]
pub trait InstanceStore {
    /// At each start. A name keeps its number.
    async fn register_instance(&self, name: &str) -> Result<Instance, StoreError>;

    /// Tries a small write of its own: whether the database answers does not say whether it can keep anything.
    async fn heartbeat(&self, instance: InstanceId) -> Result<(), StoreError>;
}

/// Where nothing was updated, nothing was written either.
pub(crate) fn expect_one_row(rows: u64) -> Result<(), StoreError> {
    match rows {
        1 => Ok(()),
        _ => Err(StoreError::Unusable(
            "the table `instance` has no row for this instance; restart the instance".to_owned(),
        )),
    }
}
