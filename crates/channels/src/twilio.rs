//! Texts over Twilio's REST API: one message, one `POST`. What Twilio tells later of its delivery is not asked for.
//!
//! The text is the template's body, because templates for SMS are written to stand alone; the title is sent only where there is
//! no body, as without any template.
//!
//! Which outcome an answer means is decided by its status, as Twilio advises, since error codes come and go. Twilio knows no
//! idempotency key, so doubt is told as doubt: whoever sends it again may tell somebody twice.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use campanile_domain::channel::Channel;
use campanile_domain::finding::Finding;
use campanile_domain::send::Outcome;
use reqwest::header::RETRY_AFTER;
use reqwest::redirect::Policy;
use reqwest::{Client, Response, StatusCode, Url};
use serde::Deserialize;

use crate::{Answer, Message, Provider};

/// Idle connections are let go before load balancers do it, which would leave a request in doubt.
const IDLE: Duration = Duration::from_secs(30);
/// Messages and errors of Twilio are some hundred bytes.
const MAX_ANSWER_BYTES: usize = 64 * 1024;

pub struct TwilioConfig {
    /// Where the API is, without credentials: `https://api.twilio.com`.
    pub base: Url,
    pub account_sid: String,
    pub auth_token: String,
    pub sender: Sender,
    /// No attempt takes longer.
    pub deadline: Duration,
}

impl fmt::Debug for TwilioConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TwilioConfig")
            .field("base", &self.base.as_str())
            .field("account_sid", &self.account_sid)
            .field("sender", &self.sender)
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
        let is_name = (1..=11).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b' ')
            && text.trim() == text;
        (is_name || e164(text).as_deref() == Some(text)).then(|| Sender::From(text.to_owned()))
    }

    fn field(&self) -> (&'static str, &str) {
        match self {
            Sender::From(from) => ("From", from),
            Sender::Service(sid) => ("MessagingServiceSid", sid),
        }
    }
}

pub fn is_account_sid(text: &str) -> bool {
    is_sid("AC", text)
}

fn is_sid(prefix: &str, text: &str) -> bool {
    text.strip_prefix(prefix)
        .is_some_and(|rest| rest.len() == 32 && rest.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// A number as Twilio wants it, without what people put between its digits.
fn e164(text: &str) -> Option<String> {
    let number: String = text.chars().filter(|c| !matches!(c, ' ' | '-' | '.' | '(' | ')')).collect();
    let digits = number.strip_prefix('+')?;
    let right = (2..=15).contains(&digits.len())
        && digits.bytes().all(|byte| byte.is_ascii_digit())
        && !digits.starts_with('0');
    right.then_some(number)
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
        let mut http = Client::builder()
            .timeout(config.deadline)
            // Sooner than the whole: who did not get through by then has sent nothing, and that is known.
            .connect_timeout(config.deadline / 2)
            .pool_idle_timeout(IDLE)
            .tcp_nodelay(true)
            .redirect(Policy::none())
            // Two requests for one text must be two attempts.
            .retry(reqwest::retry::never());
        if config.base.scheme() == "http" {
            // The token would be read by the proxy.
            http = http.no_proxy();
        }
        Ok(Twilio { http: http.build()?, config, messages, account })
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
        self.text(message).await.into()
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
                format!("{is_sent}, but {place} does not let account {account} in"),
                "correct the account SID and the auth token in channels.sms.url",
            ),
            Ok(status) => Finding::note(
                SUBJECT,
                format!("{is_sent}: {place} answers {status} to who asks for account {account}"),
            ),
            Err(error) => Finding::wrong(
                SUBJECT,
                format!("{is_sent}, but {place} {}", silence(&error)),
                "texts wait and are retried meanwhile; are the host in channels.sms.url and the way to it right?",
            ),
        }
    }
}

impl Twilio {
    async fn text(&self, message: &Message<'_>) -> Outcome {
        let Some(to) = e164(message.address) else {
            return rejected("the phone number is not written with + and its country code");
        };
        let text = if message.body.trim().is_empty() { message.title } else { message.body };
        if text.trim().is_empty() {
            return rejected("there is nothing to send: the template's title and body are empty");
        }
        let request = self
            .http
            .post(self.messages.clone())
            .basic_auth(&self.config.account_sid, Some(&self.config.auth_token))
            .form(&[("To", to.as_str()), self.config.sender.field(), ("Body", text)]);
        match request.send().await {
            Ok(response) => outcome(response).await,
            Err(error) => unanswered(&error),
        }
    }
}

const SUBJECT: &str = "channels";

/// There was no answer. Only who was never connected can know that nothing was sent.
fn unanswered(error: &reqwest::Error) -> Outcome {
    let what = format!("Twilio {}", silence(error));
    if error.is_connect() {
        Outcome::Retry { after: None, error: what }
    } else {
        Outcome::Unknown { error: what }
    }
}

