//! Which provider sends over which channel: one URL each, with the credentials in it. A channel without one is captured.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use campanile_channels::{Providers, Sender, Twilio, TwilioConfig, is_account_sid};
use campanile_domain::channel::Channel;
use percent_encoding::percent_decode_str;
use reqwest::Url;
use serde::{Deserialize, Serialize};

use super::Span;
use super::backend::SecretUrl;

const TWILIO: &str = "use https://ACCOUNT_SID:AUTH_TOKEN@api.twilio.com?from=%2B15005550006";

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Channels {
    pub sms: Sms,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sms {
    pub url: SecretUrl,
    pub url_file: PathBuf,
    pub deadline: Span,
}

impl Channels {
    pub fn check(&self) -> anyhow::Result<()> {
        self.sms.choice().map(drop)
    }

    /// The provider of each channel, which connects to nobody yet.
    pub fn providers(&self) -> anyhow::Result<Providers> {
        let captured = Providers::capture();
        Ok(match self.sms.choice()? {
            None => captured,
            Some(twilio) => {
                let twilio = Twilio::new(twilio).context("channels.sms: the HTTP client can't be made")?;
                captured.with(Channel::Sms, Arc::new(twilio))
            }
        })
    }
}

impl Sms {
    /// No error shows any of the URL: the token may stand anywhere in one that is wrong.
    fn choice(&self) -> anyhow::Result<Option<TwilioConfig>> {
        let deadline = self.deadline.0;
        if deadline < Duration::from_millis(100) || deadline > Duration::from_mins(10) {
            bail!("channels.sms.deadline: must lie between 100ms and 10m");
        }
        let text = self.url.or_file("channels.sms", &self.url_file)?;
        if text.is_empty() {
            return Ok(None);
        }
        let mut base = Url::parse(&text)
            .map_err(|error| anyhow::anyhow!("channels.sms.url: no URL ({error}); {TWILIO}"))?;
        match base.scheme() {
            "https" => {}
            "http" if is_this_machine(&base) => {}
            "http" => bail!(
                "channels.sms.url: http:// would carry the auth token in the clear; use https://, or http:// to this machine only"
            ),
            _ => bail!("channels.sms.url: it begins with neither https:// nor http://; {TWILIO}"),
        }
        let account_sid = base.username().to_owned();
        if !is_account_sid(&account_sid) {
            bail!(
                "channels.sms.url: the user is no account SID, which is AC and 32 hexadecimal digits; {TWILIO}"
            );
        }
        let token = base.password().and_then(|token| percent_decode_str(token).decode_utf8().ok());
        let Some(auth_token) = token.filter(|token| !token.is_empty()).map(String::from) else {
            bail!("channels.sms.url: there is no auth token after the account SID; {TWILIO}");
        };
        let sender = sender(&base)?;
        base.set_query(None);
        base.set_fragment(None);
        // A URL with a host takes both.
        let _ = (base.set_username(""), base.set_password(None));
        Ok(Some(TwilioConfig {
            base,
            account_sid,
            auth_token,
            sender,
            status_callback: None,
            max_segments: 10,
            deadline,
        }))
    }
}

/// The only option of the URL.
fn sender(url: &Url) -> anyhow::Result<Sender> {
    let mut from = None;
    for (name, value) in url.query_pairs() {
        if name != "from" || from.is_some() {
            bail!("channels.sms.url: the only option is `from`, and it is given once; {TWILIO}");
        }
        from = Some(value);
    }
    let Some(from) = from else {
        bail!("channels.sms.url: there is no `from`, so that texts have no sender; {TWILIO}");
    };
    Sender::parse(&from).with_context(|| {
        format!(
            "channels.sms.url: `from` is neither a number (its + written as %2B), nor a short code, nor a name of up to 11 \
             letters and digits, nor the SID of a messaging service; {TWILIO}"
        )
    })
}

fn is_this_machine(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}
