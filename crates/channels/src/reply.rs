//! How the reply of any provider that speaks HTTP is read: bounded, and told in words that hold nothing of the request. What it
//! means is left to each provider.

use std::time::Duration;

use reqwest::Response;
use reqwest::header::RETRY_AFTER;

/// What providers answer is some hundred bytes.
const MAX_BYTES: usize = 64 * 1024;

/// Nothing, if it broke off or is longer than any answer.
pub async fn read(mut response: Response) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.ok()? {
        if body.len() + chunk.len() > MAX_BYTES {
            return None;
        }
        body.extend_from_slice(&chunk);
    }
    Some(body)
}

/// Seconds, as providers give them; nobody is made to wait for more than a day.
pub fn retry_after(response: &Response) -> Option<Duration> {
    const MAX_SECONDS: u64 = 24 * 60 * 60;
    let seconds: u64 = response.headers().get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds.min(MAX_SECONDS)))
}

/// Why there is no answer. Only who was never connected can know that nothing was sent.
pub fn silence(error: &reqwest::Error) -> &'static str {
    match (error.is_connect(), error.is_timeout()) {
        (true, true) => "can't be reached in time",
        (true, false) => "can't be reached",
        (false, true) => "did not answer in time",
        (false, false) => "closed the connection instead of answering",
    }
}
