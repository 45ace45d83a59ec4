//! Beside the pipeline: takes over expired claims, publishes again what the broker lost, and closes finished events
//! that the stage `close` missed.

pub mod retain;

use std::sync::Arc;
use std::time::{Duration, Instant};

use campanile_broker::DEAD_LETTER_QUEUE;
use campanile_domain::id::EventSeq;
use campanile_domain::queue::Queue;
use campanile_store::{RepublishCursor, Signal, StoreError};
use tokio_util::sync::CancellationToken;

use crate::Engine;
use crate::backoff::Backoff;
use crate::idle_backoff::IdleBackoff;
use crate::pipeline::publish::PublishError;
use crate::pipeline::send::InFlightQueue;
use crate::pipeline::settle;
use crate::telemetry::{QUEUE_DEPTH, REPUBLISHED};

const INTERVAL: Duration = Duration::from_secs(1);
/// How many rows are put into chunks again in one transaction; of those that were published long ago also in one sweep,
/// since they may only be waiting for their turn.
const REPUBLISH_ROWS: usize = 20_000;
/// Soon after the start, so that instances that do not live for long sweep, too.
const FIRST_SWEEP: Duration = Duration::from_mins(2);
/// When the database was away, whoever has sent something meanwhile and knows what came of it is given so long to write
/// it down. Longer than anybody backs off.
const AFTER_AN_OUTAGE: Duration = Duration::from_secs(7);
/// Longer than it takes to note that a confirmed chunk is published.
const RECHECK_AFTER: Duration = Duration::from_secs(10);
/// Open events that are looked at in one round, in case a hint got lost; the next round goes on behind them.
const SWEEP_PAGE: usize = 1_000;

