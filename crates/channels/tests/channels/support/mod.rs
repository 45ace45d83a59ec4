//! Servers in place of providers.

pub mod certificate;
pub mod fcm;
pub mod http;
#[path = "../../../../broker/tests/rabbitmq/support/log.rs"]
pub mod log;
pub mod real_smtp;
pub mod slack;
pub mod smtpd;
pub mod twilio;
