//! Reads how long the oldest item has waited for each stage.

use async_trait::async_trait;
use campanile_domain::channel::Channel;
use campanile_domain::time;
use rusqlite::named_params;
use serde_json::json;

use super::{Sqlite, statement};
use crate::columns::Columns;
use crate::{QueueAgeStore, QueueAges, StoreError};

#[async_trait]
impl QueueAgeStore for Sqlite {
    async fn queue_ages(&self) -> Result<QueueAges, StoreError> {
        let now = self.clock();
        self.read(move |session| {
            let channels = json!(Channel::ALL.map(Channel::as_str)).to_string();
            let params = named_params! { ":channels": channels, ":now": time::to_text(now) };
            let waiting = session.first(statement::QUEUE_AGES, params, |row| {
                let since = |column| row.maybe_time(column);
                Ok(QueueAges::at(
                    now,
                    [since("fan_out")?, since("publish")?, since("receive")?, since("send")?],
                ))
            })?;
            Ok(waiting.unwrap_or_default())
        })
        .await
    }
}
