//! Starts a whole engine on a new database and the in-process broker, with scripted providers.

use std::collections::VecDeque;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use campanile_broker::InProcess;
use campanile_channels::{Answer, Message, Provider, Providers, SendLease};
use campanile_domain::access::audit::Actor;
use campanile_domain::channel::PerChannel;
use campanile_domain::event::NewEvent;
use campanile_domain::id::EventId;
use campanile_domain::people::user_type::UserTypes;
use campanile_domain::send::{OnDoubt, Outcome, SendPolicy};
use campanile_domain::status::{EventStatus, SendStatus};
use campanile_engine::config::{
    FanOutConfig, PublishConfig, ReceiveConfig, RecoverConfig, RetainConfig, SendConfig,
};
use campanile_engine::pipeline::accept;
use campanile_engine::{Engine, EngineConfig, Roles, Running};
use campanile_store::conformance::TestDatabase;
use campanile_store::postgres::test_database::Database;
use campanile_store::sqlite::test_database::File;
use campanile_store::sqlite::{Clock, Sqlite};
use campanile_store::{Store, Table, TableRow, Trace, TraceFilter, TracedSend};
use campanile_testkit::{Backend, until_ok};
use serde_json::{Value, json};
use tempfile::TempDir;

#[derive(Debug)]
pub struct World {
    pub engine: Engine,
    pub store: Arc<dyn Store>,
    pub config: EngineConfig,
    pub broker: Arc<InProcess>,
    pub test_database: Box<dyn TestDatabase>,
    backend: Backend,
    _folder: TempDir,
}

pub fn config() -> EngineConfig {
    let send = SendConfig {
        poll_interval: Duration::from_millis(20),
        policy: SendPolicy {
            max_attempts: 3,
            backoff_base: Duration::from_millis(1),
            backoff_cap: Duration::from_millis(1),
            on_doubt: OnDoubt::Resend,
            defer_for: Duration::from_hours(24),
        },
        concurrency: 4,
    };
    EngineConfig {
        instance: "test".to_owned(),
        roles: Roles::all(),
        user_types: UserTypes::default(),
        fan_out: FanOutConfig {
            poll_interval: Duration::from_millis(50),
            batch: 100,
            initial_delay: Duration::ZERO,
        },
        publish: PublishConfig { batch: 1_000, poll_interval: Duration::from_millis(50), max_refusals: 3 },
        receive: ReceiveConfig {
            workers: 2,
            max_workers: 4,
            prefetch: 100,
            batch: 50,
            linger: Duration::ZERO,
        },
        send: PerChannel::from_fn(|_| send.clone()),
        recover: RecoverConfig { republish_after: Duration::from_hours(1) },
        retain: RetainConfig { age: None, audit_age: None, interval: Duration::from_hours(1) },
        lease: Duration::from_secs(30),
    }
}

impl World {
    pub async fn new(backend: Backend) -> Self {
        Self::with(backend, config(), Providers::capture(), 1_000).await
    }

    pub async fn with(
        backend: Backend,
        config: EngineConfig,
        providers: Providers,
        queue_limit: usize,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (store, test_database): (Arc<dyn Store>, Box<dyn TestDatabase>) = match backend {
            Backend::Embedded => {
                let (path, clock) = (folder.path().join("campanile.db"), Clock::default());
                let store = Sqlite::open_with_clock(&path, clock.clone()).unwrap();
                (Arc::new(store), Box::new(File { path, clock }))
            }
            Backend::Servers | Backend::Mixed => {
                let database = Database::new().await;
                (Arc::new(database.open().await), Box::new(database))
            }
        };
        let broker = Arc::new(InProcess::new(config.user_types.queues(), queue_limit));
        let engine = Engine::new(Arc::clone(&store), Arc::clone(&broker) as _, providers, config.clone());
        World {
            engine: engine.await.unwrap(),
            store,
            config,
            broker,
            test_database,
            backend,
            _folder: folder,
        }
    }

    pub fn start(&self) -> Running {
        self.engine.start()
    }

    pub async fn put(&self, table: Table, rows: Value) {
        let rows = rows.as_array().unwrap().iter().map(|row| TableRow::parse(table, row).unwrap()).collect();
        self.engine.put_rows(table, rows, &Actor::AdminKey).await.unwrap();
    }

    pub async fn emit(&self, events: Value) {
        let events: Vec<NewEvent> = serde_json::from_value(events).unwrap();
        accept::accept(&self.engine, events).await.unwrap();
    }

    pub async fn trace(&self, event_id: &str) -> Trace {
        let filter = TraceFilter { limit: 200, ..TraceFilter::default() };
        self.engine.trace(&EventId::stored(event_id), filter).await.unwrap().unwrap()
    }

    /// Waits until the trace satisfies the condition, and returns it.
    pub async fn until(&self, event_id: &str, what: impl Fn(&Trace) -> bool) -> Trace {
        until_ok(&format!("{event_id} is as it should be"), async || {
            let trace = self.trace(event_id).await;
            if what(&trace) { Ok(trace) } else { Err(trace) }
        })
        .await
    }

