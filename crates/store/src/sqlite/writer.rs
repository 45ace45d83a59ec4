//! The one thread that writes. It takes what many callers want to write, runs each in a savepoint of its own, and commits
//! all of it at once: durability then costs one sync per group and not one per caller.

use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use rusqlite::Connection;
use tokio::sync::oneshot;

use super::closed;
use crate::StoreError;

/// Bounds how long the first caller of a group waits for the last.
const MAX_GROUP: usize = 64;

/// Runs inside the transaction, and answers what to tell the caller once it is known whether the commit held.
type Job = Box<dyn FnOnce(&Connection) -> Reply + Send>;
type Reply = Box<dyn FnOnce(Result<(), String>)>;

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
            .map_err(|e| StoreError::Unavailable(format!("no thread to write with: {e}")))?;
        Ok(Writer { jobs })
    }

    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (answer, answered) = oneshot::channel();
        let job: Job = Box::new(move |connection| {
            let result = in_savepoint(connection, work);
            Box::new(move |committed| {
                let result = match committed {
                    Ok(()) => result,
                    Err(error) => result.and(Err(StoreError::Unavailable(error))),
                };
                // A caller that is gone does not need the answer.
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
            refuse(first, connection, &error);
            continue;
        }
        let mut replies = vec![first(connection)];
        while replies.len() < MAX_GROUP {
            let Ok(job) = queue.try_recv() else { break };
            replies.push(job(connection));
        }
        let committed = connection.execute_batch("COMMIT").map_err(|error| error.to_string());
        if committed.is_err() && !connection.is_autocommit() {
            // Nothing more can be done if this fails too: the next BEGIN will say so.
            let _ = connection.execute_batch("ROLLBACK");
        }
        for reply in replies {
            reply(committed.clone());
        }
    }
}

/// Without a transaction the job's savepoint is one of its own, and must not outlive it.
fn refuse(job: Job, connection: &Connection, error: &rusqlite::Error) {
    let error = error.to_string();
    let _ = connection.execute_batch("BEGIN");
    let reply = job(connection);
    let _ = connection.execute_batch("ROLLBACK");
    reply(Err(error));
}

fn in_savepoint<T>(
    connection: &Connection,
    work: impl FnOnce(&Connection) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    connection.execute_batch("SAVEPOINT job")?;
    let result = work(connection);
    let end = if result.is_ok() { "RELEASE job" } else { "ROLLBACK TO job; RELEASE job" };
    connection.execute_batch(end)?;
    result
}
