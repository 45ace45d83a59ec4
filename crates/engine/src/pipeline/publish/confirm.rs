//! Updates chunks after the broker has confirmed or refused their messages.

use campanile_broker::Confirm;
use campanile_domain::id::SendKey;
use campanile_store::{Chunk, StoreError};

use crate::Engine;
use crate::telemetry::{PUBLISHED, REFUSED, count_dead_letters, count_lost};

/// The confirms have the order of the chunks and their rows.
pub async fn record_confirms(
    engine: &Engine,
    chunks: Vec<Chunk>,
    confirms: Vec<Confirm>,
) -> Result<(), StoreError> {
    let mut confirms = confirms.into_iter();
    let (mut whole, mut partly_confirmed) = (Vec::new(), Vec::new());
    for chunk in chunks {
        let refused: Vec<_> = chunk
            .rows
            .iter()
            .zip(confirms.by_ref())
            .filter_map(|(row, confirm)| match confirm {
                Confirm::Accepted => None,
                Confirm::Refused { reason } => Some((row.row.key, reason)),
            })
            .collect();
        metrics::counter!(PUBLISHED).increment((chunk.rows.len() - refused.len()) as u64);
        if refused.is_empty() { whole.push(chunk.id) } else { partly_confirmed.push((chunk, refused)) }
    }
    if !whole.is_empty() {
        let deleted = engine.store.chunks_published(&whole).await?;
        count_lost("chunk", (whole.len() as u64).saturating_sub(deleted));
    }
    for (chunk, refused) in partly_confirmed {
        record_refusals(engine, chunk, refused).await?;
    }
    Ok(())
}

async fn record_refusals(
    engine: &Engine,
    chunk: Chunk,
    refused: Vec<(SendKey, String)>,
) -> Result<(), StoreError> {
    metrics::counter!(REFUSED).increment(refused.len() as u64);
    tracing::error!(
        queue = chunk.queue.as_str(),
        rows = refused.len(),
        reason = refused[0].1,
        "the broker refused outbox rows"
    );
    let config = &engine.config.publish;
    let dead_letters =
        engine.store.rows_refused(chunk.id, refused, config.max_refusals, config.poll_interval).await?;
    count_dead_letters("publish", dead_letters);
    engine.completion.add_candidates(chunk.rows.into_iter().map(|row| row.row.event_id));
    Ok(())
}
