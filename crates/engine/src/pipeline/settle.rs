//! Writes the outcome of each attempt as the next state of its send, in batches. Each write is fenced by its claim.
//! Recovery also uses this module to settle the sends of dead instances.

use std::sync::Arc;
use std::time::Duration;

use campanile_domain::send::{AddressResult, Attempt, Outcome, OutcomeKind, SendState, after};
use campanile_domain::status::SendStatus;
use campanile_domain::time::Timestamp;
use campanile_store::{Capture, ClaimId, Devices, SendJob, Settlement, Signal, StoreError};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_util::sync::CancellationToken;

use crate::Engine;
use crate::backoff::Backoff;
use crate::pipeline::send::{Attempted, InFlightQueue, OutcomeReceiver};
use crate::telemetry::{TAKEN_OVER, count_dead_letters, count_doubt, count_lost, count_sends};

const MAX_BATCH: usize = 500;

pub async fn run(
    engine: Engine,
    in_flight: Arc<InFlightQueue>,
    outcomes: OutcomeReceiver,
    done: CancellationToken,
) {
    let mut outcomes = outcomes.lock().await;
    let mut backoff = Backoff::new();
    loop {
        let (batch, _unsettled): (Vec<_>, Vec<_>) =
            next_batch(&mut outcomes, &done).await.into_iter().unzip();
        if batch.is_empty() {
            return;
        }
        let finished = in_flight.finished_claims(batch.iter().map(|attempted| attempted.claimed.job.claim));
        // Only this process knows the outcomes, so it retries for as long as the database is unavailable.
        let mut settled_by = SettledBy::Holder;
        while let Err(error) = settle(&engine, settled_by, &batch, finished.clone()).await {
            settled_by = SettledBy::HolderRetry;
            if done.is_cancelled() {
                tracing::error!(%error, sends = batch.len(),
                    "outcomes could not be written before the shutdown; their sends are in doubt");
                return;
            }
            engine.signals.database.record_failure("settle", &error);
            backoff.wait(&done).await;
        }
        backoff.reset();
        engine.signals.database.record_success("settle");
        for attempted in batch {
            attempted.claimed.settled();
        }
    }
}

/// The outcomes that are available, at most `MAX_BATCH`. Empty when all attempts have ended.
async fn next_batch<T>(outcomes: &mut UnboundedReceiver<T>, done: &CancellationToken) -> Vec<T> {
    let mut batch = Vec::new();
    tokio::select! {
        biased;
        _ = outcomes.recv_many(&mut batch, MAX_BATCH) => {}
        () = done.cancelled() => {}
    }
    batch
}

async fn settle(
    engine: &Engine,
    settled_by: SettledBy,
    batch: &[Attempted],
    finished: Vec<ClaimId>,
) -> Result<(), StoreError> {
    let now = engine.clock.refresh(engine.store.as_ref()).await?;
    let settlements = batch.iter().map(|attempted| settlement(engine, attempted, now)).collect();
    write(engine, settled_by, settlements, finished).await
}

/// The writer of the outcomes.
#[derive(Debug, Clone, Copy)]
enum SettledBy {
    /// The instance that claimed the sends.
    Holder,
    /// The same instance again. The answer to its first commit may have been lost, and then nothing is left to write.
    HolderRetry,
    /// Any instance, after the claim's lease has expired. Several may try, and only the first one succeeds.
    Recovery,
}

