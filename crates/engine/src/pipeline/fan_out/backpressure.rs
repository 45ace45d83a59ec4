//! Queues that have no room for another batch of the fan-out. While there is such a crowd, what is not urgent stays an event, and its order can still change;
//! what is fanned out all the same waits in the database, and has to be claimed and read again. Whom an event concerns is only known when it is
//! decided, so a few are looked at all the same: as long as those are for other queues, they go on.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A batch goes on all the same when nothing has moved for so long, for the sake of those who wait for another queue. Longer than a chunk takes
/// to be published.
const PATIENCE: Duration = Duration::from_millis(500);
/// While still nothing moves, the next one follows sooner.
const PATIENCE_WHEN_STUCK: Duration = Duration::from_millis(100);

/// Who looked and found more of the crowd does not look again for so long.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(500);

/// One for all loops that fan out.
#[derive(Debug, Default)]
pub struct Crowd {
    state: Mutex<State>,
    next_look: Mutex<Option<Instant>>,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Nobody,
    Waiting(Waiting),
    /// Nothing moved. A batch is on its way; if it finds as little room, the next need not wait long.
    Stuck {
        room: usize,
    },
}

#[derive(Debug)]
struct Waiting {
    queues: Vec<String>,
    room: usize,
    moved: Instant,
    patience: Duration,
}

/// What a crowd looks at: how many more rows these queues take, and whether a queue takes another batch of each loop.
pub trait Rooms {
    fn room(&self, queues: &[String]) -> usize;
    fn has_place(&self, queue: &str) -> bool;
}

impl Crowd {
    /// After a batch these queues have no room for another.
    pub fn note(&self, queues: Vec<String>, rooms: &impl Rooms, now: Instant) {
        let room = rooms.room(&queues);
        let mut state = lock(&self.state);
        let patience = match &*state {
            State::Stuck { room: before } if *before == room => PATIENCE_WHEN_STUCK,
            State::Stuck { .. } | State::Nobody => PATIENCE,
            State::Waiting(_) => return,
        };
        *state = State::Waiting(Waiting { queues, room, moved: now, patience });
    }

    /// Whether only what is urgent goes on.
    pub fn is_there(&self, rooms: &impl Rooms, now: Instant) -> bool {
        let mut state = lock(&self.state);
        let State::Waiting(waiting) = &mut *state else { return false };
        let room = rooms.room(&waiting.queues);
        // What is urgent, and what the other loops had begun, takes room without anything moving.
        if room > waiting.room {
            (waiting.moved, waiting.patience) = (now, PATIENCE);
        }
        waiting.room = room;
        if waiting.queues.iter().all(|queue| rooms.has_place(queue)) {
            *state = State::Nobody;
        } else if now.duration_since(waiting.moved) > waiting.patience {
            *state = State::Stuck { room };
        } else {
            return true;
        }
        false
    }

    /// Whether a few events may be looked at although only what is urgent goes on.
    pub fn may_look(&self, now: Instant) -> bool {
        lock(&self.next_look).is_none_or(|next| now >= next)
    }

    /// What came of it: whether some of them were for a queue that has no room.
    pub fn looked(&self, found_more: bool, now: Instant) {
        *lock(&self.next_look) = found_more.then(|| now + LOOK_AGAIN_AFTER);
    }
}

/// Nothing panics half-way through a change, so what a poisoned lock guards is whole.
fn lock<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Of one queue, which takes chunks from ten rows on.
    struct Room(Cell<usize>);

    impl Rooms for Room {
        fn room(&self, _: &[String]) -> usize {
            self.0.get()
        }

        fn has_place(&self, _: &str) -> bool {
            self.0.get() >= 10
        }
    }

    #[test]
    fn a_crowd_that_moves_is_waited_for_until_there_is_room() {
        let (crowd, room, begun) = (Crowd::default(), Room(Cell::new(0)), Instant::now());
        assert!(!crowd.is_there(&room, begun));
        crowd.note(vec!["a".to_owned()], &room, begun);
        for step in 1..10 {
            room.0.set(step as usize);
            assert!(crowd.is_there(&room, begun + PATIENCE * step), "{step}");
        }
        room.0.set(10);
        assert!(!crowd.is_there(&room, begun + PATIENCE * 9));
    }

    #[test]
    fn who_finds_others_looks_on_and_who_finds_more_of_the_crowd_waits() {
        let (crowd, begun) = (Crowd::default(), Instant::now());
        assert!(crowd.may_look(begun));
        crowd.looked(false, begun);
        assert!(crowd.may_look(begun));
        crowd.looked(true, begun);
        assert!(!crowd.may_look(begun + LOOK_AGAIN_AFTER / 2));
        assert!(crowd.may_look(begun + LOOK_AGAIN_AFTER));
    }

    #[test]
    fn room_that_others_take_is_no_move() {
        let (crowd, room, begun) = (Crowd::default(), Room(Cell::new(5)), Instant::now());
        crowd.note(vec!["a".to_owned()], &room, begun);
        room.0.set(4);
        assert!(crowd.is_there(&room, begun + PATIENCE));
        room.0.set(3);
        assert!(!crowd.is_there(&room, begun + PATIENCE * 2));
    }

    #[test]
    fn one_that_does_not_move_is_passed_and_then_sooner() {
        let (crowd, room, begun) = (Crowd::default(), Room(Cell::new(3)), Instant::now());
        crowd.note(vec!["a".to_owned()], &room, begun);
        assert!(crowd.is_there(&room, begun + PATIENCE));
        let later = begun + PATIENCE * 2;
        assert!(!crowd.is_there(&room, later));
        crowd.note(vec!["a".to_owned()], &room, later);
        assert!(crowd.is_there(&room, later));
        assert!(!crowd.is_there(&room, later + PATIENCE_WHEN_STUCK * 2));

        room.0.set(4);
        crowd.note(vec!["a".to_owned()], &room, later);
        assert!(crowd.is_there(&room, later + PATIENCE), "it has moved meanwhile");
    }
}
