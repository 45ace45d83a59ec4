//! Tests of `RabbitMq` against a real server.

mod messages;
mod permissions;
mod recovery;
mod start;
mod suite;
mod support;
mod tls;