    /// Makes the database refuse what happens `when`, such as `BEFORE INSERT ON outbox`, to rows of this condition.
    pub async fn poison(&self, when: &str, condition: &str) {
        self.trigger(
            &format!("{when} FOR EACH ROW WHEN ({condition})"),
            "SELECT RAISE(ABORT, 'poison');",
            "RAISE EXCEPTION 'poison';",
        )
        .await;
    }

    /// Runs a statement of the back end's dialect when something happens to a row.
    pub async fn trigger(&self, when: &str, on_sqlite: &str, on_postgres: &str) {
        let sql = if self.backend == Backend::Embedded {
            format!("CREATE TRIGGER of_test {when} BEGIN {on_sqlite} END")
        } else {
            format!(
                "CREATE FUNCTION of_test() RETURNS trigger LANGUAGE plpgsql SET search_path = campanile AS \
                 'BEGIN {} RETURN NEW; END'; \
                 CREATE TRIGGER of_test {when} EXECUTE FUNCTION of_test()",
                on_postgres.replace('\'', "''")
            )
        };
        self.test_database.execute(&sql).await;
    }

    pub async fn captured(&self) -> usize {
        self.engine.list_captured(None, 0, 100_000).await.unwrap().len()
    }
}

/// The status of each send, as `EMAIL SENT`, sorted.
pub fn sends(trace: &Trace) -> Vec<String> {
    let mut sends: Vec<String> = trace
        .sends
        .iter()
        .map(|TracedSend { row, .. }| {
            format!("{} {}", row.channel.typed().unwrap(), row.status.typed().unwrap().as_str())
        })
        .collect();
    sends.sort();
    sends
}

pub fn status(trace: &Trace) -> EventStatus {
    *trace.event.row.status.typed().unwrap()
}

/// Whether everything that was decided has ended.
pub fn settled(trace: &Trace) -> bool {
    let is_settled =
        |send: &TracedSend| send.row.status != SendStatus::Due && send.row.status != SendStatus::Sending;
    status(trace) == EventStatus::Processed && trace.sends.iter().all(is_settled)
}

/// A customer with an e-mail address and a phone number.
pub fn customer(id: u32) -> Value {
    json!({
        "user_type": "CUSTOMER", "user_id": id.to_string(), "email": format!("c{id}@example.com"),
        "phone": format!("+39{id:07}"),
        "push_tokens": [], "active": true,
    })
}

pub fn event(event_id: &str, customer: u32) -> Value {
    json!({
        "event_id": event_id, "event_type": "ORDER_CREATED", "aggregate_type": "CUSTOMER", "aggregate_id": customer,
    })
}

/// A provider that returns these outcomes in order and then succeeds. It records what it was asked to send.
#[derive(Debug, Default)]
pub struct ScriptedProvider {
    pub outcomes: Mutex<VecDeque<Outcome>>,
    pub asked: Mutex<Vec<String>>,
    /// Never answers.
    pub hangs: bool,
    /// How many messages get no answer for the whole answer timeout.
    pub silent: AtomicUsize,
    pub answer_timeout: Duration,
    /// Panics the first time.
    pub panics: bool,
    pub deadline: Option<Duration>,
}

impl ScriptedProvider {
    /// Waits until it was asked so many times.
    pub async fn until_asked(&self, times: usize) {
        until_ok(&format!("{times} messages are to be sent"), async || {
            let asked = self.asked.lock().unwrap();
            if asked.len() < times { Err(asked.clone()) } else { Ok(()) }
        })
        .await;
    }
}

#[async_trait]
impl Provider for ScriptedProvider {
    fn name(&self) -> &'static str {
        "scripted"
    }

    fn deadline(&self) -> Duration {
        self.deadline.unwrap_or(Duration::from_secs(5))
    }

    fn answer_timeout(&self) -> Duration {
        self.answer_timeout
    }

    async fn send_with_lease(&self, message: &Message<'_>, hold: &dyn SendLease) -> Answer {
        let is_silent = self.silent.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok();
        if !is_silent {
            return self.send(message).await;
        }
        self.asked.lock().unwrap().push(message.address.to_owned());
        let _ = tokio::time::timeout(self.answer_timeout, hold.await_answer()).await;
        Outcome::Unanswered { error: "silence".to_owned() }.into()
    }

    async fn send(&self, message: &Message<'_>) -> Answer {
        self.asked.lock().unwrap().push(message.address.to_owned());
        assert!(!self.panics || self.asked.lock().unwrap().len() > 1, "a provider with a bug");
        if self.hangs {
            std::future::pending::<()>().await;
        }
        self.outcomes
            .lock()
            .unwrap()
            .pop_front()
            .unwrap_or(Outcome::Sent { external_id: Some("x-1".to_owned()) })
            .into()
    }
}
