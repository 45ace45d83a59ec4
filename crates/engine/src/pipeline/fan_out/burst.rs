//! While events come fast, the fan-out takes some of them together, every few milliseconds, and producers need not tell
//! it of each: a batch of few events costs nearly as much as one of many, and whoever notifies PostgreSQL waits for
//! everybody else who does.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::Engine;

/// A batch begins this long after the one before, unless that left something.
pub const CLAIM_INTERVAL: Duration = Duration::from_millis(10);
/// Events a second from which on it is a rush, and below which it is over.
const START_EVENTS_PER_SECOND: f64 = 500.0;
const STOP_EVENTS_PER_SECOND: f64 = 200.0;
/// For so long they are counted.
const WINDOW: Duration = Duration::from_millis(200);
/// After the database could not be asked.
const PAUSE: Duration = Duration::from_secs(1);

/// Of the loop that looks for events.
#[derive(Debug)]
pub struct BurstDetector<'a> {
    is_on: &'a watch::Sender<bool>,
    since: Instant,
    events: usize,
}

impl<'a> BurstDetector<'a> {
    pub fn new(is_on: &'a watch::Sender<bool>) -> Self {
        is_on.send_replace(false);
        BurstDetector { is_on, since: Instant::now(), events: 0 }
    }

    /// So many were taken by now.
    pub fn record(&mut self, events: usize, now: Instant) {
        self.events += events;
        let passed = now - self.since;
        if passed < WINDOW {
            return;
        }
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        let per_second = self.events as f64 / passed.as_secs_f64();
        let is_on = per_second > if self.is_on() { STOP_EVENTS_PER_SECOND } else { START_EVENTS_PER_SECOND };
        (self.since, self.events) = (now, 0);
        self.is_on.send_if_modified(|was_on| std::mem::replace(was_on, is_on) != is_on);
    }

    pub fn is_on(&self) -> bool {
        *self.is_on.borrow()
    }
}

/// Lets producers know. When it is over, what came in between without a word is looked for at once.
pub async fn run(engine: Engine, stop: CancellationToken) {
    let mut is_on = engine.signals.burst.subscribe();
    let suppress = async {
        while is_on.wait_for(|is_on| *is_on).await.is_ok() {
            if let Err(error) = engine.store.suppress_notify(is_on.clone()).await {
                tracing::debug!(%error, "notifications could not be suppressed; producers keep sending one per event");
                tokio::time::sleep(PAUSE).await;
            }
            engine.signals.notify_events();
        }
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = suppress => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether it is a rush after so many events in each of some windows.
    fn after(windows: &[usize]) -> bool {
        let is_on = watch::Sender::new(true);
        let mut burst = BurstDetector::new(&is_on);
        let begun = Instant::now();
        for (number, events) in (1..).zip(windows) {
            burst.record(*events, begun + WINDOW * number);
        }
        burst.is_on()
    }

    #[test]
    fn it_begins_with_many_events_and_ends_with_few() {
        assert!(!after(&[]), "a loop that begins knows of none");
        assert!(!after(&[90]), "450 a second are not enough to begin");
        assert!(after(&[110]));
        assert!(after(&[110, 50]), "and 250 a second are enough to go on");
        assert!(!after(&[110, 30]));
        assert!(!after(&[110, 30, 50]));
    }

    #[test]
    fn events_are_counted_over_a_while() {
        let is_on = watch::Sender::new(false);
        let (mut burst, begun) = (BurstDetector::new(&is_on), Instant::now());
        burst.record(100, begun);
        assert!(!burst.is_on(), "one batch tells nothing");
        burst.record(100, begun + WINDOW);
        assert!(burst.is_on());
    }
}
