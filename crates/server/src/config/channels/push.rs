//! Pushes by FCM, with the key file of a Firebase service account.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use campanile_channels::Link;
use campanile_channels::push::{Alert, Fcm, FcmConfig, ServiceAccount};
use serde::{Deserialize, Serialize};

use super::{Address, is_this_machine};
use crate::config::backend::given;
use crate::config::values::Span;

const KEY: &str = "channels.push.url";
const FCM: &str = "use https://fcm.googleapis.com";
/// FCM's maximum.
const MAX_TTL: Duration = Duration::from_hours(28 * 24);
const MAX_NAME_BYTES: usize = 100;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Push {
    pub key_file: PathBuf,
    pub url: String,
    pub deadline: Span,
    pub ttl: Span,
    pub sound: String,
    pub android_channel: String,
}

impl Push {
    pub fn links(&self) -> anyhow::Result<Vec<Link>> {
        let deadline = self.deadline.of_an_attempt("channels.push")?;
        let Span(ttl) = self.ttl;
        if !(Duration::from_mins(1)..=MAX_TTL).contains(&ttl) {
            bail!("channels.push.ttl: must be between 1m and 672h (four weeks, the maximum of FCM)");
        }
        let alert = self.alert()?;
        let mut address = Address::parse(KEY, &self.url, FCM)?;
        match address.url.scheme() {
            "https" => {}
            "http" if is_this_machine(&address.url) => {}
            _ => bail!("{KEY}: it must begin with https://, or with http:// to this machine only; {FCM}"),
        }
        let rate_limit = address.rate()?;
        let base = address.base()?;
        let Some(file) = given(&self.key_file) else { return Ok(Vec::new()) };
        let json = std::fs::read_to_string(&file)
            .with_context(|| format!("cannot read channels.push.key_file {}", file.display()))?;
        let account = ServiceAccount::parse(&json)
            .map_err(|error| anyhow!("channels.push.key_file {}: {error}", file.display()))?;
        let fcm = Fcm::new(FcmConfig { base, account, deadline, ttl, alert });
        let fcm = fcm.context("channels.push: cannot create the HTTP client")?;
        Ok(vec![Link::new(Arc::new(fcm), rate_limit)])
    }

    fn alert(&self) -> anyhow::Result<Alert> {
        for (key, name) in [("sound", &self.sound), ("android_channel", &self.android_channel)] {
            if name.len() > MAX_NAME_BYTES || name.chars().any(char::is_control) {
                bail!("channels.push.{key}: must be one line of at most {MAX_NAME_BYTES} bytes");
            }
        }
        Ok(Alert { sound: self.sound.clone(), android_channel: self.android_channel.clone() })
    }
}
