//! How many messages to a queue may be unconfirmed. All of them stand in line in the broker, before what comes to any
//! queue: without a bound, that is what takes it a second. Fewer cost it more for each, so they are few only while
//! something urgent comes.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

const MAX_UNCONFIRMED: usize = 300;
/// So many are sent when there is room for them.
const STEP: usize = 100;
const MAX_BESIDE_URGENT: usize = 40;
const STEP_BESIDE_URGENT: usize = 20;
/// For so long after something urgent more of it is expected.
const LATELY: Duration = Duration::from_secs(1);
/// Nobody gives way for longer. A broker that is far away, or slow, takes its time for each few, and all have to be
/// confirmed before their publisher gives up.
const YIELD_TIMEOUT: Duration = Duration::from_secs(2);

/// When something urgent was last published, to whichever queue.
#[derive(Debug, Default)]
pub(super) struct Urgency(Mutex<Option<Instant>>);

impl Urgency {
    fn note(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    fn is_recent(&self) -> bool {
        let last = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.is_some_and(|last| last.elapsed() < LATELY)
    }
}

/// Whether what is published to a queue is urgent, or gives way to what is.
#[derive(Debug, Clone)]
pub(super) struct Rank {
    urgent: bool,
    urgency: Arc<Urgency>,
}

impl Rank {
    pub(super) fn new(urgent: bool, urgency: &Arc<Urgency>) -> Self {
        Self { urgent, urgency: Arc::clone(urgency) }
    }

    /// Says what it is about to publish, and hears whether it has to give way.
    fn gives_way(&self) -> bool {
        if self.urgent {
            self.urgency.note();
        }
        !self.urgent && self.urgency.is_recent()
    }
}

/// Of one channel.
#[derive(Debug)]
pub(super) struct Window {
    rank: Rank,
    free: Arc<Semaphore>,
}

impl Window {
    pub(super) fn new(rank: Rank) -> Self {
        Self { rank, free: Arc::new(Semaphore::new(MAX_UNCONFIRMED)) }
    }

    /// What a confirm gives back goes here. Closed, it lets nobody through any more.
    pub(super) fn free(&self) -> Arc<Semaphore> {
        Arc::clone(&self.free)
    }

    /// Waits until the next of so many messages may be sent, whose publisher has begun then; as many as the answer has
    /// room for. Nothing, if it is closed.
    pub(super) async fn next(&self, messages: usize, begun: Instant) -> Option<SemaphorePermit<'_>> {
        let (most, step) = if self.rank.gives_way() && begun.elapsed() < YIELD_TIMEOUT {
            (MAX_BESIDE_URGENT, STEP_BESIDE_URGENT)
        } else {
            (MAX_UNCONFIRMED, STEP)
        };
        let step = u32::try_from(messages.min(step)).ok()?;
        // Where all of this is free, no more than the rest is unconfirmed.
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

    /// Sends as long as there is room, and answers the steps.
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
        advance(LATELY).await;
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
