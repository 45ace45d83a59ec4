//! Limits the requests that are served at the same time, so that many clients with large bodies cannot exhaust the
//! memory. Connections have limits of their own.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::header;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http_body_util::LengthLimitError;
use tokio::sync::Semaphore;

use super::body::MAX_BODY_BYTES;
use super::{App, Problem};

/// A request takes one permit, and one more for each MiB of its body.
#[derive(Debug, Clone)]
pub struct Permits {
    requests: Arc<Semaphore>,
    body_mib: Arc<Semaphore>,
}

const MAX_REQUESTS: usize = 256;
/// For bodies that are being received, parsed or written. Parsed JSON takes more memory than its text.
const MAX_BODY_MIB: usize = 64;
/// Callbacks have no key, so their permits are separate from those of requests with a key.
const MAX_CALLBACKS: usize = 32;
const MIB: usize = 1024 * 1024;
const PERMIT_TIMEOUT: Duration = Duration::from_secs(5);

pub fn permits() -> Permits {
    let semaphore = |permits| Arc::new(Semaphore::new(permits));
    Permits { requests: semaphore(MAX_REQUESTS), body_mib: semaphore(MAX_BODY_MIB) }
}

pub fn callback_permits() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(MAX_CALLBACKS))
}

/// Waits for a permit and holds it until the response is ready.
pub async fn take_permit(State(app): State<App>, request: Request, next: Next) -> Response {
    let body_mib = body_mib(&request);
    let wanted = async {
        let request_permit = app.permits.requests.acquire().await?;
        app.permits.body_mib.acquire_many(body_mib).await.map(|body| (request_permit, body))
    };
    let Ok(Ok(_permits)) = tokio::time::timeout(PERMIT_TIMEOUT, wanted).await else {
        return refuse().await;
    };
    next.run(request).await
}

pub async fn take_callback_permit(
    State(permits): State<Arc<Semaphore>>,
    request: Request,
    next: Next,
) -> Response {
    let Ok(_permit) = permits.try_acquire() else { return refuse().await };
    next.run(request).await
}

/// Receives a small body before the request takes a permit, so that slow clients hold none.
pub async fn receive_small_body(State(max_bytes): State<usize>, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    match to_bytes(body, max_bytes).await {
        Ok(bytes) => next.run(Request::from_parts(parts, Body::from(bytes))).await,
        Err(error) => unreceived(&error, max_bytes).into_response(),
    }
}

/// Why a body was not received.
fn unreceived(error: &axum::Error, max_bytes: usize) -> Problem {
    let is_too_large = error.source().is_some_and(<dyn Error>::is::<LengthLimitError>);
    if is_too_large {
        return Problem::too_large(max_bytes);
    }
    Problem::malformed(format!("the body was not received completely: {error}"))
}

/// Responds with the time to retry, and closes the connection, which others need.
pub async fn refuse() -> Response {
    let problem = Problem::unavailable("too many requests; try again later");
    ([(header::RETRY_AFTER, "5"), (header::CONNECTION, "close")], problem).into_response()
}

fn body_mib(request: &Request) -> u32 {
    let headers = request.headers();
    let declared = headers.get(header::CONTENT_LENGTH).and_then(|n| n.to_str().ok()?.parse::<usize>().ok());
    // A body without a declared length may be as large as the limit.
    let undeclared = if headers.contains_key(header::TRANSFER_ENCODING) { MAX_BODY_BYTES } else { 0 };
    let mib = declared.unwrap_or(undeclared).min(MAX_BODY_BYTES).div_ceil(MIB);
    u32::try_from(mib).expect("a body has at most 8 MiB")
}
