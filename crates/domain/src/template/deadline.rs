//! The time limit of one rendering or one `when`. MiniJinja's fuel counts steps, and a step on a large text takes a
//! thousand times as long as one on a small text. So filters, tests, functions, output and loops call [`check`], which
//! reads the clock. [`crate::template::bounds`] limits what can happen between two checks.

use std::cell::Cell;
use std::time::{Duration, Instant};

use minijinja::Error;
use rustix::time::{ClockId, clock_gettime};

use crate::template::filters::invalid;

pub const LIMIT: Duration = Duration::from_millis(100);
/// The oldest reading of the thread's CPU time that a new deadline may use.
const MAX_READING_AGE: Duration = Duration::from_millis(5);

thread_local! {
    static ARMED: Cell<Option<Armed>> = const { Cell::new(None) };
    static LAST_READING: Cell<Option<(Instant, Duration)>> = const { Cell::new(None) };
}

#[derive(Clone, Copy)]
struct Armed {
    /// When to read the CPU time, by the wall clock, which is cheap to read. Only the CPU time decides: a thread that
    /// waited for a core is not slow.
    due: Instant,
    cpu_at_start: Duration,
    expired: bool,
}

/// While this exists, [`check`] fails once this thread has used [`LIMIT`] of CPU time.
pub struct Deadline {
    outer: Option<Armed>,
}

impl Deadline {
    pub fn begin() -> Self {
        let now = Instant::now();
        let reading = LAST_READING.get().filter(|(at, _)| now.duration_since(*at) < MAX_READING_AGE);
        let (_, cpu_at_start) = reading.unwrap_or_else(|| {
            let reading = (now, thread_cpu_time());
            LAST_READING.set(Some(reading));
            reading
        });
        Deadline { outer: ARMED.replace(Some(Armed { due: now + LIMIT, cpu_at_start, expired: false })) }
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        ARMED.set(self.outer);
    }
}

/// Whether a check has failed since the current deadline began.
pub fn was_missed() -> bool {
    ARMED.get().is_some_and(|armed| armed.expired)
}

pub fn check() -> Result<(), Error> {
    if is_over() { Err(invalid(too_slow())) } else { Ok(()) }
}

pub fn too_slow() -> String {
    format!("takes more than {} ms", LIMIT.as_millis())
}

/// Whether the time is over. False without a deadline.
pub fn is_over() -> bool {
    let Some(mut armed) = ARMED.get() else { return false };
    let now = Instant::now();
    if !armed.expired && now < armed.due {
        return false;
    }
    let worked = thread_cpu_time().saturating_sub(armed.cpu_at_start);
    match LIMIT.checked_sub(worked) {
        Some(left) if !armed.expired && !left.is_zero() => armed.due = now + left,
        _ => armed.expired = true,
    }
    ARMED.set(Some(armed));
    armed.expired
}

fn thread_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or_default(),
        u32::try_from(time.tv_nsec).unwrap_or_default(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work_until(done: impl Fn() -> bool) {
        while !done() {
            std::hint::black_box((0..1_000).sum::<u64>());
        }
    }

    #[test]
    fn work_is_limited_and_waiting_is_not() {
        assert!(check().is_ok(), "nothing was begun");
        let deadline = Deadline::begin();
        let armed = ARMED.get().unwrap();
        ARMED.set(Some(Armed { due: armed.due.checked_sub(2 * LIMIT).unwrap(), ..armed }));
        assert!(check().is_ok() && !was_missed(), "it has waited for a core");
        let before = thread_cpu_time();
        work_until(is_over);
        assert!(thread_cpu_time().saturating_sub(before) <= LIMIT + Duration::from_millis(20));
        assert!(was_missed() && check().unwrap_err().to_string().contains("100 ms"));
        drop(deadline);
        assert!(check().is_ok());
    }
}
