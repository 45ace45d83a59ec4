//! Requests that keep a core busy: large bodies, and previews of templates. They run by `run_blocking`, a few at a
//! time, so that other requests are not delayed.

use std::sync::Arc;

use campanile_engine::run_blocking;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Smaller bodies are parsed without a permit.
const LARGE_BODY_BYTES: usize = 64 * 1024;
const MAX_PARSED: usize = 2;
/// Previews that run or wait; further ones are refused.
const MAX_PREVIEWS: usize = 16;

#[derive(Debug, Clone)]
pub struct Heavy {
    parsing: Arc<Semaphore>,
    previews: Arc<Semaphore>,
    /// Previews run one at a time.
    preview: Arc<Semaphore>,
}

impl Default for Heavy {
    fn default() -> Self {
        let semaphore = |permits| Arc::new(Semaphore::new(permits));
        Heavy { parsing: semaphore(MAX_PARSED), previews: semaphore(MAX_PREVIEWS), preview: semaphore(1) }
    }
}

impl Heavy {
    /// Waits until a body of this size may be parsed.
    pub async fn permit(&self, body_bytes: usize) -> WorkPermit {
        if body_bytes <= LARGE_BODY_BYTES { WorkPermit(None) } else { self.permit_of_heavy().await }
    }

    /// For a body that is expensive at any size.
    pub async fn permit_of_heavy(&self) -> WorkPermit {
        WorkPermit::of(&self.parsing).await
    }

    /// A permit for a preview. `None` if too many are waiting.
    pub fn preview(&self) -> Option<PreviewPermit> {
        let permit = Arc::clone(&self.previews).try_acquire_owned().ok()?;
        Some(PreviewPermit { _permit: permit, preview: Arc::clone(&self.preview) })
    }
}

/// The permit to keep a core busy, until it is dropped.
#[derive(Debug)]
pub struct WorkPermit(Option<OwnedSemaphorePermit>);

impl WorkPermit {
    async fn of(semaphore: &Arc<Semaphore>) -> Self {
        WorkPermit(Arc::clone(semaphore).acquire_owned().await.ok())
    }

    pub fn run<T>(&self, work: impl FnOnce() -> T) -> T {
        if self.0.is_some() { run_blocking(work) } else { work() }
    }
}

#[derive(Debug)]
pub struct PreviewPermit {
    _permit: OwnedSemaphorePermit,
    preview: Arc<Semaphore>,
}

impl PreviewPermit {
    pub async fn work_permit(&self) -> WorkPermit {
        WorkPermit::of(&self.preview).await
    }
}
