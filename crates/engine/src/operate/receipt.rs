//! Receipts: the reports that a provider sends about a message after accepting it.

use campanile_domain::id::SendKey;
use campanile_store::{Receipt, StoreError};

use crate::Engine;

impl Engine {
    /// Stores the receipt with the send and leaves the send's status unchanged. Returns whether the receipt was stored.
    pub async fn record_receipt(&self, key: SendKey, receipt: Receipt) -> Result<bool, StoreError> {
        self.store.record_receipt(key, receipt).await
    }
}
