//! Accepts events from HTTP and the command line. Producers that use SQL insert events in their own transactions
//! instead.

use std::collections::HashMap;

use campanile_domain::event::NewEvent;
use campanile_domain::id::EventId;
use campanile_store::{Acceptance, Signal, StoreError};

use crate::Engine;
use crate::telemetry::{EVENTS_ACCEPTED, count_duplicates};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    pub event_id: EventId,
    /// False if the event existed already.
    pub created: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum AcceptError {
    /// Positions of events that repeat the id of an earlier one in the same call with another body.
    #[error("an event_id occurs twice in this request with different bodies")]
    Contradictory(Vec<usize>),
    /// Positions of events whose id is stored already with another body.
    #[error("an event_id already exists with a different body")]
    Conflicts(Vec<usize>),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Accepts all events or none. The results are in input order.
pub async fn accept(engine: &Engine, events: Vec<NewEvent>) -> Result<Vec<Accepted>, AcceptError> {
    let ids: Vec<EventId> = events.iter().map(|event| event.event_id.clone()).collect();
    let (distinct, positions) = distinct(events)?;
    let created = match engine.store.accept(distinct).await? {
        Acceptance::Accepted(created) => created,
        Acceptance::Conflicts(conflicts) => {
            return Err(AcceptError::Conflicts(conflicts.into_iter().map(|i| positions[i]).collect()));
        }
    };
    fail::fail_point!("accept.after_commit");
    let new = created.iter().filter(|created| **created).count();
    metrics::counter!(EVENTS_ACCEPTED).increment(new as u64);
    count_duplicates("accept", (ids.len() - new) as u64);
    engine.signals.notify_events();
    engine.notify(Signal::Events);
    let created: HashMap<usize, bool> = positions.into_iter().zip(created).collect();
    let accepted = |(position, event_id)| Accepted {
        event_id,
        created: created.get(&position).copied().unwrap_or(false),
    };
    Ok(ids.into_iter().enumerate().map(accepted).collect())
}

/// The first event of each id, with its position. A repetition with another body is an error.
fn distinct(events: Vec<NewEvent>) -> Result<(Vec<NewEvent>, Vec<usize>), AcceptError> {
    let mut first: HashMap<EventId, usize> = HashMap::new();
    let mut distinct: Vec<NewEvent> = Vec::with_capacity(events.len());
    let mut positions = Vec::new();
    let mut contradictory = Vec::new();
    for (position, event) in events.into_iter().enumerate() {
        match first.get(&event.event_id) {
            Some(&index) if distinct[index].body_hash() != event.body_hash() => contradictory.push(position),
            Some(_) => {}
            None => {
                first.insert(event.event_id.clone(), distinct.len());
                positions.push(position);
                distinct.push(event);
            }
        }
    }
    if contradictory.is_empty() {
        Ok((distinct, positions))
    } else {
        Err(AcceptError::Contradictory(contradictory))
    }
}
