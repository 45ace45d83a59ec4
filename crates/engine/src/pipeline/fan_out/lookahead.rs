//! Decides the next step of a large audience while the previous step is written. Otherwise the database and this
//! process would take turns waiting for each other (36,900 → 43,700 and 47,300 rows/s, decision 0024). The step is not
//! claimed yet, so the claim of the event checks that it still comes next.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use campanile_domain::fan_out::Cursor;
use campanile_domain::id::EventSeq;
use campanile_domain::rules::Rules;
use campanile_store::{ClaimedEvent, StoreError};
use tokio::time::{Instant, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::backpressure::MIN_FREE_ROWS;
use crate::Engine;
use crate::pipeline::decide::{Decided, ToDecide, decide};
use crate::telemetry::stage_cpu::Timed;

/// The maximum number of large events with a step in memory. The events take turns, and each has at most one step here.
const MAX_EVENTS: usize = 4;
/// A step that was decided longer ago is decided again, because recipients may have changed or quiet hours begun.
const MAX_AGE: Duration = Duration::from_secs(1);
/// The minimum number of recipients of a step. Over all channels, and with the next step in memory, these are 10,000
/// rows.
const MIN_STEP_RECIPIENTS: usize = 1_000;
/// How long a claim waits for a step that is still being decided. The claim holds a connection, and the decision may
/// need one.
const MAX_WAIT: Duration = Duration::from_millis(100);

/// The maximum number of recipients in a step of this event. Their rows fit into the capacity that a free queue has at
/// least. Over one channel, that is twice as many recipients as over two (56,700, 61,200 and 72,300 instead of 49,700,
/// 59,300 and 56,100 rows/s, decision 0024).
pub fn max_step_recipients(rules: &Rules, event: &ClaimedEvent) -> usize {
    let routes = rules.routes(&event.event.event_type);
    let channels = routes.map_or(0, |routes| routes.iter().filter(|(_, route)| route.is_some()).count());
    (MIN_FREE_ROWS / channels.max(1)).max(MIN_STEP_RECIPIENTS)
}

/// The steps by the `seq` of their event.
#[derive(Debug, Default)]
pub struct Lookahead(HashMap<EventSeq, NextStep>);

#[derive(Debug)]
pub struct NextStep {
    /// Where the step begins.
    cursor: Cursor,
    rules: Arc<Rules>,
    recipient_limit: usize,
    begun: Instant,
    deciding: AbortOnDropHandle<Result<Option<Decided>, StoreError>>,
}

impl Lookahead {
    /// Begins to decide about at most `recipient_limit` recipients after `cursor`.
    pub fn begin(
        &mut self,
        engine: &Engine,
        rules: Arc<Rules>,
        event: &ClaimedEvent,
        cursor: &Cursor,
        recipient_limit: usize,
    ) {
        self.0.retain(|_, step| step.begun.elapsed() <= MAX_AGE);
        if self.0.len() >= MAX_EVENTS {
            return;
        }
        let recipient_limit = recipient_limit.min(max_step_recipients(&rules, event));
        let store = Arc::clone(&engine.store);
        let (next, after) = (Arc::clone(&event.event), cursor.clone());
        let step_rules = Arc::clone(&rules);
        let deciding = async move {
            let mut audience = store.read_audience().await?;
            let now = audience.now();
            let step = [ToDecide { event: &next, cursor: Some(&after) }];
            let decided = decide(&step_rules, audience.as_mut(), &step, recipient_limit, now).await?;
            Ok(decided.into_iter().next().flatten())
        };
        let deciding = AbortOnDropHandle::new(tokio::spawn(Timed::new("fan_out", deciding)));
        let step =
            NextStep { cursor: cursor.clone(), rules, recipient_limit, begun: Instant::now(), deciding };
        self.0.insert(event.seq, step);
    }

    pub fn take(&mut self, seq: EventSeq) -> Option<NextStep> {
        self.0.remove(&seq)
    }

    /// Forgets the next steps of events whose last step was not written.
    pub fn forget(&mut self, seqs: &[EventSeq]) {
        for seq in seqs {
            self.0.remove(seq);
        }
    }
}

impl NextStep {
    /// Returns the decided step, if the claimed event is at this step. An error is dropped, because the claim decides
    /// again and reports it.
    pub async fn decided(
        self,
        event: &ClaimedEvent,
        rules: &Arc<Rules>,
        recipient_limit: usize,
    ) -> Option<Decided> {
        let is_next = event.cursor.as_ref() == Some(&self.cursor)
            && Arc::ptr_eq(rules, &self.rules)
            && self.recipient_limit <= recipient_limit
            && self.begun.elapsed() <= MAX_AGE;
        if !is_next {
            return None;
        }
        timeout(MAX_WAIT, self.deciding).await.ok()?.ok()?.ok()?
    }
}
