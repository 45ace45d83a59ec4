//! Takes over expired claims, republishes rows that the broker lost, and closes finished events that the stage `close`
//! missed. `retain` deletes old rows.

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
/// The maximum number of rows that are put into new chunks in one transaction. It also bounds one sweep, because rows
/// published long ago may only be waiting in a long queue.
const REPUBLISH_ROWS: usize = 20_000;
/// The first sweep comes soon after the start, so that short-lived instances sweep, too.
const FIRST_SWEEP: Duration = Duration::from_mins(2);
/// How long recovery waits after an outage of the database before it takes over claims. Instances that sent messages
/// during the outage need time to write the outcomes. The time is longer than the longest backoff (5 s).
const OUTAGE_GRACE: Duration = Duration::from_secs(7);
/// Longer than recording a confirmed chunk as published takes.
const RECHECK_AFTER: Duration = Duration::from_secs(10);
/// The most open events that one round checks, in case a notification was lost. The next round continues after them.
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

/// Decides when to look for claims whose lease has expired.
#[derive(Debug)]
struct TakeOver {
    /// The earliest time of the next takeover. Only an outage of the database delays it: no other failure in recovery
    /// may leave a dead instance's sends without an owner.
    not_before: Instant,
    idle_backoff: IdleBackoff,
}

impl TakeOver {
    fn new() -> Self {
        TakeOver { not_before: Instant::now(), idle_backoff: IdleBackoff::default() }
    }

    async fn run_once(&mut self, engine: &Engine, in_flight: &InFlightQueue) -> Result<(), StoreError> {
        let begun = Instant::now();
        let is_due = begun >= self.not_before && self.idle_backoff.is_over(begun);
        let taken = if is_due {
            settle::take_over_expired(engine, in_flight).await
        } else {
            // This query detects an outage even when no takeover is due.
            engine.store.now().await.map(|_| 0)
        };
        let taken = taken.inspect_err(|_| self.not_before = Instant::now() + OUTAGE_GRACE)?;
        if taken > 0 {
            tracing::info!(sends = taken, "took over sends whose lease had expired");
        } else if is_due {
            self.idle_backoff = IdleBackoff::after(begun.elapsed(), Instant::now());
        }
        Ok(())
    }
}

/// Publishes rows again that were published long ago and never received. For example, an operator purged a queue, which
/// the broker does not report as a loss. The number of rows is limited, and the next sweep continues after them. A row
/// that is received twice does no harm.
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

/// A loss that was repaired and is checked once more. The second check finds rows that were confirmed just before the
/// loss and not yet recorded as published during the repair.
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

/// The queues whose messages may be lost. A lost dead-letter queue may have held messages of any queue.
fn affected(engine: &Engine, lost: &[String]) -> Vec<Queue> {
    let dead_letters = lost.iter().any(|queue| queue == DEAD_LETTER_QUEUE);
    if dead_letters {
        return engine.config.user_types.queues();
    }
    lost.iter().map(|name| Queue::named(name.as_str())).collect()
}

/// Puts rows into new chunks that were published to these queues at least `older_than` ago and not received.
async fn republish_all(engine: &Engine, queues: &[Queue], older_than: Duration) -> Result<(), StoreError> {
    let mut from = Some(RepublishCursor::default());
    while let Some(here) = from {
        let page = engine.store.republish(queues.to_vec(), older_than, here, REPUBLISH_ROWS).await?;
        record_republished(engine, page.rows);
        from = page.next;
    }
    Ok(())
}

/// Checks the open events page by page, so that a round costs the same however large the backlog is.
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
