//! Texts: Twilio, as `https://ACCOUNT_SID:AUTH_TOKEN@api.twilio.com?from=%2B15005550006`.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, bail};
use campanile_channels::{Link, Sender, Twilio, TwilioConfig, is_account_sid};
use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};

use super::{Address, is_this_machine};
use crate::config::Span;
use crate::config::backend::SecretUrls;

const KEY: &str = "channels.sms.url";
const TWILIO: &str = "use https://ACCOUNT_SID:AUTH_TOKEN@api.twilio.com?from=%2B15005550006";

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sms {
    pub url: SecretUrls,
    pub url_file: PathBuf,
    pub deadline: Span,
}

impl Sms {
    pub fn links(&self) -> anyhow::Result<Vec<Link>> {
        let deadline = self.deadline.of_an_attempt("channels.sms")?;
        let mut links = Vec::new();
        for text in self.url.or_file("channels.sms", &self.url_file)? {
            let mut address = Address::parse(KEY, &text, TWILIO)?;
            let url = &mut address.url;
            match url.scheme() {
                "https" => {}
                "http" if is_this_machine(url) => {}
                "http" => bail!(
                    "{KEY}: http:// would carry the auth token in the clear; use https://, or http:// to this machine only"
                ),
                _ => bail!("{KEY}: it begins with neither https:// nor http://; {TWILIO}"),
            }
            let account_sid = url.username().to_owned();
            if !is_account_sid(&account_sid) {
                bail!("{KEY}: the user is no account SID, which is AC and 32 hexadecimal digits; {TWILIO}");
            }
            let token = url.password().and_then(|token| percent_decode_str(token).decode_utf8().ok());
            let Some(auth_token) = token.filter(|token| !token.is_empty()).map(String::from) else {
                bail!("{KEY}: there is no auth token after the account SID; {TWILIO}");
            };
            let sender = sender(&mut address)?;
            let pace = address.rate()?;
            let base = address.base()?;
            let twilio = TwilioConfig { base, account_sid, auth_token, sender, deadline };
            let twilio = Twilio::new(twilio).context("channels.sms: the HTTP client can't be made")?;
            links.push(Link::new(Arc::new(twilio), pace));
        }
        Ok(links)
    }
}

fn sender(address: &mut Address) -> anyhow::Result<Sender> {
    let Some(from) = address.option("from")? else {
        bail!("{KEY}: there is no `from`, so that texts have no sender; {TWILIO}");
    };
    Sender::parse(&from).with_context(|| {
        format!(
            "{KEY}: `from` is neither a number (its + written as %2B), nor a short code, nor a name of up to 11 \
             letters and digits, nor the SID of a messaging service; {TWILIO}"
        )
    })
}
