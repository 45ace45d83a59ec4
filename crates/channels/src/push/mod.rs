//! Pushes over FCM's HTTP v1 API. FCM accepts one token per request, so each of a recipient's devices is a request of
//! its own. Each has its own result, so that a later attempt covers only the remaining devices.
//!
//! FCM has no idempotency key, so a doubt is reported as such. A device that gets a duplicate shows it in place of the
//! first message.

mod access;
mod account;
mod content;
mod examine;
mod reply;
mod request;

use std::collections::HashSet;
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use campanile_domain::channel::Channel;
use campanile_domain::finding::Finding;
use campanile_domain::people::address::is_push_token;
use campanile_domain::send::{AddressOutcome, AddressResult, Outcome};
use campanile_domain::time::Timestamp;
use futures_util::StreamExt as _;
use futures_util::stream;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::{Client, Url};
use tokio::time::Instant;

use crate::http::{self, Proxy};
use crate::{Answer, Cause, Message, Provider};
use access::Access;
use content::{Content, Lifetime};
use reply::{DeviceOutcome, Reply, reply};

pub use account::{KeyFileError, ServiceAccount};
pub use content::Alert;

/// The most requests at the same time for one recipient.
const MAX_CONCURRENT_REQUESTS: usize = 10;

#[derive(Debug)]
pub struct FcmConfig {
    /// The base URL of the API without credentials: `https://fcm.googleapis.com`.
    pub base: Url,
    /// The service account; its key file also names the token endpoint.
    pub account: ServiceAccount,
    /// The longest time of an attempt, however many devices there are.
    pub deadline: Duration,
    /// How long after its event a push may still reach a device that was offline; later neither FCM nor we deliver it.
    /// FCM's maximum is 28 days.
    pub ttl: Duration,
    pub alert: Alert,
}

pub struct Fcm {
    authority: String,
    account: ServiceAccount,
    deadline: Duration,
    ttl: Duration,
    alert: Alert,
    messages: Url,
    access: Access,
    http: Client,
}

impl fmt::Debug for Fcm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fcm")
            .field("messages", &self.messages.as_str())
            .field("account", &self.account)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

impl Fcm {
    /// Does not connect. The process must have installed its crypto provider.
    pub fn new(config: FcmConfig) -> Result<Self, reqwest::Error> {
        let FcmConfig { base, account, deadline, ttl, alert } = config;
        let messages = format!(
            "{}/v1/projects/{}/messages:send",
            base.as_str().trim_end_matches('/'),
            account.project_id()
        );
        let messages = Url::parse(&messages).expect("what is appended to a URL is plain ASCII");
        let plain = [&base, account.token_uri()].iter().any(|url| url.scheme() == "http");
        let proxy = if plain { Proxy::Refused } else { Proxy::Allowed };
        let http = http::client(deadline, deadline / TIMEOUT_DIVISOR, proxy)?;
        let access = Access::new(account.clone(), http.clone(), deadline / 2);
        Ok(Fcm {
            authority: base.authority().to_owned(),
            account,
            deadline,
            ttl,
            alert,
            messages,
            access,
            http,
        })
    }
}

/// No request starts in the last quarter of an attempt: it would hardly be answered in time and leave a doubt.
/// Connecting also takes at most a quarter. So a request that started in time and never connected has certainly sent
/// nothing.
const TIMEOUT_DIVISOR: u32 = 4;

/// The times of one attempt.
#[derive(Debug, Clone, Copy)]
struct Times {
    /// The latest start of a request.
    last_start: Instant,
    until: Instant,
}

#[async_trait]
impl Provider for Fcm {
    fn name(&self) -> &'static str {
        "fcm"
    }

    fn deadline(&self) -> Duration {
        self.deadline
    }

    async fn send(&self, message: &Message<'_>) -> Answer {
        let Some(lifetime) = Lifetime::of(message.created_at, self.ttl, Timestamp::now()) else {
            return Outcome::Expired { error: EXPIRED_ERROR.to_owned() }.into();
        };
        // No device gets a final result: once the template is corrected, each may be reached.
        let content = match Content::of(message, &self.alert, lifetime) {
            Ok(content) => content,
            Err(why) => return rejected(why),
        };
        let (tokens, others): (Vec<_>, Vec<_>) =
            tokens(message.address).partition(|token| is_push_token(token));
        if tokens.is_empty() && others.is_empty() {
            return rejected("the recipient has no registration token");
        }
        let sent = self.push_all(&tokens, &content).await;
        let sent = tokens.into_iter().zip(sent);
        answer(sent.chain(others.into_iter().map(|other| (other, no_token()))))
    }

    async fn examine(&self, channel: Channel) -> Finding {
        self.dry_run(channel).await
    }
}

