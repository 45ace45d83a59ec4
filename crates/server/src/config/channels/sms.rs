//! SMS by Twilio: `https://ACCOUNT_SID:AUTH_TOKEN@api.twilio.com?from=%2B15005550006`.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, bail};
use campanile_channels::sms::{Sender, Twilio, TwilioConfig, is_account_sid};
use campanile_channels::{Link, RateLimit};
use percent_encoding::percent_decode_str;
use reqwest::Url;
use serde::{Deserialize, Serialize};

use super::{Address, is_this_machine};
use crate::config::backend::SecretUrls;
use crate::config::values::Span;

const KEY: &str = "channels.sms.url";
const TWILIO: &str = "use https://ACCOUNT_SID:AUTH_TOKEN@api.twilio.com?from=%2B15005550006";

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sms {
    pub url: SecretUrls,
    pub url_file: PathBuf,
    pub max_segments: usize,
    pub deadline: Span,
}

impl Sms {
    pub fn links(&self, public_url: Option<&Url>) -> anyhow::Result<Vec<Link>> {
        let deadline = self.deadline.of_an_attempt("channels.sms")?;
        let max_segments = self.max_segments;
        if !(1..=10).contains(&max_segments) {
            bail!("channels.sms.max_segments: must lie between 1 and 10, is {max_segments}");
        }
        let status_callback = public_url.map(callback);
        let mut links = Vec::new();
        for Account { base, sid, auth_token, sender, rate_limit } in self.accounts()? {
            let status_callback = status_callback.clone();
            let config = TwilioConfig {
                base,
                account_sid: sid,
                auth_token,
                sender,
                status_callback,
                max_segments,
                deadline,
            };
            let twilio = Twilio::new(config).context("channels.sms: cannot create the HTTP client")?;
            links.push(Link::new(Arc::new(twilio), rate_limit));
        }
        Ok(links)
    }

    /// The tokens that may sign Twilio's callbacks.
    pub fn auth_tokens(&self) -> anyhow::Result<Vec<String>> {
        Ok(self.accounts()?.into_iter().map(|account| account.auth_token).collect())
    }

    fn accounts(&self) -> anyhow::Result<Vec<Account>> {
        let urls = self.url.or_file("channels.sms", &self.url_file)?;
        urls.iter().map(|url| account(url)).collect()
    }
}

/// The URL for Twilio's delivery callbacks.
pub fn callback(public_url: &Url) -> Url {
    let mut url = public_url.clone();
    url.set_path(&format!("{}/v1/callbacks/twilio", public_url.path().trim_end_matches('/')));
    url
}

struct Account {
    base: Url,
    sid: String,
    auth_token: String,
    sender: Sender,
    rate_limit: Option<RateLimit>,
}

fn account(text: &str) -> anyhow::Result<Account> {
    let mut address = Address::parse(KEY, text, TWILIO)?;
    let url = &address.url;
    match url.scheme() {
        "https" => {}
        "http" if is_this_machine(url) => {}
        "http" => bail!(
            "{KEY}: http:// would send the auth token unencrypted; use https://, or http:// to localhost"
        ),
        _ => bail!("{KEY}: must start with https:// or http://; {TWILIO}"),
    }
    let sid = url.username().to_owned();
    if !is_account_sid(&sid) {
        bail!("{KEY}: the user is not an account SID (AC and 32 hexadecimal digits); {TWILIO}");
    }
    let token = url.password().and_then(|token| percent_decode_str(token).decode_utf8().ok());
    let Some(auth_token) = token.filter(|token| !token.is_empty()).map(String::from) else {
        bail!("{KEY}: the auth token is missing; {TWILIO}");
    };
    let sender = sender(&mut address)?;
    let rate_limit = address.rate()?;
    Ok(Account { base: address.base()?, sid, auth_token, sender, rate_limit })
}

fn sender(address: &mut Address) -> anyhow::Result<Sender> {
    let Some(from) = address.option("from")? else {
        bail!("{KEY}: the sender `from` is missing; {TWILIO}");
    };
    Sender::parse(&from).with_context(|| {
        format!(
            "{KEY}: `from` is neither a number with its country code (its + written as %2B), nor a short code of 3 \
             to 8 digits, nor a name of up to 11 letters and digits, nor the SID of a messaging service; {TWILIO}"
        )
    })
}
