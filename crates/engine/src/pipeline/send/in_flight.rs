//! What lies between receive, send and settle, in memory and bounded. Each channel has a desk of its own with room for
//! so many; a provider that hangs fills its own desk and nobody else's, and what finds no room waits in the database.

use std::collections::HashMap;
use std::sync::{Arc, Mutex as StdMutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use campanile_channels::{Availability, Chain};
use campanile_domain::channel::{Channel, PerChannel};
use campanile_domain::priority::Priority;
use campanile_domain::send::{AddressResult, OnDoubt, Outcome};
use campanile_store::{Capture, ClaimId, SendJob};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::timeout_at;
use tokio_util::task::TaskTracker;

use crate::config::SendConfig;
use crate::lease_deadline::LeaseDeadline;
use crate::pipeline::send::renew::{Answers, ClaimLease};
use crate::{Engine, Role};

/// Outcomes that may wait for being written before nothing more is received.
const MAX_UNSETTLED: usize = 1_000;

/// A send that this instance holds, until it is settled.
#[derive(Debug)]
pub struct Claimed {
    pub job: SendJob,
    pub lease: Arc<ClaimLease>,
    claim_guard: ClaimGuard,
    _permit: OwnedSemaphorePermit,
}

impl Claimed {
    /// Its outcome is written: the claim has one send less.
    pub fn settled(mut self) {
        self.claim_guard.settled = true;
    }
}

/// The claims that are held here.
type OpenClaims = Arc<StdMutex<HashMap<ClaimId, OpenClaim>>>;

#[derive(Debug)]
struct OpenClaim {
    /// How many of its sends are not settled.
    left: usize,
    lease: Arc<ClaimLease>,
}

impl OpenClaim {
    fn new(lease_deadline: LeaseDeadline) -> Self {
        OpenClaim { left: 0, lease: Arc::new(ClaimLease::new(lease_deadline)) }
    }
}

fn open(claims: &OpenClaims) -> MutexGuard<'_, HashMap<ClaimId, OpenClaim>> {
    claims.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One send's part in its claim. Lost before it was settled, for example by a panic, it leaves the whole claim to
/// recovery: it is not held here any more, and nobody takes it for finished.
#[derive(Debug)]
struct ClaimGuard {
    claims: OpenClaims,
    claim: ClaimId,
    settled: bool,
}

impl Drop for ClaimGuard {
    fn drop(&mut self) {
        let mut open = open(&self.claims);
        match open.get_mut(&self.claim) {
            Some(claim) if self.settled && claim.left > 1 => claim.left -= 1,
            _ => drop(open.remove(&self.claim)),
        }
    }
}

/// An attempt that is over, on its way to settle.
#[derive(Debug)]
pub struct Attempted {
    pub claimed: Claimed,
    pub outcome: Outcome,
    pub done: Vec<AddressResult>,
    pub provider: String,
    pub capture: Capture,
    pub duration: Duration,
    /// Absent where no provider was asked.
    pub begun: Option<Instant>,
}

/// Where attempts go that are over. Whoever takes them counts as unsettled until it lets go of them.
#[derive(Debug, Clone)]
pub struct OutcomeQueue {
    sender: UnboundedSender<(Attempted, Unsettled)>,
    unsettled: Arc<watch::Sender<usize>>,
}

impl OutcomeQueue {
    pub fn push(&self, attempted: Attempted) {
        self.unsettled.send_if_modified(|unsettled| {
            *unsettled += 1;
            false
        });
        // Settle is there for as long as attempts are.
        let _ = self.sender.send((attempted, Unsettled(Arc::clone(&self.unsettled))));
    }

    async fn settle_capacity(&self) {
        let mut unsettled = self.unsettled.subscribe();
        // Its sender is here, and so it is told.
        let _ = unsettled.wait_for(|unsettled| *unsettled < MAX_UNSETTLED).await;
    }
}

/// One outcome that is not written yet.
#[derive(Debug)]
pub struct Unsettled(Arc<watch::Sender<usize>>);

impl Drop for Unsettled {
    fn drop(&mut self) {
        self.0.send_if_modified(|unsettled| {
            *unsettled -= 1;
            *unsettled + 1 == MAX_UNSETTLED
        });
    }
}

#[derive(Debug)]
pub struct InFlightQueue {
    channels: PerChannel<ChannelQueue>,
    pub(super) outcome_queue: OutcomeQueue,
    pub(super) attempts: TaskTracker,
    pub(super) answers: Arc<Answers>,
    open_claims: OpenClaims,
}

#[derive(Debug)]
pub(super) struct ChannelQueue {
    /// Absent for a web socket.
    chain: Option<Arc<Chain>>,
    permits: Arc<Semaphore>,
    pub concurrency: Arc<Semaphore>,
    pub high: Lane,
    pub others: Lane,
}

/// Unbounded, because every claimed send holds a place, and those are counted.
#[derive(Debug)]
pub(super) struct Lane {
    sender: UnboundedSender<Claimed>,
    pub receiver: Mutex<UnboundedReceiver<Claimed>>,
}

impl Lane {
    fn new() -> Self {
        let (sender, receiver) = mpsc::unbounded_channel();
        Lane { sender, receiver: Mutex::new(receiver) }
    }
}

/// How many sends of a channel may be claimed and not settled; beyond it they wait in the database. Enough to keep
/// every attempt busy, and not so much that a lease could run out while waiting. What a dead instance had claimed is in
/// doubt, and counts as tried, although it may not have been begun: so few where something leaves the house, and where
/// a person must look at it none but those in flight. What is only captured is captured by being settled, so that there
/// is no doubt.
fn max_claimed(engine: &Engine, channel: Channel) -> usize {
    let SendConfig { concurrency, policy, .. } = engine.config.send.get(channel);
    let captures = engine.providers.get(channel).is_none_or(|chain| chain.captures());
    let per_attempt = match policy.on_doubt {
        _ if captures => 200,
        OnDoubt::Resend => 8,
        OnDoubt::Hold => 1,
    };
    // With a rate limit, no more than go out in a quarter of a lease: the others would wait here until it ends.
    let per_second = engine.providers.get(channel).and_then(|chain| chain.per_second());
    let paced = per_second.map_or(f64::INFINITY, |rate| rate * engine.config.lease.as_secs_f64() / 4.0);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "positive, and cut to what fits"
    )]
    let paced = (paced as usize).max(1);
    (concurrency * per_attempt).min(paced)
}

