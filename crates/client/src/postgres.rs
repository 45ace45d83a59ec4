//! What both PostgreSQL drivers share. `campanile.emit` inserts the event, wakes the engine at commit, and returns
//! whether the event is new.

use crate::Event;

/// Times are passed as text, so that no driver needs a time library.
pub const EMIT: &str =
    "SELECT campanile.emit($1::text, $2::text, $3::text, $4::text, $5::text::jsonb, $6::text,
                                              $7::text::timestamptz)";

pub const EMIT_ALL: &str =
    "SELECT e.place, campanile.emit(e.event_id, e.event_type, e.aggregate_type, e.aggregate_id,
    e.payload::jsonb, e.priority,
                                    e.occurred_at::timestamptz) AS created
     FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[]) WITH ORDINALITY
          AS e (event_id, event_type, aggregate_type, aggregate_id, payload, priority, occurred_at, place)";

pub const CANCEL: &str = "INSERT INTO campanile.event_cancel (event_id, reason) VALUES ($1::text, \
    $2::text) ON CONFLICT DO NOTHING";

/// Events as columns, ordered by id, so that two transactions that emit the same events cannot deadlock.
#[derive(Debug)]
pub struct Batch<'a> {
    events: Vec<(usize, &'a Event)>,
}

impl<'a> Batch<'a> {
    pub fn new(events: &'a [Event]) -> Self {
        let mut events: Vec<_> = events.iter().enumerate().collect();
        events.sort_by_key(|(_, event)| event.event_id.as_str());
        Batch { events }
    }

    pub fn column<T>(&self, of: impl Fn(&'a Event) -> T) -> Vec<T> {
        self.events.iter().map(|(_, event)| of(event)).collect()
    }

    /// The results in the caller's order.
    pub fn in_order(&self, created: impl IntoIterator<Item = (i64, bool)>) -> Vec<bool> {
        let mut answers = vec![false; self.events.len()];
        for (place, created) in created {
            let of_place = usize::try_from(place - 1).ok().and_then(|place| self.events.get(place));
            if let Some((position, _)) = of_place {
                answers[*position] = created;
            }
        }
        answers
    }
}
