//! The next step of a large audience, decided while the last one is written: otherwise the database and this process wait for each
//! other in turns. Nothing is claimed for it, so whoever claims the event looks whether it is still the step that comes next.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use campanile_domain::event::Event;
use campanile_domain::fan_out::{Cursor, MAX_CHUNK_ROWS};
use campanile_domain::rules::Rules;
use campanile_store::{ClaimedEvent, StoreError};
use tokio::time::{Instant, timeout};
use tokio_util::task::AbortOnDropHandle;

use crate::Engine;
use crate::pipeline::decide::{Decided, decide};
use crate::pipeline::publish::LOOPS;
use crate::telemetry::stage_cpu::Timed;

/// Large events take turns; of so many a step is kept. Each has the rows of one step in memory.
const MAX_EVENTS: usize = 4;
/// What was decided longer ago is decided again: by then people have moved, and quiet hours begun.
const MAX_AGE: Duration = Duration::from_secs(1);
/// What a queue that has a place has room for: the rows of the longest step, as long as it comes to so many recipients.
const MAX_ROWS: usize = LOOPS * MAX_CHUNK_ROWS;
/// Over all channels, and with the next step in memory, those are 10,000 rows.
const ENOUGH_RECIPIENTS: usize = 1_000;
/// Who claims holds a connection, and this may wait for one.
const MAX_WAIT: Duration = Duration::from_millis(100);

/// How many recipients a step of this event may have.
pub fn longest_step(rules: &Rules, event: &ClaimedEvent) -> usize {
    let routes = rules.routes(&event.event.event_type);
    let channels = routes.map_or(0, |routes| routes.iter().filter(|(_, route)| route.is_some()).count());
    (MAX_ROWS / channels.max(1)).max(ENOUGH_RECIPIENTS)
}

/// By the number of the event.
#[derive(Debug, Default)]
pub struct Ahead(HashMap<i64, NextStep>);

#[derive(Debug)]
struct NextStep {
    /// From where it goes on.
    cursor: Cursor,
    rules: Arc<Rules>,
    room: usize,
    begun: Instant,
    deciding: AbortOnDropHandle<Result<Option<Decided>, StoreError>>,
}

impl Ahead {
    /// Decides about the next recipients behind `cursor`, no more than there is `room` for.
    pub fn begin(
        &mut self,
        engine: &Engine,
        rules: Arc<Rules>,
        event: &ClaimedEvent,
        cursor: &Cursor,
        room: usize,
    ) {
        self.0.retain(|_, step| step.begun.elapsed() <= MAX_AGE);
        if self.0.len() >= MAX_EVENTS {
            return;
        }
        let room = room.min(longest_step(&rules, event));
        let store = Arc::clone(&engine.store);
        let next = ClaimedEvent { cursor: Some(cursor.clone()), ..event.clone() };
        let today = Arc::clone(&rules);
        let deciding = async move {
            let mut people = store.look_up(Event::clone(&next.event)).await?;
            let now = people.now();
            let decided = decide(&today, people.as_mut(), &[&next], room, now).await?;
            Ok(decided.into_iter().next().flatten())
        };
        let deciding = AbortOnDropHandle::new(tokio::spawn(Timed::new("fan_out", deciding)));
        let step = NextStep { cursor: cursor.clone(), rules, room, begun: Instant::now(), deciding };
        self.0.insert(event.seq, step);
    }

    /// What was decided for the step that this claim is about, if anything was. What went wrong with it will go wrong again where
    /// it is told.
    pub async fn take(&mut self, event: &ClaimedEvent, rules: &Arc<Rules>, room: usize) -> Option<Decided> {
        let step = self.0.remove(&event.seq)?;
        let is_next = event.cursor.as_ref() == Some(&step.cursor)
            && Arc::ptr_eq(rules, &step.rules)
            && step.room <= room
            && step.begun.elapsed() <= MAX_AGE;
        if !is_next {
            return None;
        }
        timeout(MAX_WAIT, step.deciding).await.ok()?.ok()?.ok()?
    }

    /// Its last step was not written, so that another comes next.
    pub fn forget(&mut self, seqs: &[i64]) {
        for seq in seqs {
            self.0.remove(seq);
        }
    }
}
