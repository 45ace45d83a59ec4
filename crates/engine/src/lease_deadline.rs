//! The end of a lease, as measured by its holder.
//!
//! It uses a clock that cannot be set and that keeps running while the machine is suspended. `CLOCK_MONOTONIC` stops
//! during a suspend. A machine that wakes up would believe that it still holds leases that others took over long ago.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

#[cfg(any(target_os = "linux", target_os = "android"))]
const CLOCK: ClockId = ClockId::Boottime;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const CLOCK: ClockId = ClockId::Monotonic;

#[derive(Debug, Clone, Copy)]
pub struct LeaseDeadline {
    /// Time since the machine was started.
    at: Duration,
}

impl LeaseDeadline {
    /// The deadline of a lease that is about to be requested. The database starts to count later, so this deadline is
    /// never after the database's own.
    pub fn after(lease: Duration) -> Self {
        LeaseDeadline { at: now() + lease }
    }

    pub fn remaining(self) -> Duration {
        self.at.saturating_sub(now())
    }
}

fn now() -> Duration {
    // The clock starts at 0 at boot, so the conversion cannot fail.
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
        // `/proc/uptime` includes suspended time. On a machine that never slept all clocks agree, so the clock's name
        // is checked, too.
        assert!((now().as_secs_f64() - uptime).abs() < 5.0);
        assert!(matches!(CLOCK, ClockId::Boottime));
    }
}
