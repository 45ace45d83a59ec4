//! Tells producers not to send NOTIFY while the fan-out is in burst mode. In PostgreSQL, a transaction that sends
//! NOTIFY waits for all others that send it (figures in `pipeline/fan_out/burst.rs`).

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::Engine;

/// Pause after the database could not be reached.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Suppresses notifications during bursts. After a burst, the fan-out polls at once for events that came without a
/// notification.
pub async fn run(engine: Engine, stop: CancellationToken) {
    let mut burst = engine.signals.burst.subscribe();
    let suppress = async {
        while burst.wait_for(|is_on| *is_on).await.is_ok() {
            if let Err(error) = engine.store.suppress_notify(burst.clone()).await {
                tracing::debug!(%error, "notifications could not be suppressed; producers keep sending one per event");
                tokio::time::sleep(RETRY_DELAY).await;
            }
            engine.signals.notify_events();
        }
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = suppress => {}
    }
}
