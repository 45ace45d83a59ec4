//! Where claims of new events begin in the index. PostgreSQL keeps index entries of claimed events until it vacuums,
//! and can't vacuum while an old snapshot is open, such as that of a backup. A claim from the start would walk through
//! all of them.
//!
//! So a claim begins where claims were a moment ago: 1 × 1 beside such a snapshot 7,900 → 15,100/s (decision 0024). A
//! claim from the start is still made now and then. Events may appear earlier in the index: those of a slow
//! transaction, and those that a claim released.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use campanile_domain::id::EventSeq;
use campanile_domain::priority::Lane;

/// An event that commits within this time after later events were claimed is found without a full scan.
const WATERMARK_DELAY: Duration = Duration::from_millis(250);
/// Full scans take at most one tenth of the time: the pause after one is this factor times its duration.
const FULL_SCAN_INTERVAL_FACTOR: u32 = 10;
/// The pause until the duration of the running full scan is known.
const INITIAL_FULL_SCAN_INTERVAL: Duration = Duration::from_secs(1);

/// Where a full scan begins: before the first event.
const START: EventSeq = EventSeq(0);

/// Shared by all claims of an instance.
#[derive(Debug, Default)]
pub struct ClaimWatermark(Mutex<[LaneWatermark; Lane::ALL.len()]>);

#[derive(Debug, Default, Clone, Copy)]
struct LaneWatermark {
    /// The last claimed event: now, a moment ago, and before that time.
    last_claimed: EventSeq,
    recent: EventSeq,
    older: EventSeq,
    rotated_at: Option<Instant>,
    /// When the next full scan is due; `None` means at once.
    full_scan_due: Option<Instant>,
}

/// Where a claim begins.
#[derive(Debug)]
pub struct ClaimStart {
    /// The claim reads events after this one in each lane.
    pub after: Vec<EventSeq>,
    at: Instant,
}

impl ClaimWatermark {
    /// Begins a claim in the lanes up to `last_lane`.
    pub fn begin(&self, last_lane: Lane, now: Instant) -> ClaimStart {
        let mut lanes = self.lock();
        let asked = Lane::ALL.into_iter().zip(lanes.iter_mut()).take_while(|(lane, _)| *lane <= last_lane);
        ClaimStart { after: asked.map(|(_, lane)| lane.begin(now)).collect(), at: now }
    }

    /// Records the lane and number of each claimed event.
    pub fn claimed(&self, events: &[(Lane, EventSeq)]) {
        let mut lanes = self.lock();
        for (lane, seq) in events {
            let lane = &mut lanes[*lane as usize];
            lane.last_claimed = lane.last_claimed.max(*seq);
        }
    }

    /// Records the duration of a full scan. A failed scan counts too, so that a slow scan is not repeated at once.
    pub fn end(&self, start: &ClaimStart, now: Instant) {
        let interval = (now - start.at) * FULL_SCAN_INTERVAL_FACTOR;
        for (lane, after) in self.lock().iter_mut().zip(&start.after) {
            if *after == START && lane.full_scan_due.is_some() {
                lane.full_scan_due = Some(now + interval);
            }
        }
    }

    /// Makes the next claim a full scan, because a claimed event became new again.
    pub fn require_full_scan(&self) {
        for lane in &mut *self.lock() {
            lane.full_scan_due = None;
        }
    }

