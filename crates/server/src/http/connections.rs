//! Connections: their limit, the timeouts for each part of a request, and which one is closed when all are in use. The
//! router handles requests.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::time::Sleep;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::access::client_address::Peer;
use super::log_limit::LogLimit;
use super::tls::TlsFiles;

/// Connections beyond `max_connections`, which serve only the health routes.
pub const RESERVED_CONNECTIONS: usize = 16;
/// How long a reserved connection has for its only request.
const RESERVED_HEADER_TIMEOUT: Duration = Duration::from_secs(2);
/// The pause after a failed accept, for example without free file descriptors.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);
/// Requests with more headers get 431.
const MAX_HEADERS: usize = 100;

#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub max_connections: usize,
    /// For the head of a request, including the time before its first byte.
    pub header_timeout: Duration,
    /// For a client that reads nothing of its response.
    pub write_timeout: Duration,
    pub max_header_bytes: usize,
}

/// The routes for normal connections, and those for reserved ones.
#[derive(Debug, Clone)]
pub struct Routers {
    pub all: Router,
    pub reserved: Router,
}

/// Accepts connections until `stop`, then waits for the requests in progress.
pub async fn serve(
    listener: TcpListener,
    routers: Routers,
    limits: Limits,
    tls: Option<Arc<TlsFiles>>,
    stop: CancellationToken,
) {
    let all = Pool::new(limits.max_connections);
    let reserved = Pool::new(RESERVED_CONNECTIONS);
    let short = Limits { header_timeout: RESERVED_HEADER_TIMEOUT.min(limits.header_timeout), ..limits };
    let tasks = TaskTracker::new();
    let full = LogLimit::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => break,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                log_full(&full, "could not be accepted", &error.to_string());
                tokio::time::sleep(ACCEPT_BACKOFF).await;
                continue;
            }
        };
        let (slot, router, limits, keep_alive) = match all.take_slot() {
            Taken::Free(slot) => (slot, &routers.all, limits, true),
            Taken::Evicted(slot) => {
                log_full(
                    &full,
                    "replaced the connection that was idle longest",
                    "server.max_connections reached",
                );
                (slot, &routers.all, limits, true)
            }
            Taken::Full => match reserved.take_slot() {
                Taken::Free(slot) | Taken::Evicted(slot) => {
                    log_full(
                        &full,
                        "can reach only the health endpoints",
                        "server.max_connections reached, all busy",
                    );
                    (slot, &routers.reserved, short, false)
                }
                Taken::Full => {
                    log_full(&full, "were closed", "server.max_connections reached, all busy");
                    continue;
                }
            },
        };
        let connection =
            Connection { slot, router: router.clone(), limits, keep_alive, peer: Peer(peer.ip()) };
        tasks.spawn(connection.serve(stream, tls.clone(), stop.clone()));
    }
    drop(listener);
    tasks.close();
    tasks.wait().await;
}

/// One connection, and what it is allowed.
struct Connection {
    slot: Slot,
    router: Router,
    limits: Limits,
    keep_alive: bool,
    peer: Peer,
}

impl Connection {
    async fn serve(self, stream: TcpStream, tls: Option<Arc<TlsFiles>>, stop: CancellationToken) {
        let Some(tls) = tls else { return self.serve_stream(stream, stop).await };
        let handshake = TlsAcceptor::from(tls.current()).accept(stream);
        let evicted = Arc::clone(&self.slot.evicted);
        // A client that does not finish its handshake has no more rights than one that sends no request.
        let done = tokio::select! {
            done = tokio::time::timeout(self.limits.header_timeout, handshake) => done,
            () = evicted.notified() => return,
            () = stop.cancelled() => return,
        };
        if let Ok(Ok(stream)) = done {
            self.serve_stream(stream, stop).await;
        }
    }

