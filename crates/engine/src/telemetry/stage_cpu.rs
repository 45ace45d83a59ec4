//! Measures the CPU time of each task, to show which stage uses how much of a core.

use std::pin::Pin;
use std::task::{Context, Poll};

use metrics::Counter;
use rustix::time::{ClockId, clock_gettime};

use crate::telemetry::STAGE_CPU;

const NANOS_PER_MICRO: u64 = 1_000;

/// A future whose CPU time is counted. Waiting is not counted, nor is work that it spawned onto other tasks.
pub struct Timed<F> {
    future: Pin<Box<F>>,
    micros: Counter,
    /// Measured time below one microsecond, carried over to the next poll.
    remainder_nanos: u64,
}

impl<F: Future> Timed<F> {
    pub fn new(stage: &'static str, future: F) -> Self {
        let micros = metrics::counter!(STAGE_CPU, "stage" => stage);
        Timed { future: Box::pin(future), micros, remainder_nanos: 0 }
    }
}

impl<F: Future> Future for Timed<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.get_mut();
        let before = thread_nanos();
        let polled = this.future.as_mut().poll(context);
        let nanos = this.remainder_nanos + thread_nanos().saturating_sub(before);
        this.micros.increment(nanos / NANOS_PER_MICRO);
        this.remainder_nanos = nanos % NANOS_PER_MICRO;
        polled
    }
}

/// The CPU time of this thread, which advances only while the thread runs.
fn thread_nanos() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    u64::try_from(time.tv_sec).unwrap_or_default() * 1_000_000_000
        + u64::try_from(time.tv_nsec).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;

    #[tokio::test]
    async fn work_is_counted_and_waiting_is_not() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let _here = metrics::set_default_local_recorder(&recorder);
        let micros = |stage: &str| {
            let begin = format!("{STAGE_CPU}{{stage=\"{stage}\"}} ");
            let text = recorder.handle().render();
            text.lines().find_map(|line| line.strip_prefix(&begin)?.parse::<u64>().ok()).unwrap_or_default()
        };
        Timed::new("works", async {
            let end = thread_nanos() + 20_000_000;
            while thread_nanos() < end {}
        })
        .await;
        Timed::new("waits", tokio::time::sleep(Duration::from_millis(50))).await;
        assert!(micros("works") >= 20_000, "{}", micros("works"));
        assert!(micros("waits") < 20_000, "{}", micros("waits"));
    }
}
