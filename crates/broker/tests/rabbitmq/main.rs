//! Everything about `RabbitMQ`, against a real one.

mod messages;
mod permissions;
mod recovery;
mod start;
mod suite;
mod support;
mod tls;
