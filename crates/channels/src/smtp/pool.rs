//! Warm connections to one server: as many as there are messages at a time, up to a limit, each used for a number of messages and
//! closed when nobody needed it for a while.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout_at};

use super::budget::Budget;
use super::connection::{Connection, Server};

#[derive(Debug)]
pub struct Pool {
    server: Server,
    limits: Limits,
    turns: Arc<Semaphore>,
    idle: Arc<Idle>,
}

#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub connections: usize,
    /// Servers, and the ways to them, dislike connections that never end.
    pub messages_per_connection: u32,
    pub max_idle: Duration,
}

/// A connection that is this message's own for as long as it takes.
#[derive(Debug)]
pub struct Lent {
    pub connection: Connection,
    /// It was used before, so the server may have hung up meanwhile.
    pub is_used: bool,
    turn: OwnedSemaphorePermit,
}

#[derive(Debug)]
pub enum NotLent {
    /// All are in use, for longer than one may wait.
    Busy,
    /// The server can't be spoken to; why, in words.
    Down(String),
}

impl Pool {
    pub fn new(server: Server, limits: Limits) -> Self {
        Pool { server, limits, turns: Arc::new(Semaphore::new(limits.connections)), idle: Arc::default() }
    }

    pub fn server(&self) -> &Server {
        &self.server
    }

    /// A warm connection, or a new one.
    pub async fn lend(&self, budget: Budget) -> Result<Lent, NotLent> {
        let Ok(Ok(turn)) = timeout_at(budget.turn(), Arc::clone(&self.turns).acquire_owned()).await else {
            return Err(NotLent::Busy);
        };
        while let Some(mut connection) = self.idle.take() {
            if connection.idle_since.elapsed() < self.limits.max_idle && connection.is_quiet() {
                return Ok(Lent { connection, is_used: true, turn });
            }
        }
        self.open(turn, budget).await
    }

    /// A new one in the place of one that broke.
    pub async fn replace(&self, broken: Lent, budget: Budget) -> Result<Lent, NotLent> {
        self.open(broken.turn, budget).await
    }

    async fn open(&self, turn: OwnedSemaphorePermit, budget: Budget) -> Result<Lent, NotLent> {
        let connection = Connection::open(&self.server, budget.opening()).await.map_err(NotLent::Down)?;
        Ok(Lent { connection, is_used: false, turn })
    }

    pub fn give_back(&self, lent: Lent) {
        let Lent { connection, turn, .. } = lent;
        if !connection.is_usable() {
            return;
        }
        if connection.messages >= self.limits.messages_per_connection {
            tokio::spawn(async move {
                connection.quit().await;
                drop(turn);
            });
            return;
        }
        if self.idle.put(connection) {
            tokio::spawn(close_idle(Arc::clone(&self.idle), self.limits.max_idle));
        }
    }
}

/// Connections that nobody uses; the one that was used last is taken first, so that those too many get old.
#[derive(Debug, Default)]
struct Idle(Mutex<Shelf>);

#[derive(Debug, Default)]
struct Shelf {
    connections: Vec<Connection>,
    /// Somebody sees to it that they are closed in time.
    is_watched: bool,
}

impl Idle {
    fn open(&self) -> MutexGuard<'_, Shelf> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Option<Connection> {
        self.open().connections.pop()
    }

    /// Whether somebody has to watch from now on.
    fn put(&self, connection: Connection) -> bool {
        let mut here = self.open();
        here.connections.push(connection);
        !std::mem::replace(&mut here.is_watched, true)
    }

    /// Those that are too old; nothing when there are no others either.
    fn too_old(&self, max_idle: Duration) -> Option<Vec<Connection>> {
        let mut here = self.open();
        if here.connections.is_empty() {
            here.is_watched = false;
            return None;
        }
        Some(
            here.connections
                .extract_if(.., |connection| connection.idle_since.elapsed() >= max_idle)
                .collect(),
        )
    }
}

async fn close_idle(idle: Arc<Idle>, max_idle: Duration) {
    loop {
        sleep(max_idle / 2).await;
        let Some(too_old) = idle.too_old(max_idle) else { return };
        for connection in too_old {
            connection.quit().await;
        }
    }
}