    async fn serve_stream(self, stream: impl AsyncRead + AsyncWrite + Unpin + Send, stop: CancellationToken) {
        let Connection { slot, router, limits, keep_alive, peer } = self;
        let evicted = Arc::clone(&slot.evicted);
        let slot = Arc::new(slot);
        let writing = Arc::clone(&slot);
        let service = TowerToHyperService::new(router);
        let service = service_fn(move |mut request: hyper::Request<Incoming>| {
            let busy = Busy::new(Arc::clone(&slot));
            request.extensions_mut().insert(peer);
            let answered = service.call(request);
            async move {
                let _busy = busy;
                answered.await
            }
        });
        let stream = WriteTimeout { stream, slot: writing, timeout: limits.write_timeout, stalled: None };
        let mut builder = http1::Builder::new();
        builder
            .timer(TokioTimer::new())
            .keep_alive(keep_alive)
            .header_read_timeout(limits.header_timeout)
            .max_header_size(limits.max_header_bytes)
            .max_headers(MAX_HEADERS);
        let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
        tokio::select! {
            // A client that disconnected or was too slow is no error.
            ended = connection.as_mut() => drop(ended),
            () = evicted.notified() => {}
            () = stop.cancelled() => {
                connection.as_mut().graceful_shutdown();
                drop(connection.await);
            }
        }
    }
}

/// Open connections up to a limit, and which of them are idle.
#[derive(Debug, Clone)]
struct Pool {
    max: usize,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    open: usize,
    last_number: u64,
    /// Connections without a request, the longest idle first.
    idle: BTreeMap<u64, Arc<Notify>>,
}

#[derive(Debug)]
enum Taken {
    Free(Slot),
    /// The longest idle connection is closed for the new one.
    Evicted(Slot),
    /// Every connection has a request.
    Full,
}

impl Pool {
    fn new(max: usize) -> Self {
        Pool { max, state: Arc::default() }
    }

    fn take_slot(&self) -> Taken {
        let evicted = {
            let mut state = lock(&self.state);
            if state.open < self.max {
                state.open += 1;
                None
            } else {
                // The new connection replaces the old one, so the count does not change.
                match state.idle.pop_first() {
                    Some((_, oldest)) => Some(oldest),
                    None => return Taken::Full,
                }
            }
        };
        let slot = Slot::new(Arc::clone(&self.state));
        match evicted {
            None => Taken::Free(slot),
            Some(oldest) => {
                oldest.notify_one();
                Taken::Evicted(slot)
            }
        }
    }
}

/// One connection of a pool; dropping it frees its slot.
#[derive(Debug)]
struct Slot {
    pool: Arc<Mutex<State>>,
    evicted: Arc<Notify>,
    /// The key in `State::idle` while the connection is idle.
    number: Mutex<Option<u64>>,
}

impl Slot {
    fn new(pool: Arc<Mutex<State>>) -> Self {
        let slot = Slot { pool, evicted: Arc::default(), number: Mutex::default() };
        slot.becomes_idle();
        slot
    }

    fn becomes_idle(&self) {
        self.is_idle_from_now(&mut lock(&self.pool));
    }

    /// Marks the connection as just used, because it still reads its last response. Others are evicted first.
    fn takes_its_answer(&self) {
        let mut state = lock(&self.pool);
        let number = *lock(&self.number);
        if number.is_some_and(|idle| state.idle.remove(&idle).is_some()) {
            self.is_idle_from_now(&mut state);
        }
    }

    fn is_idle_from_now(&self, state: &mut State) {
        state.last_number += 1;
        let number = state.last_number;
        state.idle.insert(number, Arc::clone(&self.evicted));
        *lock(&self.number) = Some(number);
    }

    fn becomes_busy(&self) {
        let mut state = lock(&self.pool);
        let mut number = lock(&self.number);
        // An evicted connection keeps its number, because its slot belongs to another by now.
        if number.is_some_and(|idle| state.idle.remove(&idle).is_some()) {
            *number = None;
        }
    }

    fn is_evicted(&self, state: &State) -> bool {
        lock(&self.number).is_some_and(|idle| !state.idle.contains_key(&idle))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut state = lock(&self.pool);
        if self.is_evicted(&state) {
            return;
        }
        if let Some(idle) = *lock(&self.number) {
            state.idle.remove(&idle);
        }
        state.open -= 1;
    }
}

