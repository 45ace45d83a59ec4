//! Passes claimed sends to providers. No transaction is open during an attempt.
//!
//! `in_flight` holds the queues, `render` renders the content that rows do not store, and `renew` renews the leases.
//! The outcomes go to the settle stage.

mod in_flight;
mod render;
pub mod renew;

use std::sync::Arc;
use std::time::{Duration, Instant};

use campanile_channels::{Availability, Chain, Message, ProviderAnswer};
use campanile_domain::channel::Channel;
use campanile_domain::send::{AddressClaim, Outcome};
use campanile_domain::time;
use campanile_store::{SendJob, StoreError};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::Engine;
use crate::backoff::Backoff;
use crate::blocking::Renderings;
use crate::lease_deadline::LeaseDeadline;
use in_flight::Lane;
use render::{Contents, Written};
use renew::{Answers, AttemptLease};

pub use in_flight::{Attempted, Claimed, InFlightQueue, OutcomeReceiver, Permits, Unsettled};

/// How many messages load their contents with one query.
const CONTENTS_BATCH: u16 = 100;

/// Starts the attempts of one channel, `HIGH` first. Contents of messages are loaded in batches ahead of their
/// attempts, because attempts start one by one. When draining, sends that were not begun are released; nothing is
/// enqueued any more by then.
pub async fn run(engine: Engine, in_flight: Arc<InFlightQueue>, channel: Channel, drain: CancellationToken) {
    let Some(chain) = engine.providers.get(channel).cloned() else { return drain.cancelled().await };
    let channel_queue = in_flight.channel(channel);
    let ((high_sender, high), (others_sender, others)) =
        (mpsc::unbounded_channel(), mpsc::unbounded_channel());
    let stage = Stage { engine: &engine, in_flight: &in_flight, chain: &chain, drain: &drain };
    // Each lane loads ahead by itself, so that urgent messages do not wait for others.
    tokio::join!(
        stage.load_contents(&channel_queue.high, high_sender),
        stage.load_contents(&channel_queue.others, others_sender),
        stage.begin(&channel_queue.concurrency, high, others),
    );
}

struct Stage<'a> {
    engine: &'a Engine,
    in_flight: &'a Arc<InFlightQueue>,
    chain: &'a Arc<Chain>,
    drain: &'a CancellationToken,
}

/// A message whose contents are loaded. It holds one lookahead permit until its attempt.
struct Ready {
    claimed: Claimed,
    contents: Arc<Contents>,
    _lookahead: Option<OwnedSemaphorePermit>,
}

impl Stage<'_> {
    /// Loads the contents of a lane's messages, at most two batches ahead of their attempts.
    async fn load_contents(&self, lane: &Lane, ready: UnboundedSender<Ready>) {
        let mut lane = lane.receiver.lock().await;
        let lookahead_permits = Arc::new(Semaphore::new(2 * usize::from(CONTENTS_BATCH)));
        loop {
            let mut batch = Vec::new();
            let next = async {
                let lookahead =
                    Arc::clone(&lookahead_permits).acquire_many_owned(CONTENTS_BATCH.into()).await;
                lane.recv_many(&mut batch, CONTENTS_BATCH.into()).await;
                lookahead.ok()
            };
            let mut lookahead = tokio::select! {
                biased;
                () = self.drain.cancelled() => break,
                lookahead = next => lookahead,
            };
            for (claimed, contents) in self.with_contents(batch).await {
                let permit = lookahead.as_mut().and_then(|lookahead| lookahead.split(1));
                // The receiver runs until this sender is dropped.
                let _ = ready.send(Ready { claimed, contents, _lookahead: permit });
            }
        }
        while let Ok(claimed) = lane.try_recv() {
            self.release(claimed, Duration::ZERO);
        }
    }

    /// Loads the contents of a batch. If the database is unavailable, the sends are released. If it refuses the query,
    /// one recipient or event cannot be read, for example because of a faulty view. Then each message is loaded alone,
    /// and only the faulty ones fail.
    async fn with_contents(&self, batch: Vec<Claimed>) -> Vec<(Claimed, Arc<Contents>)> {
        let mut found = Vec::with_capacity(batch.len());
        let mut batches = vec![batch];
        while let Some(batch) = batches.pop() {
            match render::contents(self.engine, self.chain, batch.iter().map(|claimed| &claimed.job)).await {
                Ok(contents) => {
                    let contents = Arc::new(contents);
                    found.extend(batch.into_iter().map(|claimed| (claimed, Arc::clone(&contents))));
                }
                Err(StoreError::Refused(_)) if batch.len() > 1 => {
                    batches.extend(batch.into_iter().rev().map(|claimed| vec![claimed]));
                }
                Err(StoreError::Refused(error)) => {
                    let error =
                        format!("the recipient or the event could not be read from the database: {error}");
                    for claimed in batch {
                        let outcome = Outcome::Retry { after: None, error: error.clone() };
                        self.in_flight
                            .outcome_queue
                            .push(Attempted::without_provider(claimed, self.chain, outcome));
                    }
                }
                Err(error) => {
                    self.engine.signals.database.record_failure("send", &error);
                    for claimed in batch {
                        self.release(claimed, RETRY_AFTER_OUTAGE);
                    }
                }
            }
        }
        found
    }

    /// Starts attempts. A message is taken only when its attempt can begin, so that an urgent one may overtake it until
    /// then. Each attempt is a separate task, so that a panic in a provider affects no other attempt.
    async fn begin(
        &self,
        concurrency: &Arc<Semaphore>,
        mut high: UnboundedReceiver<Ready>,
        mut others: UnboundedReceiver<Ready>,
    ) {
        loop {
            let next = async {
                let permit = Arc::clone(concurrency).acquire_owned().await.ok()?;
                self.chain.wait_for_rate_limit().await;
                let ready = tokio::select! {
                    biased;
                    Some(ready) = high.recv() => ready,
                    Some(ready) = others.recv() => ready,
                    else => return None,
                };
                Some((ready, permit))
            };
            let (ready, permit) = tokio::select! {
                biased;
                () = self.drain.cancelled() => break,
                Some(next) = next => next,
            };
            let (engine, chain, outcome_queue) =
                (self.engine.clone(), Arc::clone(self.chain), self.in_flight.outcome_queue.clone());
            let answers = Arc::clone(&self.in_flight.answers);
            self.in_flight.attempts.spawn(async move {
                outcome_queue.push(attempt(&engine, &chain, ready, permit, &answers).await);
            });
        }
        while let Some(ready) = high.recv().await {
            self.release(ready.claimed, Duration::ZERO);
        }
        while let Some(ready) = others.recv().await {
            self.release(ready.claimed, Duration::ZERO);
        }
    }

    fn release(&self, claimed: Claimed, after: Duration) {
        let outcome = Outcome::NotAttempted { after };
        self.in_flight.outcome_queue.push(Attempted::without_provider(claimed, self.chain, outcome));
    }
}

