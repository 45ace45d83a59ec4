//! What operators read and do. HTTP handlers call these verbs and never the store, so that access checks, audit and
//! telemetry have one place.

mod explain;
mod health;
mod read;
mod receipt;
mod replay;
mod resolve;
mod row;

pub use explain::Explanation;
pub use health::BrokerState;
pub use replay::ReplayLimits;
