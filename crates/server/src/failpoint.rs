//! For tests only: kills the process by SIGKILL at the place that `CAMPANILE_KILL_AT` names. Examples are
//! `receive.after_commit`, and `receive.after_commit:3` for the third time.

use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::{Signal, getpid, kill_process};

pub fn arm() {
    let Ok(spec) = std::env::var("CAMPANILE_KILL_AT") else { return };
    let (name, nth) = spec.split_once(':').unwrap_or((&spec, "1"));
    let nth: u32 = nth.parse().expect("CAMPANILE_KILL_AT is NAME or NAME:COUNT");
    let reached = AtomicU32::new(0);
    let die = move || {
        if reached.fetch_add(1, Ordering::SeqCst) + 1 == nth {
            kill_process(getpid(), Signal::KILL).expect("a process may kill itself");
        }
    };
    fail::cfg_callback(name, die).expect("a failpoint can be set before anything runs");
}
