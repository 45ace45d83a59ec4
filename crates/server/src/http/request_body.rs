//! Watches a request body while it is received. It must arrive in time. A response before its end closes the connection
//! and says so. Parsing is done elsewhere.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use hyper::body::{Frame, SizeHint};
use tokio::time::Sleep;

use super::{App, Problem};

const UNREAD: u8 = 0;
const READ: u8 = 1;
const TOO_SLOW: u8 = 2;

/// The outermost layer, so that it sees the responses of all others.
pub async fn watch(State(app): State<App>, request: Request, next: Next) -> Response {
    if request.body().is_end_stream() {
        return next.run(request).await;
    }
    let state = Arc::new(AtomicU8::new(UNREAD));
    let watched = |body| WatchedBody {
        body,
        deadline: Box::pin(tokio::time::sleep(app.body_timeout)),
        state: Arc::clone(&state),
    };
    let mut response = next.run(request.map(|body| Body::new(watched(body)))).await;
    let seen = state.load(Ordering::Relaxed);
    if seen == TOO_SLOW {
        response = Problem::too_slow(app.body_timeout).into_response();
    }
    if seen != READ {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// A body that fails at its deadline, and records how far it was read.
#[derive(Debug)]
struct WatchedBody {
    body: Body,
    deadline: Pin<Box<Sleep>>,
    state: Arc<AtomicU8>,
}

impl HttpBody for WatchedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if polled.is_pending() && self.deadline.as_mut().poll(context).is_ready() {
            self.state.store(TOO_SLOW, Ordering::Relaxed);
            return Poll::Ready(Some(Err(axum::Error::new(io::Error::from(io::ErrorKind::TimedOut)))));
        }
        if matches!(polled, Poll::Ready(None)) || self.body.is_end_stream() {
            self.state.store(READ, Ordering::Relaxed);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
