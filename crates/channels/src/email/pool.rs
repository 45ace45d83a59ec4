//! Warm connections to one server: as many as there are messages at a time, up to a limit, each used for a number of messages and
//! closed when nobody needed it for a while. Who finds none waits in line, where the message before may see it and take its envelope along.

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
    counter: Arc<Counter>,
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
    turn: Turn,
}

#[derive(Debug)]
pub enum NotLent {
    /// All are in use, for longer than one may wait.
    Busy,
    /// The server can't be spoken to.
    Down(OpenError),
}

/// What the server is told before it gets a letter.
#[derive(Debug, Clone)]
pub struct Announcement {
    pub to: Mailbox,
    /// Of the letter.
    pub bytes: usize,
}

/// Somebody in line, who is told of its turn; or, when this is dropped, that it must stand in line once more.
#[derive(Debug)]
pub struct Waiting {
    pub announcement: Option<Announcement>,
    lend: oneshot::Sender<Handed>,
}

#[cfg(test)]
impl Waiting {
    pub fn in_no_line(announcement: Announcement) -> Self {
        Waiting { announcement: Some(announcement), lend: oneshot::channel().0 }
    }
}

/// A turn, and the connection of who had it before, if that can go on.
#[derive(Debug)]
struct Handed {
    turn: Turn,
    connection: Option<Connection>,
}

impl Pool {
    pub fn new(server: Server, limits: Limits) -> Self {
        let shelf = Shelf { free: limits.connections, ..Shelf::default() };
        Pool { server, limits, counter: Arc::new(Counter(Mutex::new(shelf))) }
    }

    pub fn server(&self) -> &Server {
        &self.server
    }

    /// A warm connection, or a new one. It may be one whose server has heard the announcement already.
    pub async fn lend(&self, announcement: Option<Announcement>, budget: Budget) -> Result<Lent, NotLent> {
        let Handed { turn, connection } = self.handed(announcement, budget).await?;
        if let Some(connection) = connection {
            return Ok(Lent { connection, is_used: true, turn });
        }
        while let Some(mut connection) = self.counter.take() {
            if connection.idle_since.elapsed() < self.limits.max_idle && connection.is_quiet() {
                return Ok(Lent { connection, is_used: true, turn });
            }
        }
        self.open(turn, budget).await
    }

    async fn handed(&self, announcement: Option<Announcement>, budget: Budget) -> Result<Handed, NotLent> {
        loop {
            let turn = match self.counter.turn_or_line(announcement.as_ref()) {
                Ok(turn) => return Ok(Handed { turn, connection: None }),
                Err(in_line) => timeout_at(budget.permit_deadline(), in_line).await,
            };
            match turn {
                Ok(Ok(handed)) => return Ok(handed),
                // Who was to hand it over is gone.
                Ok(Err(_)) => {}
                Err(_) => return Err(NotLent::Busy),
            }
        }
    }

    /// A new one in the place of one that broke.
    pub async fn replace(&self, broken: Lent, budget: Budget) -> Result<Lent, NotLent> {
        self.open(broken.turn, budget).await
    }

    async fn open(&self, turn: Turn, budget: Budget) -> Result<Lent, NotLent> {
        let connection = Connection::open(&self.server, budget.open_deadline()).await.map_err(NotLent::Down)?;
        Ok(Lent { connection, is_used: false, turn })
    }

    /// Whoever waits for longest, if the connection may be theirs next and their letter can be announced on it.
    pub fn next_in_line(&self, connection: &Connection) -> Option<Waiting> {
        let extensions = connection.extensions();
        if !extensions.pipelining || connection.messages >= self.limits.messages_per_connection {
            return None;
        }
        self.counter.next_if(|Announcement { to, bytes }| extensions.refuse(to, *bytes).is_none())
    }

