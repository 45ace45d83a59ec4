//! What a person decides about a send in doubt: written by the store, counted as any other outcome, and what goes out
//! again need not wait for a tick.

use campanile_domain::id::SendKey;
use campanile_domain::status::SendStatus;
use campanile_store::{Resolution, Resolved, Signal, StoreError};

use crate::Engine;
use crate::telemetry::{count_dead_letters, count_sends};

impl Engine {
    pub async fn resolve(
        &self,
        key: SendKey,
        resolution: Resolution,
        note: Option<String>,
    ) -> Result<Resolved, StoreError> {
        let resolved = self.store.resolve(key, resolution, note, self.instance.id).await?;
        if resolved == Resolved::Done {
            let (channel, status) = (key.channel, resolution.status());
            tracing::info!(%key, status = status.as_str(), "a send in doubt was resolved by an operator");
            count_sends(channel, status, 1);
            if status == SendStatus::Failed && channel.is_retried() {
                count_dead_letters("send", 1);
            }
            if status == SendStatus::Due {
                self.signals.due(channel).notify_waiters();
                self.notify(Signal::Sends);
            }
        }
        Ok(resolved)
    }
}
