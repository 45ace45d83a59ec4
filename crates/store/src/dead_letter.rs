//! What nobody tries again by itself: looking at it, and sending it on its way again.

use async_trait::async_trait;

use crate::{JsonRow, StoreError};

/// Which dead letters: those where everything that is given is so, behind `after`; at most `limit`.
#[derive(Debug, Clone, Default)]
pub struct DeadLetterFilter {
    pub event_id: Option<String>,
    pub stage: Option<String>,
    pub channel: Option<String>,
    pub provider: Option<String>,
    /// The code of what went wrong, such as `NO_RECIPIENTS`.
    pub reason: Option<String>,
    /// A part of the error's text.
    pub error: Option<String>,
    /// Whether letters that were replayed already are among them.
    pub replayed: bool,
    pub after: i64,
    pub limit: usize,
}

/// What a replay came to.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Letters whose row, send or event is on its way again.
    pub replayed: u64,
    /// Letters that can't be replayed, by their id, and why.
    pub skipped: Vec<(i64, String)>,
    /// The last letter that was looked at, if there may be more behind it.
    pub next: Option<i64>,
}

#[async_trait]
pub trait DeadLetterStore {
    /// By age.
    async fn list_dead_letters(&self, filter: DeadLetterFilter) -> Result<Vec<JsonRow>, StoreError>;

    /// Puts what these letters speak of back to where it failed, all in one transaction: a `FAILED` event is `PENDING`, a row
    /// that was refused or could not be received waits in a chunk, a send is due now with all its attempts ahead. Keys stay, so
    /// whoever was told is not told again. A letter that was replayed before is left alone.
    async fn replay(&self, filter: DeadLetterFilter) -> Result<Replayed, StoreError>;
}
