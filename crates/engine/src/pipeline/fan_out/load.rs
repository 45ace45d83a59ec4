//! `Load`: the state that the workers of the fan-out share, and how it changes when a batch begins or ends.

use std::time::Duration;

use campanile_domain::id::EventSeq;
use tokio::time::Instant;

use super::burst::CLAIM_INTERVAL;
use super::next_claim::{OVERTAKE_DELAY, Purpose, Task};
use super::step::Report;

/// Initial estimate, until the first batch has been measured.
const INITIAL_ROWS_PER_EVENT: f64 = 10.0;
/// The weight of the last batch in the moving average of rows per event.
const LAST_BATCH_WEIGHT: f64 = 0.3;
/// The first wait after a round that found nothing. It doubles up to `fan_out.poll_interval`.
const FIRST_POLL: Duration = Duration::from_millis(10);

/// What is known of the events that wait, and of the batches in progress.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts, each read by itself")]
pub struct Load {
    /// The most events of a batch, as configured.
    pub max_events: usize,
    /// The longest wait between two rounds, as configured.
    pub poll_interval: Duration,
    /// Outbox rows per event, as a moving average.
    pub rows_per_event: f64,
    /// The large event that was continued last; others have their turn before it.
    pub last_large: EventSeq,

    /// Events were announced since the last round began.
    pub signalled: bool,
    /// The last batch of new events was full, so more of them wait.
    pub more: bool,
    /// Events come so fast that rounds follow each other at an interval.
    pub burst: bool,
    /// A queue has no capacity for another batch, so only `HIGH` events are claimed.
    pub blocked: bool,
    /// Although a queue is full, a few events are claimed: they may be for other queues.
    pub may_probe: bool,

    pub round: Round,
    /// An extra batch is in progress.
    pub extra: bool,
    pub overtaking: Overtaking,
    /// Events were announced since the round was last overtaken.
    pub overtake_wanted: bool,
    /// The round is not overtaken again before: events that come one by one are claimed together.
    pub overtake_from: Instant,
    /// No round begins before, whatever is announced: after the start, in a burst, after a failure.
    pub not_before: Instant,
    /// When the next round begins if nothing is announced.
    pub next_poll: Instant,
    /// The wait after the next round that finds nothing.
    pub idle: Duration,
}

/// How far the round is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Round {
    Ended,
    /// Its batch of new events is in progress.
    New {
        since: Instant,
    },
    /// Its chunk of a large audience comes next.
    ChunkDue {
        since: Instant,
        new: NewEvents,
    },
    /// Its chunk is in progress.
    Chunk {
        since: Instant,
        new: NewEvents,
    },
}

/// What a round has claimed as new events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewEvents {
    None,
    Some,
    /// A full batch: others are left behind.
    Full,
}

/// What is claimed beside a long round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overtaking {
    Nothing,
    /// `HIGH` events are in progress.
    Urgent,
    /// The `HIGH` events are done; a few others come next.
    OthersDue,
    /// A few others are in progress.
    Others,
}

impl Load {
    pub fn new(max_events: usize, poll_interval: Duration, start: Instant) -> Self {
        Load {
            max_events,
            poll_interval,
            rows_per_event: INITIAL_ROWS_PER_EVENT,
            last_large: EventSeq::default(),
            signalled: false,
            more: false,
            burst: false,
            blocked: false,
            may_probe: false,
            round: Round::Ended,
            extra: false,
            overtaking: Overtaking::Nothing,
            overtake_wanted: false,
            overtake_from: start,
            not_before: start,
            next_poll: start,
            idle: FIRST_POLL,
        }
    }

    /// Events were announced.
    pub fn signal(&mut self) {
        (self.signalled, self.overtake_wanted) = (true, true);
    }

    /// A worker begins this batch.
    pub fn begin(&mut self, purpose: Purpose, now: Instant) {
        match purpose {
            Purpose::New => {
                if self.signalled {
                    self.idle = FIRST_POLL;
                }
                // The batch finds what was announced, `HIGH` events first.
                (self.signalled, self.overtake_wanted) = (false, false);
                if self.overtaking == Overtaking::OthersDue {
                    self.overtaking = Overtaking::Nothing;
                }
                self.round = Round::New { since: now };
            }
            Purpose::Chunk => {
                if let Round::ChunkDue { since, new } = self.round {
                    self.round = Round::Chunk { since, new };
                }
            }
            Purpose::Extra => (self.extra, self.more) = (true, false),
            Purpose::OvertakeUrgent => {
                (self.overtaking, self.overtake_wanted) = (Overtaking::Urgent, false);
            }
            Purpose::OvertakeOthers => self.overtaking = Overtaking::Others,
        }
    }

