//! Resolves sends in doubt by an operator's decision. The store writes the decision, and it is counted like any other
//! outcome. A message that is to be sent again does not wait for the next tick.

use campanile_domain::access::audit::Actor;
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
        actor: &Actor,
    ) -> Result<Resolved, StoreError> {
        let resolved = self.store.resolve(key, resolution, note, self.instance.id, actor).await?;
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
