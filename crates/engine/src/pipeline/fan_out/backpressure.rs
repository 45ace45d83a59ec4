//! Queues that have no room for another batch of the fan-out. While there is such a crowd, what is not urgent stays an
//! event, and its order can still change; what is fanned out all the same waits in the database, and has to be claimed
//! and read again. Whom an event concerns is only known when it is decided, so a few are looked at all the same: as
//! long as those are for other queues, they go on.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use campanile_domain::queue::Queue;

/// A batch goes on all the same when nothing has moved for so long, for the sake of those who wait for another queue.
/// Longer than a chunk takes to be published.
const STALL_TIMEOUT: Duration = Duration::from_millis(500);
/// While still nothing moves, the next one follows sooner.
const REPEATED_STALL_TIMEOUT: Duration = Duration::from_millis(100);

/// Who looked and found more of the crowd does not look again for so long.
const PROBE_INTERVAL: Duration = Duration::from_millis(500);

/// One for all loops that fan out.
#[derive(Debug, Default)]
pub struct Backpressure {
    state: Mutex<State>,
    next_probe: Mutex<Option<Instant>>,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Clear,
    Blocked(Blocked),
    /// Nothing moved. A batch is on its way; if it finds as little room, the next need not wait long.
    Stalled {
        free_rows: usize,
    },
}

#[derive(Debug)]
struct Blocked {
    queues: Vec<Queue>,
    free_rows: usize,
    last_progress: Instant,
    stall_timeout: Duration,
}

/// What a crowd looks at: how many more rows these queues take, and whether a queue takes another batch of each loop.
pub trait QueueCapacity {
    fn free_rows(&self, queues: &[Queue]) -> usize;
    fn has_capacity(&self, queue: &Queue) -> bool;
}

impl Backpressure {
    /// After a batch these queues have no room for another.
    pub fn record_full(&self, queues: Vec<Queue>, capacity: &impl QueueCapacity, now: Instant) {
        let free_rows = capacity.free_rows(&queues);
        let mut state = lock(&self.state);
        let stall_timeout = match &*state {
            State::Stalled { free_rows: before } if *before == free_rows => REPEATED_STALL_TIMEOUT,
            State::Stalled { .. } | State::Clear => STALL_TIMEOUT,
            State::Blocked(_) => return,
        };
        *state = State::Blocked(Blocked { queues, free_rows, last_progress: now, stall_timeout });
    }

    /// Whether only what is urgent goes on.
    pub fn update_blocked(&self, capacity: &impl QueueCapacity, now: Instant) -> bool {
        let mut state = lock(&self.state);
        let State::Blocked(blocked) = &mut *state else { return false };
        let free_rows = capacity.free_rows(&blocked.queues);
        // What is urgent, and what the other loops had begun, takes room without anything moving.
        if free_rows > blocked.free_rows {
            (blocked.last_progress, blocked.stall_timeout) = (now, STALL_TIMEOUT);
        }
        blocked.free_rows = free_rows;
        if blocked.queues.iter().all(|queue| capacity.has_capacity(queue)) {
            *state = State::Clear;
        } else if now.duration_since(blocked.last_progress) > blocked.stall_timeout {
            *state = State::Stalled { free_rows };
        } else {
            return true;
        }
        false
    }

    /// Whether a few events may be looked at although only what is urgent goes on.
    pub fn may_probe(&self, now: Instant) -> bool {
        lock(&self.next_probe).is_none_or(|next| now >= next)
    }

    /// What came of it: whether some of them were for a queue that has no room.
    pub fn record_probe(&self, found_blocked: bool, now: Instant) {
        *lock(&self.next_probe) = found_blocked.then(|| now + PROBE_INTERVAL);
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
    struct TestQueue(Cell<usize>);

    impl QueueCapacity for TestQueue {
        fn free_rows(&self, _: &[Queue]) -> usize {
            self.0.get()
        }

        fn has_capacity(&self, _: &Queue) -> bool {
            self.0.get() >= 10
        }
    }

    #[test]
    fn a_blocked_queue_that_makes_progress_is_waited_for_until_there_is_room() {
        let (backpressure, queue, begun) = (Backpressure::default(), TestQueue(Cell::new(0)), Instant::now());
        assert!(!backpressure.update_blocked(&queue, begun));
        backpressure.record_full(vec![Queue::named("a")], &queue, begun);
        for step in 1..10 {
            queue.0.set(step as usize);
            assert!(backpressure.update_blocked(&queue, begun + STALL_TIMEOUT * step), "{step}");
        }
        queue.0.set(10);
        assert!(!backpressure.update_blocked(&queue, begun + STALL_TIMEOUT * 9));
    }

    #[test]
    fn a_probe_that_finds_other_queues_is_repeated_at_once_and_one_that_finds_blocked_queues_waits() {
        let (backpressure, begun) = (Backpressure::default(), Instant::now());
        assert!(backpressure.may_probe(begun));
        backpressure.record_probe(false, begun);
        assert!(backpressure.may_probe(begun));
        backpressure.record_probe(true, begun);
        assert!(!backpressure.may_probe(begun + PROBE_INTERVAL / 2));
        assert!(backpressure.may_probe(begun + PROBE_INTERVAL));
    }

    #[test]
    fn capacity_that_others_take_is_no_progress() {
        let (backpressure, queue, begun) = (Backpressure::default(), TestQueue(Cell::new(5)), Instant::now());
        backpressure.record_full(vec![Queue::named("a")], &queue, begun);
        queue.0.set(4);
        assert!(backpressure.update_blocked(&queue, begun + STALL_TIMEOUT));
        queue.0.set(3);
        assert!(!backpressure.update_blocked(&queue, begun + STALL_TIMEOUT * 2));
    }

    #[test]
    fn a_stalled_queue_is_passed_and_then_sooner() {
        let (backpressure, queue, begun) = (Backpressure::default(), TestQueue(Cell::new(3)), Instant::now());
        backpressure.record_full(vec![Queue::named("a")], &queue, begun);
        assert!(backpressure.update_blocked(&queue, begun + STALL_TIMEOUT));
        let later = begun + STALL_TIMEOUT * 2;
        assert!(!backpressure.update_blocked(&queue, later));
        backpressure.record_full(vec![Queue::named("a")], &queue, later);
        assert!(backpressure.update_blocked(&queue, later));
        assert!(!backpressure.update_blocked(&queue, later + REPEATED_STALL_TIMEOUT * 2));

        queue.0.set(4);
        backpressure.record_full(vec![Queue::named("a")], &queue, later);
        assert!(backpressure.update_blocked(&queue, later + STALL_TIMEOUT), "it has moved meanwhile");
    }
}
