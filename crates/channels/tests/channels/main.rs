//! Each provider against a server in the provider's place.

mod chain;
mod fcm;
mod slack;
mod smtp;
mod smtp_queue;
mod smtp_relay;
mod support;
mod twilio;
