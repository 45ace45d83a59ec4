//! The lease of the in-process broker. Messages are in the memory of one process, so only one process may run per
//! database. A second one is refused. One that lost its lease, for example while suspended, stops.

use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use campanile_engine::telemetry;
use campanile_store::{Acquisition, Store};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::data_folder;

const NAME: &str = "in-process broker";
const LEASE: Duration = Duration::from_secs(15);
const RENEW_EVERY: Duration = Duration::from_secs(5);
/// How often a waiting process checks the lease; it must see each renewal.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub struct Lease {
    store: Arc<dyn Store>,
    holder: String,
    keeper: JoinHandle<()>,
    lost: watch::Receiver<Option<String>>,
}

impl Lease {
    /// Takes the lease. It waits for the lease of a dead holder to expire, and fails if the holder is alive.
    pub async fn take(store: Arc<dyn Store>, instance: &str) -> anyhow::Result<Self> {
        let mut seen = None;
        // Two processes may be configured with the same name.
        let holder = format!("{instance} {}", data_folder::random::<8>()?);
        while let Acquisition::HeldBy { holder, remaining } = store.acquire(NAME, &holder, LEASE).await? {
            // The lease was renewed, so its holder is alive.
            if seen.is_some_and(|before| remaining > before) {
                bail!(
                    "`{}` already uses this database with the in-process broker, which supports one instance; \
                     stop it, or set broker.url to RabbitMQ to run several",
                    name(&holder)
                );
            }
            if seen.is_none() {
                tracing::warn!(
                    holder,
                    ?remaining,
                    "waiting for the broker lease of a possibly dead instance to expire"
                );
            }
            seen = Some(remaining);
            tokio::time::sleep(POLL_INTERVAL.min(remaining)).await;
        }
        let (loses, lost) = watch::channel(None);
        let keeper = tokio::spawn(keep(Arc::clone(&store), holder.clone(), loses));
        Ok(Lease { store, holder, keeper, lost })
    }

    /// Resolves when another process has taken the lease.
    pub async fn lost(&self) -> anyhow::Error {
        let mut lost = self.lost.clone();
        match lost.wait_for(Option::is_some).await {
            Ok(holder) => {
                let holder = holder.clone().unwrap_or_default();
                anyhow::anyhow!(
                    "this instance lost its broker lease (it did not renew in time), and `{}` took over",
                    name(&holder)
                )
            }
            Err(_) => std::future::pending().await,
        }
    }

    pub async fn release(self) {
        self.keeper.abort();
        if let Err(error) = self.store.release(NAME, &self.holder).await {
            tracing::warn!(%error, "cannot release the in-process broker lease; it expires on its own");
        }
    }
}

fn name(holder: &str) -> &str {
    holder.rsplit_once(' ').map_or(holder, |(instance, _)| instance)
}

async fn keep(store: Arc<dyn Store>, holder: String, lost: watch::Sender<Option<String>>) {
    loop {
        tokio::time::sleep(RENEW_EVERY).await;
        match store.acquire(NAME, &holder, LEASE).await {
            Ok(Acquisition::Acquired) => {}
            Ok(Acquisition::HeldBy { holder: by, .. }) => {
                telemetry::count_lost("broker", 1);
                lost.send_replace(Some(by));
                return;
            }
            Err(error) => {
                tracing::warn!(%error, "cannot renew the in-process broker lease; retrying");
            }
        }
    }
}