    /// A batch has ended well.
    pub fn end(&mut self, task: &Task, report: &Report, now: Instant) {
        match task.purpose {
            Purpose::New | Purpose::Extra | Purpose::OvertakeOthers => self.learn(report),
            Purpose::Chunk | Purpose::OvertakeUrgent => {}
        }
        match task.purpose {
            Purpose::New => {
                let new = task.new_events(report);
                self.more = new == NewEvents::Full;
                if let Round::New { since } = self.round {
                    self.round = Round::ChunkDue { since, new };
                }
            }
            Purpose::Chunk => {
                if let Round::Chunk { since, new } = self.round {
                    self.end_round(since, new, report.events > 0, now);
                }
            }
            Purpose::Extra => self.extra = false,
            Purpose::OvertakeUrgent => self.overtaking = Overtaking::OthersDue,
            Purpose::OvertakeOthers => self.end_overtaking(now),
        }
    }

    /// A batch has failed. The next round waits until `retry_at`; what failed beside a round, the next round finds.
    pub fn fail(&mut self, purpose: Purpose, retry_at: Instant, now: Instant) {
        match purpose {
            Purpose::New | Purpose::Chunk => {
                // The round may have been announced, and its events still wait: they don't wait for the next poll.
                (self.round, self.not_before, self.next_poll) = (Round::Ended, retry_at, retry_at);
            }
            Purpose::Extra => self.extra = false,
            Purpose::OvertakeUrgent | Purpose::OvertakeOthers => self.end_overtaking(now),
        }
    }

    fn end_overtaking(&mut self, now: Instant) {
        (self.overtaking, self.overtake_from) = (Overtaking::Nothing, now + OVERTAKE_DELAY);
    }

    fn end_round(&mut self, since: Instant, new: NewEvents, has_chunk: bool, now: Instant) {
        self.round = Round::Ended;
        if new == NewEvents::None && !has_chunk {
            if self.blocked || self.burst {
                self.idle = FIRST_POLL;
            }
            self.next_poll = now + self.idle;
            self.idle = (self.idle * 2).min(self.poll_interval);
        } else {
            (self.idle, self.next_poll) = (FIRST_POLL, now);
            if self.burst && new != NewEvents::Full {
                self.not_before = since + CLAIM_INTERVAL;
            }
        }
    }

