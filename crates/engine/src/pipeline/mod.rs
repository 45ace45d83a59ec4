//! The stages, in the order in which an event passes them: accept, decide, `fan_out`, publish, receive, send, settle,
//! close. Each loop is `run(stop)` around steps that can be repeated without harm.

pub mod accept;
pub mod close;
pub mod decide;
pub mod fan_out;
pub mod publish;
pub mod receive;
pub mod send;
pub mod settle;

/// Rows are counted against only by the data's own faults, this often; then they are `FAILED`.
pub const MAX_FAILURES: u32 = 5;
