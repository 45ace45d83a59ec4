//! The next step of a large audience, decided while the last one is written: otherwise the database and this process
//! wait for each other in turns. Nothing is claimed for it, so whoever claims the event looks whether it is still the
//! step that comes next.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use campanile_domain::event::Event;
use campanile_domain::fan_out::{Cursor, MAX_CHUNK_ROWS};
use campanile_domain::id::EventSeq;
use campanile_domain::rules::Rules;
use campanile_store::{ClaimedEvent, StoreError};
use tokio::time::{Instant, timeout};
use tokio_util::task::AbortOnDropHandle;

use crate::Engine;
use crate::pipeline::decide::{Decided, decide};
use crate::pipeline::publish::FAN_OUT_WORKERS;
use crate::telemetry::stage_cpu::Timed;

/// Large events take turns; of so many a step is kept. Each has the rows of one step in memory.
const MAX_EVENTS: usize = 4;
/// What was decided longer ago is decided again: by then people have moved, and quiet hours begun.
const MAX_AGE: Duration = Duration::from_secs(1);
/// What a queue that has a place has room for: the rows of the longest step, as long as it comes to so many recipients.
const MAX_ROWS: usize = FAN_OUT_WORKERS * MAX_CHUNK_ROWS;
/// Over all channels, and with the next step in memory, those are 10,000 rows.
const MIN_STEP_RECIPIENTS: usize = 1_000;
/// Who claims holds a connection, and this may wait for one.
const MAX_WAIT: Duration = Duration::from_millis(100);

/// How many recipients a step of this event may have.
pub fn max_step_recipients(rules: &Rules, event: &ClaimedEvent) -> usize {
    let routes = rules.routes(&event.event.event_type);
    let channels = routes.map_or(0, |routes| routes.iter().filter(|(_, route)| route.is_some()).count());
    (MAX_ROWS / channels.max(1)).max(MIN_STEP_RECIPIENTS)
}

/// By the number of the event.
#[derive(Debug, Default)]
pub struct Lookahead(HashMap<EventSeq, NextStep>);

#[derive(Debug)]
struct NextStep {
    /// From where it goes on.
    cursor: Cursor,
    rules: Arc<Rules>,
    recipient_limit: usize,
    begun: Instant,
    deciding: AbortOnDropHandle<Result<Option<Decided>, StoreError>>,
}

impl Lookahead {
    /// Decides about the next recipients behind `cursor`, no more than there is `recipient_limit` for.
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
        let next = ClaimedEvent { cursor: Some(cursor.clone()), ..event.clone() };
        let step_rules = Arc::clone(&rules);
        let deciding = async move {
            let mut audience = store.read_audience(Event::clone(&next.event)).await?;
            let now = audience.now();
            let decided = decide(&step_rules, audience.as_mut(), &[&next], recipient_limit, now).await?;
            Ok(decided.into_iter().next().flatten())
        };
        let deciding = AbortOnDropHandle::new(tokio::spawn(Timed::new("fan_out", deciding)));
        let step =
            NextStep { cursor: cursor.clone(), rules, recipient_limit, begun: Instant::now(), deciding };
        self.0.insert(event.seq, step);
    }

    /// What was decided for the step that this claim is about, if anything was. What went wrong with it will go wrong
    /// again where it is told.
    pub async fn take(
        &mut self,
        event: &ClaimedEvent,
        rules: &Arc<Rules>,
        recipient_limit: usize,
    ) -> Option<Decided> {
        let step = self.0.remove(&event.seq)?;
        let is_next = event.cursor.as_ref() == Some(&step.cursor)
            && Arc::ptr_eq(rules, &step.rules)
            && step.recipient_limit <= recipient_limit
            && step.begun.elapsed() <= MAX_AGE;
        if !is_next {
            return None;
        }
        timeout(MAX_WAIT, step.deciding).await.ok()?.ok()?.ok()?
    }

    /// Its last step was not written, so that another comes next.
    pub fn forget(&mut self, seqs: &[EventSeq]) {
        for seq in seqs {
            self.0.remove(seq);
        }
    }
}