const EXPIRED_ERROR: &str = "not sent: the event is older than channels.push.ttl";

/// The distinct tokens in their order.
fn tokens(address: &str) -> impl Iterator<Item = &str> {
    let mut seen = HashSet::new();
    address.split(' ').filter(move |token| !token.is_empty() && seen.insert(*token))
}

fn no_token() -> DeviceOutcome {
    let error =
        "the address is not a registration token: a token has only printable ASCII characters".to_owned();
    DeviceOutcome::Done(AddressOutcome::Rejected { error })
}

fn rejected(error: &str) -> Answer {
    Outcome::Rejected { error: error.to_owned() }.into()
}

impl Fcm {
    fn times(&self) -> Times {
        let until = Instant::now() + self.deadline;
        Times { last_start: until - self.deadline / TIMEOUT_DIVISOR, until }
    }

    /// The result of each device, in order.
    async fn push_all(&self, tokens: &[&str], content: &Content<'_>) -> Vec<DeviceOutcome> {
        if tokens.is_empty() {
            return Vec::new();
        }
        let times = self.times();
        let bearer = match self.access.bearer(None, times.last_start).await {
            Ok(bearer) => bearer,
            Err(why) => return vec![why.into(); tokens.len()],
        };
        let asked = tokens.iter().enumerate().map(|(index, token)| {
            let sent = self.push(token, content, &bearer, times);
            async move { (index, sent.await) }
        });
        // A device that hangs occupies one slot and delays no other.
        let mut sent: Vec<(usize, DeviceOutcome)> =
            stream::iter(asked.collect::<Vec<_>>()).buffer_unordered(MAX_CONCURRENT_REQUESTS).collect().await;
        sent.sort_by_key(|(index, _)| *index);
        sent.into_iter().map(|(_, device)| device).collect()
    }

    async fn push(
        &self,
        token: &str,
        content: &Content<'_>,
        bearer: &HeaderValue,
        times: Times,
    ) -> DeviceOutcome {
        match self.ask(&content.request(token, false), bearer, times).await {
            Reply::Final(device) | Reply::Invalid(device) => device,
            Reply::Unauthenticated => refused("401", self.unauthenticated_error()),
            Reply::Forbidden => refused("403", self.forbidden_error()),
        }
    }

    /// Sends a request. If the access token is refused, it tries once more with another.
    async fn ask(&self, request: &[u8], bearer: &HeaderValue, times: Times) -> Reply {
        let reply = self.post(request, bearer, times).await;
        if reply != Reply::Unauthenticated {
            return reply;
        }
        match self.access.bearer(Some(bearer), times.last_start).await {
            Ok(another) => self.post(request, &another, times).await,
            Err(why) => Reply::Final(why.into()),
        }
    }

    async fn post(&self, request: &[u8], bearer: &HeaderValue, times: Times) -> Reply {
        let now = Instant::now();
        if now >= times.last_start {
            let error = "the attempt's deadline was reached before this device's request".to_owned();
            return Reply::Final(DeviceOutcome::Retry { after: None, error });
        }
        let request = self
            .http
            .post(self.messages.clone())
            .timeout(times.until - now)
            .header(AUTHORIZATION, bearer)
            .header(CONTENT_TYPE, "application/json")
            .body(request.to_vec());
        match request.send().await {
            Ok(response) => reply(response).await,
            Err(error) => Reply::Final(no_response(&error)),
        }
    }

    fn unauthenticated_error(&self) -> String {
        format!(
            "FCM does not accept the access tokens of {}: is the account still enabled?",
            self.account.client_email()
        )
    }

