//! Turns events into outbox rows. A batch claims events, decides about them and commits everything in one transaction,
//! without calling the broker. Then it hands the rows to the publish stage, in memory. An event with a large audience
//! continues on its own, chunk by chunk, and other events overtake it.
//!
//! All workers are equal and share one `Load`. A free worker asks `next_claim` which batch to claim, and runs it
//! (`step.rs`). `burst.rs`, `lookahead.rs` and `backpressure.rs` make the stage faster or hold it back.

mod backpressure;
mod batch;
pub mod burst;
mod load;
mod lookahead;
mod next_claim;
mod step;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use campanile_domain::rules::Rules;
use campanile_store::{ClaimedEvent, StoreError};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::Engine;
use crate::backoff::Backoff;
use crate::pipeline::decide::Decided;
use crate::pipeline::publish::Handover;
use backpressure::Backpressure;
use burst::BurstDetector;
use load::Load;
use lookahead::Lookahead;
use next_claim::{Next, Purpose, Queues, Task, next_claim};

pub use step::Report;

/// Workers of an instance, as many as `next_claim` keeps busy: one each for the round, for an extra batch, and for
/// events that overtake them.
pub const FAN_OUT_WORKERS: usize = 3;
/// Batches in progress at the same time that may be large: the round's, and the extra one.
const LARGE_BATCHES: usize = 2;

/// What the workers of an instance share.
#[derive(Debug)]
pub struct FanOutWorkers {
    engine: Engine,
    handover: Handover,
    state: Mutex<State>,
    lookahead: Mutex<Lookahead>,
    /// There may be a batch for another worker.
    changed: Notify,
}

#[derive(Debug)]
struct State {
    load: Load,
    backpressure: Backpressure,
    burst: BurstDetector,
    backoff: Backoff,
}

/// One of the workers. Stopped, it finishes its batch.
pub async fn run(workers: Arc<FanOutWorkers>, stop: CancellationToken) {
    loop {
        let in_progress = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            in_progress = workers.next() => in_progress,
        };
        let database = &workers.engine.signals.database;
        let ends_round = in_progress.task.purpose == Purpose::Chunk;
        match workers.run_batch(in_progress).await {
            Ok(_) if ends_round => database.record_success("fan_out"),
            Ok(_) => {}
            Err(error) => database.record_failure("fan_out", &error),
        }
    }
}

impl FanOutWorkers {
    pub fn new(engine: Engine, handover: Handover) -> Self {
        let config = &engine.config.fan_out;
        let start = Instant::now() + config.initial_delay;
        let state = State {
            load: Load::new(config.batch, config.poll_interval, start),
            backpressure: Backpressure::default(),
            burst: BurstDetector::new(Instant::now()),
            backoff: Backoff::new(),
        };
        engine.signals.burst.send_replace(false);
        FanOutWorkers {
            engine,
            handover,
            state: Mutex::new(state),
            lookahead: Mutex::default(),
            changed: Notify::default(),
        }
    }

    /// Waits until a batch is due, and runs it.
    pub async fn run_once(&self) -> Result<Report, StoreError> {
        let in_progress = self.next().await;
        self.run_batch(in_progress).await
    }

    /// Waits until a batch is due, and begins it.
    async fn next(&self) -> InProgress<'_> {
        loop {
            let until = match self.begin() {
                Ok(in_progress) => return in_progress,
                Err(until) => until,
            };
            let due = async {
                match until {
                    Some(until) => sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.engine.signals.events.notified() => self.lock().load.signal(),
                () = self.changed.notified() => {}
                () = due => {}
            }
        }
    }

