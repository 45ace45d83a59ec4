//! The `RabbitMQ` broker, for engines that share their work or keep messages outside the process.
//!
//! A supervisor owns the connections. It declares the topology, notices failures and missing queues, and rebuilds
//! everything. Calls never wait for it: without a broker they fail, and the caller backs off.
//!
//! Queues and exchanges are declared as documented for others who bind queues of their own; see [`topology`]. A queue
//! that should exist and does not is a loss, whether it is noticed when connecting or later.

mod address;
mod confirms;
mod consumer;
mod examine;
mod inbox;
mod link;
mod load;
mod permissions;
mod publisher;
mod supervisor;
mod topology;
mod window;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future;
use std::mem;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use campanile_domain::finding::Finding;
use campanile_domain::queue::Queue;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::{Broker, BrokerError, CapacityWait, Confirm, Consumer, DEAD_LETTER_QUEUE, Message, Published};
use address::Address;
use consumer::RabbitMqConsumer;
use link::Link;
use load::{Load, ProbeStart};
use topology::{ProbeResult, Topology};

/// How long a queue that did not answer gets no further requests.
const QUARANTINE_TIME: Duration = Duration::from_secs(20);

/// How to reach the broker, and what to declare in it.
#[derive(Clone)]
pub struct RabbitMqConfig {
    /// `amqp://user:password@host:port/vhost`, or `amqps://` for TLS. User, password and virtual host are
    /// percent-encoded where necessary. Their defaults are `guest`, `guest` and `/`.
    pub url: String,
    /// Trusted certificates in PEM for `amqps://`, in addition to those of the operating system.
    pub ca_file: Option<PathBuf>,
    /// The prefix of all exchange and queue names, so that several installations can share a virtual host. It is empty
    /// by default, and part of the names that others bind to.
    pub prefix: String,
    /// The queues, without prefix. The dead-letter queue is always added.
    pub queues: Vec<Queue>,
    /// The most undelivered messages of a queue. Several instances that publish at once may exceed it by what each is
    /// publishing.
    pub limit: usize,
}

impl RabbitMqConfig {
    /// Checks what needs no connection: the URL, the certificates and the names.
    pub fn check(&self) -> Result<(), BrokerError> {
        self.parse().map(drop)
    }

    fn parse(&self) -> Result<(Address, Topology), BrokerError> {
        let address = Address::parse(&self.url, self.ca_file.as_deref())?;
        Ok((address, Topology::new(&self.prefix, &self.queues)?))
    }
}

/// A broker on a RabbitMQ server. Dropping it closes its consumers and its connections.
pub struct RabbitMq {
    shared: Arc<Shared>,
    supervisor: JoinHandle<()>,
}

impl RabbitMq {
    /// Connects and declares the topology.
    ///
    /// If the broker is unreachable, it is awaited in the background. The engine starts, and its calls return
    /// [`BrokerError::Unreachable`]. Errors that waiting does not cure are [`BrokerError::Misconfigured`]. Examples are
    /// wrong credentials, a missing virtual host, queues or exchanges that were declared differently or are exclusive,
    /// and a port with another protocol.
    pub async fn open(config: RabbitMqConfig) -> Result<Self, BrokerError> {
        let (address, topology) = config.parse()?;
        let shared = Arc::new(Shared::new(address, topology, config.limit));
        let first = match link::connect(&shared).await {
            Err(error @ BrokerError::Misconfigured(_)) => return Err(error),
            first => first,
        };
        let supervisor = tokio::spawn(supervisor::run(Arc::clone(&shared), first));
        // Waits for the supervisor, so that the next call finds the broker if it is reachable.
        shared.state.subscribe().wait_for(|state| !matches!(state, State::New)).await.ok();
        Ok(Self { shared, supervisor })
    }

    /// Checks whether the broker is reachable and correctly set up. Nothing is created or changed.
    pub async fn examine(config: &RabbitMqConfig) -> Vec<Finding> {
        examine::examine(config).await
    }

    /// Deletes everything that a broker with this configuration declares, with all messages.
    #[cfg(feature = "conformance")]
    pub async fn remove(config: &RabbitMqConfig) -> Result<(), BrokerError> {
        let (address, topology) = config.parse()?;
        let connection = address.connect("removes a topology").await?;
        topology.remove(&connection).await
    }
}

