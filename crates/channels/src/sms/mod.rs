//! SMS over Twilio's REST API: one message, one `POST`. Separate files handle the number, the length of a text, the
//! answer, and the callbacks.
//!
//! The text is the template's body, because SMS templates are complete texts. The title is sent only without a body, as
//! happens without a template.
//!
//! Twilio has no idempotency key, so a doubt is reported as such: sending again may cause a duplicate.

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

pub use callback::{FINAL, Receipt, SEND, callback_url, receipt, send_key, verify_callback};
pub use segments::{Encoding, Segments, segments};

pub struct TwilioConfig {
    /// The base URL of the API without credentials: `https://api.twilio.com`.
    pub base: Url,
    pub account_sid: String,
    pub auth_token: String,
    pub sender: Sender,
    /// The URL for delivery callbacks, if wanted; the key of the send is appended. Twilio must be able to reach it.
    pub status_callback: Option<Url>,
    /// Longer texts are cut. At least one segment; Twilio accepts at most 1,600 characters anyway.
    pub max_segments: usize,
    /// The longest time of an attempt.
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

/// The sender of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sender {
    /// A number, a short code, or a name in countries that allow it.
    From(String),
    /// A messaging service, which chooses one of its senders.
    Service(String),
}

impl Sender {
    pub fn parse(text: &str) -> Option<Self> {
        // Names are shorter than that, so a name that begins with MG is not mistaken for a service.
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

/// Whether it is an alphanumeric sender. Without a letter it would be a number that lacks its plus sign.
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
    /// Does not connect. The process must have installed its crypto provider.
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
