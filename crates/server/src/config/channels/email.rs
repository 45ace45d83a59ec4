//! E-mail by SMTP: `smtp://user:password@host:587?tls=required`, or `smtps://` with TLS from the first byte.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use campanile_channels::email::{
    Credentials, DomainLimits, ExtraHeader, NamedMailbox, Security, Smtp, SmtpConfig,
};
use campanile_channels::{Link, RateLimit};
use campanile_domain::people::address::Mailbox;
use percent_encoding::percent_decode_str;
use reqwest::Url;
use serde::{Deserialize, Serialize};

use super::{Address, is_this_machine};
use crate::config::backend::{SecretUrls, given};
use crate::config::values::Span;

const KEY: &str = "channels.email.url";
const SMTP: &str = "use smtp://user:password@host:587?tls=required, or smtps://user:password@host";

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Email {
    pub url: SecretUrls,
    pub url_file: PathBuf,
    pub from: String,
    pub envelope_from: String,
    pub reply_to: String,
    pub ca_file: PathBuf,
    pub deadline: Span,
    pub answer_timeout: Span,
    pub headers: BTreeMap<String, String>,
}

impl Email {
    pub fn links(&self) -> anyhow::Result<Vec<Link>> {
        let mut links = Vec::new();
        for (config, rate_limit) in self.servers()? {
            let smtp = Smtp::new(config, given(&self.ca_file).as_deref());
            let smtp = smtp.map_err(|error| anyhow!("channels.email.ca_file: {error}"))?;
            links.push(Link::new(Arc::new(smtp), rate_limit));
        }
        Ok(links)
    }

    /// The sender that is derived from the URL, if none is configured.
    pub fn assumed_sender(&self) -> Option<NamedMailbox> {
        if !self.from.trim().is_empty() {
            return None;
        }
        let first = self.urls().ok()?.into_iter().next()?;
        Some(assumed_sender(&Address::parse(KEY, &first, SMTP).ok()?.url))
    }

    /// The configured servers. All send from the same address, because it is part of the `Message-ID`, by which a
    /// duplicate is recognised.
    fn servers(&self) -> anyhow::Result<Vec<(SmtpConfig, Option<RateLimit>)>> {
        let deadline = self.deadline.of_an_attempt("channels.email")?;
        let mut from = named_mailbox("channels.email.from", &self.from)?;
        self.envelope_from()?;
        self.headers()?;
        let mut servers = Vec::new();
        for text in self.urls()? {
            let address = Address::parse(KEY, &text, SMTP)?;
            let from = from.get_or_insert_with(|| assumed_sender(&address.url)).clone();
            servers.push(self.smtp(address, from, deadline)?);
        }
        Ok(servers)
    }

    fn envelope_from(&self) -> anyhow::Result<Option<Mailbox>> {
        let key = "channels.email.envelope_from";
        let Some(NamedMailbox { name, mailbox }) = named_mailbox(key, &self.envelope_from)? else {
            return Ok(None);
        };
        if name.is_some() {
            bail!("{key}: must be an address without a display name, such as bounces@example.com");
        }
        Ok(Some(mailbox))
    }

    fn headers(&self) -> anyhow::Result<Vec<ExtraHeader>> {
        let key = "channels.email.headers";
        if self.headers.len() > MAX_HEADERS {
            bail!("{key}: {} headers are configured; the maximum is {MAX_HEADERS}", self.headers.len());
        }
        let answers = self.headers.keys().any(|name| name.eq_ignore_ascii_case("reply-to"));
        if answers && !self.reply_to.trim().is_empty() {
            bail!("{key}: Reply-To is set here and in channels.email.reply_to; remove one");
        }
        let header = |(name, value): (&String, &String)| {
            ExtraHeader::parse(name, value)
                .map_err(|error| anyhow!("{key}: `{}`: {error}", name.escape_debug()))
        };
        self.headers.iter().map(header).collect()
    }

    fn urls(&self) -> anyhow::Result<Vec<String>> {
        self.url.or_file("channels.email", &self.url_file)
    }

    fn smtp(
        &self,
        mut address: Address,
        from: NamedMailbox,
        deadline: Duration,
    ) -> anyhow::Result<(SmtpConfig, Option<RateLimit>)> {
        let security = security(&mut address)?;
        let host = address.url.host_str().filter(|host| !host.is_empty());
        let host = host.with_context(|| format!("{KEY}: the host is missing; {SMTP}"))?.to_owned();
        if !["", "/"].contains(&address.url.path()) {
            bail!(
                "{KEY}: unexpected / after the host; encode a / in the password as %2F, or remove \
                 it; {SMTP}"
            );
        }
        let port = address.url.port().unwrap_or(if security == Security::Implicit { 465 } else { 587 });
        let credentials = credentials(&address, security)?;
        let hello = address.option("hello")?.unwrap_or_else(|| from.mailbox.domain().to_owned());
        if hello.is_empty() || !hello.bytes().all(|byte| byte.is_ascii_graphic()) {
            bail!("{KEY}: `hello` must be a host name, such as mail.example.com");
        }
        let concurrency = address.number("domain_connections", 1, 1_000)?;
        let domains = DomainLimits { concurrency, per_second: address.per_second("domain_rate")? };
        let connections = address.number("connections", 1, 1_000)?.unwrap_or(50);
        let messages = address.number("messages_per_connection", 1, 1_000_000)?.unwrap_or(100);
        let config = SmtpConfig {
            host,
            port,
            security,
            credentials,
            hello,
            from,
            envelope_from: self.envelope_from()?,
            reply_to: named_mailbox("channels.email.reply_to", &self.reply_to)?,
            headers: self.headers()?,
            connections,
            messages_per_connection: u32::try_from(messages).unwrap_or(u32::MAX),
            max_idle: MAX_IDLE,
            domains,
            deadline,
            answer_timeout: self.answer_timeout.up_to(60, "channels.email.answer_timeout")?,
        };
        let rate_limit = address.rate()?;
        address.nothing_else()?;
        Ok((config, rate_limit))
    }
}

