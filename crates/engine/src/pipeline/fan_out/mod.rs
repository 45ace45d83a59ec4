//! Event → outbox rows. Claims a batch, decides, and commits all of it in one transaction with no broker inside; then
//! hands the rows to publish in memory. A large audience goes on alone, chunk by chunk, while other events pass it.

pub mod backpressure;
mod batch;
pub mod burst;
mod lookahead;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use campanile_domain::channel::Channel;
use campanile_domain::event::Failure;
use campanile_domain::event::transition::Step;
use campanile_domain::fan_out::MAX_DECISIONS;
use campanile_domain::id::EventSeq;
use campanile_domain::priority::Priority;
use campanile_domain::queue::Queue;
use campanile_domain::time::Timestamp;
use campanile_store::{Claim, ClaimedEvent, FanOutClaim, FanOutCommit, FanOutStep, Signal, StoreError};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{MAX_FAILURES, publish};
use crate::backoff::Backoff;
use crate::pipeline::decide::decide;
use crate::pipeline::fan_out::backpressure::QueueCapacity;
use crate::pipeline::fan_out::burst::BurstDetector;
use crate::pipeline::fan_out::lookahead::{Lookahead, max_step_recipients};
use crate::pipeline::publish::Handover;
use crate::telemetry::{FAN_OUT_EVENTS, FAN_OUT_ROWS, count_dead_letters, count_duplicates, count_lost};
use crate::{Engine, Role};
use batch::{Batch, LARGE, Share, has_begun};

/// Recipients of one transaction; times five channels, that is at most 10,000 rows.
const MAX_RECIPIENTS: usize = 2_000;
/// Of an event that begins alone in its transaction: one more than may have their decisions kept.
const MAX_RECIPIENTS_ALONE: usize = MAX_DECISIONS + 1;
/// Of one step of a large audience: short, so that others wait little. While there are none, it is as long as it may
/// be.
const CHUNK_RECIPIENTS: usize = 400;
/// The rows that a batch should come to; the claim is sized by what events came to lately.
const ROWS_PER_BATCH: f64 = 1_000.0;
/// Before there is any experience.
const FIRST_ROWS_PER_EVENT: f64 = 10.0;
/// One large event must not make the batches of small ones behind it tiny.
const MIN_BATCH: usize = 25;
const FIRST_POLL: Duration = Duration::from_millis(10);
/// A batch that has been under way for so long was there before the event that came now, and makes it wait.
const URGENT_WORKER_DELAY: Duration = Duration::from_millis(5);
/// Events that are taken beside it at once, unless they are urgent.
const SMALL_BATCH: usize = 25;
/// The rows that a look at what is not for a crowded queue may come to.
const ROWS_PER_PROBE: f64 = 100.0;

/// What a step came to.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub events: usize,
    pub rows: usize,
    /// Rows of events that turned out too large for their batch: not written, and counted for the size of the next.
    pub put_off: usize,
    /// Queues that have no room for another batch.
    pub full_queues: Vec<Queue>,
    /// As many events were taken as may be at once: more of them wait.
    pub more: bool,
}

pub async fn run(
    engine: Engine,
    handover: Handover,
    batch_in_progress: Arc<BatchInProgress>,
    stop: CancellationToken,
) {
    let mut stage = FanOut::new(engine.clone(), handover);
    let mut backoff = Backoff::new();
    let mut burst = BurstDetector::new(&engine.signals.burst);
    let mut idle = FIRST_POLL;
    if !engine.config.fan_out.initial_delay.is_zero() {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(engine.config.fan_out.initial_delay) => {}
        }
    }
    while !stop.is_cancelled() {
        let signal = engine.signals.events.notified();
        let (begun, batch_guard) = (Instant::now(), BatchGuard::begin(&batch_in_progress));
        let done = stage.run_once().await;
        drop(batch_guard);
        if done.is_ok() {
            engine.signals.database.record_success("fan_out");
        }
        burst.record(done.as_ref().map_or(0, |report| report.events), Instant::now());
        match done {
            Ok(report) if report.events > 0 => {
                backoff.reset();
                idle = FIRST_POLL;
                if report.more {
                    engine.signals.more_events.notify_one();
                } else if burst.is_on() {
                    tokio::select! {
                        () = stop.cancelled() => return,
                        () = tokio::time::sleep_until(begun + burst::CLAIM_INTERVAL) => {}
                    }
                }
            }
            Ok(_) => {
                if stage.handover.update_blocked() || burst.is_on() {
                    idle = FIRST_POLL;
                }
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = signal => idle = FIRST_POLL,
                    () = tokio::time::sleep(idle) => idle = (idle * 2).min(engine.config.fan_out.poll_interval),
                }
            }
            Err(error) => {
                engine.signals.database.record_failure("fan_out", &error);
                backoff.wait(&stop).await;
            }
        }
    }
}

