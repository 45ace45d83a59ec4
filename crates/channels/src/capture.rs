//! The provider of channels without configuration: it stores the message instead of sending it. The transaction that
//! settles the send writes `captured_message`, so each message is stored exactly once.

use std::time::Duration;

use async_trait::async_trait;
use campanile_domain::send::Outcome;

use crate::{Answer, Message, Provider};

#[derive(Debug, Clone, Copy)]
pub struct Capture;

#[async_trait]
impl Provider for Capture {
    fn name(&self) -> &'static str {
        "capture"
    }

    fn deadline(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn captures(&self) -> bool {
        true
    }

    async fn send(&self, _: &Message<'_>) -> Answer {
        Outcome::Sent { external_id: None }.into()
    }
}
