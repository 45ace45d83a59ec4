//! Publishes several groups of chunks of one queue at the same time. Beside an event to a million people, urgent events
//! waited up to a minute when one chunk followed another (decision 0024).

use campanile_domain::queue::Queue;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::handover::HandedChunk;
use super::{PublishError, PublishOutcome, publish, publish_pending_chunk};
use crate::Engine;
use crate::telemetry::stage_cpu::Timed;

/// The maximum number of publish tasks per queue. Each awaits the confirms of all chunks that were handed over by its
/// start.
const MAX_PUBLISH_TASKS: usize = 4;

/// Chunks of one queue that are being published.
#[derive(Debug, Default)]
pub struct PublishTasks {
    tasks: JoinSet<(Source, Result<PublishOutcome, PublishError>)>,
    /// The number of tasks that poll the database.
    polls: usize,
    /// Whether the last poll found a chunk. Then two polls at the same time are worthwhile.
    found: bool,
}

/// Where a chunk comes from: the hand-over, or the database. The number is the version of the signal that caused the
/// poll.
#[derive(Debug, Clone, Copy)]
pub enum Source {
    Handover,
    Database(u64),
}

impl PublishTasks {
    pub fn has_capacity(&self) -> bool {
        self.tasks.len() < MAX_PUBLISH_TASKS
    }

    /// Chunks in the database are older than those handed over and must not starve. The limit keeps tasks free for
    /// handed-over chunks.
    pub fn may_poll(&self) -> bool {
        self.polls < if self.found { MAX_PUBLISH_TASKS / 2 } else { 1 }
    }

    pub fn publish(&mut self, engine: &Engine, handed: Vec<HandedChunk>, stop: &CancellationToken) {
        let (engine, stop) = (engine.clone(), stop.clone());
        let publishing = async move {
            let (chunks, _rows): (Vec<_>, Vec<_>) = handed.into_iter().map(|h| (h.chunk, h.rows)).unzip();
            (Source::Handover, publish(&engine, chunks, &stop).await)
        };
        self.tasks.spawn(Timed::new("publish", publishing));
    }

    pub fn poll(&mut self, engine: &Engine, queue: &Queue, version: u64, stop: &CancellationToken) {
        let (engine, queue, stop) = (engine.clone(), queue.clone(), stop.clone());
        let polling =
            async move { (Source::Database(version), publish_pending_chunk(&engine, &queue, &stop).await) };
        self.tasks.spawn(Timed::new("publish", polling));
        self.polls += 1;
    }

    /// Awaits the next finished task. Never returns while no task runs.
    pub async fn next(&mut self) -> (Source, Result<PublishOutcome, PublishError>) {
        let (source, result) = match self.tasks.join_next().await {
            Some(Ok(ended)) => ended,
            Some(Err(died)) => match died.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => std::future::pending().await,
            },
            None => std::future::pending().await,
        };
        if let Source::Database(_) = source {
            self.polls -= 1;
            self.found = matches!(result, Ok(PublishOutcome::Done));
        }
        (source, result)
    }

    pub async fn finish(&mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}
