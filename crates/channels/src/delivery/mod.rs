//! Which of a channel's providers is asked, and how fast: the chain with its circuit breakers and rate limits.

pub mod breaker;
pub mod chain;
pub mod endpoint;
pub mod failure_log;
pub mod rate_limit;
