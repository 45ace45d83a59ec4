//! Claimed sends → providers. No transaction is open meanwhile. A message is taken only when its attempt can begin: until then an
//! urgent one may overtake it.

mod desk;
mod write;

use std::sync::Arc;
use std::time::{Duration, Instant};

use campanile_channels::{Asked, Chain, Message, Room};
use campanile_domain::channel::Channel;
use campanile_domain::send::Outcome;
use campanile_domain::time;
use campanile_store::{Post, SendJob, StoreError};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

use crate::Engine;
use crate::backoff::Backoff;
use crate::lease_end::LeaseEnd;
use crate::signals::Outage;
use write::Writing;

pub use desk::{Attempted, Claimed, Desk, Outcomes, Places, Unsettled};

/// Messages whose contents are asked for together.
const MAX_TOGETHER: usize = 50;

/// Starts attempts of one channel, `HIGH` first. When draining, what was not begun is let go; by then nothing more is enqueued.
pub async fn run(engine: Engine, desk: Arc<Desk>, channel: Channel, drain: CancellationToken) {
    let Some(chain) = engine.providers.get(channel).cloned() else { return drain.cancelled().await };
    let this = desk.channel(channel);
    let (mut high, mut others) = (this.high.take.lock().await, this.others.take.lock().await);
    loop {
        let next = async {
            let turn = Arc::clone(&this.concurrency).acquire_owned().await.ok()?;
            chain.paced().await;
            let claimed = tokio::select! {
                biased;
                claimed = high.recv() => claimed,
                claimed = others.recv() => claimed,
            };
            Some((claimed?, turn))
        };
        let mut batch = tokio::select! {
            biased;
            () = drain.cancelled() => break,
            Some(next) = next => vec![next],
        };
        // With a pace, each message has its own moment.
        while chain.per_second().is_none() && batch.len() < MAX_TOGETHER {
            let Ok(turn) = Arc::clone(&this.concurrency).try_acquire_owned() else { break };
            let Ok(claimed) = high.try_recv().or_else(|_| others.try_recv()) else { break };
            batch.push((claimed, turn));
        }
        let together = attempt_all(engine.clone(), Arc::clone(&desk), Arc::clone(&chain), batch);
        desk.attempts.spawn(together);
    }
    while let Ok(claimed) = high.try_recv().or_else(|_| others.try_recv()) {
        desk.over.put(Attempted::not_attempted(claimed, &chain, Duration::ZERO));
    }
}

/// Each goes its own way once what it says is known; a provider that panics takes no other along.
async fn attempt_all(
    engine: Engine,
    desk: Arc<Desk>,
    chain: Arc<Chain>,
    batch: Vec<(Claimed, OwnedSemaphorePermit)>,
) {
    let writings = write::all(&engine, &chain, batch.iter().map(|(claimed, _)| &claimed.job)).await;
    let writings = match writings {
        Ok(writings) => writings,
        // Somebody's row can't be read, of a view perhaps: that one fails alone, and not for want of a database.
        Err(StoreError::Refused(_)) if batch.len() > 1 => {
            for alone in batch {
                let (desk, chain) = (Arc::clone(&desk), Arc::clone(&chain));
                Box::pin(attempt_all(engine.clone(), desk, chain, vec![alone])).await;
            }
            return;
        }
        Err(StoreError::Refused(error)) => {
            for (claimed, _) in batch {
                let error = format!("what the message says could not be read from the database: {error}");
                let outcome = Outcome::Retry { after: None, error };
                desk.over
                    .put(Attempted { outcome, ..Attempted::not_attempted(claimed, &chain, Duration::ZERO) });
            }
            return;
        }
        Err(error) => {
            engine.signals.note_outage(Outage::Database, "send", &error);
            for (claimed, _) in batch {
                desk.over.put(Attempted::not_attempted(claimed, &chain, AFTER_AN_OUTAGE));
            }
            return;
        }
    };
    for ((claimed, turn), writing) in batch.into_iter().zip(writings) {
        let (engine, over, chain) = (engine.clone(), desk.over.clone(), Arc::clone(&chain));
        desk.attempts.spawn(async move {
            let _turn = turn;
            let attempted = match told_already(&engine, &chain, &claimed.job).await {
                Ok(None) => attempt(claimed, &chain, writing).await,
                Ok(Some(outcome)) => {
                    Attempted { outcome, ..Attempted::not_attempted(claimed, &chain, Duration::ZERO) }
                }
                Err(error) => {
                    engine.signals.note_outage(Outage::Database, "send", &error);
                    Attempted::not_attempted(claimed, &chain, AFTER_AN_OUTAGE)
                }
            };
            over.put(attempted);
        });
    }
}

const AFTER_AN_OUTAGE: Duration = Duration::from_secs(1);

