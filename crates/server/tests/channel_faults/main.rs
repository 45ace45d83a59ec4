//! What happens to messages when the sender dies before, during and after the provider accepts, or the provider breaks
//! off. On both back ends, with doubts resent and with doubts held.

mod mails;
#[path = "../interface/providers.rs"]
mod providers;
mod pushes;
mod slack;
#[path = "../../../channels/tests/channels/support/smtpd.rs"]
#[expect(dead_code, reason = "what only the channels' own tests need is there too")]
mod smtpd;
#[expect(dead_code, reason = "what the other tests need is there too")]
#[path = "../support/mod.rs"]
mod support;
