//! Runs tasks. When a task panics or ends early, the supervisor logs it, counts it, and starts it again after a second.
//! A task may end only after the supervisor told it to stop.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::Signals;
use crate::telemetry::TASK_DEATHS;
use crate::telemetry::stage_cpu::Timed;

const PAUSE_AFTER_DEATH: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct Supervisor {
    stop: CancellationToken,
    signals: Arc<Signals>,
    watchers: JoinSet<()>,
}

impl Supervisor {
    pub fn new(signals: &Arc<Signals>) -> Self {
        Supervisor { stop: CancellationToken::new(), signals: Arc::clone(signals), watchers: JoinSet::new() }
    }

    pub fn run<F>(
        &mut self,
        name: &'static str,
        mut task: impl FnMut(CancellationToken) -> F + Send + 'static,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let (stop, signals) = (self.stop.clone(), Arc::clone(&self.signals));
        let deaths = metrics::counter!(TASK_DEATHS, "task" => name);
        deaths.increment(0);
        self.watchers.spawn(async move {
            while !stop.is_cancelled() {
                match tokio::spawn(Timed::new(name, task(stop.clone()))).await {
                    Ok(()) if stop.is_cancelled() => return,
                    Ok(()) => tracing::error!(task = name, "task ended unexpectedly; restarting it"),
                    Err(error) => tracing::error!(task = name, %error, "task panicked; restarting it"),
                }
                signals.record_death();
                deaths.increment(1);
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = tokio::time::sleep(PAUSE_AFTER_DEATH) => {}
                }
            }
        });
    }

    /// Tells every task to stop, and waits until all have ended.
    pub async fn stop(mut self) {
        self.stop.cancel();
        while self.watchers.join_next().await.is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;

    #[tokio::test]
    async fn a_loop_that_dies_is_counted_and_started_again() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let _here = metrics::set_default_local_recorder(&recorder);
        let deaths = |count: u32| {
            let line = format!("campanile_task_deaths_total{{task=\"frail\"}} {count}");
            recorder.handle().render().lines().any(|l| l == line)
        };
        let mut supervisor = Supervisor::new(&Arc::new(Signals::new(Vec::new())));
        let (begins, mut begun) = tokio::sync::mpsc::unbounded_channel();
        let mut rounds = 0;
        supervisor.run("frail", move |stop| {
            rounds += 1;
            let (round, begins) = (rounds, begins.clone());
            async move {
                begins.send(round).expect("the test listens");
                assert!(round > 1, "a loop with a bug");
                stop.cancelled().await;
            }
        });
        assert!(deaths(0), "it is there before anything happens");
        assert_eq!((begun.recv().await, begun.recv().await), (Some(1), Some(2)));
        assert!(deaths(1));
        supervisor.stop().await;
    }
}
