//! Servers in the place of providers.

pub mod http;
pub mod slack;
pub mod twilio;