/// While more events wait than a batch takes, another batch at the same time: claim, decision and commit of one follow
/// each other, and leave the database or this process idle.
pub async fn run_extra_worker(engine: Engine, handover: Handover, stop: CancellationToken) {
    let mut stage = FanOut::new(engine.clone(), handover);
    while !stop.is_cancelled() {
        tokio::select! {
            () = stop.cancelled() => return,
            () = engine.signals.more_events.notified() => {}
        }
        if let Err(error) = stage.run_new_batch(stage.limit()).await {
            // The other loop notices it, too, and tries again.
            engine.signals.database.record_failure("fan_out", &error);
        }
    }
}

/// When the batch began that is under way, if there is one.
#[derive(Debug, Default)]
pub struct BatchInProgress(Mutex<Option<Instant>>);

impl BatchInProgress {
    fn lock(&self) -> MutexGuard<'_, Option<Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A batch that is under way, until it is dropped, by a panic too.
struct BatchGuard<'a>(&'a BatchInProgress);

impl<'a> BatchGuard<'a> {
    fn begin(batch_in_progress: &'a BatchInProgress) -> Self {
        *batch_in_progress.lock() = Some(Instant::now());
        BatchGuard(batch_in_progress)
    }
}

impl Drop for BatchGuard<'_> {
    fn drop(&mut self) {
        *self.0.lock() = None;
    }
}

/// Beside the other loop: takes what came while that one is in the middle of something longer. What is urgent first,
/// and of the rest little at a time, so that it is soon there again.
pub async fn run_urgent_worker(
    engine: Engine,
    handover: Handover,
    batch_in_progress: Arc<BatchInProgress>,
    stop: CancellationToken,
) {
    let mut stage = FanOut::new(engine.clone(), handover);
    while !stop.is_cancelled() {
        tokio::select! {
            () = stop.cancelled() => return,
            () = engine.signals.events_for_urgent_worker.notified() => {}
        }
        let Some(begun) = *batch_in_progress.lock() else { continue };
        tokio::time::sleep_until(begun + URGENT_WORKER_DELAY).await;
        let still_in_progress = *batch_in_progress.lock() == Some(begun);
        if still_in_progress && let Err(error) = stage.run_urgent_batch().await {
            // The other loop notices it, too, and tries again.
            engine.signals.database.record_failure("fan_out", &error);
        }
        // Where events come one behind the other, some of them together.
        tokio::time::sleep(URGENT_WORKER_DELAY).await;
    }
}

#[derive(Debug)]
pub struct FanOut {
    engine: Engine,
    handover: Handover,
    rows_per_event: f64,
    /// Large events take turns: the last that had one.
    last_large: EventSeq,
    lookahead: Lookahead,
}

impl FanOut {
    pub fn new(engine: Engine, handover: Handover) -> Self {
        FanOut {
            engine,
            handover,
            rows_per_event: FIRST_ROWS_PER_EVENT,
            last_large: EventSeq::default(),
            lookahead: Lookahead::default(),
        }
    }

    /// How many events to take at once.
    fn limit(&self) -> usize {
        self.events_for_rows(ROWS_PER_BATCH).max(MIN_BATCH).min(self.engine.config.fan_out.batch)
    }