/// The user name if it is an address, as with most mailboxes; else `campanile` at the mail server.
fn assumed_sender(url: &Url) -> NamedMailbox {
    let user = percent_decode_str(url.username()).decode_utf8().ok();
    let at_host = || format!("campanile@{}", url.host_str()?).parse().ok();
    let mailbox: Option<Mailbox> = user.and_then(|user| user.parse().ok());
    let mailbox = mailbox.filter(|mailbox| !mailbox.needs_utf8()).or_else(at_host);
    let mailbox = mailbox.unwrap_or_else(|| "campanile@localhost".parse().expect("an address"));
    NamedMailbox { name: None, mailbox }
}

const MAX_HEADERS: usize = 50;

/// Many servers close connections that are idle for a minute or more.
const MAX_IDLE: Duration = Duration::from_secs(30);

fn security(address: &mut Address) -> anyhow::Result<Security> {
    let here = is_this_machine(&address.url);
    let tls = address.option("tls")?;
    match (address.url.scheme(), tls.as_deref()) {
        ("smtps", None) => Ok(Security::Implicit),
        ("smtps", Some(_)) => bail!("{KEY}: smtps:// always uses TLS; remove the option `tls`"),
        ("smtp", Some("required")) => Ok(Security::Required),
        // Nobody else can read traffic on the loopback interface.
        ("smtp", None) => Ok(if here { Security::IfOffered } else { Security::Required }),
        ("smtp", Some("if-offered")) => Ok(Security::IfOffered),
        ("smtp", Some("none")) => Ok(Security::None),
        ("smtp", Some(_)) => bail!("{KEY}: `tls` is `required`, `if-offered` or `none`; {SMTP}"),
        _ => bail!("{KEY}: must start with smtp:// or smtps://; {SMTP}"),
    }
}

fn credentials(address: &Address, security: Security) -> anyhow::Result<Option<Credentials>> {
    let url = &address.url;
    if url.username().is_empty() {
        return Ok(None);
    }
    let decoded = |text: &str| percent_decode_str(text).decode_utf8().map(String::from);
    let (Ok(user), Some(Ok(password))) = (decoded(url.username()), url.password().map(decoded)) else {
        bail!("{KEY}: the password is missing; {SMTP}");
    };
    if !matches!(security, Security::Implicit | Security::Required) && !is_this_machine(url) {
        bail!("{KEY}: the password would be sent unencrypted; use tls=required");
    }
    Ok(Some(Credentials { user, password }))
}

fn named_mailbox(key: &str, text: &str) -> anyhow::Result<Option<NamedMailbox>> {
    if text.trim().is_empty() {
        return Ok(None);
    }
    let parsed: NamedMailbox = text.parse().map_err(|error| {
        anyhow!("{key}: `{text}` is not a valid address: {error}; use `Name <name@example.com>`")
    })?;
    if parsed.mailbox.needs_utf8() {
        bail!(
            "{key}: `{text}` has non-ASCII characters before the @, which many mail servers reject; use an \
             ASCII address (the display name may contain any characters)"
        );
    }
    Ok(Some(parsed))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn senders(url: &str, from: &str) -> Vec<String> {
        let email: Email = serde_json::from_value(serde_json::json!({
            "url": url, "url_file": "", "from": from, "reply_to": "", "ca_file": "", "deadline": "30s",
            "answer_timeout": "5m", "envelope_from": "", "headers": {},
        }))
        .unwrap();
        let servers = email.servers().unwrap();
        servers.into_iter().map(|(config, _)| config.from.mailbox.to_string()).collect()
    }

    #[test]
    fn all_servers_send_from_the_same_address() {
        let two = "smtps://anna%40example.com:p@one.example smtps://bruno%40example.com:p@two.example";
        assert_eq!(senders(two, ""), ["anna@example.com", "anna@example.com"]);
        assert_eq!(senders(two, "Sala <sala@example.com>"), ["sala@example.com", "sala@example.com"]);
        let hosts = "smtps://one.example smtps://two.example?hello=here";
        assert_eq!(senders(hosts, ""), ["campanile@one.example", "campanile@one.example"]);
    }

    #[test]
    fn a_user_whom_few_servers_would_take_is_not_assumed_to_be_the_sender() {
        assert_eq!(senders("smtps://zo%C3%AB%40example.com:p@one.example", ""), ["campanile@one.example"]);
    }
}