    /// `next` is who was announced on it, if anybody was.
    pub fn give_back(&self, lent: Lent, next: Option<Waiting>) {
        let Lent { connection, mut turn, .. } = lent;
        let worn = connection.messages >= self.limits.messages_per_connection;
        if let Some(next) = next {
            let connection = connection.is_announced().then_some(connection);
            // Who left the line leaves the turn to others. The server waits for their letter, so the connection ends.
            let _ = next.lend.send(Handed { turn, connection });
            return;
        }
        if !connection.is_usable() {
            return;
        }
        if worn {
            tokio::spawn(async move {
                connection.quit().await;
                drop(turn);
            });
            return;
        }
        if self.counter.put(connection, &mut turn) {
            tokio::spawn(close_idle(Arc::clone(&self.counter), self.limits.max_idle));
        }
    }
}

/// The right to one connection. It passes on to whoever is next in line, however it is lost.
#[derive(Debug)]
struct Turn(Option<Arc<Counter>>);

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(counter) = self.0.take() {
            counter.pass_on(None);
        }
    }
}

#[derive(Debug)]
struct Counter(Mutex<Shelf>);

#[derive(Debug, Default)]
struct Shelf {
    /// That nobody uses; the one that was used last is taken first, so that those too many get old.
    idle: Vec<Connection>,
    /// Somebody sees to it that they are closed in time.
    is_watched: bool,
    /// Turns that nobody has; if there is one, nobody is in line.
    free: usize,
    line: VecDeque<Waiting>,
}

impl Counter {
    fn open(&self) -> MutexGuard<'_, Shelf> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn turn_or_line(
        self: &Arc<Self>,
        announcement: Option<&Announcement>,
    ) -> Result<Turn, oneshot::Receiver<Handed>> {
        let mut here = self.open();
        if here.free > 0 {
            here.free -= 1;
            return Ok(Turn(Some(Arc::clone(self))));
        }
        let (lend, in_line) = oneshot::channel();
        here.line.push_back(Waiting { announcement: announcement.cloned(), lend });
        Err(in_line)
    }

    /// The first in line, if it has something to announce that is fit.
    fn next_if(&self, is_fit: impl Fn(&Announcement) -> bool) -> Option<Waiting> {
        let mut here = self.open();
        while here.line.front().is_some_and(|waiting| waiting.lend.is_closed()) {
            here.line.pop_front();
        }
        here.line.pop_front_if(|waiting| waiting.announcement.as_ref().is_some_and(is_fit))
    }

    /// Gives a turn to whoever is next, with this connection if there is one; it is free if nobody is. Answers whether somebody has to
    /// watch the idle ones from now on.
    fn pass_on(self: &Arc<Self>, mut connection: Option<Connection>) -> bool {
        loop {
            let next = {
                let mut here = self.open();
                let Some(next) = here.line.pop_front() else {
                    here.free += 1;
                    let Some(connection) = connection else { return false };
                    here.idle.push(connection);
                    return !std::mem::replace(&mut here.is_watched, true);
                };
                next
            };
            let handed = Handed { turn: Turn(Some(Arc::clone(self))), connection };
            match next.lend.send(handed) {
                Ok(()) => return false,
                Err(mut back) => {
                    back.turn.0 = None;
                    connection = back.connection.take();
                }
            }
        }
    }

    fn put(self: &Arc<Self>, connection: Connection, turn: &mut Turn) -> bool {
        turn.0 = None;
        self.pass_on(Some(connection))
    }

    fn take(&self) -> Option<Connection> {
        self.open().idle.pop()
    }

    /// Those that are too old; nothing when there are no others either.
    fn too_old(&self, max_idle: Duration) -> Option<Vec<Connection>> {
        let mut here = self.open();
        if here.idle.is_empty() {
            here.is_watched = false;
            return None;
        }
        Some(here.idle.extract_if(.., |connection| connection.idle_since.elapsed() >= max_idle).collect())
    }
}

async fn close_idle(counter: Arc<Counter>, max_idle: Duration) {
    loop {
        sleep(max_idle / 2).await;
        let Some(too_old) = counter.too_old(max_idle) else { return };
        for connection in too_old {
            connection.quit().await;
        }
    }
}