    /// How many come to so many rows, by what events came to lately.
    fn events_for_rows(&self, rows: f64) -> usize {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "small, and no event has less than one"
        )]
        let events = (rows / self.rows_per_event) as usize;
        events
    }

    async fn run_urgent_batch(&mut self) -> Result<(), StoreError> {
        self.step(Claim::Urgent { limit: self.limit() }, MAX_RECIPIENTS).await?;
        self.run_new_batch(SMALL_BATCH.min(self.limit())).await?;
        Ok(())
    }

    /// A batch of fresh events. While a queue has no room: what is urgent, and a few others as long as they are for
    /// other queues.
    async fn run_new_batch(&mut self, limit: usize) -> Result<Report, StoreError> {
        let blocked = self.handover.update_blocked();
        let probe = blocked && self.handover.may_probe();
        let claim = match (blocked, probe) {
            (false, _) => Claim::New { limit },
            (true, true) => {
                Claim::New { limit: self.events_for_rows(ROWS_PER_PROBE).clamp(1, SMALL_BATCH.min(limit)) }
            }
            (true, false) => Claim::Urgent { limit },
        };
        let mut report = self.step(claim, MAX_RECIPIENTS).await?;
        if probe && report.events > 0 {
            self.handover.record_probe(!report.full_queues.is_empty());
        } else if !blocked && !report.full_queues.is_empty() {
            self.handover.record_full_queues(std::mem::take(&mut report.full_queues));
        }
        report.more = report.events >= limit;
        if report.events > 0 {
            #[expect(clippy::cast_precision_loss, reason = "an estimate")]
            let now = (report.rows + report.put_off) as f64 / report.events as f64;
            self.rows_per_event = (0.7 * self.rows_per_event + 0.3 * now).max(1.0);
        }
        Ok(report)
    }

    /// One batch of fresh events, then one chunk of a large one, so that neither starves the other.
    pub async fn run_once(&mut self) -> Result<Report, StoreError> {
        let (blocked, after) = (self.handover.update_blocked(), self.last_large);
        let report = self.run_new_batch(self.limit()).await?;
        let recipient_limit = if report.events == 0 { MAX_RECIPIENTS } else { CHUNK_RECIPIENTS };
        let claim = if blocked { Claim::UrgentContinuing { after } } else { Claim::Continuing { after } };
        let mut chunk = self.step(claim, recipient_limit).await?;
        if !blocked && !chunk.full_queues.is_empty() {
            self.handover.record_full_queues(std::mem::take(&mut chunk.full_queues));
        }
        Ok(Report {
            events: report.events + chunk.events,
            rows: report.rows + chunk.rows,
            put_off: report.put_off,
            full_queues: Vec::new(),
            more: report.more,
        })
    }

    /// Claims, decides, commits. A batch that the database refuses is bisected until the culprit is alone.
    async fn step(&mut self, claim: Claim, recipient_limit: usize) -> Result<Report, StoreError> {
        let mut report = Report::default();
        let mut claims = vec![(claim, recipient_limit)];
        while let Some((claim, recipient_limit)) = claims.pop() {
            let Some(claimed) = self.engine.store.claim_events(claim).await? else { continue };
            count_dead_letters("fan_out", claimed.unreadable());
            if claimed.events().is_empty() {
                continue;
            }
            let seqs: Vec<EventSeq> = claimed.events().iter().map(|event| event.seq).collect();
            if let [event] = claimed.events()
                && event.cursor.is_some()
            {
                self.last_large = event.seq;
            }
            let written = self.batch(claimed, recipient_limit).await;
            if written.is_err() {
                self.lookahead.forget(&seqs);
            }
            match written {
                Ok(batch) => {
                    report.events += batch.report.events;
                    report.rows += batch.report.rows;
                    report.put_off += batch.report.put_off;
                    report.full_queues.extend(batch.report.full_queues);
                    let again = batch.put_off.chunks(MAX_RECIPIENTS / LARGE);
                    claims.extend(again.map(|seqs| (Claim::ByIds(seqs.to_vec()), MAX_RECIPIENTS)));
                }
                Err(StoreError::Refused(error)) => {
                    if let [culprit] = seqs[..] {
                        report.events += 1;
                        self.count_failure(culprit, error).await?;
                    } else {
                        let (left, right) = seqs.split_at(seqs.len() / 2);
                        claims.push((Claim::ByIds(right.to_vec()), recipient_limit));
                        claims.push((Claim::ByIds(left.to_vec()), recipient_limit));
                    }
                }
                Err(StoreError::Lost(reason)) => {
                    count_lost("event", seqs.len() as u64);
                    tracing::info!(%reason, "lease of a fan-out lost; another instance has taken it over");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(report)
    }

    async fn count_failure(&self, seq: EventSeq, error: String) -> Result<(), StoreError> {
        tracing::error!(seq = seq.0, %error, "fan-out of an event failed; it is retried up to 5 times");
        let failure = Failure::new("FAN_OUT_ERROR", error);
        let given_up = self.engine.store.count_failure(seq, failure, MAX_FAILURES).await?;
        count_dead_letters("fan_out", u64::from(given_up));
        Ok(())
    }

    async fn batch(
        &mut self,
        mut claim: Box<dyn FanOutClaim>,
        recipient_limit: usize,
    ) -> Result<Batch, StoreError> {
        let events = claim.events().to_vec();
        let to_decide: Vec<&ClaimedEvent> =
            events.iter().filter(|e| !e.known && e.cancelled.is_none()).collect();
        let rules = self.engine.rules.current();
        let recipient_limit = match &events[..] {
            [event] if !has_begun(event) => MAX_RECIPIENTS_ALONE,
            [event] => recipient_limit.min(max_step_recipients(&rules, event)),
            many => recipient_limit / many.len(),
        };
        let share = if events.len() == 1 { Share::Whole } else { Share::UpTo(recipient_limit) };
        let now = claim.now();
        let lookahead = match to_decide[..] {
            [event] => self.lookahead.take(event, &rules, recipient_limit).await,
            _ => None,
        };
        let decided = match lookahead {
            Some(decided) => vec![Some(decided)],
            None => decide(&rules, claim.as_mut(), &to_decide, recipient_limit.max(1), now).await?,
        };
        let mut batch = Batch::default();
        let mut decided = decided.into_iter();
        for event in &events {
            if event.known {
                batch.add_step(event, event.event.body_hash(), Vec::new(), None, Step::Known);
            } else if let Some(reason) = &event.cancelled {
                let cancelled = Step::Cancelled(reason.clone());
                batch.add_step(event, event.event.body_hash(), Vec::new(), None, cancelled);
            } else {
                match decided.next().flatten() {
                    Some((hash, plan)) => batch.add(event, hash, plan, share),
                    None => batch.put_off.push(event.seq),
                }
            }
        }
        if let ([event], [FanOutStep { step: Step::Continues(cursor), .. }]) = (&events[..], &batch.steps[..])
            && !self.handover.update_blocked()
        {
            self.lookahead.begin(&self.engine, rules, event, cursor, recipient_limit);
        }
        self.commit(claim, batch).await
    }

    async fn commit(&self, claim: Box<dyn FanOutClaim>, mut batch: Batch) -> Result<Batch, StoreError> {
        if batch.steps.is_empty() {
            return Ok(batch);
        }
        let mut chunks = publish::chunks(std::mem::take(&mut batch.rows), self.engine.config.publish.batch);
        let slots = self.handover.reserve(chunks.iter_mut());
        let waiting: Vec<Queue> = chunks.iter().filter(|c| !c.leased).map(|c| c.queue.clone()).collect();
        let full_queues =
            chunks.iter().map(|chunk| &chunk.queue).filter(|queue| !self.handover.has_capacity(queue));
        batch.report.full_queues = full_queues.cloned().collect();
        let failed_rows = std::mem::take(&mut batch.failed_rows);
        // Whose last row may have been received, or failed, already.
        let ended =
            batch.steps.iter().filter(|step| step.cursor_before.is_some()).map(|step| &step.event.event_id);
        let touched: Vec<_> = failed_rows.iter().map(|row| &row.event_id).chain(ended).cloned().collect();
        let dead_letters = log_failures(&batch.steps) + failed_rows.len() as u64;
        let known = batch.steps.iter().filter(|step| matches!(step.step, Step::Known)).count();
        let between_chunks = batch.steps.iter().any(|step| matches!(step.step, Step::Continues(_)));
        let rows = chunks.iter().flat_map(|chunk| &chunk.rows);
        let written: Vec<(Channel, Priority, Timestamp)> =
            rows.map(|row| (row.row.key.channel, row.row.priority, row.event.created_at)).collect();
        let commit = FanOutCommit {
            instance: self.engine.config.instance.clone(),
            steps: std::mem::take(&mut batch.steps),
            chunks,
            failed_rows,
            lease: self.engine.config.lease,
        };
        fail::fail_point!("fan_out.before_commit");
        let leased = claim.commit(commit).await?;
        fail::fail_point!("fan_out.after_commit");
        if between_chunks {
            fail::fail_point!("fan_out.between_chunks");
        }
        count_dead_letters("fan_out", dead_letters);
        count_duplicates("fan_out", known as u64);
        let now = self.engine.clock.now();
        for (channel, priority, created_at) in written {
            self.engine.latencies.fan_out.observe(channel, priority, created_at, now);
        }
        metrics::counter!(FAN_OUT_EVENTS).increment(batch.report.events as u64);
        metrics::counter!(FAN_OUT_ROWS).increment(batch.report.rows as u64);
        if self.engine.config.roles.has(Role::Receive) {
            // Before anything of them can be received.
            for (seq, event_id, rows) in batch.whole.drain(..) {
                self.engine.completion.expect(seq, event_id, rows);
            }
        }
        for (slot, chunk) in slots.into_iter().zip(leased) {
            slot.send(chunk);
        }
        for queue in &waiting {
            self.engine.signals.chunks(queue).notify();
        }
        if !waiting.is_empty() {
            self.engine.notify(Signal::Chunks);
        }
        self.engine.completion.add_candidates(touched);
        Ok(batch)
    }
}

/// What nobody will try again must not go unnoticed. Answers how many there are.
fn log_failures(steps: &[FanOutStep]) -> u64 {
    let mut dead_letters = 0;
    for step in steps {
        if let Step::Failed(failure) | Step::Stopped { failure, .. } = &step.step {
            dead_letters += 1;
            tracing::warn!(event_id = %step.event.event_id, code = failure.code,
                "fan-out of an event failed permanently; a dead letter was written");
        }
    }
    dead_letters
}
