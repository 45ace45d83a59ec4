//! Slack: the allowed hosts of webhooks, and the default webhooks of user types.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, anyhow, bail};
use campanile_channels::Link;
use campanile_channels::slack::{AllowedHost, Slack as Provider, SlackConfig, check_webhook};
use campanile_domain::channel::Channel;
use campanile_domain::people::user_type::{UserType, Webhook};
use serde::{Deserialize, Serialize};

use crate::config::values::{Secret, Span};

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slack {
    pub allowed_hosts: String,
    pub rate: f64,
    pub deadline: Span,
    /// By user type. An environment variable uses its name in lower case.
    pub default_webhook: BTreeMap<String, Secret>,
}

impl Slack {
    pub fn links(&self) -> anyhow::Result<Vec<Link>> {
        let deadline = self.deadline.of_an_attempt("channels.slack")?;
        let per_second = self.rate;
        if !(0.001..=1_000.0).contains(&per_second) {
            bail!("channels.slack.rate: must be between 0.001 and 1000 messages per second, is {per_second}");
        }
        let allowed_hosts = self.hosts()?;
        if allowed_hosts.is_empty() {
            return Ok(Vec::new());
        }
        let slack = Provider::new(SlackConfig { allowed_hosts, deadline, per_second });
        let slack = slack.context("channels.slack: cannot create the HTTP client")?;
        Ok(vec![Link::new(Arc::new(slack), None)])
    }

    fn hosts(&self) -> anyhow::Result<Vec<AllowedHost>> {
        let mut allowed_hosts = Vec::new();
        for text in self.allowed_hosts.split_whitespace() {
            let host = AllowedHost::parse(text).with_context(|| {
                format!(
                    "channels.slack.allowed_hosts: `{text}` is not a valid host; use hooks.slack.com, \
                    or *.slack.com for all subdomains"
                )
            })?;
            allowed_hosts.push(host);
        }
        Ok(allowed_hosts)
    }

    /// Sets the default webhook of each user type. An empty one counts as none.
    pub fn set_default_webhooks(&self, user_types: &mut [UserType]) -> anyhow::Result<()> {
        let allowed_hosts = self.hosts()?;
        // A variable overrides the file. Names from variables are in lower case and sort after the others.
        for (name, webhook) in &self.default_webhook {
            let key = format!("channels.slack.default_webhook.{name}");
            let known = user_types
                .iter_mut()
                .find(|t| *name == t.name.as_str() || *name == t.name.as_str().to_lowercase());
            let Some(user_type) = known else {
                let names: Vec<&str> = user_types.iter().map(|t| t.name.as_str()).collect();
                bail!("{key}: unknown user type; known are {}", names.join(", "));
            };
            if !user_type.channels.contains(&Channel::Slack) {
                bail!(
                    "{key}: this user type does not support Slack; add SLACK to its channels in user_types"
                );
            }
            user_type.default_webhook = None;
            if !webhook.0.is_empty() {
                check_webhook(&webhook.0, &allowed_hosts).map_err(|wrong| anyhow!("{key}: {wrong}"))?;
                user_type.default_webhook = Some(Webhook::new(webhook.0.clone()));
            }
        }
        Ok(())
    }
}
