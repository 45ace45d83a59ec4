//! Sets events to `PROCESSED` once all of their rows were received, a few times a second.

mod completion;

use std::time::Duration;

use campanile_store::StoreError;
use tokio_util::sync::CancellationToken;

use crate::Engine;
use crate::backoff::Backoff;
pub use completion::Completion;
use completion::{COMPLETION_TIMEOUT, Complete};

/// How long to gather received rows before their events are closed together. With many events a longer delay is
/// cheaper, because fewer and larger statements cost less.
const CLOSE_DEBOUNCE: Duration = Duration::from_millis(50);
const CLOSE_DEBOUNCE_OF_MANY: Duration = Duration::from_millis(250);
const MANY_TO_CLOSE: usize = 50;

/// Closes events soon after their last row was received.
pub async fn run(engine: Engine, stop: CancellationToken) {
    let mut backoff = Backoff::new();
    let mut debounce = CLOSE_DEBOUNCE;
    while !stop.is_cancelled() {
        tokio::select! {
            () = stop.cancelled() => {}
            () = engine.completion.changed.notified() => tokio::time::sleep(debounce).await,
            // There is no signal when another instance receives the remaining rows, so this polls.
            () = tokio::time::sleep(COMPLETION_TIMEOUT) => {}
        }
        let complete = engine.completion.take();
        debounce = if complete.len() >= MANY_TO_CLOSE { CLOSE_DEBOUNCE_OF_MANY } else { CLOSE_DEBOUNCE };
        if complete.is_empty() {
            continue;
        }
        if let Err(error) = close(&engine, &complete).await {
            engine.signals.database.record_failure("close", &error);
            // Some of these events may be closed by now. The next attempt asks the database.
            engine
                .completion
                .add_candidates(complete.counted.into_iter().map(|(_, id)| id).chain(complete.candidates));
            backoff.wait(&stop).await;
        } else {
            backoff.reset();
            engine.signals.database.record_success("close");
        }
    }
}

async fn close(engine: &Engine, complete: &Complete) -> Result<(), StoreError> {
    if !complete.counted.is_empty() {
        engine.store.close_complete(complete.counted.iter().map(|(seq, _)| *seq).collect()).await?;
    }
    if !complete.candidates.is_empty() {
        engine.store.close_events(complete.candidates.iter().cloned().collect()).await?;
    }
    Ok(())
}