pub type OutcomeReceiver = Arc<Mutex<UnboundedReceiver<(Attempted, Unsettled)>>>;

impl InFlightQueue {
    pub fn new(engine: &Engine) -> (Arc<Self>, OutcomeReceiver) {
        let (outcomes, attempted) = mpsc::unbounded_channel();
        let sends = engine.config.roles.has(Role::Send);
        let channels = PerChannel::from_fn(|channel| {
            let config = engine.config.send.get(channel);
            // Who does not send has no place: what is received waits for those who do.
            let max_permits = if sends { max_claimed(engine, channel) } else { 0 };
            ChannelQueue {
                chain: engine.providers.get(channel).cloned(),
                permits: Arc::new(Semaphore::new(max_permits)),
                concurrency: Arc::new(Semaphore::new(config.concurrency)),
                high: Lane::new(),
                others: Lane::new(),
            }
        });
        let outcome_queue = OutcomeQueue { sender: outcomes, unsettled: Arc::default() };
        let in_flight = InFlightQueue {
            channels,
            outcome_queue,
            attempts: TaskTracker::new(),
            answers: Arc::default(),
            open_claims: OpenClaims::default(),
        };
        (Arc::new(in_flight), Arc::new(Mutex::new(attempted)))
    }

    /// Reserves as many places as there are, up to one for each of these.
    pub fn reserve(&self, channels: impl Iterator<Item = Channel>) -> Permits {
        let mut wanted: PerChannel<usize> = PerChannel::default();
        for channel in channels {
            *wanted.get_mut(channel) += 1;
        }
        Permits {
            permits: PerChannel::from_fn(|channel| self.reserve_up_to(channel, *wanted.get(channel))),
            taken: PerChannel::default(),
        }
    }

    pub(super) fn reserve_up_to(&self, channel: Channel, wanted: usize) -> Option<OwnedSemaphorePermit> {
        let ChannelQueue { chain, permits, .. } = self.channels.get(channel);
        let allowed = match chain.as_ref().map_or(Availability::Available, |chain| chain.availability()) {
            Availability::Available => wanted,
            Availability::ProbeOnly => wanted.min(1),
            Availability::Unavailable(_) => 0,
        };
        let available = u32::try_from(allowed.min(permits.available_permits())).unwrap_or(u32::MAX);
        Arc::clone(permits).try_acquire_many_owned(available).ok().filter(|permit| permit.num_permits() > 0)
    }

