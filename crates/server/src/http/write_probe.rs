//! Whether the database takes writes, for `/readyz`: a full disk and a server that became read-only answer every
//! question. Tried at most every two seconds, so that those who ask often do not cost a write each.

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
    /// What is wrong, if something is. Those who ask meanwhile wait for the same answer.
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