    /// Begins the next batch, or answers until when to wait for one.
    fn begin(&self) -> Result<InProgress<'_>, Option<Instant>> {
        let now = Instant::now();
        let mut state = self.lock();
        state.update_queues(&self.handover, now);
        let task = match next_claim(&state.load, now) {
            Next::Claim(task) => task,
            Next::Wait(until) => return Err(until),
        };
        state.load.begin(task.purpose, now);
        // This worker may have been the only one that waits for what comes after.
        if next_claim(&state.load, now) != Next::Wait(None) {
            self.changed.notify_one();
        }
        drop(state);
        Ok(InProgress { workers: self, task, ended: false })
    }

    async fn run_batch(&self, in_progress: InProgress<'_>) -> Result<Report, StoreError> {
        let Task { claim, recipient_limit, .. } = &in_progress.task;
        let result = self.step(claim.clone(), *recipient_limit).await;
        match &result {
            Ok(report) => in_progress.end(report),
            // Dropping it records the failure.
            Err(_) => drop(in_progress),
        }
        result
    }

    /// Whether a queue has no capacity for another batch.
    fn is_blocked(&self) -> bool {
        let mut state = self.lock();
        state.update_queues(&self.handover, Instant::now());
        state.load.blocked
    }

    /// Changes the state, and tells whether there is a burst now.
    fn update(&self, change: impl FnOnce(&mut State, Instant)) {
        let mut state = self.lock();
        change(&mut state, Instant::now());
        let burst = state.load.burst;
        self.engine.signals.burst.send_if_modified(|was_on| std::mem::replace(was_on, burst) != burst);
    }

    /// What was decided ahead for the step that this event is at.
    async fn decided_ahead(
        &self,
        event: &ClaimedEvent,
        rules: &Arc<Rules>,
        recipient_limit: usize,
    ) -> Option<Decided> {
        let step = self.lookahead().take(event.seq)?;
        step.decided(event, rules, recipient_limit).await
    }

    /// Nothing panics half-way through a change, so what a poisoned lock guards is whole.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lookahead(&self) -> MutexGuard<'_, Lookahead> {
        self.lookahead.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn update_queues(&mut self, handover: &Handover, now: Instant) {
        self.load.blocked = self.backpressure.update_blocked(handover, now);
        self.load.may_probe = self.backpressure.may_probe(now);
    }

    fn end(&mut self, task: &Task, report: &Report, handover: &Handover, now: Instant) {
        let has_full = !report.full_queues.is_empty();
        match (task.purpose, task.queues) {
            (Purpose::OvertakeUrgent, _) | (_, Queues::Blocked) => {}
            (_, Queues::Probed) if report.events == 0 => {}
            (_, Queues::Probed) => self.backpressure.record_probe(has_full, now),
            (_, Queues::Free) if has_full => {
                self.backpressure.record_full(report.full_queues.clone(), handover, now);
            }
            (_, Queues::Free) => {}
        }
        self.update_queues(handover, now);
        self.load.burst = self.burst.record(report.events, now);
        // Not before the round has ended well: its chunk may fail each time, while new events succeed.
        if task.purpose == Purpose::Chunk {
            self.backoff.reset();
        }
        self.load.end(task, report, now);
    }

    fn fail(&mut self, purpose: Purpose, now: Instant) {
        self.load.burst = self.burst.record(0, now);
        let delay = match purpose {
            Purpose::New | Purpose::Chunk => self.backoff.next_delay(),
            Purpose::Extra | Purpose::OvertakeUrgent | Purpose::OvertakeOthers => Duration::ZERO,
        };
        self.load.fail(purpose, now + delay, now);
    }
}

/// A batch that a worker has begun. Dropped before its end, also by a panic, it has failed.
struct InProgress<'a> {
    workers: &'a FanOutWorkers,
    task: Task,
    ended: bool,
}

impl InProgress<'_> {
    fn end(mut self, report: &Report) {
        let handover = &self.workers.handover;
        self.workers.update(|state, now| state.end(&self.task, report, handover, now));
        self.ended = true;
    }
}

impl Drop for InProgress<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.workers.update(|state, now| state.fail(self.task.purpose, now));
            // This worker may be dying.
            self.workers.changed.notify_one();
        }
    }
}
