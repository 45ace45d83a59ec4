//! Decides which batch a free worker claims next. The decision is a pure function.
//!
//! Work is done in rounds. A round is a batch of new events, then one chunk of a large audience, so that neither
//! starves the other. One worker at a time works on the round. The other workers only work beside it:
//!
//! - One worker claims an extra batch while more new events wait than fit into one batch. This helps because claim,
//!   decision and commit of one batch follow each other (1 × 1: 5,100 → 6,100/s, decision 0024). More than one extra
//!   batch did not help, and wrote more rows ahead of publish. The extra batch begins together with the round's new
//!   events, so that both commits share a sync of the disk (SQLite 1 × 1: 0.86 → 1.00 of before, decision 0041).
//! - One worker overtakes a round that takes long: it claims `HIGH` events first, then a few others (`HIGH` beside a
//!   large event: p50 94 → 54 ms, decision 0024).

use std::time::Duration;

use campanile_store::Claim;
use tokio::time::Instant;

use super::load::{Load, NewEvents, Overtaking, Round};
use super::step::{MAX_RECIPIENTS, Report};

/// Recipients of one chunk of a large audience while other events come, so that those wait little: with 1,000 they
/// waited 316 ms instead of 69 (decision 0024). While none come, a chunk has `MAX_RECIPIENTS`.
pub const CHUNK_RECIPIENTS: usize = 400;
/// The rows that a batch should have. Its number of events follows from the rows per event of recent batches (1 × 1:
/// 4,000 → 5,700/s, decision 0024).
const ROWS_PER_BATCH: f64 = 1_000.0;
/// A large event must not make the batches of small ones behind it tiny.
const MIN_BATCH: usize = 25;
/// Events that are claimed beside a long batch, unless they are `HIGH`: few, so that the worker is soon free again.
const SMALL_BATCH: usize = 25;
/// The rows of a probe, which claims a few events while a queue is full.
const ROWS_PER_PROBE: f64 = 100.0;
/// A round that has taken this long is overtaken by events that come now. Measured together with the broker's lower
/// limit of unconfirmed messages: `HIGH` beside a large event p50 54 to 65 → 26 to 37 ms (decision 0024).
pub const OVERTAKE_DELAY: Duration = Duration::from_millis(5);

/// What a batch is part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A round's new events.
    New,
    /// A round's chunk of a large audience.
    Chunk,
    /// An extra batch of new events beside the round.
    Extra,
    /// `HIGH` events that overtake the round.
    OvertakeUrgent,
    /// A few others that overtake the round.
    OvertakeOthers,
}

/// One batch, to be claimed now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    pub purpose: Purpose,
    pub claim: Claim,
    pub recipient_limit: usize,
    pub queues: Queues,
}

/// What was known of the queues when the batch was claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queues {
    Free,
    /// One is full, and only `HIGH` events are claimed.
    Blocked,
    /// One is full, and events of all priorities are claimed, to find those for other queues.
    Probed,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    Claim(Task),
    /// Nothing is to be claimed until this time; without one, until a batch ends or events are announced.
    Wait(Option<Instant>),
}

/// The batch that a free worker claims now.
pub fn next_claim(load: &Load, now: Instant) -> Next {
    match load.round {
        Round::Ended => {
            let due = if load.signalled { load.not_before } else { load.not_before.max(load.next_poll) };
            if now < due {
                Next::Wait(Some(due))
            } else {
                Next::Claim(load.new_events(Purpose::New, load.batch()))
            }
        }
        Round::ChunkDue { new, .. } => Next::Claim(load.chunk(new)),
        Round::New { since } | Round::Chunk { since, .. } => beside_round(load, since, now),
    }
}

/// The batch that a free worker claims while another works on the round.
fn beside_round(load: &Load, since: Instant, now: Instant) -> Next {
    let overtake_at = load.overtake_from.max(since + OVERTAKE_DELAY);
    let may_overtake = load.overtake_wanted && load.overtaking == Overtaking::Nothing;
    if load.overtaking == Overtaking::OthersDue {
        Next::Claim(load.new_events(Purpose::OvertakeOthers, SMALL_BATCH.min(load.batch())))
    } else if may_overtake && now >= overtake_at {
        Next::Claim(load.urgent_events())
    } else if load.more && !load.extra && matches!(load.round, Round::New { .. }) {
        Next::Claim(load.new_events(Purpose::Extra, load.batch()))
    } else {
        Next::Wait(may_overtake.then_some(overtake_at))
    }
}

impl Load {
    /// The events of a batch.
    fn batch(&self) -> usize {
        self.events_for_rows(ROWS_PER_BATCH).max(MIN_BATCH).min(self.max_events)
    }

