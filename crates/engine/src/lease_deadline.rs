//! When a lease ends, as its holder sees it: by a clock that nobody can set, and that goes on while the machine is
//! suspended. The usual monotonic clock stands still then, and a machine that woke would think that it still held what
//! others have long taken over.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

#[cfg(any(target_os = "linux", target_os = "android"))]
const CLOCK: ClockId = ClockId::Boottime;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const CLOCK: ClockId = ClockId::Monotonic;

#[derive(Debug, Clone, Copy)]
pub struct LeaseDeadline {
    /// Since the machine was started.
    at: Duration,
}

impl LeaseDeadline {
    /// Of a lease that is about to be asked for. The database counts from later on, so this end is never after its own.
    pub fn after(lease: Duration) -> Self {
        LeaseDeadline { at: now() + lease }
    }

    pub fn remaining(self) -> Duration {
        self.at.saturating_sub(now())
    }
}

fn now() -> Duration {
    // It began at 0 and goes on.
    clock_gettime(CLOCK).try_into().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_gets_shorter_and_ends() {
        let hour = Duration::from_hours(1);
        let remaining = LeaseDeadline::after(hour).remaining();
        assert!(remaining <= hour && remaining > hour / 2, "{remaining:?}");
        assert_eq!(LeaseDeadline::after(Duration::ZERO).remaining(), Duration::ZERO);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_clock_of_leases_goes_on_while_the_machine_is_suspended() {
        let system = std::fs::read_to_string("/proc/uptime").unwrap();
        let uptime: f64 = system.split(' ').next().unwrap().parse().unwrap();
        // The kernel's uptime counts suspension in; on a machine that never slept every clock agrees, so the name is
        // held, too.
        assert!((now().as_secs_f64() - uptime).abs() < 5.0);
        assert!(matches!(CLOCK, ClockId::Boottime));
    }
}
