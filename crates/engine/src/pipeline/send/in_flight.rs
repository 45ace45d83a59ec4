//! Sends in memory, from receive until they are settled.
//!
//! Each channel has its own queue with a limit. A provider that hangs fills only its own queue, and sends that find it
//! full wait in the database.

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

/// With this many unwritten outcomes, no more messages are received. SQLite at 3 × 3: 20 → 40% of its limit (decision
/// 0024).
const MAX_UNSETTLED: usize = 1_000;

/// A send that this instance has claimed and not settled.
#[derive(Debug)]
pub struct Claimed {
    pub job: SendJob,
    pub lease: Arc<ClaimLease>,
    claim_guard: ClaimGuard,
    _permit: OwnedSemaphorePermit,
}

impl Claimed {
    /// Records that the outcome is written: the claim has one unsettled send less.
    pub fn settled(mut self) {
        self.claim_guard.settled = true;
    }
}

/// The claims that this process holds.
type OpenClaims = Arc<StdMutex<HashMap<ClaimId, OpenClaim>>>;

#[derive(Debug)]
struct OpenClaim {
    /// The number of its sends that are not settled.
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

/// One send's part in its claim. If it is dropped before it is settled, for example by a panic, the whole claim is left
/// to recovery. This process then neither holds the claim nor treats it as finished.
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

/// A finished attempt, on its way to settle.
#[derive(Debug)]
pub struct Attempted {
    pub claimed: Claimed,
    pub outcome: Outcome,
    pub done: Vec<AddressResult>,
    pub provider: String,
    pub capture: Capture,
    pub duration: Duration,
    /// When the attempt began. `None` if no provider was asked.
    pub begun: Option<Instant>,
}

/// Takes finished attempts to settle. An attempt counts as unsettled until its receiver drops the `Unsettled`.
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
        // Settle runs longer than all attempts, so the receiver exists.
        let _ = self.sender.send((attempted, Unsettled(Arc::clone(&self.unsettled))));
    }

    async fn settle_capacity(&self) {
        let mut unsettled = self.unsettled.subscribe();
        // The sender is in `self`, so this cannot fail.
        let _ = unsettled.wait_for(|unsettled| *unsettled < MAX_UNSETTLED).await;
    }
}

/// Counts one outcome that is not written yet.
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
    /// `None` for a channel without a provider.
    chain: Option<Arc<Chain>>,
    permits: Arc<Semaphore>,
    pub concurrency: Arc<Semaphore>,
    pub high: Lane,
    pub others: Lane,
}

/// The sends of a channel that wait for an attempt. It needs no bound, because every claimed send holds a permit, and
/// permits are limited.
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

/// How many sends of a channel may be claimed and not settled; more wait in the database. It is enough to keep every
/// attempt busy, and few enough that leases do not expire while sends wait.
///
/// When an instance dies, all of its claimed sends are in doubt and count as tried, even if their attempts had not
/// begun. So the number is small for real providers. If sends in doubt are held for an operator, only sends that can
/// begin are claimed. `capture` stores a message together with its outcome, so its sends are never in doubt and it may
/// claim many.
fn max_claimed(engine: &Engine, channel: Channel) -> usize {
    let SendConfig { concurrency, policy, .. } = engine.config.send.get(channel);
    let captures = engine.providers.get(channel).is_none_or(|chain| chain.captures());
    let per_attempt = match policy.on_doubt {
        _ if captures => 200,
        OnDoubt::Resend => 8,
        OnDoubt::Hold => 1,
    };
    // With a rate limit, at most a quarter of the sends that fit into a lease. More would wait here until the lease
    // ends.
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
            // Without the role `send` there are no permits: received sends wait for instances with the role.
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

    /// Reserves permits for these sends, or for as many of them as are free.
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

    /// Queues sends that were claimed under these permits.
    pub fn enqueue(&self, jobs: Vec<SendJob>, lease_deadline: LeaseDeadline, mut permits: Permits) {
        // All sends of a claim are counted before the first one can be settled.
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
            // The receiver is a field of the same queue, so it exists.
            let _ = lane.sender.send(Claimed { job, claim_guard, lease, _permit: permit });
        }
    }

    /// Those of the claims that have no other unsettled sends. `sends` has one entry per send.
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

    /// Claims under which an answer is awaited, with a remaining lease below `less_than`.
    pub(super) fn claims_to_renew(&self, less_than: Duration) -> Vec<ClaimId> {
        let open = open(&self.open_claims);
        let due = open.iter().filter(|(_, claim)| claim.lease.needs_renewal(less_than));
        due.map(|(claim, _)| *claim).collect()
    }

    pub(super) fn renewed(&self, claims: &[ClaimId], lease_deadline: LeaseDeadline) {
        let open = open(&self.open_claims);
        claims.iter().filter_map(|claim| open.get(claim)).for_each(|claim| claim.lease.renew(lease_deadline));
    }

    /// The number of claims that this process holds.
    pub fn open_claims(&self) -> usize {
        open(&self.open_claims).len()
    }

    /// Waits while so many outcomes are unwritten that received sends would only queue behind them. Then the database
    /// is the bottleneck, never a provider.
    pub async fn settle_capacity(&self) {
        self.outcome_queue.settle_capacity().await;
    }

    /// Waits for the attempts in progress. After `answers_until` they stop waiting for answers.
    pub async fn finish(&self, answers_until: tokio::time::Instant) {
        self.attempts.close();
        if timeout_at(answers_until, self.attempts.wait()).await.is_err() {
            self.answers.stop();
            self.attempts.wait().await;
        }
    }
}

/// The permits of a batch, by channel.
#[derive(Debug)]
pub struct Permits {
    permits: PerChannel<Option<OwnedSemaphorePermit>>,
    taken: PerChannel<usize>,
}

impl Permits {
    /// Permits of one channel only.
    pub(super) fn of(channel: Channel, permits: OwnedSemaphorePermit) -> Self {
        let mut all = Permits { permits: PerChannel::default(), taken: PerChannel::default() };
        *all.permits.get_mut(channel) = Some(permits);
        all
    }

    /// Takes one permit of the channel and returns whether one was free. Websocket sends need none.
    pub fn take(&mut self, channel: Channel) -> bool {
        let taken = self.taken.get_mut(channel);
        let free = self.permits.get(channel).as_ref().is_some_and(|permit| permit.num_permits() > *taken);
        *taken += usize::from(free);
        free
    }
}

/// What to store of a message: everything if the chain only captures, else nothing.
pub fn capture(chain: &Chain, html: Option<String>) -> Capture {
    if chain.captures() { Capture::Keep { html: html.map(Into::into) } } else { Capture::None }
}

impl Attempted {
    /// An attempt that ended before a provider was asked.
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
