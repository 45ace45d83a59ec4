//! Slack's incoming webhooks: one message, one `POST`, best effort. Separate files decide where a webhook may lead,
//! when it may be posted to, how a message looks, and what an answer means. The engine ensures that a shared webhook
//! gets an event once.
//!
//! The address of a message is the webhook. It is a secret, because whoever knows it can post. No error contains any
//! part of it.

mod answer;
mod blocks;
mod guard;
mod rate_limit;
mod webhook;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use campanile_domain::channel::Channel;
use campanile_domain::finding::Finding;
use campanile_domain::send::Outcome;
use reqwest::Client;
use reqwest::dns::Resolve;
use tokio::time::Instant;

use self::answer::Meaning;
use self::guard::Guard;
use self::rate_limit::WebhookRateLimits;
use crate::dns::SystemResolver;
use crate::http::{self, Proxy};
use crate::{Answer, Message, Provider};

pub use webhook::{AllowedHost, check_webhook};

/// How long to wait for a webhook that refuses posts without saying how long.
const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(10);

#[derive(Debug, Clone)]
pub struct SlackConfig {
    /// Webhooks of other hosts are refused. Usually `hooks.slack.com`.
    pub allowed_hosts: Vec<AllowedHost>,
    pub deadline: Duration,
    /// Posts a second to one webhook from this instance; must be positive.
    pub per_second: f64,
}

#[derive(Debug)]
pub struct Slack {
    config: SlackConfig,
    rate_limits: WebhookRateLimits,
    http: Client,
}

impl Slack {
    /// Does not connect. The process must have installed its crypto provider.
    pub fn new(config: SlackConfig) -> Result<Self, reqwest::Error> {
        Self::with_resolver(config, Arc::new(SystemResolver))
    }

    /// Uses another resolver than the system's. The resolved addresses are still checked.
    pub fn with_resolver(config: SlackConfig, resolver: Arc<dyn Resolve>) -> Result<Self, reqwest::Error> {
        // A proxy would resolve names itself, so the addresses could not be checked.
        let http =
            http::builder(config.deadline / 2, Proxy::Refused).dns_resolver(Guard::new(resolver)).build()?;
        let rate_limits = WebhookRateLimits::new(config.per_second);
        Ok(Slack { config, rate_limits, http })
    }
}

#[async_trait]
impl Provider for Slack {
    fn name(&self) -> &'static str {
        "slack"
    }

    fn deadline(&self) -> Duration {
        self.config.deadline
    }

    fn host(&self, message: &Message<'_>) -> Option<String> {
        let url = webhook::check(message.address, &self.config.allowed_hosts).ok()?;
        Some(url.authority().to_owned())
    }

    async fn send(&self, message: &Message<'_>) -> Answer {
        self.post(message).await
    }

    async fn examine(&self, channel: Channel) -> Finding {
        let hosts: Vec<String> = self.config.allowed_hosts.iter().map(ToString::to_string).collect();
        if hosts.is_empty() {
            return Finding::wrong(
                "channels",
                format!("{channel} is sent by slack, but channels.slack.allowed_hosts is empty"),
                "add hooks.slack.com to channels.slack.allowed_hosts",
            );
        }
        Finding::ok("channels", format!("{channel} is sent by slack to webhooks of {}", hosts.join(", ")))
    }
}

impl Slack {
    async fn post(&self, message: &Message<'_>) -> Answer {
        let url = match webhook::check(message.address, &self.config.allowed_hosts) {
            Ok(url) => url,
            Err(error) => return Outcome::Rejected { error }.into(),
        };
        let Some(body) = blocks::body(message) else {
            let error = "nothing to send: the template's title and body are empty".to_owned();
            return Outcome::Rejected { error }.into();
        };
        let (webhook, key) = (message.address, message.key);
        if let Err(after) = self.rate_limits.acquire(webhook, key, Instant::now()) {
            let error = "rate limited: earlier messages to the same Slack webhook come first".to_owned();
            return Outcome::RateLimited { after, error }.into();
        }
        let post = self.http.post(url).timeout(self.config.deadline).json(&body);
        let response = match post.send().await {
            Ok(response) => response,
            Err(error) => return answer::no_response(&error),
        };
        match answer::meaning(response, webhook).await {
            Meaning::Final(answer) => answer,
            Meaning::Busy(wait) => {
                let after = self.rate_limits.refused(
                    webhook,
                    key,
                    wait.unwrap_or(DEFAULT_RETRY_AFTER),
                    Instant::now(),
                );
                Outcome::RateLimited { after, error: "Slack rate limit exceeded (429)".to_owned() }.into()
            }
        }
    }
}
