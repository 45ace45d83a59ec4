//! Each provider against a server in the provider's place.

mod chain;
mod fcm;
mod slack;
mod smtp;
mod support;
mod twilio;
