//! Pushes: FCM, by the key file of a Firebase service account.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, anyhow, bail};
use campanile_channels::{Fcm, FcmConfig, Link, ServiceAccount};
use serde::{Deserialize, Serialize};

use super::{Address, is_this_machine};
use crate::config::Span;
use crate::config::backend::given;

const KEY: &str = "channels.push.url";
const FCM: &str = "use https://fcm.googleapis.com";

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Push {
    pub key_file: PathBuf,
    pub url: String,
    pub deadline: Span,
}

impl Push {
    pub fn links(&self) -> anyhow::Result<Vec<Link>> {
        let deadline = self.deadline.of_an_attempt("channels.push")?;
        let mut address = Address::parse(KEY, &self.url, FCM)?;
        match address.url.scheme() {
            "https" => {}
            "http" if is_this_machine(&address.url) => {}
            _ => bail!("{KEY}: it must begin with https://, or with http:// to this machine only; {FCM}"),
        }
        let pace = address.rate()?;
        let base = address.base()?;
        let Some(file) = given(&self.key_file) else { return Ok(Vec::new()) };
        let json = std::fs::read_to_string(&file)
            .with_context(|| format!("channels.push.key_file {} can't be read", file.display()))?;
        let account = ServiceAccount::parse(&json)
            .map_err(|error| anyhow!("channels.push.key_file {}: {error}", file.display()))?;
        let fcm = Fcm::new(FcmConfig { base, account, deadline });
        let fcm = fcm.context("channels.push: the HTTP client can't be made")?;
        Ok(vec![Link::new(Arc::new(fcm), pace)])
    }
}
