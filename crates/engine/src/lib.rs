//! The engine: the stages that an event passes through, and the tasks that run them on one instance.
//!
//! `pipeline/` holds the stages in the order in which an event passes through them. `operate/` holds what operators
//! read and do. `recovery/` takes over the work of dead instances, `signals/` wakes stages early, `telemetry/` holds
//! the metrics, `inbox/` holds what end users read and change. `rule_cache` and `api_key_cache` keep rules and keys in
//! memory. Databases, brokers and providers are accessed through the traits of their crates. HTTP and configuration
//! files belong to the server.

mod api_key_cache;
mod backoff;
mod blocking;
mod clock;
pub mod config;
mod idle_backoff;
mod inbox;
mod lease_deadline;
mod operate;
pub mod pipeline;
mod recovery;
pub mod roles;
mod rule_cache;
mod signals;
mod supervisor;
pub mod telemetry;

use std::sync::Arc;
use std::time::Duration;

use api_key_cache::ApiKeyCache;
use blocking::Renderings;
use campanile_broker::Broker;
use campanile_channels::Providers;
use campanile_store::{Instance, Store, StoreError};
use clock::DatabaseClock;

pub use blocking::run_blocking;
pub use config::EngineConfig;
pub use operate::{Authenticated, BrokerState, Explanation, ReplayLimits};
pub use roles::{Role, Roles};

use pipeline::close::{self, Completion};
use pipeline::fan_out::{FAN_OUT_WORKERS, FanOutWorkers};
use pipeline::send::{InFlightQueue, OutcomeReceiver};
use pipeline::{fan_out, publish, receive, send, settle};
use recovery::retain;
use rule_cache::RuleCache;
use signals::Signals;
use signals::notify::{self, PendingSignals};
use signals::suppress;
use supervisor::Supervisor;
use telemetry::latency::Latencies;
use telemetry::queue_age;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// What every stage works with. Cloning makes another handle to the same engine.
#[derive(Debug, Clone)]
pub struct Engine {
    store: Arc<dyn Store>,
    broker: Arc<dyn Broker>,
    providers: Providers,
    rules: Arc<RuleCache>,
    api_keys: Arc<ApiKeyCache>,
    signals: Arc<Signals>,
    completion: Arc<Completion>,
    config: Arc<EngineConfig>,
    /// The identity of this instance as stored in rows.
    instance: Arc<Instance>,
    latencies: Arc<Latencies>,
    clock: Arc<DatabaseClock>,
    pending_signals: Arc<PendingSignals>,
    renderings: Arc<Renderings>,
    /// Limits how many batches are received at the same time; urgent batches need no permit.
    batches: Arc<Semaphore>,
}

impl Engine {
    /// Loads the rules and registers the instance; no task runs until `start`.
    pub async fn new(
        store: Arc<dyn Store>,
        broker: Arc<dyn Broker>,
        providers: Providers,
        config: EngineConfig,
    ) -> Result<Self, StoreError> {
        config::check_lease(&providers, config.lease).map_err(|why| StoreError::Unusable(why.into()))?;
        let rules = Arc::new(RuleCache::load(store.as_ref(), config.user_types.clone()).await?);
        let instance = store.register_instance(&config.instance).await?;
        let clock = DatabaseClock::ask(store.as_ref()).await?;
        let signals = Arc::new(Signals::new(config.user_types.queues()));
        let batches = Arc::new(Semaphore::new(config.receive.max_workers));
        Ok(Engine {
            store,
            broker,
            providers,
            rules,
            api_keys: Arc::default(),
            signals,
            completion: Arc::default(),
            config: Arc::new(config),
            instance: Arc::new(instance),
            latencies: Arc::default(),
            clock: Arc::new(clock),
            pending_signals: Arc::default(),
            renderings: Arc::default(),
            batches,
        })
    }

    /// Starts the tasks of this instance's roles.
    pub fn start(&self) -> Running {
        telemetry::register();
        let (in_flight, outcomes) = InFlightQueue::new(self);
        let mut loops = Loops {
            engine: self,
            in_flight: &in_flight,
            taking: Supervisor::new(&self.signals),
            sending: Supervisor::new(&self.signals),
            settling: Supervisor::new(&self.signals),
        };
        loops.start_taking();
        if self.config.roles.has(Role::Send) {
            loops.start_sending(&outcomes);
        }
        let Loops { taking, sending, settling, .. } = loops;
        Running { taking, sending, settling, in_flight }
    }
}