/// In words that hold nothing of the request.
fn silence(error: &reqwest::Error) -> &'static str {
    match (error.is_connect(), error.is_timeout()) {
        (true, true) => "can't be reached in time",
        (true, false) => "can't be reached",
        (false, true) => "did not answer in time",
        (false, false) => "closed the connection instead of answering",
    }
}

/// Errors that every message gets as long as the configuration is wrong.
const THE_SENDER_IS_WRONG: [u32; 6] = [21212, 21603, 21606, 21659, 21660, 21661];

/// What an answer means.
///
/// | status | outcome |
/// |---|---|
/// | 201 with a SID | sent |
/// | another 2xx, or one that can't be read | unknown: it may well have been accepted |
/// | 400 with an error of Twilio's about the sender | retry: somebody has misconfigured it, and no message is to blame |
/// | 400 with another error of Twilio's | rejected: it is about this message |
/// | 429 | retry: by Twilio's word such a request is never processed |
/// | 503 with an error of Twilio's | retry: it says itself that it does not serve |
/// | any other 5xx | unknown: Twilio says only that trying again is fine, and a gateway gives up on what is still at work behind it |
/// | all others, such as 401, 403, 404, 3xx | retry: misconfigured as well |
async fn outcome(response: Response) -> Outcome {
    let status = response.status();
    let after = retry_after(&response);
    let body = read(response).await;
    let code = body.as_deref().and_then(|body| serde_json::from_slice::<Refusal>(body).ok()).map(|r| r.code);
    match (status.as_u16(), code) {
        (200..=299, _) => created(status, body.as_deref()),
        (400, Some(code)) if THE_SENDER_IS_WRONG.contains(&code) => {
            retry(after, format!("{}: check `from` in channels.sms.url", refusal(code)))
        }
        (400, Some(code)) => rejected(&refusal(code)),
        (429, _) => retry(after, "Twilio is asked too often (429)".to_owned()),
        (503, Some(code)) => retry(after, format!("Twilio does not serve at the moment: {}", refusal(code))),
        (500..=599, _) => {
            Outcome::Unknown { error: format!("Twilio failed ({status}) and may have accepted it") }
        }
        (401 | 403, _) => {
            let code = code.map(|code| format!(" ({})", refusal(code))).unwrap_or_default();
            retry(
                after,
                format!(
                    "Twilio does not let this account do that{code}: check channels.sms.url and the account"
                ),
            )
        }
        _ => retry(
            after,
            format!("what answers is hardly Twilio ({status}): check the host in channels.sms.url"),
        ),
    }
}

#[derive(Deserialize)]
struct Created {
    sid: String,
}

/// Of Twilio's error only the code is kept: its message may quote the number.
#[derive(Deserialize)]
struct Refusal {
    code: u32,
}

fn created(status: StatusCode, body: Option<&[u8]>) -> Outcome {
    let created = body.and_then(|body| serde_json::from_slice::<Created>(body).ok());
    match created {
        Some(Created { sid }) if status == StatusCode::CREATED && is_message_sid(&sid) => {
            Outcome::Sent { external_id: Some(sid) }
        }
        Some(_) | None => Outcome::Unknown {
            error: format!("Twilio's answer ({status}) names no message and may mean that it has it"),
        },
    }
}

fn is_message_sid(sid: &str) -> bool {
    is_sid("SM", sid) || is_sid("MM", sid)
}

/// In our own words where the code is a frequent one.
fn refusal(code: u32) -> String {
    let words = match code {
        20003 => "wrong credentials",
        21211 | 21265 => "not a number that can be texted",
        code if THE_SENDER_IS_WRONG.contains(&code) => "the sender can't send texts",
        21408 => "texts to this country are not enabled",
        21602 | 21619 => "there is no text",
        21608 => "a trial account sends to verified numbers only",
        21610 => "the recipient has unsubscribed",
        21612 => "this sender can't reach this number",
        21614 => "not a mobile number",
        21617 => "the text is longer than 1600 characters",
        _ => return format!("Twilio error {code}, see twilio.com/docs/api/errors/{code}"),
    };
    format!("Twilio error {code}, {words}")
}

fn rejected(error: &str) -> Outcome {
    Outcome::Rejected { error: error.to_owned() }
}

fn retry(after: Option<Duration>, error: String) -> Outcome {
    Outcome::Retry { after, error }
}

/// Seconds, as Twilio gives them; nobody is made to wait for more than a day.
fn retry_after(response: &Response) -> Option<Duration> {
    const MAX_SECONDS: u64 = 24 * 60 * 60;
    let seconds: u64 = response.headers().get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds.min(MAX_SECONDS)))
}

/// Nothing, if it broke off or is longer than any answer of Twilio's.
async fn read(mut response: Response) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.ok()? {
        if body.len() + chunk.len() > MAX_ANSWER_BYTES {
            return None;
        }
        body.extend_from_slice(&chunk);
    }
    Some(body)
}
