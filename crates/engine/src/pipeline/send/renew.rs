//! Renews the leases of claims whose provider has the whole message but has not answered yet. A lease is renewed for as
//! long as the answer is awaited. So leases can be short, and a dead instance is noticed after one lease, however long
//! answers take.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use campanile_channels::SendLease;
use campanile_store::StoreError;
use tokio::sync::{Notify, OwnedSemaphorePermit};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::Engine;
use crate::backoff::Backoff;
use crate::lease_deadline::LeaseDeadline;
use crate::pipeline::send::InFlightQueue;

/// After this time an attempt that only awaits its answer returns its permit.
const RELEASE_PERMIT_AFTER: Duration = Duration::from_secs(1);

/// The longest time between two checks for leases to renew.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Renews claims under which answers are awaited, before their leases expire.
pub async fn run(engine: Engine, in_flight: Arc<InFlightQueue>, done: CancellationToken) {
    let mut backoff = Backoff::new();
    while !done.is_cancelled() {
        tokio::select! {
            () = done.cancelled() => return,
            () = in_flight.answers.renew.notified() => {}
            () = sleep((engine.config.lease / 8).min(LONGEST_PAUSE)) => {}
        }
        match run_once(&engine, &in_flight).await {
            Ok(_) => {
                backoff.reset();
                engine.signals.database.record_success("renew");
            }
            Err(error) => {
                engine.signals.database.record_failure("renew", &error);
                backoff.wait(&done).await;
            }
        }
    }
}

/// Returns the number of renewed claims.
pub async fn run_once(engine: &Engine, in_flight: &InFlightQueue) -> Result<usize, StoreError> {
    let lease = engine.config.lease;
    let claims = in_flight.claims_to_renew(lease.mul_f64(RENEW_BELOW));
    if claims.is_empty() {
        return Ok(0);
    }
    let deadline = LeaseDeadline::after(lease);
    let renewed = engine.store.renew_claims(claims, lease).await?;
    in_flight.renewed(&renewed, deadline);
    Ok(renewed.len())
}

/// A lease is renewed when less than this fraction of it remains. Most answers come earlier, so most claims are never
/// renewed.
const RENEW_BELOW: f64 = 0.6;

/// The lease of a claim, as its holder measures it.
#[derive(Debug)]
pub struct ClaimLease {
    deadline: Mutex<LeaseDeadline>,
    /// The number of attempts under this claim that await an answer.
    awaiting: AtomicUsize,
}

impl ClaimLease {
    pub fn new(deadline: LeaseDeadline) -> Self {
        ClaimLease { deadline: Mutex::new(deadline), awaiting: AtomicUsize::new(0) }
    }

    pub fn remaining(&self) -> Duration {
        self.deadline.lock().unwrap_or_else(PoisonError::into_inner).remaining()
    }

    pub fn renew(&self, deadline: LeaseDeadline) {
        *self.deadline.lock().unwrap_or_else(PoisonError::into_inner) = deadline;
    }

    pub fn needs_renewal(&self, less_than: Duration) -> bool {
        self.awaiting.load(Ordering::Relaxed) > 0 && self.remaining() < less_than
    }
}

/// Shared by the attempts that await answers.
#[derive(Debug, Default)]
pub struct Answers {
    /// Wakes the renewal before its next check, for a lease that is about to end.
    renew: Notify,
    /// Cancelled when answers are no longer awaited.
    stopped: CancellationToken,
}

impl Answers {
    pub fn stop(&self) {
        self.stopped.cancel();
    }
}

/// The lease that one attempt sends under, and the attempt's permit.
#[derive(Debug)]
pub struct AttemptLease<'a> {
    lease: &'a ClaimLease,
    answers: &'a Answers,
    permit: Mutex<Option<OwnedSemaphorePermit>>,
}

impl<'a> AttemptLease<'a> {
    pub fn new(lease: &'a ClaimLease, answers: &'a Answers, permit: Option<OwnedSemaphorePermit>) -> Self {
        AttemptLease { lease, answers, permit: Mutex::new(permit) }
    }
}

#[async_trait]
impl SendLease for AttemptLease<'_> {
    fn remaining(&self) -> Duration {
        self.lease.remaining()
    }

    async fn await_answer(&self) {
        let _awaiting = Awaiting::of(self.lease);
        if self.lease.remaining() < RENEW_AT_ONCE_BELOW {
            self.answers.renew.notify_one();
        }
        sleep(RELEASE_PERMIT_AFTER).await;
        drop(self.permit.lock().unwrap_or_else(PoisonError::into_inner).take());
        self.answers.stopped.cancelled().await;
    }
}

/// With less than this left of a lease, it is renewed at once: the next check may come too late.
const RENEW_AT_ONCE_BELOW: Duration = Duration::from_secs(15);

/// Counts an attempt as awaiting its answer until it is dropped.
struct Awaiting<'a>(&'a ClaimLease);

impl<'a> Awaiting<'a> {
    fn of(lease: &'a ClaimLease) -> Self {
        lease.awaiting.fetch_add(1, Ordering::Relaxed);
        Awaiting(lease)
    }
}

impl Drop for Awaiting<'_> {
    fn drop(&mut self) {
        self.0.awaiting.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::Semaphore;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_lease_is_renewed_only_while_an_answer_is_awaited_and_the_permit_is_left_to_others() {
        let lease = ClaimLease::new(LeaseDeadline::after(Duration::from_secs(30)));
        let (answers, permits) = (Answers::default(), Arc::new(Semaphore::new(1)));
        let permit = Arc::clone(&permits).try_acquire_owned().unwrap();
        let attempt_lease = AttemptLease::new(&lease, &answers, Some(permit));
        let minute = Duration::from_mins(1);
        assert!(!lease.needs_renewal(minute));
        {
            let mut waiting = attempt_lease.await_answer();
            assert!(tokio::time::timeout(RELEASE_PERMIT_AFTER / 2, &mut waiting).await.is_err());
            assert!(lease.needs_renewal(minute) && !lease.needs_renewal(minute / 4));
            assert_eq!(permits.available_permits(), 0);
            assert!(tokio::time::timeout(RELEASE_PERMIT_AFTER, &mut waiting).await.is_err());
            assert_eq!(permits.available_permits(), 1);
            answers.stop();
            waiting.await;
        }
        assert!(!lease.needs_renewal(minute));
    }
}
