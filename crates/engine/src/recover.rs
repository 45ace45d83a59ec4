//! Beside the pipeline: takes over expired claims, publishes again what the broker lost, and closes finished events.

use std::sync::Arc;
use std::time::{Duration, Instant};

use campanile_store::{Signal, StoreError};
use tokio_util::sync::CancellationToken;

use crate::Engine;
use crate::backoff::Backoff;
use crate::pipeline::send::Desk;
use crate::pipeline::settle;

const INTERVAL: Duration = Duration::from_secs(1);
const REPUBLISH_ROWS: usize = 5_000;
/// How often, and how old, what was published and not received is published again without a known loss.
const REPUBLISH_INTERVAL: Duration = Duration::from_hours(1);
/// Open events that are looked at in one round, in case a hint got lost; the next round goes on behind them.
const SWEEP_PAGE: usize = 1_000;
/// Lets the receipts of many rows become one look at their events.
const CLOSE_DEBOUNCE: Duration = Duration::from_millis(50);

pub async fn run(engine: Engine, desk: Arc<Desk>, stop: CancellationToken) {
    let mut backoff = Backoff::new();
    let (mut swept, mut last_sweep) = (0, Instant::now());
    while !stop.is_cancelled() {
        match run_once(&engine, &desk, &mut swept).await {
            Ok(()) => backoff.reset(),
            Err(error) => {
                tracing::warn!(%error, "recovery waits");
                backoff.wait(&stop).await;
                continue;
            }
        }
        if last_sweep.elapsed() >= REPUBLISH_INTERVAL {
            last_sweep = Instant::now();
            if let Err(error) = republish_forgotten(&engine).await {
                tracing::warn!(%error, "what the broker may have forgotten is looked for later");
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(INTERVAL) => {}
        }
    }
}

pub async fn run_once(engine: &Engine, desk: &Desk, swept: &mut i64) -> Result<(), StoreError> {
    let taken = settle::take_over_expired(engine, desk).await?;
    if taken > 0 {
        tracing::info!(sends = taken, "sends of a dead instance were taken over");
    }
    sweep(engine, swept).await
}

/// What an operator purged is no loss that the broker would tell of. Rows that were published long ago and never received go
/// out again, a few at a time; received once more, they are harmless.
async fn republish_forgotten(engine: &Engine) -> Result<(), StoreError> {
    let queues = engine.config.user_types.queues();
    let rows = engine.store.republish(queues, REPUBLISH_INTERVAL, REPUBLISH_ROWS).await?;
    note_republished(engine, rows);
    Ok(())
}

fn note_republished(engine: &Engine, rows: u64) {
    if rows > 0 {
        tracing::info!(rows, "rows that the broker lost are published again");
        metrics::counter!("campanile_republished_total").increment(rows);
        engine.signals.chunks_of_all_queues_wait();
        engine.tell(Signal::Chunks);
    }
}

/// Watches for queues that the broker lost.
pub async fn run_losses(engine: Engine, stop: CancellationToken) {
    let mut backoff = Backoff::new();
    let mut lost: Vec<String> = Vec::new();
    while !stop.is_cancelled() {
        lost.extend(engine.broker.take_losses());
        if let Err(error) = make_good(&engine, &mut lost).await {
            tracing::warn!(%error, "what the broker lost waits to be published again");
            backoff.wait(&stop).await;
            continue;
        }
        backoff.reset();
        for (queue, depth) in engine.broker.depths() {
            #[expect(clippy::cast_precision_loss, reason = "queues are bounded far below that")]
            metrics::gauge!("campanile_queue_depth", "queue" => queue).set(depth as f64);
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(INTERVAL) => {}
        }
    }
}

/// Losses stay noted until everything that was in those queues has been put into chunks again.
pub async fn make_good(engine: &Engine, lost: &mut Vec<String>) -> Result<(), StoreError> {
    while !lost.is_empty() {
        let rows = engine.store.republish(lost.clone(), Duration::ZERO, REPUBLISH_ROWS).await?;
        note_republished(engine, rows);
        if rows < REPUBLISH_ROWS as u64 {
            lost.clear();
        }
    }
    Ok(())
}

/// One page of what is open, so that a large backlog costs no more per round than a small one.
async fn sweep(engine: &Engine, swept: &mut i64) -> Result<(), StoreError> {
    let open = engine.store.open_events(*swept, SWEEP_PAGE).await?;
    *swept = open.last().filter(|_| open.len() == SWEEP_PAGE).map_or(0, |(last, _)| *last);
    if open.is_empty() {
        return Ok(());
    }
    engine.store.close_events(open.into_iter().map(|(_, event_id)| event_id).collect()).await.map(drop)
}

/// Closes events soon after their last row was received.
pub async fn run_close(engine: Engine, stop: CancellationToken) {
    let mut backoff = Backoff::new();
    while !stop.is_cancelled() {
        tokio::select! {
            () = stop.cancelled() => {}
            () = engine.signals.closing.notified() => tokio::time::sleep(CLOSE_DEBOUNCE).await,
        }
        let events = engine.signals.take_complete();
        if events.is_empty() {
            continue;
        }
        if let Err(error) = engine.store.close_events(events.clone()).await {
            tracing::warn!(%error, "closing events waits");
            engine.signals.maybe_complete(events);
            backoff.wait(&stop).await;
        } else {
            backoff.reset();
        }
    }
}
