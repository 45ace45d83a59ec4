//! `[server]`: where it listens, the address that others reach it by, TLS, and the bounds of connections and requests.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use axum::http::HeaderValue;
use reqwest::Url;
use serde::{Deserialize, Serialize};

use super::backend::given;
use super::values::Span;
use crate::http::TrustedProxies;

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
    /// Networks, separated by white space.
    pub trusted_proxies: String,
    /// Origins of web pages, separated by white space.
    pub cors_origins: String,
    pub tls: Tls,
    pub rate_limits: RateLimits,
}

/// `[server.tls]`: the certificate chain and its private key, both or none.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    pub cert: PathBuf,
    pub key: PathBuf,
}

/// `[server.rate_limits]`: requests a minute; 0 means no limit.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateLimits {
    pub per_key: u32,
    pub per_user: u32,
    pub per_address: u32,
    pub wrong_keys: u32,
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
        self.trusted_proxies()?;
        self.cors_origins()?;
        self.tls().map(drop)
    }

    pub fn trusted_proxies(&self) -> anyhow::Result<TrustedProxies> {
        let network = |text: &str| {
            let network =
                text.parse().ok().or_else(|| text.parse().ok().map(|address: IpAddr| address.into()));
            network.with_context(|| {
                format!(
                    "server.trusted_proxies: `{text}` is neither an address nor a network such as 10.0.0.0/8"
                )
            })
        };
        Ok(TrustedProxies(self.trusted_proxies.split_whitespace().map(network).collect::<Result<_, _>>()?))
    }

    /// The origins whose pages may call the API. `*` means every origin.
    pub fn cors_origins(&self) -> anyhow::Result<Vec<HeaderValue>> {
        if self.cors_origins.trim() == "*" {
            return Ok(vec![HeaderValue::from_static("*")]);
        }
        let origin = |text: &str| {
            let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
            let expected = url.map(|url| url.origin().ascii_serialization());
            let remedy = match &expected {
                _ if text.contains('*') => "list each origin, or use `*` alone".to_owned(),
                _ if text.contains(',') => "separate origins by blanks".to_owned(),
                Some(expected) if expected == text => return Ok(HeaderValue::from_str(text)?),
                Some(expected) => format!("use {expected}"),
                None => "use https://app.example.com".to_owned(),
            };
            bail!("server.cors_origins: `{text}` is not an origin; {remedy}")
        };
        self.cors_origins.split_whitespace().map(origin).collect()
    }

    /// The address that it listens on, as a URL.
    pub fn url_of(&self, address: SocketAddr) -> String {
        let scheme = if given(&self.tls.cert).is_some() { "https" } else { "http" };
        format!("{scheme}://{address}")
    }

    /// The certificate and the key, if TLS is configured.
    pub fn tls(&self) -> anyhow::Result<Option<&Tls>> {
        match (given(&self.tls.cert), given(&self.tls.key)) {
            (None, None) => Ok(None),
            (Some(_), Some(_)) => Ok(Some(&self.tls)),
            (Some(_), None) => bail!("server.tls.key: is required with server.tls.cert"),
            (None, Some(_)) => bail!("server.tls.cert: is required with server.tls.key"),
        }
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