/// Writes a batch. If the database refuses it, the batch is bisected until the faulty outcome is alone. That send is
/// then marked as failed.
async fn write(
    engine: &Engine,
    settled_by: SettledBy,
    settlements: Vec<Settlement>,
    finished: Vec<ClaimId>,
) -> Result<(), StoreError> {
    let mut batches = vec![(settlements, finished)];
    while let Some((batch, finished)) = batches.pop() {
        match write_once(engine, settled_by, &batch, finished.clone()).await {
            Ok(()) => {}
            Err(StoreError::Refused(error)) if batch.len() == 1 && batch[0].state != REFUSED => {
                tracing::error!(key = %batch[0].job.key, %error,
                    "the database rejected an outcome; the send is marked as failed");
                let failed = batch.into_iter().map(|settlement| Settlement {
                    state: REFUSED,
                    done: Vec::new(),
                    error: Some("the database rejected the outcome of the attempt".to_owned()),
                    ..settlement
                });
                batches.push((failed.collect(), finished));
            }
            Err(StoreError::Refused(_)) if batch.len() > 1 => {
                let (left, right) = batch.split_at(batch.len() / 2);
                // The claims end with the last part, so they stay valid until all of their sends are written.
                batches.push((right.to_vec(), finished));
                batches.push((left.to_vec(), Vec::new()));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

const REFUSED: SendState = SendState::Failed { code: "SETTLE_ERROR" };

async fn write_once(
    engine: &Engine,
    settled_by: SettledBy,
    settlements: &[Settlement],
    finished: Vec<ClaimId>,
) -> Result<(), StoreError> {
    fail::fail_point!("settle.before_commit");
    let settled = engine.store.settle(settlements.to_vec(), finished, engine.instance.id).await?;
    fail::fail_point!("settle.after_commit");
    let (lost, now) = (settled.lost.len(), engine.clock.now());
    match settled_by {
        SettledBy::Holder => count_lost("send", lost as u64),
        SettledBy::HolderRetry => {}
        SettledBy::Recovery => metrics::counter!(TAKEN_OVER).increment((settlements.len() - lost) as u64),
    }
    for settlement in settlements {
        let (key, status) = (settlement.job.key, settlement.state.status());
        if settled.lost.contains(&key) {
            continue;
        }
        let channel = key.channel;
        count_sends(channel, status, 1);
        if status == SendStatus::Sent {
            let job = &settlement.job;
            engine.latencies.sent.observe(channel, job.priority, job.event_created_at, now);
        }
        if settlement.outcome == OutcomeKind::Unknown {
            count_doubt(channel, status, 1);
        }
        if status == SendStatus::Failed && channel.is_retried() {
            count_dead_letters("send", 1);
        }
        if status == SendStatus::Due {
            engine.signals.due(channel).notify_waiters();
            engine.notify(Signal::Sends);
        }
    }
    Ok(())
}

fn settlement(engine: &Engine, attempted: &Attempted, now: Timestamp) -> Settlement {
    let outcome = overall_outcome(&attempted.claimed.job, &attempted.outcome, &attempted.done);
    let (state, error) = next_state(engine, &attempted.claimed.job, &outcome, now);
    Settlement {
        job: attempted.claimed.job.clone(),
        state,
        done: attempted.done.clone(),
        provider: attempted.provider.clone(),
        error,
        outcome: outcome.kind(),
        history: attempted.claimed.job.history.with(&outcome, now),
        duration: attempted.duration,
        attempted_at: attempted.begun.map(|begun| engine.clock.at(begun)),
        capture: attempted.capture.clone(),
    }
}

/// The outcome over all attempts at a user's devices. A user who was reached on one device counts as reached, even if
/// other devices are gone or the message expired for them.
fn overall_outcome(job: &SendJob, outcome: &Outcome, done: &[AddressResult]) -> Outcome {
    match (job.devices, outcome) {
        (Devices::Remaining { any_sent: true }, Outcome::Rejected { .. }) if !done.is_empty() => {
            Outcome::Sent { external_id: None }
        }
        (Devices::Remaining { any_sent: true }, Outcome::Expired { .. }) => {
            Outcome::Sent { external_id: None }
        }
        _ => outcome.clone(),
    }
}

fn next_state(
    engine: &Engine,
    job: &SendJob,
    outcome: &Outcome,
    now: Timestamp,
) -> (SendState, Option<String>) {
    let error = outcome.error().map(str::to_owned);
    let attempt =
        Attempt { channel: job.key.channel, number: job.attempt, jitter: jitter(), history: job.history };
    let policy = &engine.config.send.get(job.key.channel).policy;
    (after(outcome.clone(), attempt, policy, now), error)
}

/// A random number from 0 to 1. The hasher's randomness is good enough to spread retries.
fn jitter() -> f64 {
    use std::hash::{BuildHasher, RandomState};
    let random = RandomState::new().hash_one(0);
    #[expect(clippy::cast_precision_loss, reason = "a random number between 0 and 1 needs no more")]
    let fraction = random as f64 / u64::MAX as f64;
    fraction
}

/// Takes over claims whose lease has expired. Whether their attempts reached the provider is unknown.
pub async fn take_over_expired(engine: &Engine, in_flight: &InFlightQueue) -> Result<usize, StoreError> {
    const MAX_CLAIMS: usize = 20;
    let mut taken = 0;
    loop {
        // Claims of this process are skipped: it knows their outcomes and settles them itself, however late. The limit
        // grows by their number, so that the query also finds claims of other instances.
        let mut expired = engine.store.expired_claims(MAX_CLAIMS + in_flight.open_claims()).await?;
        expired.retain(|claim| !in_flight.holds(claim.claim));
        if expired.is_empty() {
            return Ok(taken);
        }
        let now = engine.store.now().await?;
        let claims = expired.iter().map(|claim| claim.claim).collect();
        let mut settlements = Vec::new();
        for job in expired.into_iter().flat_map(|claim| claim.jobs) {
            let outcome = outcome_of_lost(engine, &job).await?;
            settlements.push(taken_over(engine, job, &outcome, now));
        }
        taken += settlements.len();
        write(engine, SettledBy::Recovery, settlements, claims).await?;
    }
}

/// The outcome of an attempt whose instance died. It is unknown, with two exceptions in which nothing was sent.
/// `capture` stores a message together with its outcome. A send to a shared address claims it in the store first.
async fn outcome_of_lost(engine: &Engine, job: &SendJob) -> Result<Outcome, StoreError> {
    let captures = engine.providers.get(job.key.channel).is_some_and(|chain| chain.captures());
    let claims_address = job.key.channel.facts().once_per_address;
    if captures || (claims_address && !engine.store.may_have_sent(job).await?) {
        return Ok(Outcome::RELEASED);
    }
    Ok(Outcome::Unknown {
        error: "the instance stopped, or its lease expired, during the attempt".to_owned(),
    })
}

fn taken_over(engine: &Engine, job: SendJob, outcome: &Outcome, now: Timestamp) -> Settlement {
    let chain = engine.providers.get(job.key.channel);
    let (state, error) = next_state(engine, &job, outcome, now);
    Settlement {
        history: job.history.with(outcome, now),
        job,
        state,
        done: Vec::new(),
        provider: chain.map_or("none", |chain| chain.first().name()).to_owned(),
        error,
        outcome: outcome.kind(),
        duration: Duration::ZERO,
        attempted_at: None,
        capture: Capture::None,
    }
}