    fn learn(&mut self, report: &Report) {
        if report.events > 0 {
            #[expect(clippy::cast_precision_loss, reason = "an estimate")]
            let last = (report.rows + report.put_off) as f64 / report.events as f64;
            let average = (1.0 - LAST_BATCH_WEIGHT) * self.rows_per_event + LAST_BATCH_WEIGHT * last;
            self.rows_per_event = average.max(1.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use Purpose::{Chunk, New};

    use super::*;
    use crate::pipeline::fan_out::next_claim::{Next, next_claim};

    const MS: Duration = Duration::from_millis(1);
    const POLL_INTERVAL: Duration = Duration::from_millis(35);
    /// At ten rows per event, a batch has this many events.
    const BATCH: usize = 100;

    fn load(now: Instant) -> Load {
        Load::new(250, POLL_INTERVAL, now)
    }

    fn waits(load: &Load, now: Instant) -> Option<Instant> {
        match next_claim(load, now) {
            Next::Claim(task) => panic!("{task:?}"),
            Next::Wait(until) => until,
        }
    }

    fn report(events: usize) -> Report {
        Report { events, rows: events * 10, ..Report::default() }
    }

    /// Begins the next batch, and ends it with this many events.
    fn run(load: &mut Load, events: usize, now: Instant) -> Purpose {
        let Next::Claim(task) = next_claim(load, now) else { panic!("nothing to claim in {load:?}") };
        load.begin(task.purpose, now);
        load.end(&task, &report(events), now);
        task.purpose
    }

    #[test]
    fn rounds_alternate_between_new_events_and_chunks() {
        let now = Instant::now();
        let mut load = load(now);
        let purposes = [3, 1, 3, 0, 0, 1].map(|events| run(&mut load, events, now));
        assert_eq!(purposes, [New, Chunk, New, Chunk, New, Chunk]);
    }

    #[test]
    fn after_an_empty_round_the_wait_doubles_up_to_the_poll_interval() {
        let mut now = Instant::now();
        let mut load = load(now);
        let mut after_empty_round = |load: &mut Load| {
            run(load, 0, now);
            run(load, 0, now);
            let due = waits(load, now).expect("a poll is due some time");
            let waited = due - now;
            now = due;
            waited
        };
        assert_eq!(
            [(); 4].map(|()| after_empty_round(&mut load)),
            [MS * 10, MS * 20, POLL_INTERVAL, POLL_INTERVAL]
        );
        load.signal();
        assert_eq!([(); 2].map(|()| after_empty_round(&mut load)), [MS * 10, MS * 20]);
        load.blocked = true;
        assert_eq!([(); 2].map(|()| after_empty_round(&mut load)), [MS * 10, MS * 10]);
    }

    #[test]
    fn in_a_burst_rounds_follow_each_other_at_an_interval_unless_more_events_wait() {
        let now = Instant::now();
        let mut load = Load { burst: true, ..load(now) };
        run(&mut load, 1, now);
        run(&mut load, 0, now);
        load.signal();
        assert_eq!(waits(&load, now + MS), Some(now + CLAIM_INTERVAL));
        run(&mut load, BATCH, now + CLAIM_INTERVAL);
        let Next::Claim(chunk) = next_claim(&load, now) else { panic!("a chunk comes next") };
        load.begin(Purpose::Chunk, now);
        load.begin(Purpose::Extra, now);
        load.end(&chunk, &report(0), now);
        assert_eq!(load.round, Round::Ended);
        assert!(
            matches!(next_claim(&load, now + CLAIM_INTERVAL), Next::Claim(_)),
            "although an extra batch is in progress"
        );
    }

    #[test]
    fn a_full_batch_lets_one_extra_batch_begin_with_the_next_round() {
        let now = Instant::now();
        let mut load = load(now);
        assert_eq!(run(&mut load, BATCH, now), Purpose::New);
        assert_eq!(run(&mut load, 0, now), Purpose::Chunk);
        load.begin(Purpose::New, now);
        assert_eq!(run(&mut load, BATCH, now), Purpose::Extra);
        assert_eq!(next_claim(&load, now), Next::Wait(None), "a full batch beside a round tells nothing new");
    }

    #[test]
    fn a_round_is_overtaken_once_for_events_that_are_announced_together() {
        let now = Instant::now();
        let mut load = Load { round: Round::New { since: now - OVERTAKE_DELAY }, ..load(now) };
        load.signal();
        assert_eq!(run(&mut load, 1, now), Purpose::OvertakeUrgent);
        assert_eq!(run(&mut load, 1, now), Purpose::OvertakeOthers);
        assert_eq!(waits(&load, now), None);
        load.signal();
        assert_eq!(waits(&load, now), Some(now + OVERTAKE_DELAY));
        assert_eq!(run(&mut load, 1, now + OVERTAKE_DELAY), Purpose::OvertakeUrgent);
    }

    #[test]
    fn after_a_failure_the_next_round_waits_and_what_is_beside_it_does_not() {
        let now = Instant::now();
        let mut load = load(now);
        load.begin(Purpose::New, now);
        load.begin(Purpose::Extra, now);
        load.fail(Purpose::Extra, now + MS, now);
        assert_eq!((load.round, load.extra), (Round::New { since: now }, false));
        load.fail(Purpose::New, now + MS, now);
        load.signal();
        assert_eq!(waits(&load, now), Some(now + MS));
        assert_eq!(run(&mut load, 1, now + MS), Purpose::New);
    }

    #[test]
    fn a_failed_round_that_was_announced_does_not_wait_for_the_next_poll() {
        let now = Instant::now();
        let mut load = Load { next_poll: now + POLL_INTERVAL, ..load(now) };
        load.signal();
        load.begin(Purpose::New, now);
        load.fail(Purpose::New, now + MS, now);
        assert_eq!(waits(&load, now), Some(now + MS));
    }

    #[test]
    fn rows_of_events_that_were_put_off_count_for_the_size_of_the_next_batch() {
        let now = Instant::now();
        let mut load = load(now);
        load.begin(Purpose::New, now);
        let Next::Claim(task) = next_claim(&self::load(now), now) else { panic!("a poll is due") };
        load.end(&task, &Report { events: 1, rows: 0, put_off: 110, ..Report::default() }, now);
        assert!((load.rows_per_event - 40.0).abs() < 0.001, "{}", load.rows_per_event);
    }
}
