//! Backpressure: tracks queues without capacity for another batch of the fan-out. While any queue is full, only `HIGH`
//! events are fanned out. The other events are not turned into rows yet, so their order can still change. As rows they
//! would wait in the database, and would have to be claimed and read again (WAL 2,500 → 1,900 bytes each, decision
//! 0024).
//!
//! The queues of an event are known only after it is decided. So a few events are claimed anyway, as a probe. As long
//! as the probed events are for other queues, further probes follow. With one full queue, the latency of events for
//! other queues fell: p50 72 → 42 ms, p99 340 → 128 ms (decision 0024).

use std::time::Duration;

use campanile_domain::fan_out::MAX_CHUNK_ROWS;
use campanile_domain::queue::Queue;
use tokio::time::Instant;

use super::LARGE_BATCHES;
use crate::pipeline::publish::QueueCapacity;

/// Rows that a queue must have capacity for: a chunk of each large batch that may be in progress.
pub const MIN_FREE_ROWS: usize = LARGE_BATCHES * MAX_CHUNK_ROWS;
/// If no row leaves the full queues for this time, one batch is fanned out anyway, for the sake of other queues. The
/// timeout is longer than publishing a chunk takes.
const STALL_TIMEOUT: Duration = Duration::from_millis(500);
/// The stall timeout after a batch during which still no row left the full queues.
const REPEATED_STALL_TIMEOUT: Duration = Duration::from_millis(100);
/// Minimum time between two probes that found events for full queues.
const PROBE_INTERVAL: Duration = Duration::from_millis(500);

#[derive(Debug, Default)]
pub struct Backpressure {
    state: State,
    next_probe: Option<Instant>,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Clear,
    Blocked(Blocked),
    /// No row left the full queues, so one batch is fanned out. If free capacity is unchanged after it, the next stall
    /// timeout is shorter.
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

impl Backpressure {
    /// Records that these queues have no capacity for another batch.
    pub fn record_full(&mut self, queues: Vec<Queue>, capacity: &impl QueueCapacity, now: Instant) {
        let free_rows = capacity.free_rows(&queues);
        let stall_timeout = match &self.state {
            State::Stalled { free_rows: before } if *before == free_rows => REPEATED_STALL_TIMEOUT,
            State::Stalled { .. } | State::Clear => STALL_TIMEOUT,
            State::Blocked(_) => return,
        };
        self.state = State::Blocked(Blocked { queues, free_rows, last_progress: now, stall_timeout });
    }

    /// Updates the state. Returns whether only `HIGH` events are fanned out.
    pub fn update_blocked(&mut self, capacity: &impl QueueCapacity, now: Instant) -> bool {
        let State::Blocked(blocked) = &mut self.state else { return false };
        let free_rows = capacity.free_rows(&blocked.queues);
        // Only an increase is progress. `HIGH` events, and batches that had begun before, reduce the free capacity.
        if free_rows > blocked.free_rows {
            (blocked.last_progress, blocked.stall_timeout) = (now, STALL_TIMEOUT);
        }
        blocked.free_rows = free_rows;
        if blocked.queues.iter().all(|queue| capacity.has_capacity(queue, MIN_FREE_ROWS)) {
            self.state = State::Clear;
        } else if now.duration_since(blocked.last_progress) > blocked.stall_timeout {
            self.state = State::Stalled { free_rows };
        } else {
            return true;
        }
        false
    }

    /// Whether a few events may be claimed while a queue is full.
    pub fn may_probe(&self, now: Instant) -> bool {
        self.next_probe.is_none_or(|next| now >= next)
    }

    /// Records whether a probe found events for full queues.
    pub fn record_probe(&mut self, found_blocked: bool, now: Instant) {
        self.next_probe = found_blocked.then(|| now + PROBE_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// A queue that has capacity if at least ten rows are free.
    struct TestQueue(Cell<usize>);

    impl QueueCapacity for TestQueue {
        fn free_rows(&self, _: &[Queue]) -> usize {
            self.0.get()
        }

        fn has_capacity(&self, _: &Queue, _: usize) -> bool {
            self.0.get() >= 10
        }
    }

    #[test]
    fn a_blocked_queue_that_makes_progress_is_waited_for_until_there_is_room() {
        let (mut backpressure, queue, begun) =
            (Backpressure::default(), TestQueue(Cell::new(0)), Instant::now());
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
        let (mut backpressure, begun) = (Backpressure::default(), Instant::now());
        assert!(backpressure.may_probe(begun));
        backpressure.record_probe(false, begun);
        assert!(backpressure.may_probe(begun));
        backpressure.record_probe(true, begun);
        assert!(!backpressure.may_probe(begun + PROBE_INTERVAL / 2));
        assert!(backpressure.may_probe(begun + PROBE_INTERVAL));
    }

    #[test]
    fn capacity_that_others_take_is_no_progress() {
        let (mut backpressure, queue, begun) =
            (Backpressure::default(), TestQueue(Cell::new(5)), Instant::now());
        backpressure.record_full(vec![Queue::named("a")], &queue, begun);
        queue.0.set(4);
        assert!(backpressure.update_blocked(&queue, begun + STALL_TIMEOUT));
        queue.0.set(3);
        assert!(!backpressure.update_blocked(&queue, begun + STALL_TIMEOUT * 2));
    }

    #[test]
    fn a_stalled_queue_is_passed_and_then_sooner() {
        let (mut backpressure, queue, begun) =
            (Backpressure::default(), TestQueue(Cell::new(3)), Instant::now());
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
