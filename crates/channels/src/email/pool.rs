//! A pool of open connections to one server. It has at most a fixed number of connections. Each is used for a limited
//! number of messages, and closed when idle for a while. Messages without a connection wait in a queue. The message
//! that uses a connection may send the next one's envelope along.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use campanile_domain::people::address::Mailbox;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout_at};

use crate::email::budget::Budget;
use crate::email::connection::{Connection, OpenError};
use crate::email::server::Server;

#[derive(Debug)]
pub struct Pool {
    server: Server,
    limits: Limits,
    shared: Arc<SharedPool>,
}

#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub connections: usize,
    /// Servers and firewalls dislike connections that never end.
    pub messages_per_connection: u32,
    pub max_idle: Duration,
}

/// A connection that one message uses exclusively.
#[derive(Debug)]
pub struct PooledConnection {
    pub connection: Connection,
    /// Whether it was used before; the server may have closed it meanwhile.
    pub is_used: bool,
    permit: Permit,
}

#[derive(Debug)]
pub enum AcquireError {
    /// All connections stay in use for longer than the caller may wait.
    Busy,
    /// No session can be opened.
    Down(OpenError),
}

/// What the server gets before the content.
#[derive(Debug, Clone)]
pub struct Announcement {
    pub to: Mailbox,
    /// The size of the content.
    pub bytes: usize,
}

/// A waiting message. It gets a permit, or if this is dropped, it must queue again.
#[derive(Debug)]
pub struct Waiter {
    pub announcement: Option<Announcement>,
    sender: oneshot::Sender<Handover>,
}

#[cfg(test)]
impl Waiter {
    pub fn detached(announcement: Announcement) -> Self {
        Waiter { announcement: Some(announcement), sender: oneshot::channel().0 }
    }
}

/// A permit, and the previous holder's connection if that is still usable.
#[derive(Debug)]
struct Handover {
    permit: Permit,
    connection: Option<Connection>,
}

impl Pool {
    pub fn new(server: Server, limits: Limits) -> Self {
        let state = PoolState { free: limits.connections, ..PoolState::default() };
        Pool { server, limits, shared: Arc::new(SharedPool(Mutex::new(state))) }
    }

    pub fn server(&self) -> &Server {
        &self.server
    }

    /// An open connection, or a new one. The server may have got the announcement on it already.
    pub async fn acquire(
        &self,
        announcement: Option<Announcement>,
        budget: Budget,
    ) -> Result<PooledConnection, AcquireError> {
        let Handover { permit, connection } = self.handover(announcement, budget).await?;
        if let Some(connection) = connection {
            return Ok(PooledConnection { connection, is_used: true, permit });
        }
        while let Some(mut connection) = self.shared.take() {
            if connection.idle_since.elapsed() < self.limits.max_idle && connection.is_quiet() {
                return Ok(PooledConnection { connection, is_used: true, permit });
            }
        }
        self.open(permit, budget).await
    }

    async fn handover(
        &self,
        announcement: Option<Announcement>,
        budget: Budget,
    ) -> Result<Handover, AcquireError> {
        loop {
            let permit = match self.shared.permit_or_queue(announcement.as_ref()) {
                Ok(permit) => return Ok(Handover { permit, connection: None }),
                Err(queued) => timeout_at(budget.permit_deadline(), queued).await,
            };
            match permit {
                Ok(Ok(handover)) => return Ok(handover),
                // The task that should have handed it over is gone.
                Ok(Err(_)) => {}
                Err(_) => return Err(AcquireError::Busy),
            }
        }
    }

    /// A new connection in place of a broken one.
    pub async fn replace(
        &self,
        broken: PooledConnection,
        budget: Budget,
    ) -> Result<PooledConnection, AcquireError> {
        self.open(broken.permit, budget).await
    }

    async fn open(&self, permit: Permit, budget: Budget) -> Result<PooledConnection, AcquireError> {
        let connection =
            Connection::open(&self.server, budget.open_deadline()).await.map_err(AcquireError::Down)?;
        Ok(PooledConnection { connection, is_used: false, permit })
    }

    /// The first waiting message, if it may use this connection next and its envelope can be announced on it.
    pub fn next_waiter(&self, connection: &Connection) -> Option<Waiter> {
        let extensions = connection.extensions();
        if !extensions.pipelining || connection.messages >= self.limits.messages_per_connection {
            return None;
        }
        self.shared.next_if(|Announcement { to, bytes }| extensions.refuse(to, *bytes).is_none())
    }

