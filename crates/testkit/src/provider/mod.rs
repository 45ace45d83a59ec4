//! Servers in place of providers. Each checks requests by the provider's published rules.

pub mod fcm;
pub mod google;
pub mod http;
pub mod real_smtp;
pub mod slack;
pub mod smtpd;
pub mod twilio;
