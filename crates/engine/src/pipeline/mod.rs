//! The stages, in the order in which an event passes through them: accept, decide, `fan_out`, publish, receive, send,
//! settle, close. Each task is a function `run(stop)` that loops over steps which can safely be repeated.

pub mod accept;
pub mod close;
pub mod decide;
pub mod fan_out;
pub mod publish;
pub mod receive;
pub mod send;
pub mod settle;

/// After this many failures a row is `FAILED`. Only faults of the data itself count, never outages.
pub const MAX_FAILURES: u32 = 5;