    fn forbidden_error(&self) -> String {
        format!(
            "{} may not send for project {}: enable the Firebase Cloud Messaging API there, \
             and give the account the role Firebase Cloud Messaging API Admin",
            self.account.client_email(),
            self.account.project_id()
        )
    }
}

fn refused(code: &'static str, error: String) -> DeviceOutcome {
    DeviceOutcome::Down { after: None, error, cause: Cause::refusal(code) }
}

/// The result of a failed request. Only without a connection is it certain that nothing was sent.
fn no_response(error: &reqwest::Error) -> DeviceOutcome {
    let what = format!("FCM {}", http::describe_no_response(error));
    if error.is_connect() {
        DeviceOutcome::Down { after: None, error: what, cause: http::no_response_cause(error) }
    } else {
        DeviceOutcome::Unknown { error: what }
    }
}

/// The result of all devices together.
///
/// | devices | outcome |
/// |---|---|
/// | all have a final result, at least one was reached | sent |
/// | all have a final result, none was reached | rejected |
/// | one is in doubt | unknown |
/// | none was reached, and FCM is down for all that remain | down |
/// | any other that remains | retry: reached devices must not get it from another provider |
fn answer<'a>(devices: impl Iterator<Item = (&'a str, DeviceOutcome)>) -> Answer {
    let mut done = Vec::new();
    let mut unfinished = Unfinished::default();
    for (token, device) in devices {
        match device {
            DeviceOutcome::Done(end) => done.push(AddressResult { address: token.to_owned(), end }),
            DeviceOutcome::Retry { after, error } => {
                unfinished.retried += 1;
                unfinished.record(after, error);
            }
            DeviceOutcome::Down { after, error, cause } => {
                unfinished.cause = unfinished.cause.filter(|known| known.refuses_us).or(Some(cause));
                unfinished.record(after, error);
            }
            DeviceOutcome::Unknown { error } => {
                unfinished.unknown += 1;
                unfinished.record(None, error);
            }
        }
    }
    let sent = done.iter().find_map(|device| match &device.end {
        AddressOutcome::Sent { external_id } => Some(external_id.clone()),
        AddressOutcome::Rejected { .. } | AddressOutcome::Dead { .. } => None,
    });
    let all = done.len() + unfinished.errors.len();
    let cause = unfinished.cause.take();
    let outcome = match (sent, unfinished) {
        (Some(external_id), unfinished) if unfinished.errors.is_empty() => Outcome::Sent { external_id },
        (None, unfinished) if unfinished.errors.is_empty() => {
            let reasons = done.iter().filter_map(|device| match &device.end {
                AddressOutcome::Rejected { error: reason } | AddressOutcome::Dead { reason } => {
                    Some(reason.as_str())
                }
                AddressOutcome::Sent { .. } => None,
            });
            Outcome::Rejected { error: summary(reasons, all) }
        }
        (sent, Unfinished { errors, after, retried, unknown, .. }) => {
            let error = summary(errors.iter().map(String::as_str), all);
            match (unknown, retried, sent) {
                (0, 0, None) => Outcome::Down { after, error },
                (0, _, _) => Outcome::Retry { after, error },
                (_, _, _) => Outcome::Unknown { error },
            }
        }
    };
    Answer { done, cause, ..outcome.into() }
}

/// The devices without a final result.
#[derive(Default)]
struct Unfinished {
    errors: Vec<String>,
    after: Option<Duration>,
    retried: usize,
    unknown: usize,
    /// The cause of those for which FCM is down. A refusal of our credentials takes precedence.
    cause: Option<Cause>,
}

impl Unfinished {
    fn record(&mut self, after: Option<Duration>, error: String) {
        self.after = self.after.max(after);
        self.errors.push(error);
    }
}

/// The distinct reasons, each with its number of devices. A single device needs no number.
fn summary<'a>(reasons: impl Iterator<Item = &'a str>, all: usize) -> String {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for reason in reasons {
        match counts.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, count)) => *count += 1,
            None => counts.push((reason, 1)),
        }
    }
    let parts = counts.iter().map(|(reason, count)| match all {
        1 => (*reason).to_owned(),
        _ => format!("{count} of {all} devices: {reason}"),
    });
    parts.collect::<Vec<_>>().join("; ")
}