#[async_trait]
impl Broker for RabbitMq {
    async fn publish(&self, queue: &str, messages: Vec<Message>) -> Result<Published, BrokerError> {
        let Some(load) = self.shared.loads.get(queue) else {
            let reason = format!("the broker has no queue `{queue}`");
            return Ok(Published::Confirmed(vec![Confirm::Refused { reason }; messages.len()]));
        };
        if messages.is_empty() {
            return Ok(Published::Confirmed(Vec::new()));
        }
        let link = self.shared.link_to(queue)?;
        let Some(reservation) = load.reserve(messages.len()) else { return Ok(Published::Full) };
        let confirms = link.publish(queue, messages).await.map_err(BrokerError::Unreachable)?;
        let accepted = confirms.iter().filter(|confirm| **confirm == Confirm::Accepted).count();
        reservation.take(accepted);
        if accepted < confirms.len() {
            // The queue may be gone.
            self.shared.probe_now();
        }
        Ok(Published::Confirmed(confirms))
    }

    fn is_full(&self, queue: &str) -> bool {
        self.shared.loads.get(queue).is_some_and(|load| load.is_full())
    }

    fn wait_for_capacity(&self, queue: &str) -> CapacityWait<'_> {
        match self.shared.loads.get(queue) {
            Some(load) => Box::pin(load.wait_for_capacity()),
            None => Box::pin(future::pending()),
        }
    }

    async fn consume(&self, queue: &str, prefetch: usize) -> Result<Box<dyn Consumer>, BrokerError> {
        let load = self.shared.loads.get(queue).ok_or_else(|| BrokerError::NoSuchQueue(queue.to_owned()))?;
        let consumer = RabbitMqConsumer::open(&self.shared, queue, load, prefetch).await?;
        Ok(Box::new(consumer))
    }

    fn losses(&self) -> Vec<String> {
        self.shared.losses().iter().cloned().collect()
    }

    async fn restore(&self, queues: &[String]) -> Result<(), BrokerError> {
        let link = self.shared.link()?;
        let wanted = |queue: &String| queues.contains(queue) && !self.shared.is_quarantined(queue);
        let spoils = |queue: &str| self.shared.quarantine(queue);
        for queue in self.shared.topology.declare(link.consuming(), wanted, spoils).await? {
            self.shared.quarantine(&queue);
        }
        self.shared.losses().retain(|lost| !queues.contains(lost) || self.shared.is_quarantined(lost));
        // Those who waited for one of these queues may try again.
        queues.iter().filter_map(|queue| self.shared.loads.get(queue)).for_each(|load| load.notify());
        Ok(())
    }

    fn unavailable_reason(&self) -> Option<String> {
        match &*self.shared.state.borrow() {
            State::Up(link) => link.blocked(),
            State::Down(reason) => Some(reason.clone()),
            State::New => Some("connecting".to_owned()),
            State::Closed => Some("closed".to_owned()),
        }
    }

    fn depths(&self) -> Vec<(String, usize)> {
        self.shared.loads.iter().map(|(queue, load)| (queue.clone(), load.depth())).collect()
    }

    fn name(&self) -> &'static str {
        "rabbitmq"
    }
}

impl Drop for RabbitMq {
    fn drop(&mut self) {
        self.supervisor.abort();
        self.shared.state.send_replace(State::Closed);
    }
}

impl fmt::Debug for RabbitMq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RabbitMq")
            .field("address", &self.shared.address)
            .field("state", &*self.shared.state.borrow())
            .finish_non_exhaustive()
    }
}

/// The URL contains a password, which must not be logged.
impl fmt::Debug for RabbitMqConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RabbitMqConfig")
            .field("url", &address::without_login(&self.url))
            .field("ca_file", &self.ca_file)
            .field("prefix", &self.prefix)
            .field("queues", &self.queues)
            .field("limit", &self.limit)
            .finish()
    }
}

/// The state that the broker shares with its supervisor and consumers.
struct Shared {
    address: Address,
    topology: Topology,
    loads: BTreeMap<String, Arc<Load>>,
    losses: Mutex<BTreeSet<String>>,
    /// Queues that did not answer, and until when they get no requests.
    quarantined: Mutex<BTreeMap<String, Instant>>,
    /// Set when all queues have been probed once.
    has_probed: AtomicBool,
    state: watch::Sender<State>,
    /// Notified when a queue may be missing.
    probe_now: watch::Sender<()>,
}

