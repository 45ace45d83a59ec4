//! Slack: each recipient has a webhook of their own; here is told which hosts they may lead to.

use std::sync::Arc;

use anyhow::{Context, bail};
use campanile_channels::{AllowedHost, Link, Slack as Provider, SlackConfig};
use serde::{Deserialize, Serialize};

use crate::config::Span;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slack {
    pub allowed_hosts: String,
    pub rate: f64,
    pub deadline: Span,
}

impl Slack {
    pub fn links(&self) -> anyhow::Result<Vec<Link>> {
        let deadline = self.deadline.of_an_attempt("channels.slack")?;
        let per_second = self.rate;
        if !(0.001..=1_000.0).contains(&per_second) {
            bail!("channels.slack.rate: must lie between 0.001 and 1000 posts a second, is {per_second}");
        }
        let mut allowed_hosts = Vec::new();
        for text in self.allowed_hosts.split_whitespace() {
            let host = AllowedHost::parse(text).with_context(|| {
                format!("channels.slack.allowed_hosts: `{text}` is no host; use hooks.slack.com")
            })?;
            allowed_hosts.push(host);
        }
        if allowed_hosts.is_empty() {
            return Ok(Vec::new());
        }
        let slack = Provider::new(SlackConfig { allowed_hosts, deadline, per_second });
        let slack = slack.context("channels.slack: the HTTP client can't be made")?;
        Ok(vec![Link::new(Arc::new(slack), None)])
    }
}
