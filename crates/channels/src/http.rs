//! What providers that are asked over HTTP have in common: how a client is set up, and how much of an answer is
//! believed. What an answer means is the provider's own.

use std::time::Duration;

use campanile_domain::send::Outcome;
use reqwest::header::RETRY_AFTER;
use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder, Response};

use crate::dns::{SystemResolver, Unresolved, is_caused_by};

use crate::{Answer, Cause};

/// Idle connections are let go before load balancers do it, which would leave a request in doubt.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Messages and errors of providers are some hundred bytes.
const MAX_ANSWER_BYTES: usize = 64 * 1024;
/// Nobody is made to wait for longer.
const MAX_RETRY_AFTER: Duration = Duration::from_hours(24);

/// Whether requests may pass a proxy that the environment names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proxy {
    Allowed,
    /// For plain HTTP: the proxy would read the credentials.
    Refused,
}

/// Connects to nobody yet. The process must have its cryptography in place. Who is not connected within `connect` has
/// sent nothing, and that is known; so it should be well below the time that the whole may take.
pub fn client(timeout: Duration, connect: Duration, proxy: Proxy) -> Result<Client, reqwest::Error> {
    builder(connect, proxy).timeout(timeout).build()
}

/// The same, for who has more to say about it.
pub fn builder(connect: Duration, proxy: Proxy) -> ClientBuilder {
    let http = Client::builder()
        .connect_timeout(connect)
        .pool_idle_timeout(POOL_IDLE_TIMEOUT)
        .tcp_nodelay(true)
        .redirect(Policy::none())
        .dns_resolver(SystemResolver)
        // Two requests for one message must be two attempts.
        .retry(reqwest::retry::never());
    match proxy {
        Proxy::Allowed => http,
        Proxy::Refused => http.no_proxy(),
    }
}

/// There was no answer. Only who was never connected can know that nothing was sent.
pub fn no_response(who: &str, error: &reqwest::Error) -> Answer {
    let what = format!("{who} {}", describe_no_response(error));
    let outcome = if error.is_connect() {
        Outcome::Down { after: None, error: what }
    } else {
        Outcome::Unknown { error: what }
    };
    Answer::from(outcome).with_cause(no_response_cause(error))
}

/// The same in short.
pub fn no_response_cause(error: &reqwest::Error) -> Cause {
    Cause::new(if error.is_connect() {
        "unreachable"
    } else if error.is_timeout() {
        "timeout"
    } else {
        "closed"
    })
}

/// Why there was no answer, in words that hold nothing of the request.
pub fn describe_no_response(error: &reqwest::Error) -> &'static str {
    match (error.is_connect(), error.is_timeout()) {
        (true, true) => "could not be reached before the timeout",
        (true, false) if is_caused_by::<Unresolved>(error) => {
            "is unreachable: its host name does not resolve"
        }
        (true, false) => "is unreachable",
        (false, true) => "did not answer in time",
        (false, false) => "closed the connection without a response",
    }
}

/// Of its two forms the one in seconds.
pub fn retry_after(response: &Response) -> Option<Duration> {
    let seconds: u64 = response.headers().get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(MAX_RETRY_AFTER))
}

/// Nothing, if it broke off or is longer than any answer of a provider.
pub async fn read(mut response: Response) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.ok()? {
        if body.len() + chunk.len() > MAX_ANSWER_BYTES {
            return None;
        }
        body.extend_from_slice(&chunk);
    }
    Some(body)
}
