//! How far claims have come through the fresh events. PostgreSQL keeps the index entries of events that were claimed until it vacuums, and
//! can't as long as anybody has a snapshot from before, such as a backup: whoever begins at the start walks through all of them, at every
//! claim. So claims begin where claims had come a moment ago, and only now and then at the start, since events may turn up further ahead:
//! those of a transaction that took long to commit, and those that somebody has let go.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// One for each priority.
const LANES: usize = 3;
/// An event that is committed so soon after others behind it were claimed is found at once.
const MOMENT: Duration = Duration::from_millis(250);
/// Looks from the start on take no more than this part of the time, so they follow each other soon where there is little to walk through.
const PART_OF_TIME: u32 = 10;
/// Until it is known how long the one takes that is under way.
const PROVISIONAL: Duration = Duration::from_secs(1);

/// One for all claims of an instance.
#[derive(Debug, Default)]
pub struct Passed(Mutex<[Lane; LANES]>);

#[derive(Debug, Default, Clone, Copy)]
struct Lane {
    /// The last event that was claimed: by now, a moment ago, and before that.
    reached: i64,
    lately: i64,
    before: i64,
    turned: Option<Instant>,
    /// When a look from the start on is due; at once, if nobody knows.
    due: Option<Instant>,
}

/// Where a claim begins.
#[derive(Debug)]
pub struct Beginning {
    /// Behind these events, by lane.
    pub after: Vec<i64>,
    at: Instant,
}

impl Passed {
    /// In the lanes up to this one.
    pub fn begin(&self, last_lane: i64, now: Instant) -> Beginning {
        let mut lanes = self.lock();
        let asked = usize::try_from(last_lane).map_or(0, |last| last + 1);
        Beginning { after: lanes.iter_mut().take(asked).map(|lane| lane.begin(now)).collect(), at: now }
    }

    /// It has claimed these, each told by lane and number.
    pub fn claimed(&self, events: &[(i64, i64)]) {
        let mut lanes = self.lock();
        for (lane, id) in events {
            if let Some(lane) = usize::try_from(*lane).ok().and_then(|lane| lanes.get_mut(lane)) {
                lane.reached = lane.reached.max(*id);
            }
        }
    }

    /// Whatever came of it: one that took too long is not tried again at once.
    pub fn end(&self, beginning: &Beginning, now: Instant) {
        let rest = (now - beginning.at) * PART_OF_TIME;
        for (lane, after) in self.lock().iter_mut().zip(&beginning.after) {
            if *after == 0 && lane.due.is_some() {
                lane.due = Some(now + rest);
            }
        }
    }

    /// Something that was claimed is fresh again.
    pub fn let_go(&self) {
        for lane in &mut *self.lock() {
            lane.due = None;
        }
    }

    fn lock(&self) -> MutexGuard<'_, [Lane; LANES]> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lane {
    fn begin(&mut self, now: Instant) -> i64 {
        let passed = now - *self.turned.get_or_insert(now);
        if passed >= MOMENT {
            self.before = if passed >= 2 * MOMENT { self.reached } else { self.lately };
            self.lately = self.reached;
            self.turned = Some(now);
        }
        if self.due.is_none_or(|due| now >= due) {
            self.due = Some(now + PROVISIONAL);
            return 0;
        }
        self.before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Claims events of the middle lane at this time, for so long, and answers behind which of its events it began.
    fn claim(passed: &Passed, at: Instant, took: Duration, ids: &[i64]) -> i64 {
        let beginning = passed.begin(2, at);
        passed.claimed(&ids.iter().map(|id| (1, *id)).collect::<Vec<_>>());
        passed.end(&beginning, at + took);
        beginning.after[1]
    }

    /// The first look has taken so long that another is not due for a while.
    fn passed(begun: Instant, ids: &[i64]) -> Passed {
        let passed = Passed::default();
        assert_eq!(claim(&passed, begun, 1_000 * MS, ids), 0);
        passed
    }

    #[test]
    fn a_claim_begins_where_claims_had_come_a_moment_ago() {
        let begun = Instant::now();
        let passed = passed(begun, &[1, 2, 3]);
        assert_eq!(
            claim(&passed, begun + MOMENT, MS, &[4, 5]),
            0,
            "what was claimed just now is not passed yet"
        );
        let passed = self::passed(begun, &[1, 2, 3]);
        let begun = begun + 2 * MOMENT;
        assert_eq!(claim(&passed, begun, MS, &[5, 4]), 3);
        assert_eq!(claim(&passed, begun + MOMENT / 2, MS, &[6]), 3);
        assert_eq!(claim(&passed, begun + MOMENT, MS, &[7]), 3);
        assert_eq!(claim(&passed, begun + 2 * MOMENT, MS, &[]), 6);
        assert_eq!(claim(&passed, begun + 9 * MOMENT, MS, &[]), 7);
        assert_eq!(passed.begin(2, begun + 9 * MOMENT).after, [0, 7, 0], "of other lanes nothing is known");
    }

    #[test]
    fn a_look_from_the_start_on_comes_again_the_sooner_the_less_it_takes() {
        for took in [50 * MS, 400 * MS] {
            let (passed, begun) = (Passed::default(), Instant::now());
            claim(&passed, begun, took, &[7]);
            let due = begun + took + took * PART_OF_TIME;
            assert_eq!(claim(&passed, begun + took * PART_OF_TIME, MS, &[]), 7, "{took:?}");
            assert_eq!(claim(&passed, due, MS, &[]), 0, "{took:?}");
        }
    }

    #[test]
    fn who_looks_at_one_lane_leaves_the_others_to_be_looked_at() {
        let begun = Instant::now();
        let passed = passed(begun, &[7]);
        let later = begun + 20_000 * MS;
        assert_eq!(passed.begin(0, later).after, [0]);
        assert_eq!(claim(&passed, later, MS, &[]), 0);
    }

    #[test]
    fn what_is_let_go_is_looked_for_at_once() {
        let begun = Instant::now();
        let passed = passed(begun, &[7]);
        let later = begun + 2 * MOMENT;
        let beginning = passed.begin(2, later);
        assert_eq!(beginning.after, [0, 7, 0]);
        passed.let_go();
        passed.end(&beginning, later);
        assert_eq!(claim(&passed, later, MS, &[]), 0);
    }

    #[test]
    fn while_somebody_looks_from_the_start_on_others_go_on_behind() {
        let begun = Instant::now();
        let passed = passed(begun, &[7]);
        let later = begun + 20_000 * MS;
        assert_eq!(passed.begin(2, later).after, [0, 0, 0]);
        assert_eq!(claim(&passed, later, MS, &[8]), 7);
    }
}
