//! Limits the duration of one fan-out step. While a step decides, it holds a claim (on PostgreSQL, in an open
//! transaction) and a thread of the runtime. The templates and conditions of one recipient may take up to 100 ms.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::blocking::{MAX_INLINE, run_blocking};

/// The longest time that one step decides; later steps do the rest. Claims last much longer.
const MAX_STEP: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct StepClock {
    worked: Duration,
    /// When the last wait ended, by the wall clock and by the CPU time of this thread.
    resumed: Instant,
    cpu_at_resume: Duration,
}

impl StepClock {
    pub fn begin() -> Self {
        StepClock { worked: Duration::ZERO, resumed: Instant::now(), cpu_at_resume: thread_cpu_time() }
    }

    /// Awaits `future`. Waiting does not count as work, because other tasks can use the thread meanwhile.
    pub async fn wait<F: Future>(&mut self, future: F) -> F::Output {
        self.worked += self.resumed.elapsed();
        let done = future.await;
        (self.resumed, self.cpu_at_resume) = (Instant::now(), thread_cpu_time());
        done
    }

    /// Whether more work on this thread would delay other tasks. The wall clock is cheap to read, so it is checked
    /// first. The CPU time excludes time in which the thread waited for a core.
    pub fn is_long(&self) -> bool {
        self.resumed.elapsed() >= MAX_INLINE
            && thread_cpu_time().saturating_sub(self.cpu_at_resume) >= MAX_INLINE
    }

    pub fn is_over(&self) -> bool {
        self.worked + self.resumed.elapsed() >= MAX_STEP
    }

    /// Runs `work`: here, or by `run_blocking` if this thread has been busy for long.
    pub fn run<T>(&self, work: impl FnOnce() -> T) -> T {
        if self.is_long() { run_blocking(work) } else { work() }
    }
}

fn thread_cpu_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap_or_default()
}
