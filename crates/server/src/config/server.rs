//! `[server]`: where it listens, the address that others reach it by, and the bounds of its connections.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, bail};
use reqwest::Url;
use serde::{Deserialize, Serialize};

use super::values::Span;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    pub listen: SocketAddr,
    pub public_url: String,
    pub stop_deadline: Span,
    pub max_connections: usize,
    pub header_timeout: Span,
    pub body_timeout: Span,
    pub max_header_bytes: usize,
}

impl Server {
    pub fn check(&self) -> anyhow::Result<()> {
        for (key, value, least, most) in [
            ("max_connections", self.max_connections, 1, 100_000),
            ("max_header_bytes", self.max_header_bytes, 1_024, 256 * 1_024),
        ] {
            if !(least..=most).contains(&value) {
                bail!("server.{key}: must lie between {least} and {most}, is {value}");
            }
        }
        for (key, value) in [("header_timeout", self.header_timeout), ("body_timeout", self.body_timeout)] {
            if value.0 < Duration::from_millis(100) || value.0 > Duration::from_hours(1) {
                bail!("server.{key}: must lie between 100ms and 60m");
            }
        }
        Ok(())
    }

    /// The address that others reach the server by, if one is configured.
    pub fn public_url(&self) -> anyhow::Result<Option<Url>> {
        if self.public_url.is_empty() {
            return Ok(None);
        }
        let url = Url::parse(&self.public_url).ok().filter(|url| {
            matches!(url.scheme(), "http" | "https") && url.query().is_none() && url.fragment().is_none()
        });
        url.map(Some).with_context(|| {
            format!(
                "server.public_url: `{}` is not a valid URL; use https://campanile.example.com",
                self.public_url
            )
        })
    }
}
