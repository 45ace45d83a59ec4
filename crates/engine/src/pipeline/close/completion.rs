//! Which events are complete. This instance knows how many rows those have that it fanned out, and counts what it
//! receives of them: when all were, the event is closed without another look. Of any other event it only knows that
//! something was received, and whether that was the last row is for the database to say.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use campanile_domain::id::{EventId, EventSeq};
use tokio::sync::Notify;

/// For so long it is waited for the rest of an event's rows. Another instance may have received them, or a row has
/// failed.
pub const COMPLETION_TIMEOUT: Duration = Duration::from_secs(5);
/// Events that are counted at the same time; of more than that the database is asked.
const MAX_COUNTED: usize = 100_000;

#[derive(Debug, Default)]
pub struct Completion {
    known: Mutex<Known>,
    /// Something may be closed.
    pub changed: Notify,
}

#[derive(Debug, Default)]
struct Known {
    counted: HashMap<EventId, Counted>,
    /// The same events, the oldest first; and those that are complete by now.
    since: VecDeque<(Instant, EventId)>,
    found: Complete,
}

#[derive(Debug)]
struct Counted {
    seq: EventSeq,
    /// Rows that were not received yet.
    left: usize,
}

/// What can be closed.
#[derive(Debug, Default)]
pub struct Complete {
    /// Every row was received.
    pub counted: Vec<(EventSeq, EventId)>,
    /// Perhaps every row was.
    pub candidates: HashSet<EventId>,
}

impl Completion {
    /// An event was fanned out to so many rows, all of them in one transaction that has committed.
    pub fn expect(&self, seq: EventSeq, event_id: EventId, rows: usize) {
        let mut known = self.lock();
        if rows > 0 && known.since.len() < MAX_COUNTED {
            known.since.push_back((Instant::now(), event_id.clone()));
            known.counted.insert(event_id, Counted { seq, left: rows });
        }
    }

    /// Rows were received that were not there before: an entry for each of them.
    pub fn received(&self, rows: impl IntoIterator<Item = EventId>) {
        let mut known = self.lock();
        let Known { counted, found, .. } = &mut *known;
        for event_id in rows {
            match counted.get_mut(&event_id) {
                Some(event) if event.left > 1 => event.left -= 1,
                Some(event) => {
                    found.counted.push((event.seq, event_id.clone()));
                    counted.remove(&event_id);
                }
                None => drop(found.candidates.insert(event_id)),
            }
        }
        self.notify(&known);
    }

    /// Something else happened to these events, after which they may be complete.
    pub fn add_candidates(&self, events: impl IntoIterator<Item = EventId>) {
        let mut known = self.lock();
        known.found.candidates.extend(events);
        self.notify(&known);
    }

    pub fn take(&self) -> Complete {
        let mut known = self.lock();
        while let Some((_, event_id)) =
            known.since.pop_front_if(|(since, _)| since.elapsed() >= COMPLETION_TIMEOUT)
        {
            if known.counted.remove(&event_id).is_some() {
                known.found.candidates.insert(event_id);
            }
        }
        std::mem::take(&mut known.found)
    }

    fn notify(&self, known: &Known) {
        if !known.found.is_empty() {
            self.changed.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Complete {
    pub fn is_empty(&self) -> bool {
        self.counted.is_empty() && self.candidates.is_empty()
    }

    pub fn len(&self) -> usize {
        self.counted.len() + self.candidates.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(id: &str) -> EventId {
        EventId::stored(id)
    }

    fn taken(completion: &Completion) -> (Vec<i64>, Vec<String>) {
        let complete = completion.take();
        let counted = complete.counted.iter().map(|(seq, _)| seq.0).collect();
        (counted, complete.candidates.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn an_event_is_complete_with_its_last_row() {
        let completion = Completion::default();
        completion.expect(EventSeq(7), id("a"), 3);
        completion.received(vec![id("a"), id("a")]);
        assert!(completion.take().is_empty());
        completion.received(vec![id("a")]);
        assert_eq!(taken(&completion), (vec![7], vec![]));
        assert!(completion.take().is_empty(), "once is enough");
    }

    #[test]
    fn whether_an_event_of_somebody_else_is_complete_is_asked() {
        let completion = Completion::default();
        completion.received(vec![id("a"), id("a")]);
        assert_eq!(taken(&completion), (vec![], vec!["a".to_owned()]));
        completion.expect(EventSeq(7), id("b"), 2);
        completion.add_candidates([id("b")]);
        assert_eq!(taken(&completion), (vec![], vec!["b".to_owned()]), "a row of it may have failed");
    }

    #[test]
    fn an_event_whose_rows_others_received_is_asked_for_after_a_while() {
        let completion = Completion::default();
        completion.expect(EventSeq(7), id("a"), 2);
        completion.received(vec![id("a")]);
        completion.lock().since[0].0 =
            Instant::now().checked_sub(COMPLETION_TIMEOUT).expect("the machine is up");
        assert_eq!(taken(&completion), (vec![], vec!["a".to_owned()]));
        completion.received(vec![id("a")]);
        assert_eq!(taken(&completion), (vec![], vec!["a".to_owned()]), "it is not counted any more");
    }

    #[test]
    fn no_more_are_counted_than_fit() {
        let completion = Completion::default();
        for n in 0..=MAX_COUNTED {
            completion.expect(EventSeq(0), id(&n.to_string()), 1);
        }
        assert_eq!(completion.lock().counted.len(), MAX_COUNTED);
    }
}
