//! Access to the seven tables that operators write: recipients, entities and the rules. A change takes effect on this
//! instance before the caller gets its answer.

use std::sync::Arc;

use campanile_domain::access::audit::Actor;
use campanile_domain::people::user_type::UserTypes;
use campanile_domain::rules::Rules;
use campanile_store::{RowFilter, RowPage, StoreError, Table, TableRow};

use crate::Engine;

impl Engine {
    /// Replaces rows by key, all or none. Returns the number of rows written.
    pub async fn put_rows(
        &self,
        table: Table,
        rows: Vec<TableRow>,
        actor: &Actor,
    ) -> Result<u64, StoreError> {
        let written = self.store.put_rows(table, rows, Some(actor)).await?;
        self.rules.refresh(self.store.as_ref()).await?;
        Ok(written)
    }

    pub async fn list_rows(&self, table: Table, filter: RowFilter) -> Result<RowPage, StoreError> {
        self.store.list_rows(table, filter).await
    }

    /// Deletes the first of these keys that exists. Returns whether one existed.
    pub async fn delete_row(
        &self,
        table: Table,
        keys: Vec<Vec<String>>,
        actor: &Actor,
    ) -> Result<bool, StoreError> {
        for key in keys {
            if self.store.delete_row(table, key, actor).await? {
                self.rules.refresh(self.store.as_ref()).await?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The rules as they are in memory now.
    pub fn rules(&self) -> Arc<Rules> {
        self.rules.current()
    }

    pub fn user_types(&self) -> &UserTypes {
        &self.config.user_types
    }
}
