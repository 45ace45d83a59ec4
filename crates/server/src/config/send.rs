//! How often and how fast the sends of each channel are tried.

use std::time::Duration;

use anyhow::bail;
use campanile_domain::channel::{Channel, PerChannel};
use campanile_domain::send::{OnDoubt, SendPolicy};
use campanile_engine::config::SendConfig;
use serde::{Deserialize, Serialize};

use super::values::{Span, word};

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sends {
    pub email: Send,
    pub push: Send,
    pub sms: Send,
    pub slack: Send,
}

impl Sends {
    pub fn check(&self) -> anyhow::Result<()> {
        for (channel, send) in [("push", &self.push), ("sms", &self.sms), ("slack", &self.slack)] {
            if send.defer_for.is_some() {
                bail!("send.{channel}.defer_for: only valid for e-mail; remove it");
            }
        }
        for (channel, send) in [("email", &self.email), ("push", &self.push), ("sms", &self.sms)] {
            if send.wait_for.is_some() {
                bail!("send.{channel}.wait_for: only valid for Slack; remove it");
            }
        }
        if self.slack.max_attempts.is_some() {
            bail!(
                "send.slack.max_attempts: Slack messages have one attempt; remove it (send.slack.wait_for limits how \
                 long a message waits for a rate-limited webhook)"
            );
        }
        Ok(())
    }

    pub fn engine(&self) -> PerChannel<SendConfig> {
        PerChannel::from_fn(|channel| match channel {
            Channel::Email => self.email.engine(),
            Channel::Push => self.push.engine(),
            Channel::Sms => self.sms.engine(),
            Channel::Slack | Channel::Websocket => self.slack.engine(),
        })
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Send {
    pub poll_interval: Span,
    /// Not for Slack, which makes one attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    pub backoff_base: Span,
    pub backoff_cap: Span,
    #[serde(deserialize_with = "word")]
    pub on_doubt: OnDoubt,
    /// For e-mail only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub defer_for: Option<Span>,
    /// For Slack only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_for: Option<Span>,
    pub concurrency: usize,
}

impl Send {
    fn engine(&self) -> SendConfig {
        SendConfig {
            poll_interval: self.poll_interval.0,
            policy: SendPolicy {
                max_attempts: self.max_attempts.unwrap_or(1).max(1),
                backoff_base: self.backoff_base.0,
                backoff_cap: self.backoff_cap.0,
                on_doubt: self.on_doubt,
                defer_for: self.defer_for.or(self.wait_for).map_or(Duration::ZERO, |span| span.0),
            },
            concurrency: self.concurrency.clamp(1, 1_000),
        }
    }
}