/// A webhook leads to a place that several people read: an event is told there once, by whoever asks first. The others share its
/// outcome, and wait for it in the database.
async fn told_already(engine: &Engine, chain: &Chain, job: &SendJob) -> Result<Option<Outcome>, StoreError> {
    const LOOK_AGAIN: Duration = Duration::from_millis(500);
    if job.key.channel != Channel::Slack || chain.captures() || job.address.is_empty() {
        return Ok(None);
    }
    Ok(match engine.store.claim_post(job).await? {
        Post::Mine => None,
        Post::Done(other) => Some(Outcome::Sent { external_id: Some(format!("posted for {other}")) }),
        Post::Open => Some(Outcome::NotAttempted { after: LOOK_AGAIN }),
        Post::Lost(other) => Some(Outcome::Unknown {
            error: format!("{other} was to post it, and nobody knows whether it did"),
        }),
    })
}

async fn attempt(claimed: Claimed, chain: &Chain, writing: Writing) -> Attempted {
    let begun = Instant::now();
    let job = &claimed.job;
    if job.address.is_empty() {
        let error = "every address that was left was declared dead while it waited".to_owned();
        let nobody = Attempted::not_attempted(claimed, chain, Duration::ZERO);
        return Attempted { outcome: Outcome::Rejected { error }, ..nobody };
    }
    let (name, html) = match writing {
        Writing::Ready { name, html } => (name, html),
        Writing::Impossible { error } => {
            let nobody = Attempted::not_attempted(claimed, chain, Duration::ZERO);
            return Attempted { outcome: Outcome::Unwritable { error }, ..nobody };
        }
    };
    let message = Message {
        key: job.key,
        event_id: job.event_id.as_str(),
        event_type: job.event_type.as_str(),
        address: &job.address,
        name: name.as_deref(),
        title: &job.title,
        body: &job.body,
        html: html.as_deref(),
        priority: job.priority,
    };
    fail::fail_point!("send.before_provider");
    // A process that slept past its lease sends nothing: the rest of it must outlast the provider's deadline.
    let Asked { answer, provider } = chain.send(&message, || claimed.lease_ends.rest()).await;
    fail::fail_point!("send.after_provider");
    Attempted {
        outcome: answer.outcome,
        done: answer.done,
        provider: provider.to_owned(),
        captures: chain.captures(),
        duration: begun.elapsed(),
        claimed,
    }
}

/// Picks up what waits in the database: retries, what found no room, and what a dead instance left.
pub async fn run_due(engine: Engine, desk: Arc<Desk>, channel: Channel, stop: CancellationToken) {
    let mut backoff = Backoff::new();
    while !stop.is_cancelled() {
        let signal = engine.signals.due(channel).notified();
        let wait = match claim_due(&engine, &desk, channel).await {
            Ok(wait) => {
                backoff.reset();
                wait
            }
            Err(error) => {
                engine.signals.note_outage(Outage::Database, "send", &error);
                backoff.wait(&stop).await;
                continue;
            }
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = signal => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// Claims what is due and has a place, a batch at a time. Answers how long to wait for the next.
pub async fn claim_due(engine: &Engine, desk: &Desk, channel: Channel) -> Result<Duration, StoreError> {
    const MAX_CLAIM: usize = 500;
    const WAIT_FOR_PLACES: Duration = Duration::from_millis(20);
    let config = engine.config.send.get(channel);
    let Some(due) = engine.store.next_due(channel).await? else { return Ok(config.poll_interval) };
    let wait = time::between(engine.store.now().await?, due);
    if !wait.is_zero() {
        return Ok(wait.min(config.poll_interval));
    }
    if let Some(Room::None(wait)) = engine.providers.get(channel).map(|chain| chain.room()) {
        return Ok(wait.max(WAIT_FOR_PLACES));
    }
    let Some(places) = desk.reserve_up_to(channel, MAX_CLAIM) else { return Ok(WAIT_FOR_PLACES) };
    let lease_ends = LeaseEnd::after(engine.config.lease);
    let limit = places.num_permits();
    let jobs = engine.store.claim_due(channel, limit, &engine.config.instance, engine.config.lease).await?;
    desk.enqueue(jobs, lease_ends, Places::of(channel, places));
    Ok(Duration::ZERO)
}

#[cfg(test)]
mod tests {
    use campanile_channels::Capture;

    use super::desk::tests::claimed;
    use super::*;

    #[tokio::test]
    async fn what_is_left_of_the_lease_must_outlast_the_provider() {
        let chain = Chain::of(Arc::new(Capture));
        let in_time = attempt(claimed(chain.deadline() * 2), &chain, Writing::default()).await;
        assert_eq!(in_time.outcome, Outcome::Sent { external_id: None });
        let too_late = attempt(claimed(chain.deadline()), &chain, Writing::default()).await;
        assert_eq!(too_late.outcome, Outcome::LET_GO);
        let asleep = attempt(claimed(Duration::ZERO), &chain, Writing::default()).await;
        assert_eq!(asleep.outcome, Outcome::LET_GO);
    }
}
