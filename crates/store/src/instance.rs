//! Instances by name and by number. Rows have the number, so that the trace can name who did what at the cost of a few bytes.

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
}