/// The tasks in three groups: tasks that take on work, tasks that send, and tasks that write outcomes. The groups stop
/// in this order.
struct Loops<'a> {
    engine: &'a Engine,
    in_flight: &'a Arc<InFlightQueue>,
    taking: Supervisor,
    sending: Supervisor,
    settling: Supervisor,
}

impl Loops<'_> {
    fn start_taking(&mut self) {
        let roles = &self.engine.config.roles;
        let queues = self.engine.config.user_types.queues();
        let (handover, handed) =
            publish::handover(if roles.has(Role::Publish) { queues.clone() } else { Vec::new() });
        if roles.has(Role::FanOut) {
            let workers = Arc::new(FanOutWorkers::new(self.engine.clone(), handover));
            for _ in 0..FAN_OUT_WORKERS {
                let workers = Arc::clone(&workers);
                self.take("fan_out", move |_, _, stop| fan_out::run(Arc::clone(&workers), stop));
            }
            self.take("fan_out", |engine, _, stop| suppress::run(engine, stop));
        }
        for (queue, handed) in handed {
            self.take("publish", move |engine, _, stop| {
                publish::run(engine, queue.clone(), Arc::clone(&handed), stop)
            });
        }
        if roles.has(Role::Receive) {
            for queue in queues {
                self.take("receive", move |engine, in_flight, stop| {
                    receive::run(engine, in_flight, queue.clone(), stop)
                });
            }
            self.take("dead letters", |engine, _, stop| receive::run_dead_letters(engine, stop));
        }
        if roles.use_broker() {
            self.take("losses", |engine, _, stop| recovery::run_losses(engine, stop));
        }
        if roles.has(Role::Recover) {
            self.take("recover", recovery::run);
            self.take("retain", |engine, _, stop| retain::run(engine, stop));
            self.take("queue_age", |engine, _, stop| queue_age::run(engine, stop));
        }
        self.take("close", |engine, _, stop| close::run(engine, stop));
        self.take("rules", |engine, _, stop| rule_cache::run(engine, stop));
        self.take("subscribe", |engine, _, stop| notify::run_subscribe(engine, stop));
        self.take("notify", |engine, _, stop| notify::run_notify(engine, stop));
    }

    fn start_sending(&mut self, outcomes: &OutcomeReceiver) {
        for (channel, _) in self.engine.providers.iter() {
            self.take("due", move |engine, in_flight, stop| send::run_due(engine, in_flight, channel, stop));
            let (engine, in_flight) = (self.engine.clone(), Arc::clone(self.in_flight));
            self.sending
                .run("send", move |drain| send::run(engine.clone(), Arc::clone(&in_flight), channel, drain));
        }
        // These tasks run until the last attempt has ended: until then the engine awaits answers and renews leases.
        let (engine, in_flight) = (self.engine.clone(), Arc::clone(self.in_flight));
        self.settling
            .run("renew", move |done| send::renew::run(engine.clone(), Arc::clone(&in_flight), done));
        let (engine, in_flight, outcomes) =
            (self.engine.clone(), Arc::clone(self.in_flight), Arc::clone(outcomes));
        self.settling.run("settle", move |done| {
            settle::run(engine.clone(), Arc::clone(&in_flight), Arc::clone(&outcomes), done)
        });
    }

    fn take<F>(
        &mut self,
        name: &'static str,
        mut task: impl FnMut(Engine, Arc<InFlightQueue>, CancellationToken) -> F + Send + 'static,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let (engine, in_flight) = (self.engine.clone(), Arc::clone(self.in_flight));
        self.taking.run(name, move |stop| task(engine.clone(), Arc::clone(&in_flight), stop));
    }
}

/// The part of a shutdown that is reserved for writing the outcomes of the last attempts.
const TIME_TO_SETTLE: Duration = Duration::from_secs(3);

/// The tasks of a started engine.
#[derive(Debug)]
pub struct Running {
    taking: Supervisor,
    sending: Supervisor,
    settling: Supervisor,
    in_flight: Arc<InFlightQueue>,
}

impl Running {
    /// Stops taking on work, finishes what is in flight, and returns by the deadline. The next instance takes over the
    /// rest.
    ///
    /// Shortly before the deadline, attempts without an answer are settled as in doubt. Returns whether everything was
    /// finished.
    pub async fn stop(self, deadline: Duration) -> bool {
        let to_settle = (deadline / 3).min(TIME_TO_SETTLE);
        let answers_until = Instant::now() + deadline.saturating_sub(to_settle);
        let orderly = async move {
            self.taking.stop().await;
            self.sending.stop().await;
            self.in_flight.finish(answers_until).await;
            self.settling.stop().await;
        };
        tokio::time::timeout(deadline, orderly).await.is_ok()
    }
}
