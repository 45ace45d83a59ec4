//! `Idempotency-Key`: a client that does not know whether its request arrived repeats it under the same key, and the
//! action is done once. The answer is kept in the database, so any instance can repeat it.

use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{OriginalUri, Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use campanile_domain::hex::hex;
use campanile_store::{Begun, IdempotencyKey, StoredAnswer};
use sha2::{Digest, Sha256};

use super::Caller;
use crate::http::body::MAX_BODY_BYTES;
use crate::http::{App, Problem};

const HEADER: HeaderName = HeaderName::from_static("idempotency-key");
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
const MAX_KEY_CHARS: usize = 255;
/// How long a request may take. After a crash, the key is free again after this time.
const LEASE: Duration = Duration::from_mins(1);

/// Does the action once for each key of a caller.
pub async fn once(State(app): State<App>, caller: Caller, request: Request, next: Next) -> Response {
    let key = match key(&request, &caller) {
        Ok(Some(key)) => key,
        Ok(None) => return next.run(request).await,
        Err(problem) => return problem.into_response(),
    };
    let (parts, body) = request.into_parts();
    let path = parts.extensions.get::<OriginalUri>().map_or(&parts.uri, |OriginalUri(uri)| uri).to_string();
    // It was received before.
    let Ok(body) = to_bytes(body, MAX_BODY_BYTES).await else {
        return Problem::too_large(MAX_BODY_BYTES).into_response();
    };
    let hash = request_hash(parts.method.as_str(), &path, &body);
    let request = Request::from_parts(parts, Body::from(body));
    // A task of its own goes on when the client disconnects, so that the answer is kept for the repetition.
    let answering = tokio::spawn(answer(app, key, hash, request, next));
    answering.await.unwrap_or_else(|error| {
        tracing::error!(%error, "a request with an Idempotency-Key failed; its key is free after a minute");
        Problem::internal("the request failed; see the log of the server").into_response()
    })
}

async fn answer(app: App, key: IdempotencyKey, hash: String, request: Request, next: Next) -> Response {
    match app.engine.begin_request(&key, &hash, LEASE).await {
        Ok(Begun::Started { fence }) => finish(&app, &key, fence, next.run(request).await).await,
        Ok(Begun::Answered(answer)) => repeated(answer),
        Ok(Begun::OtherRequest) => Problem::key_reused().into_response(),
        Ok(Begun::InFlight { remaining }) => {
            let seconds = remaining.as_secs().clamp(1, 5);
            let mut response = Problem::in_flight().into_response();
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
            response
        }
        Err(error) => Problem::from(error).into_response(),
    }
}

/// The key of a request, if it has one.
fn key(request: &Request, caller: &Caller) -> Result<Option<IdempotencyKey>, Problem> {
    let mut values = request.headers().get_all(HEADER).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Problem::bad_idempotency_key("is given more than once"));
    }
    let key = value.to_str().map_err(|_| Problem::bad_idempotency_key("must be printable ASCII"))?;
    if key.is_empty() || key.chars().count() > MAX_KEY_CHARS {
        return Err(Problem::bad_idempotency_key("must have between 1 and 255 characters"));
    }
    let caller = match caller {
        Caller::ApiKey(key) => key.id.to_string(),
        Caller::User(user) => format!("{} {}", user.user.user_type, user.user.user_id),
        Caller::AdminKey | Caller::Anybody => String::new(),
    };
    Ok(Some(IdempotencyKey { caller, key: key.to_owned() }))
}

fn request_hash(method: &str, path: &str, body: &Bytes) -> String {
    let mut hash = Sha256::new();
    for part in [method.as_bytes(), path.as_bytes(), body] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hex(&hash.finalize())
}

/// Stores the answer. A failure of ours is not stored, so that the request can be repeated.
async fn finish(app: &App, key: &IdempotencyKey, fence: i64, response: Response) -> Response {
    if response.status().is_server_error() {
        forget(app, key, fence).await;
        return response;
    }
    let (parts, body) = response.into_parts();
    let Ok(bytes) = to_bytes(body, usize::MAX).await else {
        forget(app, key, fence).await;
        return Problem::unavailable("the answer could not be read; repeat the request").into_response();
    };
    let content_type = parts.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let answer = StoredAnswer {
        status: parts.status.as_u16(),
        content_type: content_type.unwrap_or_default().to_owned(),
        body: String::from_utf8_lossy(&bytes).into_owned(),
    };
    if let Err(error) = app.engine.finish_request(key, fence, answer).await {
        tracing::warn!(%error, "the answer to a request with an Idempotency-Key could not be stored");
    }
    Response::from_parts(parts, Body::from(bytes))
}

async fn forget(app: &App, key: &IdempotencyKey, fence: i64) {
    if let Err(error) = app.engine.abandon_request(key, fence).await {
        tracing::warn!(%error, "an Idempotency-Key stays taken for up to a minute");
    }
}

fn repeated(answer: StoredAnswer) -> Response {
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::OK);
    let mut response = (status, answer.body).into_response();
    let headers = response.headers_mut();
    headers.remove(header::CONTENT_TYPE);
    if let Ok(content_type) = HeaderValue::from_str(&answer.content_type)
        && !answer.content_type.is_empty()
    {
        headers.insert(header::CONTENT_TYPE, content_type);
    }
    headers.insert(REPLAYED, HeaderValue::from_static("true"));
    response
}