async fn attempt(
    engine: &Engine,
    chain: &Chain,
    ready: Ready,
    permit: OwnedSemaphorePermit,
    answers: &Answers,
) -> Attempted {
    let Ready { claimed, contents, .. } = ready;
    match sent_by_other(engine, chain, &claimed.job).await {
        Ok(None) => ask(claimed, chain, &contents, &engine.renderings, Some(permit), answers).await,
        Ok(Some(outcome)) => Attempted::without_provider(claimed, chain, outcome),
        Err(error) => {
            engine.signals.database.record_failure("send", &error);
            Attempted::without_provider(claimed, chain, Outcome::NotAttempted { after: RETRY_AFTER_OUTAGE })
        }
    }
}

const RETRY_AFTER_OUTAGE: Duration = Duration::from_secs(1);

/// Whether another recipient's send to the same address decides this one. Several recipients may share an address, such
/// as a Slack webhook. So an event is sent there once, by the send that claims the address first. The others wait in
/// the database and share its outcome.
async fn sent_by_other(engine: &Engine, chain: &Chain, job: &SendJob) -> Result<Option<Outcome>, StoreError> {
    const REPOLL_DELAY: Duration = Duration::from_millis(500);
    /// Longer than the first delay, because the other send is waiting as well.
    const LATER_REPOLL_DELAY: Duration = Duration::from_secs(2);
    if !job.key.channel.facts().once_per_address || chain.captures() || job.address.is_empty() {
        return Ok(None);
    }
    Ok(match engine.store.claim_address(job).await? {
        AddressClaim::Held => None,
        AddressClaim::Sent(other) => Some(Outcome::Sent { external_id: Some(format!("sent by {other}")) }),
        // The time limit for a busy address starts here. If the other send gives up, the waiting ones do not start
        // again from zero.
        AddressClaim::Pending if job.history.deferral.is_none() => {
            let error = "waiting for the send of another recipient, which uses the same address".to_owned();
            Some(Outcome::RateLimited { after: REPOLL_DELAY, error })
        }
        AddressClaim::Pending => Some(Outcome::NotAttempted { after: LATER_REPOLL_DELAY }),
        AddressClaim::Unknown(other) => Some(Outcome::Unknown {
            error: format!("the outcome of {other}, which shares this address, is unknown"),
        }),
    })
}

