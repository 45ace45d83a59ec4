//! Each provider against a server in the provider's place.

mod chain;
mod smtp;
mod support;
mod twilio;
