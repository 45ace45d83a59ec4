//! The queries and commands for operators. HTTP handlers call these functions and never the store, so that access
//! checks, auditing and telemetry are in one place.

mod access;
mod explain;
mod health;
mod read;
mod receipt;
mod replay;
mod resolve;
mod row;

pub use access::Authenticated;
pub use explain::Explanation;
pub use health::BrokerState;
pub use replay::ReplayLimits;
