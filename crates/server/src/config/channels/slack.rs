//! Slack: each recipient has a webhook of their own; here is told which hosts they may lead to.

use std::sync::Arc;

use anyhow::Context;
use campanile_channels::{AllowedHost, Link, Slack as Provider, SlackConfig};
use serde::{Deserialize, Serialize};

use crate::config::Span;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slack {
    pub allowed_hosts: String,
    pub deadline: Span,
}

impl Slack {
    pub fn links(&self) -> anyhow::Result<Vec<Link>> {
        let deadline = self.deadline.of_an_attempt("channels.slack")?;
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
        let slack = Provider::new(SlackConfig { allowed_hosts, deadline });
        let slack = slack.context("channels.slack: the HTTP client can't be made")?;
        Ok(vec![Link::new(Arc::new(slack), None)])
    }
}
