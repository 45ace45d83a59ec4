//! Messages to Slack's incoming webhooks: one message, one `POST`, best effort. Where a webhook may lead, how a message looks and
//! what an answer means are each in a file of its own; that a webhook gets an event once, however many share it, is left to the
//! engine.
//!
//! The address of a message is the webhook, which is a secret: whoever knows it may post. None of it is in an error.

mod answer;
mod blocks;
mod guard;
mod webhook;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use campanile_domain::channel::Channel;
use campanile_domain::finding::Finding;
use campanile_domain::send::Outcome;
use reqwest::Client;
use reqwest::dns::Resolve;
use tokio::time::{Instant, sleep};

use self::answer::Meaning;
use self::guard::Guard;
use crate::http::{self, Proxy};
use crate::names::SystemNames;
use crate::{Answer, Message, Provider};

pub use webhook::AllowedHost;

/// Slack takes one message a second; who is told to come back sooner waits for as long nevertheless.
const SHORTEST_WAIT: Duration = Duration::from_secs(1);

#[derive(Debug, Clone)]
pub struct SlackConfig {
    /// A webhook of another host is refused: `hooks.slack.com`, as a rule.
    pub allowed_hosts: Vec<AllowedHost>,
    /// No attempt takes longer, the waiting for a busy Slack included.
    pub deadline: Duration,
}

#[derive(Debug)]
pub struct Slack {
    config: SlackConfig,
    http: Client,
}

impl Slack {
    /// Connects to nobody yet. The process must have its cryptography in place.
    pub fn new(config: SlackConfig) -> Result<Self, reqwest::Error> {
        Self::with_names(config, Arc::new(SystemNames))
    }

    /// With names that are looked up by somebody else than the system. Their addresses are checked all the same.
    pub fn with_names(config: SlackConfig, names: Arc<dyn Resolve>) -> Result<Self, reqwest::Error> {
        // A proxy would look names up itself, and nobody would check where they lead.
        let http =
            http::builder(config.deadline / 2, Proxy::Refused).dns_resolver(Guard::new(names)).build()?;
        Ok(Slack { config, http })
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

    async fn send(&self, message: &Message<'_>) -> Answer {
        self.post(message).await
    }

    async fn examine(&self, channel: Channel) -> Finding {
        let hosts: Vec<String> = self.config.allowed_hosts.iter().map(ToString::to_string).collect();
        if hosts.is_empty() {
            return Finding::wrong(
                "channels",
                format!("{channel} is sent by slack, but webhooks of no host are allowed"),
                "name hooks.slack.com in channels.slack.allowed_hosts",
            );
        }
        Finding::ok("channels", format!("{channel} is sent by slack to webhooks of {}", hosts.join(", ")))
    }
}

impl Slack {
    /// A busy Slack is asked again for as long as what it wants to wait and a whole new try fit into the attempt: there is no
    /// other one.
    async fn post(&self, message: &Message<'_>) -> Answer {
        let url = match webhook::check(message.address, &self.config.allowed_hosts) {
            Ok(url) => url,
            Err(error) => return Outcome::Rejected { error }.into(),
        };
        let Some(body) = blocks::body(message) else {
            let error = "there is nothing to send: the template's title and body are empty".to_owned();
            return Outcome::Rejected { error }.into();
        };
        let end = Instant::now() + self.config.deadline;
        loop {
            let rest = end.saturating_duration_since(Instant::now());
            let wait = match self.http.post(url.clone()).timeout(rest).json(&body).send().await {
                Err(error) => return answer::unanswered(&error).into(),
                Ok(response) => match answer::meaning(response, message.address).await {
                    Meaning::Final(answer) => return answer,
                    Meaning::Busy(wait) => wait,
                },
            };
            let rest = end.saturating_duration_since(Instant::now());
            match wait.map(|wait| wait.max(SHORTEST_WAIT)) {
                Some(wait) if wait + self.config.deadline / 4 <= rest => sleep(wait).await,
                Some(_) | None => return answer::busy(wait).into(),
            }
        }
    }
}
