//! The stages, in the order in which an event passes them: accept, decide, `fan_out`, publish, receive, send, settle,
//! close. Each task is `run(stop)` around steps that can be repeated without harm.

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