    fn events_for_rows(&self, rows: f64) -> usize {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "small, and no event has less than one row"
        )]
        let events = (rows / self.rows_per_event) as usize;
        events
    }

    /// New events; while a queue is full, the `HIGH` ones, or a few as a probe.
    fn new_events(&self, purpose: Purpose, limit: usize) -> Task {
        let (claim, queues) = match (self.blocked, self.may_probe) {
            (false, _) => (Claim::New { limit }, Queues::Free),
            (true, true) => {
                let few = self.events_for_rows(ROWS_PER_PROBE).clamp(1, SMALL_BATCH.min(limit));
                (Claim::New { limit: few }, Queues::Probed)
            }
            (true, false) => (Claim::Urgent { limit }, Queues::Blocked),
        };
        Task { purpose, claim, recipient_limit: MAX_RECIPIENTS, queues }
    }

    fn urgent_events(&self) -> Task {
        let claim = Claim::Urgent { limit: self.batch() };
        let queues = if self.blocked { Queues::Blocked } else { Queues::Free };
        Task { purpose: Purpose::OvertakeUrgent, claim, recipient_limit: MAX_RECIPIENTS, queues }
    }

    /// The next chunk of a large audience: short while other events come.
    fn chunk(&self, new: NewEvents) -> Task {
        let after = self.last_large;
        let (claim, queues) = if self.blocked {
            (Claim::UrgentContinuing { after }, Queues::Blocked)
        } else {
            (Claim::Continuing { after }, Queues::Free)
        };
        let recipient_limit = if new == NewEvents::None { MAX_RECIPIENTS } else { CHUNK_RECIPIENTS };
        Task { purpose: Purpose::Chunk, claim, recipient_limit, queues }
    }
}

impl Task {
    /// What a batch of new events has claimed.
    pub fn new_events(&self, report: &Report) -> NewEvents {
        let limit = match self.claim {
            Claim::New { limit } | Claim::Urgent { limit } => limit,
            Claim::Continuing { .. } | Claim::UrgentContinuing { .. } | Claim::ByIds(_) => usize::MAX,
        };
        if report.events == 0 {
            NewEvents::None
        } else if self.queues == Queues::Probed || report.events < limit {
            NewEvents::Some
        } else {
            NewEvents::Full
        }
    }
}

#[cfg(test)]
mod tests {
    use campanile_domain::id::EventSeq;

    use super::*;
    use Purpose::{Chunk, Extra, New, OvertakeOthers, OvertakeUrgent};

    const MS: Duration = Duration::from_millis(1);
    /// At ten rows per event, a batch has this many events.
    const BATCH: usize = 100;

    fn load(now: Instant) -> Load {
        Load::new(250, MS * 35, now)
    }

    fn claims(load: &Load, now: Instant) -> Option<(Purpose, Claim, usize)> {
        match next_claim(load, now) {
            Next::Claim(task) => Some((task.purpose, task.claim, task.recipient_limit)),
            Next::Wait(_) => None,
        }
    }

    fn waits(load: &Load, now: Instant) -> Option<Instant> {
        match next_claim(load, now) {
            Next::Claim(task) => panic!("{task:?}"),
            Next::Wait(until) => until,
        }
    }

