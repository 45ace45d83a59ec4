//! Limits the unconfirmed messages of a queue. The broker processes the messages of all queues in one order, so a large
//! number delays every queue. A small number costs more per message, so it is used only beside urgent messages.
//!
//! Measured beside a large event (decision 0024): with 300 instead of no limit, others waited 140 instead of 700 ms.
//! With 40 beside urgent messages, their p50 went from 57 to 30 ms.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

const MAX_UNCONFIRMED: usize = 300;
/// How many messages are sent at once when there is room.
const STEP: usize = 100;
const MAX_BESIDE_URGENT: usize = 40;
const STEP_BESIDE_URGENT: usize = 20;
/// For this long after an urgent message, more of them are expected.
const URGENT_WINDOW: Duration = Duration::from_secs(1);
/// A publish yields to urgent messages at most this long. On a distant or slow broker small steps take long, and the
/// publisher gives up on confirms after a while.
const YIELD_TIMEOUT: Duration = Duration::from_secs(2);

/// When an urgent message was last published, to any queue.
#[derive(Debug, Default)]
pub(super) struct Urgency(Mutex<Option<Instant>>);

impl Urgency {
    fn record(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    fn is_recent(&self) -> bool {
        let last = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.is_some_and(|last| last.elapsed() < URGENT_WINDOW)
    }
}

/// Whether a queue's messages are urgent or yield to urgent ones.
#[derive(Debug, Clone)]
pub(super) struct Rank {
    urgent: bool,
    urgency: Arc<Urgency>,
}

impl Rank {
    pub(super) fn new(urgent: bool, urgency: &Arc<Urgency>) -> Self {
        Self { urgent, urgency: Arc::clone(urgency) }
    }

    /// Records an urgent publish, and returns whether this one must yield.
    fn must_yield(&self) -> bool {
        if self.urgent {
            self.urgency.record();
        }
        !self.urgent && self.urgency.is_recent()
    }
}

/// The window of one channel.
#[derive(Debug)]
pub(super) struct Window {
    rank: Rank,
    free: Arc<Semaphore>,
}

impl Window {
    pub(super) fn new(rank: Rank) -> Self {
        Self { rank, free: Arc::new(Semaphore::new(MAX_UNCONFIRMED)) }
    }

    /// The permits, to which confirms return. Closing them ends all waiting.
    pub(super) fn free(&self) -> Arc<Semaphore> {
        Arc::clone(&self.free)
    }

    /// Waits until some of `messages` may be sent, and returns their permits. `begun` is when their publish began.
    /// `None` if the window is closed.
    pub(super) async fn next(&self, messages: usize, begun: Instant) -> Option<SemaphorePermit<'_>> {
        let (most, step) = if self.rank.must_yield() && begun.elapsed() < YIELD_TIMEOUT {
            (MAX_BESIDE_URGENT, STEP_BESIDE_URGENT)
        } else {
            (MAX_UNCONFIRMED, STEP)
        };
        let step = u32::try_from(messages.min(step)).ok()?;
        // Acquiring the unused part as well ensures that no more than `most` are unconfirmed.
        let unused = MAX_UNCONFIRMED - most;
        let mut permits = self.free.acquire_many(step + u32::try_from(unused).ok()?).await.ok()?;
        drop(permits.split(unused));
        Some(permits)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{advance, timeout};

    use super::*;

    /// Sends as long as there is room, and returns the sizes of the steps.
    async fn send(window: &Window, begun: Instant) -> Vec<usize> {
        let mut steps = Vec::new();
        while let Ok(Some(permits)) = timeout(Duration::from_millis(1), window.next(1_000, begun)).await {
            steps.push(permits.num_permits());
            permits.forget();
        }
        steps
    }

    #[tokio::test(start_paused = true)]
    async fn few_are_unconfirmed_while_something_urgent_comes() {
        let (urgency, now) = (Arc::default(), Instant::now);
        let [urgent, other] = [true, false].map(|urgent| Window::new(Rank::new(urgent, &urgency)));
        assert_eq!(send(&other, now()).await, [100, 100, 100]);
        assert_eq!(urgent.next(1, now()).await.unwrap().num_permits(), 1);
        other.free.add_permits(260);
        assert_eq!(send(&other, now()).await, [0; 0], "forty of before are unconfirmed");
        other.free.add_permits(40);
        assert_eq!(send(&other, now()).await, [20, 20]);
        assert_eq!(send(&urgent, now()).await, [100, 100, 100], "what is urgent gives way to nobody");
        advance(URGENT_WINDOW).await;
        assert_eq!(send(&other, now()).await, [100, 100], "nothing urgent came for a while");
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_gives_way_for_long() {
        let urgency = Arc::default();
        let [urgent, other] = [true, false].map(|urgent| Window::new(Rank::new(urgent, &urgency)));
        let begun = Instant::now();
        advance(YIELD_TIMEOUT).await;
        assert!(urgent.next(1, Instant::now()).await.is_some());
        assert_eq!(send(&other, begun).await, [100, 100, 100]);
    }

    #[tokio::test]
    async fn a_window_that_is_closed_lets_nobody_through() {
        let window = Window::new(Rank::new(false, &Arc::default()));
        window.free().close();
        assert!(window.next(1, Instant::now()).await.is_none());
    }
}
