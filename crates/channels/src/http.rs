//! What HTTP providers share: the configuration of the client, and limits on answers. Each provider interprets its
//! answers itself.

use std::time::Duration;

use campanile_domain::send::Outcome;
use reqwest::header::RETRY_AFTER;
use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder, Response};

use crate::dns::{SystemResolver, Unresolved, is_caused_by};

use crate::{Answer, Cause};

/// Idle connections are closed before load balancers close them, which would leave a request in doubt.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Answers of providers have a few hundred bytes.
const MAX_ANSWER_BYTES: usize = 64 * 1024;
/// The longest `Retry-After` that is respected.
const MAX_RETRY_AFTER: Duration = Duration::from_hours(24);

/// Whether requests may use a proxy from the environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proxy {
    Allowed,
    /// For plain HTTP, where the proxy would read the credentials.
    Refused,
}

/// Creates a client; it does not connect. The process must have installed its crypto provider. A connection that is not
/// open within `connect` has sent nothing for certain, so `connect` should be well below `timeout`.
pub fn client(timeout: Duration, connect: Duration, proxy: Proxy) -> Result<Client, reqwest::Error> {
    builder(connect, proxy).timeout(timeout).build()
}

/// The builder of `client`, for callers that need more options.
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

/// The answer for a failed request. Only without a connection is it certain that nothing was sent.
pub fn no_response(who: &str, error: &reqwest::Error) -> Answer {
    let what = format!("{who} {}", describe_no_response(error));
    let outcome = if error.is_connect() {
        Outcome::Down { after: None, error: what }
    } else {
        Outcome::Unknown { error: what }
    };
    Answer::from(outcome).with_cause(no_response_cause(error))
}

/// The cause of a failed request, in short.
pub fn no_response_cause(error: &reqwest::Error) -> Cause {
    Cause::new(if error.is_connect() {
        "unreachable"
    } else if error.is_timeout() {
        "timeout"
    } else {
        "closed"
    })
}

/// Why there was no answer, in words that contain nothing of the request.
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

/// The header `Retry-After` in seconds; its form with a date is ignored.
pub fn retry_after(response: &Response) -> Option<Duration> {
    let seconds: u64 = response.headers().get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(MAX_RETRY_AFTER))
}

/// Reads a body. `None` if it is incomplete or longer than any answer of a provider.
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