    /// Returns a connection to the pool. `next` is the message that was announced on it, if any.
    pub fn release(&self, pooled: PooledConnection, next: Option<Waiter>) {
        let PooledConnection { connection, mut permit, .. } = pooled;
        let is_used_up = connection.messages >= self.limits.messages_per_connection;
        if let Some(next) = next {
            let connection = connection.is_announced().then_some(connection);
            // If the waiting message has gone, its permit goes to the next one. The server waits for its content, so
            // the connection is closed.
            let _ = next.sender.send(Handover { permit, connection });
            return;
        }
        if !connection.is_usable() {
            return;
        }
        if is_used_up {
            tokio::spawn(async move {
                connection.quit().await;
                drop(permit);
            });
            return;
        }
        if self.shared.put(connection, &mut permit) {
            tokio::spawn(close_idle(Arc::clone(&self.shared), self.limits.max_idle));
        }
    }
}

/// The right to use one connection. When it is dropped, in any way, it goes to the next waiting message.
#[derive(Debug)]
struct Permit(Option<Arc<SharedPool>>);

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(shared) = self.0.take() {
            shared.hand_over(None);
        }
    }
}

#[derive(Debug)]
struct SharedPool(Mutex<PoolState>);

#[derive(Debug, Default)]
struct PoolState {
    /// Idle connections. The last used one is taken first, so that surplus ones grow old and are closed.
    idle: Vec<Connection>,
    /// Whether a task is running that closes old connections.
    has_reaper: bool,
    /// Free permits. While there is one, no message waits.
    free: usize,
    queue: VecDeque<Waiter>,
}

impl SharedPool {
    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn permit_or_queue(
        self: &Arc<Self>,
        announcement: Option<&Announcement>,
    ) -> Result<Permit, oneshot::Receiver<Handover>> {
        let mut state = self.lock();
        if state.free > 0 {
            state.free -= 1;
            return Ok(Permit(Some(Arc::clone(self))));
        }
        let (sender, queued) = oneshot::channel();
        state.queue.push_back(Waiter { announcement: announcement.cloned(), sender });
        Err(queued)
    }

    /// The first waiting message, if its announcement fits.
    fn next_if(&self, fits: impl Fn(&Announcement) -> bool) -> Option<Waiter> {
        let mut state = self.lock();
        while state.queue.front().is_some_and(|waiter| waiter.sender.is_closed()) {
            state.queue.pop_front();
        }
        state.queue.pop_front_if(|waiter| waiter.announcement.as_ref().is_some_and(fits))
    }

    /// Gives a permit, with this connection if there is one, to the next waiting message; without one the permit
    /// becomes free. Returns whether a task must start to watch idle connections.
    fn hand_over(self: &Arc<Self>, mut connection: Option<Connection>) -> bool {
        loop {
            let next = {
                let mut state = self.lock();
                let Some(next) = state.queue.pop_front() else {
                    state.free += 1;
                    let Some(connection) = connection else { return false };
                    state.idle.push(connection);
                    return !std::mem::replace(&mut state.has_reaper, true);
                };
                next
            };
            let handover = Handover { permit: Permit(Some(Arc::clone(self))), connection };
            match next.sender.send(handover) {
                Ok(()) => return false,
                Err(mut back) => {
                    back.permit.0 = None;
                    connection = back.connection.take();
                }
            }
        }
    }

    fn put(self: &Arc<Self>, connection: Connection, permit: &mut Permit) -> bool {
        permit.0 = None;
        self.hand_over(Some(connection))
    }

    fn take(&self) -> Option<Connection> {
        self.lock().idle.pop()
    }

    /// Connections that were idle for too long. `None` if there are no idle connections at all.
    fn too_old(&self, max_idle: Duration) -> Option<Vec<Connection>> {
        let mut state = self.lock();
        if state.idle.is_empty() {
            state.has_reaper = false;
            return None;
        }
        Some(state.idle.extract_if(.., |connection| connection.idle_since.elapsed() >= max_idle).collect())
    }
}

async fn close_idle(shared: Arc<SharedPool>, max_idle: Duration) {
    loop {
        sleep(max_idle / 2).await;
        let Some(too_old) = shared.too_old(max_idle) else { return };
        for connection in too_old {
            connection.quit().await;
        }
    }
}
