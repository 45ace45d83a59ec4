//! Each provider against a server in its place.

mod chain;
mod fcm;
mod message;
mod slack;
mod smtp;
mod smtp_queue;
mod smtp_relay;
mod twilio;
