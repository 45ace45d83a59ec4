//! Claims events. `audience` reads their audience, and `commit` writes the commit. A claim is an open transaction that
//! locks its events, so that no other claim takes them. While it is open, it waits only for the database.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use campanile_domain::fan_out::Page;
use campanile_domain::id::{EntityRef, EventSeq};
use campanile_domain::people::recipient::{Candidate, Group};
use campanile_domain::priority::Lane;
use campanile_domain::time::Timestamp;
use tokio_postgres::Row;

use super::claim_watermark::ClaimWatermark;
use super::commit::{self, ExistingRows};
use super::transaction::Transaction;
use super::{Postgres, audience, event, read, statement};
use crate::decode::{self, ClaimedRow};
use crate::fan_out::unreadable;
use crate::{AudienceReader, Chunk, Claim, ClaimedEvent, FanOutClaim, FanOutCommit, FanOutStore, StoreError};

#[async_trait]
impl FanOutStore for Postgres {
    async fn claim_events(&self, claim: Claim) -> Result<Option<Box<dyn FanOutClaim>>, StoreError> {
        let mut unreadable = 0;
        loop {
            let transaction = self.begin().await?;
            let last_lane = claim.last_lane();
            let rows = match &claim {
                Claim::New { limit } | Claim::Urgent { limit } => {
                    claim_new(&transaction, &self.watermark, *limit, last_lane).await?
                }
                Claim::Continuing { after } | Claim::UrgentContinuing { after } => {
                    transaction.query(statement::CLAIM_CONTINUING, &[&after.0, &last_lane.number()]).await?
                }
                Claim::ByIds(seqs) => {
                    let ids = event::numbers(seqs.iter().copied());
                    transaction.query(statement::CLAIM_BY_IDS, &[&ids]).await?
                }
            };
            let guard = (!rows.is_empty())
                .then(|| WatermarkGuard { watermark: Arc::clone(&self.watermark), written: false });
            let now = match rows.first() {
                Some(first) => read::get(first, "now")?,
                None if unreadable == 0 => return Ok(None),
                None => read::get(read::only_row(&transaction.query(statement::NOW, &[]).await?)?, "now")?,
            };
            let (mut events, mut cursors, mut failed) = (Vec::new(), HashMap::new(), Vec::new());
            let mut existing = if rows.len() > 1 { ExistingRows::None } else { ExistingRows::Possible };
            for row in &rows {
                match decode::claimed_event(row) {
                    Ok(ClaimedRow { event, cursor, is_new }) => {
                        if !is_new {
                            existing = ExistingRows::Possible;
                        }
                        cursors.extend(cursor.map(|text| (event.seq, text)));
                        events.push(event);
                    }
                    Err(error) => failed.push((row, error)),
                }
            }
            if failed.is_empty() {
                let claim = PostgresClaim { transaction, events, unreadable, cursors, existing, now, guard };
                return Ok(Some(Box::new(claim)));
            }
            // Unreadable events fail in a separate transaction. Then the other events are claimed again.
            unreadable += failed.len() as u64;
            give_up(transaction, &failed).await?;
        }
    }
}

async fn claim_new(
    transaction: &Transaction,
    watermark: &ClaimWatermark,
    limit: usize,
    last_lane: Lane,
) -> Result<Vec<Row>, StoreError> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let start = watermark.begin(last_lane, Instant::now());
    let after = event::numbers(start.after.iter().copied());
    let rows = transaction.query(statement::CLAIM_NEW, &[&limit, &after]).await;
    watermark.end(&start, Instant::now());
    let rows = rows?;
    let lane_and_id = |row| Ok((Lane::from_number(read::get(row, "lane")?), EventSeq(read::get(row, "id")?)));
    watermark.claimed(&rows.iter().map(lane_and_id).collect::<Result<Vec<_>, StoreError>>()?);
    Ok(rows)
}

async fn give_up(transaction: Transaction, failed: &[(&Row, StoreError)]) -> Result<(), StoreError> {
    for (row, error) in failed {
        let failure = unreadable(error);
        event::give_up(&transaction, EventSeq(read::get(row, "id")?), read::get(row, "event_id")?, &failure)
            .await?;
    }
    transaction.commit().await
}

#[derive(Debug)]
struct PostgresClaim {
    transaction: Transaction,
    events: Vec<ClaimedEvent>,
    unreadable: u64,
    /// The text of each cursor as it was read. Another release may write the same cursor as different text.
    cursors: HashMap<EventSeq, String>,
    existing: ExistingRows,
    now: Timestamp,
    /// `None` if no event is claimed.
    guard: Option<WatermarkGuard>,
}

/// Guards claimed events, because the watermark may have moved past them. If they are not written, the next claim is a
/// full scan.
#[derive(Debug)]
struct WatermarkGuard {
    watermark: Arc<ClaimWatermark>,
    written: bool,
}

impl Drop for WatermarkGuard {
    fn drop(&mut self) {
        if !self.written {
            self.watermark.require_full_scan();
        }
    }
}

#[async_trait]
impl AudienceReader for PostgresClaim {
    fn now(&self) -> Timestamp {
        self.now
    }

    async fn candidates(&mut self, pages: Vec<Page>) -> Result<Vec<Vec<Candidate>>, StoreError> {
        audience::candidates(&self.transaction, &pages).await
    }

    async fn groups(&mut self, entities: Vec<EntityRef>) -> Result<HashMap<EntityRef, Group>, StoreError> {
        audience::groups(&self.transaction, &entities).await
    }
}

#[async_trait]
impl FanOutClaim for PostgresClaim {
    fn events(&self) -> &[ClaimedEvent] {
        &self.events
    }

    fn unreadable(&self) -> u64 {
        self.unreadable
    }

    async fn commit(mut self: Box<Self>, commit: FanOutCommit) -> Result<Vec<Chunk>, StoreError> {
        let chunks = commit::write(self.transaction, commit, &self.cursors, self.existing).await?;
        if let Some(guard) = &mut self.guard {
            guard.written = true;
        }
        Ok(chunks)
    }
}