    /// Waits until a permit of the channel is free.
    pub(super) async fn wait_for_permit(&self, channel: Channel) {
        // The semaphore is never closed.
        let _ = self.channels.get(channel).permits.acquire().await;
    }

    pub(super) fn channel(&self, channel: Channel) -> &ChannelQueue {
        self.channels.get(channel)
    }

    /// Takes what was claimed under these places.
    pub fn enqueue(&self, jobs: Vec<SendJob>, lease_deadline: LeaseDeadline, mut permits: Permits) {
        // All of a claim are counted before the first can be settled.
        let leases: Vec<Arc<ClaimLease>> = {
            let mut open = open(&self.open_claims);
            let count = |job: &SendJob| {
                let claim = open.entry(job.claim).or_insert_with(|| OpenClaim::new(lease_deadline));
                claim.left += 1;
                Arc::clone(&claim.lease)
            };
            jobs.iter().map(count).collect()
        };
        for (job, lease) in jobs.into_iter().zip(leases) {
            let claim_guard =
                ClaimGuard { claims: Arc::clone(&self.open_claims), claim: job.claim, settled: false };
            let permit = permits.permits.get_mut(job.key.channel).as_mut().and_then(|permit| permit.split(1));
            let Some(permit) = permit else { continue };
            let in_flight = self.channels.get(job.key.channel);
            let lane = if job.priority == Priority::High { &in_flight.high } else { &in_flight.others };
            // The receiving end lives in this desk, so it is there.
            let _ = lane.sender.send(Claimed { job, claim_guard, lease, _permit: permit });
        }
    }

    /// Of these claims, with one entry per send, those that hold nothing else any more.
    pub fn finished_claims(&self, sends: impl Iterator<Item = ClaimId>) -> Vec<ClaimId> {
        let mut counted: HashMap<ClaimId, usize> = HashMap::new();
        sends.for_each(|claim| *counted.entry(claim).or_default() += 1);
        let open = open(&self.open_claims);
        counted
            .into_iter()
            .filter(|(claim, count)| open.get(claim).is_some_and(|claim| claim.left == *count))
            .map(|(claim, _)| claim)
            .collect()
    }

    /// Whether sends of the claim are here and not settled.
    pub fn holds(&self, claim: ClaimId) -> bool {
        open(&self.open_claims).contains_key(&claim)
    }

    /// Claims under which an answer is awaited, and whose lease lasts for less than this.
    pub(super) fn claims_to_renew(&self, less_than: Duration) -> Vec<ClaimId> {
        let open = open(&self.open_claims);
        let due = open.iter().filter(|(_, claim)| claim.lease.needs_renewal(less_than));
        due.map(|(claim, _)| *claim).collect()
    }

    pub(super) fn renewed(&self, claims: &[ClaimId], lease_deadline: LeaseDeadline) {
        let open = open(&self.open_claims);
        claims.iter().filter_map(|claim| open.get(claim)).for_each(|claim| claim.lease.renew(lease_deadline));
    }

    /// How many claims this process holds.
    pub fn open_claims(&self) -> usize {
        open(&self.open_claims).len()
    }

    /// Waits while so many outcomes are to be written that receiving more would only make them wait: it is the database
    /// that is behind then, and never a provider.
    pub async fn settle_capacity(&self) {
        self.outcome_queue.settle_capacity().await;
    }

    /// Waits for the attempts that are under way. Answers that are not here by then are not awaited any longer.
    pub async fn finish(&self, answers_until: tokio::time::Instant) {
        self.attempts.close();
        if timeout_at(answers_until, self.attempts.wait()).await.is_err() {
            self.answers.stop();
            self.attempts.wait().await;
        }
    }
}

/// Places of a batch, by channel.
#[derive(Debug)]
pub struct Permits {
    permits: PerChannel<Option<OwnedSemaphorePermit>>,
    taken: PerChannel<usize>,
}

impl Permits {
    /// Of one channel.
    pub(super) fn of(channel: Channel, permits: OwnedSemaphorePermit) -> Self {
        let mut all = Permits { permits: PerChannel::default(), taken: PerChannel::default() };
        *all.permits.get_mut(channel) = Some(permits);
        all
    }

