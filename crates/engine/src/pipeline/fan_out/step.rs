//! Runs one batch of the fan-out: claims events, decides, commits, and hands the chunks to the publish stage.

use campanile_domain::channel::Channel;
use campanile_domain::event::Failure;
use campanile_domain::event::transition::Step;
use campanile_domain::fan_out::MAX_DECISIONS;
use campanile_domain::id::EventSeq;
use campanile_domain::priority::Priority;
use campanile_domain::queue::Queue;
use campanile_domain::time::Timestamp;
use campanile_store::{Claim, ClaimedEvent, FanOutClaim, FanOutCommit, FanOutStep, Signal, StoreError};

use super::FanOutWorkers;
use super::backpressure::MIN_FREE_ROWS;
use super::batch::{Batch, LARGE, Share, has_begun};
use super::lookahead::max_step_recipients;
use crate::Role;
use crate::pipeline::decide::{ToDecide, decide};
use crate::pipeline::publish::QueueCapacity;
use crate::pipeline::{MAX_FAILURES, publish};
use crate::telemetry::{FAN_OUT_EVENTS, FAN_OUT_ROWS, count_dead_letters, count_duplicates, count_lost};

/// The maximum number of recipients in one transaction. Times five channels, that is at most 10,000 rows.
pub const MAX_RECIPIENTS: usize = 2_000;
/// The maximum number of recipients in the first step of an event that is alone in its transaction. It is one more than
/// the number of decisions that an event may store.
const MAX_RECIPIENTS_ALONE: usize = MAX_DECISIONS + 1;

/// The result of a batch.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub events: usize,
    pub rows: usize,
    /// Rows of events that were too large for their batch. They are not written, but count towards the size of the next
    /// batch.
    pub put_off: usize,
    /// Queues without capacity for another batch.
    pub full_queues: Vec<Queue>,
}

impl FanOutWorkers {
    /// Claims, decides, commits. If the database refuses a batch, the batch is bisected until the faulty event is
    /// alone.
    pub(super) async fn step(&self, claim: Claim, recipient_limit: usize) -> Result<Report, StoreError> {
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
                self.lock().load.last_large = event.seq;
            }
            let written = self.batch(claimed, recipient_limit).await;
            if written.is_err() {
                self.lookahead().forget(&seqs);
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
                        self.count_failure(culprit, error.to_string()).await?;
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
        &self,
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
        let decided_ahead = match to_decide[..] {
            [event] => self.decided_ahead(event, &rules, recipient_limit).await,
            _ => None,
        };
        let decided = if let Some(decided) = decided_ahead {
            vec![Some(decided)]
        } else {
            let undecided: Vec<ToDecide> = to_decide
                .iter()
                .map(|event| ToDecide { event: &event.event, cursor: event.cursor.as_ref() })
                .collect();
            decide(&rules, claim.as_mut(), &undecided, recipient_limit.max(1), now).await?
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
            && !self.is_blocked()
        {
            self.lookahead().begin(&self.engine, rules, event, cursor, recipient_limit);
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
        let queues = chunks.iter().map(|chunk| &chunk.queue);
        let full_queues = queues.filter(|queue| !self.handover.has_capacity(queue, MIN_FREE_ROWS));
        batch.report.full_queues = full_queues.cloned().collect();
        let failed_rows = std::mem::take(&mut batch.failed_rows);
        // The last row of these events may already have been received or have failed.
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
            // Publish gets the chunks only after this, so no row of these events has been received yet.
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

/// Logs events whose fan-out is not retried, and counts them.
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
