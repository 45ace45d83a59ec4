//! Servers in the place of providers.

pub mod http;
pub mod twilio;