    /// A situation, and what a free worker claims in it: the purpose, the claim, and the recipients of its batch.
    type Situation = (&'static str, Load, Option<(Purpose, Claim, usize)>);

    fn assert_claims(now: Instant, situations: Vec<Situation>) {
        for (situation, load, expected) in situations {
            assert_eq!(claims(&load, now), expected, "{situation}");
        }
    }

    #[test]
    fn without_a_round_new_events_are_claimed_when_a_poll_is_due() {
        let now = Instant::now();
        let calm = load(now);
        let since = now - OVERTAKE_DELAY;
        assert_claims(
            now,
            vec![
                (
                    "idle, and a poll is due",
                    calm.clone(),
                    Some((New, Claim::New { limit: BATCH }, MAX_RECIPIENTS)),
                ),
                ("idle, and no poll is due", Load { next_poll: now + MS, ..calm.clone() }, None),
                (
                    "idle, and events are announced",
                    Load { next_poll: now + MS, signalled: true, ..calm.clone() },
                    Some((New, Claim::New { limit: BATCH }, MAX_RECIPIENTS)),
                ),
                ("in a burst", Load { not_before: now + MS, signalled: true, ..calm.clone() }, None),
                (
                    "small events",
                    Load { rows_per_event: 1.0, ..calm.clone() },
                    Some((New, Claim::New { limit: 250 }, MAX_RECIPIENTS)),
                ),
                (
                    "large events",
                    Load { rows_per_event: 900.0, ..calm.clone() },
                    Some((New, Claim::New { limit: MIN_BATCH }, MAX_RECIPIENTS)),
                ),
                (
                    "a large audience, while no other events come",
                    Load {
                        round: Round::ChunkDue { since, new: NewEvents::None },
                        last_large: EventSeq(7),
                        ..calm.clone()
                    },
                    Some((Chunk, Claim::Continuing { after: EventSeq(7) }, MAX_RECIPIENTS)),
                ),
                (
                    "a large audience, while others come",
                    Load {
                        round: Round::ChunkDue { since, new: NewEvents::Some },
                        last_large: EventSeq(7),
                        ..calm.clone()
                    },
                    Some((Chunk, Claim::Continuing { after: EventSeq(7) }, CHUNK_RECIPIENTS)),
                ),
            ],
        );
    }

    #[test]
    fn while_a_queue_is_full_only_urgent_events_and_probes_are_claimed() {
        let now = Instant::now();
        let since = now - OVERTAKE_DELAY;
        let blocked = Load { blocked: true, ..load(now) };
        assert_claims(
            now,
            vec![
                (
                    "a queue is full",
                    blocked.clone(),
                    Some((New, Claim::Urgent { limit: BATCH }, MAX_RECIPIENTS)),
                ),
                (
                    "a queue is full, and a probe is due",
                    Load { may_probe: true, ..blocked.clone() },
                    Some((New, Claim::New { limit: 10 }, MAX_RECIPIENTS)),
                ),
                (
                    "a queue is full, and a probe of small events is due",
                    Load { may_probe: true, rows_per_event: 1.0, ..blocked.clone() },
                    Some((New, Claim::New { limit: SMALL_BATCH }, MAX_RECIPIENTS)),
                ),
                (
                    "a large audience, while a queue is full",
                    Load { round: Round::ChunkDue { since, new: NewEvents::None }, ..blocked.clone() },
                    Some((Chunk, Claim::UrgentContinuing { after: EventSeq(0) }, MAX_RECIPIENTS)),
                ),
            ],
        );
    }

    #[test]
    fn beside_a_round_more_events_are_claimed_and_announced_ones_overtake_it() {
        let now = Instant::now();
        let since = now - OVERTAKE_DELAY;
        let in_progress = Load { round: Round::New { since }, ..load(now) };
        let chunk = Load { round: Round::Chunk { since, new: NewEvents::Some }, ..load(now) };
        let wanted = Load { overtake_wanted: true, signalled: true, ..in_progress.clone() };
        assert_claims(
            now,
            vec![
                ("beside a round", in_progress.clone(), None),
                (
                    "beside a round, and more events wait",
                    Load { more: true, ..in_progress.clone() },
                    Some((Extra, Claim::New { limit: BATCH }, MAX_RECIPIENTS)),
                ),
                (
                    "beside a chunk, and more events wait for the next round",
                    Load { more: true, ..chunk.clone() },
                    None,
                ),
                (
                    "beside a round and an extra batch",
                    Load { more: true, extra: true, ..in_progress.clone() },
                    None,
                ),
                (
                    "more events wait, and a queue is full",
                    Load { more: true, blocked: true, ..in_progress.clone() },
                    Some((Extra, Claim::Urgent { limit: BATCH }, MAX_RECIPIENTS)),
                ),
                (
                    "beside a long round, and events are announced",
                    wanted.clone(),
                    Some((OvertakeUrgent, Claim::Urgent { limit: BATCH }, MAX_RECIPIENTS)),
                ),
                (
                    "beside a long chunk and an extra batch, and events are announced",
                    Load { round: chunk.round, more: true, extra: true, ..wanted.clone() },
                    Some((OvertakeUrgent, Claim::Urgent { limit: BATCH }, MAX_RECIPIENTS)),
                ),
                (
                    "beside a short round, and events are announced",
                    Load { round: Round::New { since: since + MS }, ..wanted.clone() },
                    None,
                ),
                (
                    "the round was overtaken just now",
                    Load { overtake_from: now + MS, ..wanted.clone() },
                    None,
                ),
                (
                    "the round is being overtaken",
                    Load { overtaking: Overtaking::Urgent, ..wanted.clone() },
                    None,
                ),
                (
                    "`HIGH` events have overtaken the round",
                    Load { overtaking: Overtaking::OthersDue, ..in_progress.clone() },
                    Some((OvertakeOthers, Claim::New { limit: SMALL_BATCH }, MAX_RECIPIENTS)),
                ),
                (
                    "`HIGH` events have overtaken the round, and a queue is full",
                    Load { overtaking: Overtaking::OthersDue, blocked: true, ..in_progress.clone() },
                    Some((OvertakeOthers, Claim::Urgent { limit: SMALL_BATCH }, MAX_RECIPIENTS)),
                ),
                (
                    "others overtake the round",
                    Load { overtaking: Overtaking::Others, ..in_progress.clone() },
                    None,
                ),
            ],
        );
    }

    #[test]
    fn a_worker_waits_for_the_time_at_which_something_is_due() {
        let now = Instant::now();
        let (poll, start) = (now + MS * 2, now + MS * 3);
        assert_eq!(waits(&Load { next_poll: poll, ..load(now) }, now), Some(poll));
        assert_eq!(waits(&Load { next_poll: poll, not_before: start, ..load(now) }, now), Some(start));
        let round = Load { round: Round::New { since: now }, ..load(now) };
        assert_eq!(waits(&round, now), None);
        let wanted = Load { overtake_wanted: true, ..round };
        assert_eq!(waits(&wanted, now), Some(now + OVERTAKE_DELAY));
    }
}
