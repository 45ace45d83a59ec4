//! Idempotency keys of HTTP clients: a request that is repeated under the same key gets the same answer.

use std::time::Duration;

use async_trait::async_trait;

use crate::StoreError;
use crate::columns::Columns;

/// How long a key is remembered.
pub const IDEMPOTENCY_KEY_LIFETIME: Duration = Duration::from_hours(24);

/// A key belongs to its caller: two callers may choose the same.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct IdempotencyKey {
    pub caller: String,
    pub key: String,
}

/// The answer to repeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredAnswer {
    pub status: u16,
    pub content_type: String,
    pub body: String,
}

/// What is known of a key when a request with it begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Begun {
    /// The request is the first, or the earlier one died. It runs with this fence.
    Started { fence: i64 },
    /// The request was answered before.
    Answered(StoredAnswer),
    /// The key was used for another request.
    OtherRequest,
    /// The same request is being answered now.
    InFlight { remaining: Duration },
}

#[async_trait]
pub trait IdempotencyStore {
    /// Takes the key for a request with this hash, for as long as the lease.
    async fn begin_request(
        &self,
        key: &IdempotencyKey,
        request_hash: &str,
        lease: Duration,
    ) -> Result<Begun, StoreError>;

    /// Stores the answer, unless the lease passed and another request has taken the key meanwhile.
    async fn finish_request(
        &self,
        key: &IdempotencyKey,
        fence: i64,
        answer: StoredAnswer,
    ) -> Result<(), StoreError>;

    /// Forgets the key, so that the request can be repeated at once.
    async fn abandon_request(&self, key: &IdempotencyKey, fence: i64) -> Result<(), StoreError>;

    /// Deletes at most `limit` keys whose lifetime has passed. Returns their number.
    async fn delete_old_idempotency_keys(&self, limit: usize) -> Result<u64, StoreError>;
}

/// A key that could not be taken.
pub(crate) struct TakenKey {
    request_hash: String,
    answer: Option<StoredAnswer>,
    remaining: Duration,
}

impl TakenKey {
    pub(crate) fn begun(self, request_hash: &str) -> Begun {
        if self.request_hash != request_hash {
            return Begun::OtherRequest;
        }
        match self.answer {
            Some(answer) => Begun::Answered(answer),
            None => Begun::InFlight { remaining: self.remaining },
        }
    }
}

pub(crate) fn taken_key(row: &impl Columns, remaining: Duration) -> Result<TakenKey, StoreError> {
    let answer = match row.maybe_integer_as("status")? {
        None => None,
        Some(status) => {
            Some(StoredAnswer { status, content_type: row.text("content_type")?, body: row.text("body")? })
        }
    };
    Ok(TakenKey { request_hash: row.text("request_hash")?, answer, remaining })
}
