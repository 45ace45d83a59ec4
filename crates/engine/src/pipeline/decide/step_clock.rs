//! The time of one step of the fan-out. Deciding holds a claim, in a transaction on PostgreSQL, and a thread of the
//! runtime; templates and conditions may take a hundred milliseconds for each recipient.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::blocking::{MAX_INLINE, run_blocking};

/// The longest time that one step decides; the rest is left to the next ones. Claims last much longer.
const MAX_STEP: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct StepClock {
    worked: Duration,
    /// Since the last wait, by the wall clock and by the CPU time of this thread.
    resumed: Instant,
    cpu_at_resume: Duration,
}

impl StepClock {
    pub fn begin() -> Self {
        StepClock { worked: Duration::ZERO, resumed: Instant::now(), cpu_at_resume: thread_cpu_time() }
    }

    /// Waiting is no work, and lets others use the thread.
    pub async fn wait<F: Future>(&mut self, future: F) -> F::Output {
        self.worked += self.resumed.elapsed();
        let done = future.await;
        (self.resumed, self.cpu_at_resume) = (Instant::now(), thread_cpu_time());
        done
    }

    /// Whether more work here would keep others waiting. The wall clock is cheap to read, but a thread that had to wait
    /// for a core has not worked for long.
    pub fn is_long(&self) -> bool {
        self.resumed.elapsed() >= MAX_INLINE
            && thread_cpu_time().saturating_sub(self.cpu_at_resume) >= MAX_INLINE
    }

    pub fn is_over(&self) -> bool {
        self.worked + self.resumed.elapsed() >= MAX_STEP
    }

    /// Does some of the work, here or where it keeps nobody waiting.
    pub fn run<T>(&self, work: impl FnOnce() -> T) -> T {
        if self.is_long() { run_blocking(work) } else { work() }
    }
}

fn thread_cpu_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap_or_default()
}