async fn ask(
    claimed: Claimed,
    chain: &Chain,
    contents: &Contents,
    renderings: &Renderings,
    permit: Option<OwnedSemaphorePermit>,
    answers: &Answers,
) -> Attempted {
    let begun = Instant::now();
    let job = &claimed.job;
    if job.address.is_empty() {
        let error = "every remaining address was marked dead while the send waited".to_owned();
        return Attempted::without_provider(claimed, chain, Outcome::Rejected { error });
    }
    let Written { html, url } = match contents.write(job, renderings).await {
        Ok(written) => written,
        Err(error) => return Attempted::without_provider(claimed, chain, Outcome::TemplateFailed { error }),
    };
    let message = Message {
        key: job.key,
        event_id: job.event_id.as_str(),
        event_type: job.event_type.as_str(),
        address: &job.address,
        name: contents.name(&job.user),
        title: &job.title,
        body: &job.body,
        html: html.as_deref(),
        url: url.as_deref(),
        priority: job.priority,
        created_at: job.event_created_at,
    };
    fail::fail_point!("send.before_provider");
    // A process that was suspended past its lease sends nothing: the remaining lease must be longer than the provider's
    // deadline.
    let attempt_lease = AttemptLease::new(&claimed.lease, answers, permit);
    let ProviderAnswer { answer, provider } = chain.send(&message, attempt_lease).await;
    fail::fail_point!("send.after_provider");
    Attempted {
        outcome: answer.outcome,
        done: answer.done,
        provider: provider.to_owned(),
        capture: in_flight::capture(chain, html),
        duration: begun.elapsed(),
        begun: Some(begun),
        claimed,
    }
}

/// Claims sends that wait in the database: retries, sends that found no permit, and those of dead instances.
pub async fn run_due(
    engine: Engine,
    in_flight: Arc<InFlightQueue>,
    channel: Channel,
    stop: CancellationToken,
) {
    let mut backoff = Backoff::new();
    let mut next = Next::Unknown;
    while !stop.is_cancelled() {
        let signal = engine.signals.due(channel).notified();
        next = match claim_due(&engine, &in_flight, channel, next).await {
            Ok(next) => {
                backoff.reset();
                engine.signals.database.record_success("send");
                next
            }
            Err(error) => {
                engine.signals.database.record_failure("send", &error);
                backoff.wait(&stop).await;
                Next::Unknown
            }
        };
        if let Next::After(wait) = next {
            tokio::select! {
                () = stop.cancelled() => return,
                () = signal => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    }
}

/// What is known about the channel's due sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    Unknown,
    /// The last claim was full or found no permit, so there may be more.
    More,
    /// Nothing is due until this time has passed.
    After(Duration),
}

/// Claims due sends in a batch, as many as there are permits. `known` is the result of the last call.
pub async fn claim_due(
    engine: &Engine,
    in_flight: &InFlightQueue,
    channel: Channel,
    known: Next,
) -> Result<Next, StoreError> {
    const MAX_CLAIM: usize = 500;
    const WAIT_FOR_PERMIT: Duration = Duration::from_millis(20);
    if known != Next::More {
        let poll_interval = engine.config.send.get(channel).poll_interval;
        let Some(due) = engine.store.next_due(channel).await? else { return Ok(Next::After(poll_interval)) };
        let wait = time::between(engine.store.now().await?, due);
        if !wait.is_zero() {
            return Ok(Next::After(wait.min(poll_interval)));
        }
    }
    if let Some(Availability::Unavailable(wait)) =
        engine.providers.get(channel).map(|chain| chain.availability())
    {
        return Ok(Next::After(wait.max(WAIT_FOR_PERMIT)));
    }
    let _ = timeout(WAIT_FOR_PERMIT, in_flight.wait_for_permit(channel)).await;
    // A send is due, so the next claim does not wait for the next poll.
    let Some(permits) = in_flight.reserve_up_to(channel, MAX_CLAIM) else { return Ok(Next::More) };
    let lease_deadline = LeaseDeadline::after(engine.config.lease);
    let limit = permits.num_permits();
    let jobs = engine.store.claim_due(channel, limit, &engine.instance, engine.config.lease).await?;
    let next = if jobs.len() < limit { Next::Unknown } else { Next::More };
    in_flight.enqueue(jobs, lease_deadline, Permits::of(channel, permits));
    Ok(next)
}

#[cfg(test)]
mod tests {
    use campanile_channels::Capture;

    use super::in_flight::tests::claimed;
    use super::*;

    #[tokio::test]
    async fn what_is_left_of_the_lease_must_outlast_the_provider() {
        let chain = Chain::of(Arc::new(Capture));
        let contents = Contents::default();
        let answers = Answers::default();
        let renderings = Renderings::default();
        let ask = |lease| ask(claimed(lease), &chain, &contents, &renderings, None, &answers);
        let in_time = ask(chain.deadline() * 2).await;
        assert_eq!(in_time.outcome, Outcome::Sent { external_id: None });
        let too_late = ask(chain.deadline()).await;
        assert_eq!(too_late.outcome, Outcome::RELEASED);
        let asleep = ask(Duration::ZERO).await;
        assert_eq!(asleep.outcome, Outcome::RELEASED);
    }
}