/// What a probe changed.
#[derive(Debug, PartialEq, Eq)]
enum QueueChange {
    None,
    /// The queue should exist and does not.
    Lost,
}

/// Whether the broker is reachable. Only the supervisor changes this, until the broker is dropped.
#[derive(Debug)]
enum State {
    New,
    Up(Arc<Link>),
    Down(String),
    Closed,
}

impl Shared {
    fn new(address: Address, topology: Topology, limit: usize) -> Self {
        let load = |queue: &String| {
            let limit = if queue == DEAD_LETTER_QUEUE { usize::MAX } else { limit };
            (queue.clone(), Arc::new(Load::new(limit)))
        };
        let loads = topology.queues().map(load).collect();
        let (state, probe_now) = (watch::Sender::new(State::New), watch::Sender::new(()));
        let (losses, quarantined, has_probed) = (Mutex::default(), Mutex::default(), AtomicBool::new(false));
        Self { address, topology, loads, losses, quarantined, has_probed, state, probe_now }
    }

    /// Enters a state, unless the broker is closed: a supervisor that has not noticed its end yet must not reopen it.
    fn enter(&self, mut state: State) {
        self.state.send_if_modified(|current| {
            let open = !matches!(current, State::Closed);
            if open {
                // The old state is dropped outside of the lock, because dropping a link notifies many.
                mem::swap(current, &mut state);
            }
            open
        });
    }

    fn link(&self) -> Result<Arc<Link>, BrokerError> {
        match &*self.state.borrow() {
            State::Up(link) => Ok(Arc::clone(link)),
            State::Down(reason) => Err(BrokerError::Unreachable(reason.clone())),
            State::New => Err(BrokerError::Unreachable("connecting".to_owned())),
            State::Closed => Err(BrokerError::Closed),
        }
    }

    /// The link for publishing to a queue or consuming it.
    fn link_to(&self, queue: &str) -> Result<Arc<Link>, BrokerError> {
        if self.losses().contains(queue) {
            return Err(BrokerError::Lost(queue.to_owned()));
        }
        if self.is_quarantined(queue) {
            return Err(BrokerError::Unreachable(format!("the queue `{queue}` does not answer")));
        }
        self.link()
    }

    /// Requests a probe of every queue.
    fn probe_now(&self) {
        self.probe_now.send_replace(());
    }

    /// Records the result of a probe. A lost queue that exists again was restored by another instance.
    fn record_probe(&self, queue: &str, before: ProbeStart, result: ProbeResult) -> QueueChange {
        let load = self.loads.get(queue);
        match result {
            ProbeResult::Ready(ready) => {
                load.inspect(|load| load.record_probe(before, ready));
                self.losses().remove(queue);
                QueueChange::None
            }
            ProbeResult::Missing => {
                load.inspect(|load| load.record_probe(before, 0));
                if self.losses().insert(queue.to_owned()) { QueueChange::Lost } else { QueueChange::None }
            }
            ProbeResult::Silent => {
                self.quarantine(queue);
                QueueChange::None
            }
        }
    }

    /// Stops requests to a queue that did not answer, for a while. Other queues go on, and its messages wait in the
    /// database.
    fn quarantine(&self, queue: &str) {
        let until = Instant::now() + QUARANTINE_TIME;
        self.quarantined.lock().unwrap_or_else(PoisonError::into_inner).insert(queue.to_owned(), until);
        tracing::warn!(
            queue = self.topology.name(queue),
            "RabbitMQ does not respond to requests about this queue; its messages wait, other queues continue. If this \
             persists, restart RabbitMQ, or delete the queue with `rabbitmqctl delete_queue`: \
             it is declared again and its \
             messages are published again"
        );
    }

    fn is_quarantined(&self, queue: &str) -> bool {
        let mut quarantined = self.quarantined.lock().unwrap_or_else(PoisonError::into_inner);
        quarantined.retain(|_, until| *until > Instant::now());
        quarantined.contains_key(queue)
    }

    /// No change panics half-way, so the state behind a poisoned lock is consistent.
    fn losses(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.losses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
