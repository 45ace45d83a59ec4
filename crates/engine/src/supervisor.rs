//! Runs loops and notices when one dies: it says so and starts it again. A loop ends by itself only when it is told to stop.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::Signals;

const PAUSE_AFTER_DEATH: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct Supervisor {
    stop: CancellationToken,
    signals: Arc<Signals>,
    keepers: JoinSet<()>,
}

impl Supervisor {
    pub fn new(signals: &Arc<Signals>) -> Self {
        Supervisor { stop: CancellationToken::new(), signals: Arc::clone(signals), keepers: JoinSet::new() }
    }

    pub fn run<F>(
        &mut self,
        name: &'static str,
        mut task: impl FnMut(CancellationToken) -> F + Send + 'static,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let (stop, signals) = (self.stop.clone(), Arc::clone(&self.signals));
        self.keepers.spawn(async move {
            while !stop.is_cancelled() {
                match tokio::spawn(task(stop.clone())).await {
                    Ok(()) if stop.is_cancelled() => return,
                    Ok(()) => tracing::error!(task = name, "a loop ended by itself; it is started again"),
                    Err(error) => tracing::error!(task = name, %error, "a loop died; it is started again"),
                }
                signals.note_death();
                metrics::counter!("campanile_task_deaths_total", "task" => name).increment(1);
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = tokio::time::sleep(PAUSE_AFTER_DEATH) => {}
                }
            }
        });
    }

    /// Tells every loop to stop, and waits until they have.
    pub async fn stop(mut self) {
        self.stop.cancel();
        while self.keepers.join_next().await.is_some() {}
    }
}
