//! Servers in the place of providers.

pub mod certificate;
pub mod fcm;
pub mod http;
pub mod real_smtp;
pub mod slack;
pub mod smtpd;
pub mod twilio;
