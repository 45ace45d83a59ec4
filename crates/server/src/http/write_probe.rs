//! Checks whether the database accepts writes, for `/readyz`. With a full disk or a read-only server it still answers
//! queries. The probe writes at most every two seconds, however often it is requested.

use std::time::Duration;

use campanile_engine::Engine;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

const VALID_FOR: Duration = Duration::from_secs(2);
const TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug, Default)]
pub struct WriteProbe {
    last: Mutex<Option<(Instant, Result<(), String>)>>,
}

impl WriteProbe {
    /// Probes the database, or returns the last result. Concurrent callers wait for the same probe.
    pub async fn run(&self, engine: &Engine) -> Result<(), String> {
        let mut last = self.last.lock().await;
        if let Some((at, result)) = &*last
            && at.elapsed() < VALID_FOR
        {
            return result.clone();
        }
        let result = match timeout(TIMEOUT, engine.probe_writes()).await {
            Ok(written) => written.map_err(|error| error.to_string()),
            Err(_) => Err(format!("a write did not finish within {TIMEOUT:?}")),
        };
        *last = Some((Instant::now(), result.clone()));
        result
    }
}
