//! Which of a channel's providers is asked, and how fast: the chain, its circuit breakers and rate limits.

pub mod breaker;
pub mod chain;
pub mod failure_log;
pub mod gate;
pub mod rate_limit;