    fn lock(&self) -> MutexGuard<'_, [LaneWatermark; Lane::ALL.len()]> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LaneWatermark {
    fn begin(&mut self, now: Instant) -> EventSeq {
        let elapsed = now - *self.rotated_at.get_or_insert(now);
        if elapsed >= WATERMARK_DELAY {
            self.older = if elapsed >= 2 * WATERMARK_DELAY { self.last_claimed } else { self.recent };
            self.recent = self.last_claimed;
            self.rotated_at = Some(now);
        }
        if self.full_scan_due.is_none_or(|due| now >= due) {
            self.full_scan_due = Some(now + INITIAL_FULL_SCAN_INTERVAL);
            return START;
        }
        self.older
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Claims these events of the middle lane at the time `at`. Returns the event after which the claim began.
    fn claim(watermark: &ClaimWatermark, at: Instant, took: Duration, ids: &[i64]) -> i64 {
        let start = watermark.begin(Lane::Low, at);
        watermark.claimed(&ids.iter().map(|id| (Lane::Normal, EventSeq(*id))).collect::<Vec<_>>());
        watermark.end(&start, at + took);
        start.after[1].0
    }

    fn after(watermark: &ClaimWatermark, last_lane: Lane, at: Instant) -> Vec<i64> {
        watermark.begin(last_lane, at).after.into_iter().map(|seq| seq.0).collect()
    }

    /// A watermark after a slow full scan, so that the next one is not due soon.
    fn watermark(begun: Instant, ids: &[i64]) -> ClaimWatermark {
        let watermark = ClaimWatermark::default();
        assert_eq!(claim(&watermark, begun, 1_000 * MS, ids), 0);
        watermark
    }

    #[test]
    fn a_claim_begins_where_claims_had_come_a_moment_ago() {
        let begun = Instant::now();
        let watermark = watermark(begun, &[1, 2, 3]);
        assert_eq!(
            claim(&watermark, begun + WATERMARK_DELAY, MS, &[4, 5]),
            0,
            "what was claimed just now is not passed yet"
        );
        let watermark = self::watermark(begun, &[1, 2, 3]);
        let begun = begun + 2 * WATERMARK_DELAY;
        assert_eq!(claim(&watermark, begun, MS, &[5, 4]), 3);
        assert_eq!(claim(&watermark, begun + WATERMARK_DELAY / 2, MS, &[6]), 3);
        assert_eq!(claim(&watermark, begun + WATERMARK_DELAY, MS, &[7]), 3);
        assert_eq!(claim(&watermark, begun + 2 * WATERMARK_DELAY, MS, &[]), 6);
        assert_eq!(claim(&watermark, begun + 9 * WATERMARK_DELAY, MS, &[]), 7);
        assert_eq!(
            after(&watermark, Lane::Low, begun + 9 * WATERMARK_DELAY),
            [0, 7, 0],
            "of other lanes nothing is known"
        );
    }

    #[test]
    fn a_full_scan_comes_again_the_sooner_the_less_it_takes() {
        for took in [50 * MS, 400 * MS] {
            let (watermark, begun) = (ClaimWatermark::default(), Instant::now());
            claim(&watermark, begun, took, &[7]);
            let due = begun + took + took * FULL_SCAN_INTERVAL_FACTOR;
            assert_eq!(claim(&watermark, begun + took * FULL_SCAN_INTERVAL_FACTOR, MS, &[]), 7, "{took:?}");
            assert_eq!(claim(&watermark, due, MS, &[]), 0, "{took:?}");
        }
    }

    #[test]
    fn who_scans_one_lane_leaves_the_others_to_be_scanned() {
        let begun = Instant::now();
        let watermark = watermark(begun, &[7]);
        let later = begun + 20_000 * MS;
        assert_eq!(after(&watermark, Lane::High, later), [0]);
        assert_eq!(claim(&watermark, later, MS, &[]), 0);
    }

    #[test]
    fn what_is_released_is_scanned_for_at_once() {
        let begun = Instant::now();
        let watermark = watermark(begun, &[7]);
        let later = begun + 2 * WATERMARK_DELAY;
        let start = watermark.begin(Lane::Low, later);
        assert_eq!(start.after, [0, 7, 0].map(EventSeq));
        watermark.require_full_scan();
        watermark.end(&start, later);
        assert_eq!(claim(&watermark, later, MS, &[]), 0);
    }

    #[test]
    fn during_a_full_scan_others_go_on_behind() {
        let begun = Instant::now();
        let watermark = watermark(begun, &[7]);
        let later = begun + 20_000 * MS;
        assert_eq!(after(&watermark, Lane::Low, later), [0, 0, 0]);
        assert_eq!(claim(&watermark, later, MS, &[8]), 7);
    }
}