/// While this exists, its connection has a request and is not evicted.
#[derive(Debug)]
struct Busy(Arc<Slot>);

impl Busy {
    fn new(slot: Arc<Slot>) -> Self {
        slot.becomes_busy();
        Busy(slot)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let evicted = {
            let state = lock(&self.0.pool);
            self.0.is_evicted(&state)
        };
        if !evicted {
            self.0.becomes_idle();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Logs new connections that were refused or restricted.
fn log_full(limit: &LogLimit, what: &str, why: &str) {
    if let Some(connections) = limit.count() {
        tracing::warn!(connections, why, "new connections {what}");
    }
}

/// A stream whose writes fail when the client has read nothing for `timeout`. A handler finishes long before a slow
/// client has the whole response. A client that keeps reading is not idle; one that reads nothing is.
#[derive(Debug)]
struct WriteTimeout<S> {
    stream: S,
    slot: Arc<Slot>,
    timeout: Duration,
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S> WriteTimeout<S> {
    fn watch<T>(&mut self, context: &mut Context<'_>, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            if self.stalled.take().is_some() {
                self.slot.takes_its_answer();
            }
            return polled;
        }
        let timeout = self.timeout;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)));
        match stalled.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeout<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.watch(context, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.watch(context, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // With TLS the end of a response may wait here.
        let polled = Pin::new(&mut self.stream).poll_flush(context);
        self.watch(context, polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(taken: Taken) -> Slot {
        match taken {
            Taken::Free(slot) | Taken::Evicted(slot) => slot,
            Taken::Full => panic!("there is a slot"),
        }
    }

    #[test]
    fn the_longest_idle_connection_gives_way_and_its_place_is_counted_once() {
        let pool = Pool::new(2);
        let first = Arc::new(slot(pool.take_slot()));
        let second = slot(pool.take_slot());
        // The first had a request and is idle again, so the second has been idle longer.
        drop(Busy::new(Arc::clone(&first)));
        let taken = pool.take_slot();
        assert!(matches!(taken, Taken::Evicted(_)));
        assert!(second.is_evicted(&lock(&pool.state)) && !first.is_evicted(&lock(&pool.state)));
        drop(second);
        assert_eq!(lock(&pool.state).open, 2, "the newcomer has the place");
        let newcomer = Arc::new(slot(taken));
        let requests = [Busy::new(Arc::clone(&first)), Busy::new(Arc::clone(&newcomer))];
        assert!(matches!(pool.take_slot(), Taken::Full));
        drop(requests);
        drop((first, newcomer));
        let state = lock(&pool.state);
        assert_eq!((state.open, state.idle.len()), (0, 0));
    }

    #[test]
    fn who_goes_on_taking_an_answer_gives_way_last() {
        let pool = Pool::new(2);
        let (slow, idle) = (slot(pool.take_slot()), slot(pool.take_slot()));
        slow.takes_its_answer();
        let newcomer = slot(pool.take_slot());
        assert!(idle.is_evicted(&lock(&pool.state)) && !slow.is_evicted(&lock(&pool.state)));
        // An evicted connection does not get its slot back.
        idle.takes_its_answer();
        assert!(idle.is_evicted(&lock(&pool.state)));
        drop((idle, slow, newcomer));
        let state = lock(&pool.state);
        assert_eq!((state.open, state.idle.len()), (0, 0));
    }

    #[test]
    fn a_request_of_an_evicted_connection_takes_no_place_back() {
        let pool = Pool::new(1);
        let evicted = Arc::new(slot(pool.take_slot()));
        let newcomer = slot(pool.take_slot());
        drop(Busy::new(Arc::clone(&evicted)));
        drop(evicted);
        let counts = || {
            let state = lock(&pool.state);
            (state.open, state.idle.len())
        };
        assert_eq!(counts(), (1, 1));
        drop(newcomer);
        assert_eq!(counts(), (0, 0));
    }
}
