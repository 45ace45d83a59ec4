//! Texts over Twilio's REST API: one message, one `POST`. How a number is read, how long a text may be, what an answer
//! means and what Twilio tells later are each in a file of its own.
//!
//! The text is the template's body, because templates for SMS are written to stand alone; the title is sent only where
//! there is no body, as without any template.
//!
//! Twilio knows no idempotency key, so doubt is told as doubt: whoever sends it again may tell somebody twice.

mod answer;
mod callback;
mod segments;

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use campanile_domain::channel::Channel;
use campanile_domain::finding::Finding;
use campanile_domain::people::address::{e164, is_e164};
use campanile_domain::send::Outcome;
use reqwest::{Client, StatusCode, Url};

use crate::http::{self, Proxy, describe_no_response};
use crate::text::without_controls;
use crate::{Answer, Message, Provider};

pub use callback::{FINAL, Receipt, SEND, callback_url, receipt, verify_callback};
pub use segments::{Encoding, Segments, segments};

pub struct TwilioConfig {
    /// Where the API is, without credentials: `https://api.twilio.com`.
    pub base: Url,
    pub account_sid: String,
    pub auth_token: String,
    pub sender: Sender,
    /// Where Twilio tells what became of a text, if it is to; the send is appended. Twilio must be able to reach it.
    pub status_callback: Option<Url>,
    /// A text that would need more is cut. There is one at least, and Twilio takes no more than 1600 characters anyway.
    pub max_segments: usize,
    /// No attempt takes longer.
    pub deadline: Duration,
}

impl fmt::Debug for TwilioConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TwilioConfig")
            .field("base", &self.base.as_str())
            .field("account_sid", &self.account_sid)
            .field("sender", &self.sender)
            .field("status_callback", &self.status_callback.as_ref().map(Url::as_str))
            .field("max_segments", &self.max_segments)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

/// Whom a text is from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sender {
    /// A number, a short code, or a name where the country allows it.
    From(String),
    /// A messaging service, which picks one of its senders.
    Service(String),
}

impl Sender {
    pub fn parse(text: &str) -> Option<Self> {
        // No name is that long, so nobody called MG... is mistaken for a service.
        if is_sid("MG", text) {
            return Some(Sender::Service(text.to_owned()));
        }
        let is_sender = is_short_code(text) || is_name(text) || is_e164(text);
        is_sender.then(|| Sender::From(text.to_owned()))
    }

    fn field(&self) -> (&'static str, &str) {
        match self {
            Sender::From(from) => ("From", from),
            Sender::Service(sid) => ("MessagingServiceSid", sid),
        }
    }
}

fn is_short_code(text: &str) -> bool {
    (3..=8).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Without a letter it would be a number that lacks its plus sign.
fn is_name(text: &str) -> bool {
    text.len() <= 11
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b' ')
        && text.bytes().any(|byte| byte.is_ascii_alphabetic())
        && text.trim() == text
}

pub fn is_account_sid(text: &str) -> bool {
    is_sid("AC", text)
}

fn is_sid(prefix: &str, text: &str) -> bool {
    text.strip_prefix(prefix)
        .is_some_and(|rest| rest.len() == 32 && rest.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

fn is_message_sid(sid: &str) -> bool {
    is_sid("SM", sid) || is_sid("MM", sid)
}

#[derive(Debug)]
pub struct Twilio {
    config: TwilioConfig,
    messages: Url,
    account: Url,
    http: Client,
}

impl Twilio {
    /// Connects to nobody yet. The process must have its cryptography in place.
    pub fn new(config: TwilioConfig) -> Result<Self, reqwest::Error> {
        let base = config.base.as_str().trim_end_matches('/');
        let account = format!("{base}/2010-04-01/Accounts/{}", config.account_sid);
        let [messages, account] = [format!("{account}/Messages.json"), format!("{account}.json")]
            .map(|url| Url::parse(&url).expect("what is appended to a URL is plain ASCII"));
        let proxy = if config.base.scheme() == "http" { Proxy::Refused } else { Proxy::Allowed };
        let http = http::client(config.deadline, config.deadline / 2, proxy)?;
        Ok(Twilio { config, messages, account, http })
    }
}

#[async_trait]
impl Provider for Twilio {
    fn name(&self) -> &'static str {
        "twilio"
    }

    fn deadline(&self) -> Duration {
        self.config.deadline
    }

    async fn send(&self, message: &Message<'_>) -> Answer {
        self.text(message).await
    }

    async fn examine(&self, channel: Channel) -> Finding {
        let (place, account) = (self.config.base.authority(), &self.config.account_sid);
        let request = self.http.get(self.account.clone());
        let asked = request.basic_auth(account, Some(&self.config.auth_token)).send().await;
        let is_sent = format!("{channel} is sent by twilio");
        match asked.map(|response| response.status()) {
            Ok(StatusCode::OK) => Finding::ok(SUBJECT, format!("{is_sent}: {place} knows account {account}")),
            Ok(StatusCode::UNAUTHORIZED) => Finding::wrong(
                SUBJECT,
                format!("{is_sent}, but {place} rejects the credentials of account {account}"),
                "correct the account SID and the auth token in channels.sms.url",
            ),
            Ok(status) => {
                Finding::note(SUBJECT, format!("{is_sent}: {place} returned {status} for account {account}"))
            }
            Err(error) => Finding::wrong(
                SUBJECT,
                format!("{is_sent}, but {place} {}", describe_no_response(&error)),
                "texts are retried meanwhile; check the host in channels.sms.url and that it is reachable from here",
            ),
        }
    }
}

impl Twilio {
    async fn text(&self, message: &Message<'_>) -> Answer {
        let to = match e164(message.address) {
            Ok(to) => to,
            Err(reason) => return rejected(&format!("the phone number can't be used: {reason}")),
        };
        let [title, body] = [message.title, message.body].map(without_controls);
        let text = if body.trim().is_empty() { title } else { body };
        if text.trim().is_empty() {
            return rejected("nothing to send: the template's title and body are empty");
        }
        let text = segments::cut(&text, self.config.max_segments);
        let callback = self.config.status_callback.as_ref().map(|base| callback_url(base, message.key));
        let mut form = vec![("To", to.as_str()), self.config.sender.field(), ("Body", &*text)];
        form.extend(callback.as_ref().map(|url| ("StatusCallback", url.as_str())));
        let request = self
            .http
            .post(self.messages.clone())
            .basic_auth(&self.config.account_sid, Some(&self.config.auth_token))
            .form(&form);
        match request.send().await {
            Ok(response) => answer::meaning(response, message.address).await,
            Err(error) => http::no_response("Twilio", &error),
        }
    }
}

fn rejected(error: &str) -> Answer {
    Outcome::Rejected { error: error.to_owned() }.into()
}

const SUBJECT: &str = "channels";
