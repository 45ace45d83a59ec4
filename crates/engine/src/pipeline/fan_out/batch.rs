//! Turns the decisions about a batch of events into the writes of its transaction.

use std::sync::Arc;

use campanile_domain::event::transition::Step;
use campanile_domain::event::{BodyHash, Failure};
use campanile_domain::fan_out::{Cursor, End, MAX_DECISIONS, OutboxRow, Plan};
use campanile_domain::id::{EntityRef, EventId, EventSeq};
use campanile_store::{ChunkRow, ClaimedEvent, FanOutStep};

use crate::pipeline::fan_out::Report;

/// An event that does not fit into a share of this many recipients continues with a cursor. A smaller event only needs
/// a larger share.
pub const LARGE: usize = 250;

/// What one transaction will write.
#[derive(Debug, Default)]
pub struct Batch {
    pub steps: Vec<FanOutStep>,
    pub rows: Vec<ChunkRow>,
    pub failed_rows: Vec<OutboxRow>,
    /// Events that are fanned out as a whole, with the number of their rows.
    pub whole: Vec<(EventSeq, EventId, usize)>,
    pub report: Report,
    /// Events that need a larger share of a transaction, or that the step had no time for. Nothing is written for them.
    pub put_off: Vec<EventSeq>,
}

/// The part of its transaction that an event may use.
#[derive(Debug, Clone, Copy)]
pub enum Share {
    Whole,
    UpTo(usize),
}

/// Whether some recipients of the event have been notified already.
pub fn has_begun(event: &ClaimedEvent) -> bool {
    event.cursor.as_ref().is_some_and(Cursor::has_begun)
}

impl Batch {
    pub fn add(&mut self, event: &ClaimedEvent, hash: BodyHash, plan: Result<Plan, Failure>, share: Share) {
        let plan = match plan {
            Ok(plan) => plan,
            Err(failure) if has_begun(event) => {
                let summary = event.cursor.as_ref().map(|cursor| cursor.summary.clone()).unwrap_or_default();
                return self.add_step(event, hash, Vec::new(), None, Step::Stopped { summary, failure });
            }
            Err(failure) => return self.add_step(event, hash, Vec::new(), None, Step::Failed(failure)),
        };
        let Plan { rows, decisions, entities, end } = plan;
        let step = match (end, share) {
            (End::Continues(_), Share::UpTo(recipient_limit)) if recipient_limit < LARGE => {
                self.report.put_off += rows.len();
                return self.put_off.push(event.seq);
            }
            // The event starts again alone in a transaction, with a cursor at the start. Other events may overtake it.
            (End::Continues(_), Share::UpTo(_)) => {
                self.report.put_off += rows.len();
                return self.add_step(event, hash, Vec::new(), None, Step::Continues(Cursor::default()));
            }
            (End::Continues(cursor), Share::Whole) => Step::Continues(cursor),
            (End::Finished(summary), _) => Step::Finished(summary),
            (End::Failed(failure), _) => Step::Failed(failure),
        };
        let whole =
            !has_begun(event) && matches!(step, Step::Finished(_)) && decisions.len() <= MAX_DECISIONS;
        if matches!(step, Step::Finished(_)) && event.cursor.is_none() {
            self.whole.push((event.seq, event.event.event_id.clone(), rows.len()));
        }
        let decisions = whole.then(|| serde_json::to_string(&decisions).unwrap_or_default());
        for row in rows {
            if row.failure.is_some() {
                self.failed_rows.push(row);
            } else {
                self.rows.push(ChunkRow { row, event: Arc::clone(&event.event) });
                self.report.rows += 1;
            }
        }
        self.add_step(event, hash, entities.into_iter().collect(), decisions, step);
    }

    pub fn add_step(
        &mut self,
        event: &ClaimedEvent,
        body_hash: BodyHash,
        entities: Vec<(EntityRef, bool)>,
        decisions: Option<String>,
        step: Step,
    ) {
        self.report.events += 1;
        self.steps.push(FanOutStep {
            seq: event.seq,
            event: Arc::clone(&event.event),
            body_hash,
            cursor_before: event.cursor.clone(),
            decisions,
            entities,
            step,
        });
    }
}
