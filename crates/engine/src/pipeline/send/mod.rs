//! Claimed sends → providers. No transaction is open meanwhile.

mod in_flight;
mod render;
pub mod renew;

use std::sync::Arc;
use std::time::{Duration, Instant};

use campanile_channels::{Availability, Chain, Message, ProviderAnswer};
use campanile_domain::channel::Channel;
use campanile_domain::send::Outcome;
use campanile_domain::time;
use campanile_store::{AddressClaim, SendJob, StoreError};
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

/// Messages whose contents are asked for together.
const CONTENTS_BATCH: u16 = 100;

/// Starts attempts of one channel, `HIGH` first. What messages say is looked up ahead of their attempts, some at a
/// time, since turns come one by one. When draining, what was not begun is let go; by then nothing more is enqueued.
pub async fn run(engine: Engine, in_flight: Arc<InFlightQueue>, channel: Channel, drain: CancellationToken) {
    let Some(chain) = engine.providers.get(channel).cloned() else { return drain.cancelled().await };
    let channel_queue = in_flight.channel(channel);
    let ((high_sender, high), (others_sender, others)) =
        (mpsc::unbounded_channel(), mpsc::unbounded_channel());
    let stage = Stage { engine: &engine, in_flight: &in_flight, chain: &chain, drain: &drain };
    // Each lane has its own room ahead, so that what is urgent does not wait for it.
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

/// A message of which is known what it says. It holds a place of those that may be ahead.
struct Ready {
    claimed: Claimed,
    contents: Arc<Contents>,
    _lookahead: Option<OwnedSemaphorePermit>,
}

impl Stage<'_> {
    /// Looks up what the messages of a lane say, while there is room for as many ahead of their attempts.
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
                // Whoever takes it is there until this is dropped.
                let _ = ready.send(Ready { claimed, contents, _lookahead: permit });
            }
        }
        while let Ok(claimed) = lane.try_recv() {
            self.release(claimed, Duration::ZERO);
        }
    }

    /// What can't be looked up is let go. If the database itself refuses, somebody's row can't be read, of a view
    /// perhaps: that one fails alone, and not for want of a database.
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
                        self.release(claimed, AFTER_AN_OUTAGE);
                    }
                }
            }
        }
        found
    }

    /// A message is taken only when its attempt can begin: until then an urgent one may overtake it. Each goes its own
    /// way then; a provider that panics takes no other along.
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
            Attempted::without_provider(claimed, chain, Outcome::NotAttempted { after: AFTER_AN_OUTAGE })
        }
    }
}

const AFTER_AN_OUTAGE: Duration = Duration::from_secs(1);

/// A webhook leads to a place that several people read: an event is told there once, by whoever asks first. The others
/// share its outcome, and wait for it in the database.
async fn sent_by_other(engine: &Engine, chain: &Chain, job: &SendJob) -> Result<Option<Outcome>, StoreError> {
    const REPOLL_DELAY: Duration = Duration::from_millis(500);
    /// The other one waits itself.
    const LATER_REPOLL_DELAY: Duration = Duration::from_secs(2);
    if job.key.channel != Channel::Slack || chain.captures() || job.address.is_empty() {
        return Ok(None);
    }
    Ok(match engine.store.claim_address(job).await? {
        AddressClaim::Held => None,
        AddressClaim::Sent(other) => Some(Outcome::Sent { external_id: Some(format!("sent by {other}")) }),
        // How long they may wait for a busy webhook counts from here: if the other one gives up, they do not all begin
        // anew.
        AddressClaim::Pending if job.history.deferral.is_none() => {
            let error = "waiting for the send of another recipient, which uses the same webhook".to_owned();
            Some(Outcome::RateLimited { after: REPOLL_DELAY, error })
        }
        AddressClaim::Pending => Some(Outcome::NotAttempted { after: LATER_REPOLL_DELAY }),
        AddressClaim::Unknown(other) => Some(Outcome::Unknown {
            error: format!("the outcome of {other}, which shares this webhook, is unknown"),
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
    // A process that slept past its lease sends nothing: the rest of it must outlast the provider's deadline.
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

/// Picks up what waits in the database: retries, what found no room, and what a dead instance left.
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

/// What is known about what is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    Unknown,
    /// As much was found as there was room for, so there may well be more.
    More,
    /// Nothing until then.
    After(Duration),
}

/// Claims what is due and has a place, a batch at a time.
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
    let Some(permits) = in_flight.reserve_up_to(channel, MAX_CLAIM) else { return Ok(known) };
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
