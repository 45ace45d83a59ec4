//! How much is served at once, so that many clients with large bodies can't fill the memory.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::header;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio::sync::Semaphore;

use super::body::MAX_BODY_BYTES;
use super::{App, Problem};

/// A request takes one place, and one more for each MiB that it sends.
pub type Places = Arc<Semaphore>;

const PLACES: usize = 256;
const MIB: usize = 1024 * 1024;
const PATIENCE: Duration = Duration::from_secs(5);

pub fn places() -> Places {
    Arc::new(Semaphore::new(PLACES))
}

/// Waits for a place, and keeps it until there is an answer.
pub async fn take_place(State(app): State<App>, request: Request, next: Next) -> Response {
    let wanted = app.places.acquire_many(weight(&request));
    let Ok(Ok(_place)) = tokio::time::timeout(PATIENCE, wanted).await else {
        let problem = Problem::unavailable("too many requests are being served just now: try again");
        return ([(header::RETRY_AFTER, "5")], problem).into_response();
    };
    next.run(request).await
}

fn weight(request: &Request) -> u32 {
    let headers = request.headers();
    let declared = headers.get(header::CONTENT_LENGTH).and_then(|n| n.to_str().ok()?.parse::<usize>().ok());
    // Who does not say how much comes may send as much as is read.
    let unsaid = if headers.contains_key(header::TRANSFER_ENCODING) { MAX_BODY_BYTES } else { 0 };
    let mib = declared.unwrap_or(unsaid).min(MAX_BODY_BYTES).div_ceil(MIB);
    u32::try_from(mib).unwrap_or(u32::MAX).saturating_add(1)
}
