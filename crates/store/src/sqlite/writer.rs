//! The writing thread. It takes the work of many callers, runs each in a savepoint, and commits all together.
//! Durability then costs one sync per group and not one per caller.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use rusqlite::Connection;
use tokio::sync::oneshot;

use super::closed;
use super::session::Session;
use crate::StoreError;
use crate::error::explained;

/// The maximum number of callers in a group. It bounds how long the first caller waits for the last.
const MAX_GROUP: usize = 64;

/// Runs inside the transaction, if there is one. Returns a function that reports to the caller once the commit has
/// succeeded or failed.
type Job = Box<dyn FnOnce(Result<&Session, StoreError>) -> Reply + Send>;
type Reply = Box<dyn FnOnce(Result<(), Arc<CommitError>>)>;

/// The error of a commit, reported to every caller of the group.
#[derive(Debug, thiserror::Error)]
enum CommitError {
    /// SQLite rolled back by itself, for example because the disk is full. Nothing of the group was written.
    #[error("the transaction was rolled back; is the disk full?")]
    RolledBack,
    #[error(transparent)]
    Failed(rusqlite::Error),
}

#[derive(Debug)]
pub struct Writer {
    jobs: Sender<Job>,
}

impl Writer {
    pub fn start(connection: Connection) -> Result<Self, StoreError> {
        let (jobs, queue) = mpsc::channel();
        thread::Builder::new()
            .name("sqlite-writer".to_owned())
            .spawn(move || run(&connection, &queue))
            .map_err(|e| {
                StoreError::Unavailable(explained(format!("can't start the writer thread: {e}"), e))
            })?;
        Ok(Writer { jobs })
    }

    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Session) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (answer, answered) = oneshot::channel();
        let job: Job = Box::new(move |transaction| {
            let result = transaction.and_then(|session| in_savepoint(session, work));
            Box::new(move |committed| {
                let result = match committed {
                    Ok(()) => result,
                    Err(error) => result.and(Err(StoreError::Unavailable(error.into()))),
                };
                // A caller that has been cancelled does not need the answer.
                let _ = answer.send(result);
            })
        });
        self.jobs.send(job).map_err(|_| closed())?;
        answered.await.map_err(|_| closed())?
    }
}

fn run(connection: &Connection, queue: &Receiver<Job>) {
    while let Ok(first) = queue.recv() {
        if let Err(error) = connection.execute_batch("BEGIN IMMEDIATE") {
            roll_back(connection);
            first(Err(error.into()))(Ok(()));
            continue;
        }
        let session = Session::new(connection);
        let mut replies = vec![first(Ok(&session))];
        while replies.len() < MAX_GROUP && !connection.is_autocommit() {
            let Ok(job) = queue.try_recv() else { break };
            replies.push(job(Ok(&session)));
        }
        let committed = commit(connection);
        for reply in replies {
            reply(committed.clone());
        }
    }
}

fn commit(connection: &Connection) -> Result<(), Arc<CommitError>> {
    if connection.is_autocommit() {
        return Err(Arc::new(CommitError::RolledBack));
    }
    connection.execute_batch("COMMIT").map_err(|error| {
        roll_back(connection);
        Arc::new(CommitError::Failed(error))
    })
}

fn roll_back(connection: &Connection) {
    if !connection.is_autocommit() {
        // If this fails too, the next `BEGIN` reports it.
        let _ = connection.execute_batch("ROLLBACK");
    }
}

fn in_savepoint<T>(
    session: &Session,
    work: impl FnOnce(&Session) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    session.execute_batch("SAVEPOINT job")?;
    // A panic is a bug in one caller's work and must not cost the others the writing thread. A retry would panic again,
    // so it is refused.
    let result = catch_unwind(AssertUnwindSafe(|| work(session)))
        .unwrap_or_else(|_| Err(StoreError::Refused("a write panicked".into())));
    let end = if result.is_ok() { "RELEASE job" } else { "ROLLBACK TO job; RELEASE job" };
    if let Err(error) = session.execute_batch(end) {
        // Work that can't be rolled back alone is rolled back with the group. The other callers try again.
        roll_back(session);
        return result.and(Err(error.into()));
    }
    result
}