    /// Whether there is a place for one more of the channel. A web socket needs none.
    pub fn take(&mut self, channel: Channel) -> bool {
        let taken = self.taken.get_mut(channel);
        let free = self.permits.get(channel).as_ref().is_some_and(|permit| permit.num_permits() > *taken);
        *taken += usize::from(free);
        free
    }
}

/// What is kept of a message by a chain that only captures.
pub fn capture(chain: &Chain, html: Option<String>) -> Capture {
    if chain.captures() { Capture::Keep { html: html.map(Into::into) } } else { Capture::None }
}

impl Attempted {
    /// Ended before anybody was asked.
    pub fn without_provider(claimed: Claimed, chain: &Chain, outcome: Outcome) -> Self {
        Attempted {
            claimed,
            outcome,
            done: Vec::new(),
            provider: chain.first().name().to_owned(),
            capture: capture(chain, None),
            duration: Duration::ZERO,
            begun: None,
        }
    }
}

#[cfg(test)]
pub mod tests {
    use campanile_channels::Capture;
    use campanile_domain::id::{EventId, EventType, NotificationId, SendKey, UserId, UserRef, UserTypeName};
    use campanile_domain::time::Timestamp;

    use super::*;

    pub fn claimed(lease: Duration) -> Claimed {
        let permits = Arc::new(Semaphore::new(1));
        let user = UserRef { user_type: UserTypeName::stored("CUSTOMER"), user_id: UserId::stored("1") };
        let job = SendJob {
            key: SendKey { notification_id: NotificationId::generate(), channel: Channel::Email },
            claim: ClaimId(1),
            attempt: 1,
            history: campanile_domain::send::History::default(),
            event_id: EventId::stored("e"),
            event_type: EventType::stored("T"),
            user,
            address: "a@example.com".to_owned(),
            devices: campanile_store::Devices::All,
            title: String::new(),
            body: String::new(),
            priority: Priority::Normal,
            event_created_at: Timestamp::UNIX_EPOCH,
        };
        let permit = permits.try_acquire_owned().expect("there is a place");
        let claim_guard = ClaimGuard { claims: OpenClaims::default(), claim: job.claim, settled: false };
        Claimed {
            job,
            lease: Arc::new(ClaimLease::new(LeaseDeadline::after(lease))),
            claim_guard,
            _permit: permit,
        }
    }

    #[test]
    fn a_claim_is_held_until_its_last_send_is_settled_and_let_go_when_one_is_lost() {
        let claims = OpenClaims::default();
        let two = || OpenClaim { left: 2, ..OpenClaim::new(LeaseDeadline::after(Duration::ZERO)) };
        let claim_guard = |settled| ClaimGuard { claims: Arc::clone(&claims), claim: ClaimId(1), settled };
        open(&claims).insert(ClaimId(1), two());
        drop(claim_guard(true));
        assert_eq!(open(&claims).get(&ClaimId(1)).map(|claim| claim.left), Some(1));
        drop(claim_guard(true));
        assert!(open(&claims).is_empty());
        open(&claims).insert(ClaimId(1), two());
        drop(claim_guard(false));
        assert!(open(&claims).is_empty(), "recovery may take over the one that was lost");
        drop(claim_guard(true));
        assert!(open(&claims).is_empty());
    }

    #[tokio::test]
    async fn nothing_more_is_received_while_too_many_outcomes_are_to_be_written() {
        let chain = Chain::of(Arc::new(Capture));
        let (sender, mut outcomes) = mpsc::unbounded_channel();
        let outcome_queue = OutcomeQueue { sender, unsettled: Arc::default() };
        let soon = || tokio::time::timeout(Duration::from_millis(20), outcome_queue.settle_capacity());
        for _ in 1..MAX_UNSETTLED {
            outcome_queue.push(Attempted::without_provider(
                claimed(Duration::ZERO),
                &chain,
                Outcome::RELEASED,
            ));
        }
        assert!(soon().await.is_ok());
        outcome_queue.push(Attempted::without_provider(claimed(Duration::ZERO), &chain, Outcome::RELEASED));
        assert!(soon().await.is_err());
        tokio::join!(outcome_queue.settle_capacity(), async { drop(outcomes.recv().await) });
        drop(outcomes);
        assert_eq!(*outcome_queue.unsettled.borrow(), 0, "those that a loop took with it are not waited for");
    }
}