pub async fn run(engine: Engine, in_flight: Arc<InFlightQueue>, stop: CancellationToken) {
    let mut backoff = Backoff::new();
    let republish_after = engine.config.recover.republish_after;
    let (mut sweep, mut next_sweep) = (Sweep::default(), Instant::now() + FIRST_SWEEP.min(republish_after));
    let mut take_over = TakeOver::new();
    let mut republish_cursor = RepublishCursor::default();
    while !stop.is_cancelled() {
        match run_once(&engine, &in_flight, &mut sweep, &mut take_over).await {
            Ok(()) => {
                backoff.reset();
                engine.signals.database.record_success("recover");
            }
            Err(error) => {
                engine.signals.database.record_failure("recover", &error);
                backoff.wait(&stop).await;
                continue;
            }
        }
        if Instant::now() >= next_sweep {
            next_sweep = Instant::now() + republish_after;
            if let Err(error) = republish_forgotten(&engine, &mut republish_cursor).await {
                tracing::warn!(%error, "sweep for messages lost by the broker failed; it runs again later");
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(INTERVAL) => {}
        }
    }
}

async fn run_once(
    engine: &Engine,
    in_flight: &InFlightQueue,
    sweep: &mut Sweep,
    take_over: &mut TakeOver,
) -> Result<(), StoreError> {
    take_over.run_once(engine, in_flight).await?;
    sweep.run_once(engine).await
}

/// When claims whose lease has passed are looked for.
#[derive(Debug)]
struct TakeOver {
    /// Put off by an outage. Only by an outage: whatever else fails in recovery must not leave a dead instance's sends
    /// to nobody.
    from: Instant,
    idle_backoff: IdleBackoff,
}

impl TakeOver {
    fn new() -> Self {
        TakeOver { from: Instant::now(), idle_backoff: IdleBackoff::default() }
    }

    async fn run_once(&mut self, engine: &Engine, in_flight: &InFlightQueue) -> Result<(), StoreError> {
        let begun = Instant::now();
        let is_due = begun >= self.from && self.idle_backoff.is_over(begun);
        let taken = if is_due {
            settle::take_over_expired(engine, in_flight).await
        } else {
            // An outage is noticed all the same.
            engine.store.now().await.map(|_| 0)
        };
        let taken = taken.inspect_err(|_| self.from = Instant::now() + AFTER_AN_OUTAGE)?;
        if taken > 0 {
            tracing::info!(sends = taken, "took over sends whose lease had expired");
        } else if is_due {
            self.idle_backoff = IdleBackoff::after(begun.elapsed(), Instant::now());
        }
        Ok(())
    }
}

/// What an operator purged is no loss that the broker would tell of. Rows that were published long ago and never
/// received go out again, a few at a time; received once more, they are harmless. The next time goes on behind them.
async fn republish_forgotten(engine: &Engine, from: &mut RepublishCursor) -> Result<(), StoreError> {
    let older_than = engine.config.recover.republish_after;
    let mut remaining_rows = REPUBLISH_ROWS;
    while remaining_rows > 0 {
        let queues = engine.config.user_types.queues();
        let page = engine.store.republish(queues, older_than, from.clone(), remaining_rows).await?;
        record_republished(engine, page.rows);
        remaining_rows = remaining_rows.saturating_sub(usize::try_from(page.rows).unwrap_or(usize::MAX));
        let Some(next) = page.next else {
            *from = RepublishCursor::default();
            break;
        };
        *from = next;
    }
    Ok(())
}

fn record_republished(engine: &Engine, rows: u64) {
    if rows > 0 {
        tracing::info!(rows, "rows lost by the broker are published again");
        metrics::counter!(REPUBLISHED).increment(rows);
        engine.signals.notify_all_chunks();
        engine.notify(Signal::Chunks);
    }
}

/// Watches for queues that the broker lost.
pub async fn run_losses(engine: Engine, stop: CancellationToken) {
    let mut backoff = Backoff::new();
    let mut restored_losses: Vec<RestoredLoss> = Vec::new();
    while !stop.is_cancelled() {
        if let Err(error) = watch_losses(&engine, &mut restored_losses).await {
            error.record(&engine, "losses");
            backoff.wait(&stop).await;
            continue;
        }
        backoff.reset();
        engine.signals.database.record_success("losses");
        for (queue, depth) in engine.broker.depths() {
            #[expect(clippy::cast_precision_loss, reason = "queues are bounded far below that")]
            metrics::gauge!(QUEUE_DEPTH, "queue" => queue).set(depth as f64);
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(INTERVAL) => {}
        }
    }
}

/// A loss that was made good, and is looked at once more: what was confirmed just before the loss, and not yet noted as
/// published when it was made good, is found then.
struct RestoredLoss {
    at: Instant,
    queues: Vec<Queue>,
}

async fn watch_losses(engine: &Engine, restored_losses: &mut Vec<RestoredLoss>) -> Result<(), PublishError> {
    let lost = engine.broker.losses();
    if !lost.is_empty() {
        let at = Instant::now();
        let queues = affected(engine, &lost);
        republish_all(engine, &queues, Duration::ZERO).await?;
        fail::fail_point!("recover.before_restore");
        engine.broker.restore(&lost).await?;
        restored_losses.push(RestoredLoss { at, queues });
    }
    while let Some(first) = restored_losses.first().filter(|first| first.at.elapsed() >= RECHECK_AFTER) {
        republish_all(engine, &first.queues, first.at.elapsed()).await?;
        restored_losses.remove(0);
    }
    Ok(())
}

/// What was in the dead-letter queue may have come from any other.
fn affected(engine: &Engine, lost: &[String]) -> Vec<Queue> {
    let dead_letters = lost.iter().any(|queue| queue == DEAD_LETTER_QUEUE);
    if dead_letters {
        return engine.config.user_types.queues();
    }
    lost.iter().map(|name| Queue::named(name.as_str())).collect()
}

/// Puts into chunks again what was published to these queues so long ago and not received.
async fn republish_all(engine: &Engine, queues: &[Queue], older_than: Duration) -> Result<(), StoreError> {
    let mut from = Some(RepublishCursor::default());
    while let Some(here) = from {
        let page = engine.store.republish(queues.to_vec(), older_than, here, REPUBLISH_ROWS).await?;
        record_republished(engine, page.rows);
        from = page.next;
    }
    Ok(())
}

/// Goes through what is open, in pages, so that a large backlog costs no more per round than a small one.
#[derive(Debug, Default)]
struct Sweep {
    after: EventSeq,
    idle_backoff: IdleBackoff,
}

impl Sweep {
    async fn run_once(&mut self, engine: &Engine) -> Result<(), StoreError> {
        let begun = Instant::now();
        if !self.idle_backoff.is_over(begun) {
            return Ok(());
        }
        let open = engine.store.open_events(self.after, SWEEP_PAGE).await;
        self.idle_backoff = IdleBackoff::after(begun.elapsed(), Instant::now());
        let open = open?;
        self.after =
            open.last().filter(|_| open.len() == SWEEP_PAGE).map_or(EventSeq::default(), |(last, _)| *last);
        if open.is_empty() {
            return Ok(());
        }
        engine.store.close_events(open.into_iter().map(|(_, event_id)| event_id).collect()).await.map(drop)
    }
}
