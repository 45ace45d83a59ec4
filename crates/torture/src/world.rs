//! The surroundings of one round: a database and queues of its own, the provider, and the instances with proxies to all
//! of these.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::database::{self, Database};
use crate::fault::FAILPOINTS;
use crate::instance::{Instance, Launch};
use crate::journal::Journal;
use crate::people::{self, Group};
use crate::provider::{ACCOUNT_SID, AUTH_TOKEN};
use crate::provider_process::ProviderProcess;
use crate::random::Random;
use crate::round::{Backend, Round};
use crate::servers::{Servers, by_way_of, host_and_port, with_database};
use crate::small_disk::SmallDisk;
use campanile_testkit::proxy::Proxy;

/// After this time a holder counts as dead.
pub const LEASE: Duration = Duration::from_secs(3);
/// The admin key of every instance.
pub const KEY: &str = "torture-admin-key-of-at-least-32-bytes";
/// Instances poll once a second for changed rules.
const RULES_ARE_NOTICED: Duration = Duration::from_secs(2);
const STOP_LIMIT: Duration = Duration::from_secs(30);
const UP_LIMIT: Duration = Duration::from_mins(1);

#[derive(Debug)]
pub struct World {
    pub round: Round,
    pub servers: Servers,
    pub database: Database,
    pub prefix: String,
    pub provider: ProviderProcess,
    pub instances: Vec<Arc<Instance>>,
    pub small_disk: Option<SmallDisk>,
    pub journal: Arc<Journal>,
    http: reqwest::Client,
    folder: PathBuf,
    kept_up: JoinSet<()>,
    /// Held during a fault of the broker, so that only one happens at a time.
    pub broker: tokio::sync::Mutex<()>,
    /// Failpoints at which no instance has died yet.
    failpoints: Mutex<Vec<&'static str>>,
}

impl World {
    /// Builds a world with all of its files in `folder`.
    pub async fn build(
        round: Round,
        folder: &Path,
        servers: &Servers,
        binary: &Path,
        seed: u64,
    ) -> Result<Self> {
        let journal = Arc::new(Journal::new(&folder.join("journal.log"))?);
        let provider = ProviderProcess::start(&folder.join("ledger.jsonl"), seed).await?;
        let name = format!("torture_{}_{seed}", std::process::id());
        let small_disk =
            if round.small_disk { Some(SmallDisk::mount(&made(folder.join("data"))?)?) } else { None };
        let database = match round.backend {
            Backend::Embedded => Database::Sqlite { file: folder.join("data/campanile.db") },
            Backend::Servers | Backend::Mixed => {
                Database::Postgres { url: make_database(servers, &name).await? }
            }
        };
        let http = reqwest::Client::builder().timeout(Duration::from_secs(5)).build()?;
        let mut world = World {
            round,
            servers: servers.clone(),
            database,
            prefix: format!("{name}."),
            provider,
            instances: Vec::new(),
            small_disk,
            journal,
            http,
            folder: folder.to_owned(),
            kept_up: JoinSet::new(),
            broker: tokio::sync::Mutex::default(),
            failpoints: Mutex::default(),
        };
        for number in 0..world.round.instances {
            let instance = Arc::new(world.instance(number, binary).await?);
            world.kept_up.spawn(Arc::clone(&instance).keep_up());
            world.instances.push(instance);
        }
        world.await_all_up().await?;
        world.move_in().await?;
        Ok(world)
    }

    async fn instance(&self, number: usize, binary: &Path) -> Result<Instance> {
        let name = format!("instance-{number}");
        let data = match self.round.backend {
            Backend::Embedded => made(self.folder.join("data"))?,
            Backend::Servers | Backend::Mixed => made(self.folder.join(&name))?,
        };
        let to_provider = Proxy::to(self.provider.address.to_string()).await?;
        let sms = format!("http://{ACCOUNT_SID}:{AUTH_TOKEN}@{}?from=%2B15005550006", to_provider.address);
        let mut variables = settings(&self.round);
        variables.extend([
            ("CAMPANILE_DATA_DIR".to_owned(), data.display().to_string()),
            ("CAMPANILE_ENGINE__INSTANCE".to_owned(), name.clone()),
            ("CAMPANILE_CHANNELS__SMS__URL".to_owned(), sms),
        ]);
        let to_database = match &self.database {
            Database::Sqlite { .. } => None,
            Database::Postgres { url } => {
                let proxy = Proxy::to(host_and_port(url)?.to_owned()).await?;
                variables.push(("CAMPANILE_DATABASE__URL".to_owned(), by_way_of(url, proxy.address)?));
                Some(proxy)
            }
        };
        let to_broker = if self.round.backend == Backend::Servers {
            let url = self.servers.broker_url.as_deref().context("CAMPANILE_TEST_BROKER_URL is not set")?;
            let proxy = Proxy::to(host_and_port(url)?.to_owned()).await?;
            variables.push(("CAMPANILE_BROKER__URL".to_owned(), by_way_of(url, proxy.address)?));
            variables.push(("CAMPANILE_BROKER__PREFIX".to_owned(), self.prefix.clone()));
            Some(proxy)
        } else {
            None
        };
        let log = self.folder.join(format!("{name}.log"));
        let lines = (to_database, to_broker, to_provider);
        Ok(Instance::new(
            name,
            Launch { binary: binary.to_owned(), variables },
            lines,
            log,
            Arc::clone(&self.journal),
        ))
    }

    /// Writes recipients, rules and templates.
    async fn move_in(&self) -> Result<()> {
        const PAGE: usize = 1_000;
        for group in Group::ALL {
            for page in group.recipients().chunks(PAGE) {
                self.put("/v1/recipients", &json!(page)).await?;
            }
        }
        self.put("/v1/templates", &people::templates()).await?;
        tokio::time::sleep(RULES_ARE_NOTICED).await;
        Ok(())
    }

    async fn put(&self, path: &str, rows: &Value) -> Result<()> {
        let url = self.instances[0].url().context("the first instance is up")?;
        let answer = self.http.put(format!("{url}{path}")).bearer_auth(KEY).json(rows).send().await?;
        ensure!(answer.status().is_success(), "PUT {path}: {}", answer.text().await?);
        Ok(())
    }

    /// The status of the response, or `None` without a response.
    pub async fn emit(&self, instance: &Instance, events: &[Value]) -> Option<u16> {
        let url = format!("{}/v1/events", instance.url()?);
        let answer = self.http.post(url).bearer_auth(KEY).json(events).send().await.ok()?;
        Some(answer.status().as_u16())
    }

    /// Returns each failpoint in turn, in random order.
    pub fn next_failpoint(&self, random: &mut Random) -> &'static str {
        let mut left = self.failpoints.lock().unwrap_or_else(PoisonError::into_inner);
        if left.is_empty() {
            left.extend(FAILPOINTS);
            random.shuffle(&mut left);
        }
        left.pop().unwrap_or(FAILPOINTS[0])
    }

    pub async fn await_all_up(&self) -> Result<()> {
        let begun = Instant::now();
        while self.instances.iter().any(|instance| instance.url().is_none()) {
            if begun.elapsed() > UP_LIMIT {
                bail!("an instance does not come up within {UP_LIMIT:?}");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Ends the instances in order, and reads what they logged.
    pub async fn wind_up(&mut self) -> Result<()> {
        for instance in &self.instances {
            instance.end();
        }
        let all = async { while self.kept_up.join_next().await.is_some() {} };
        if tokio::time::timeout(STOP_LIMIT, all).await.is_err() {
            self.journal.find(format!(
                "an instance did not stop within {STOP_LIMIT:?}, although nothing was under way"
            ));
            self.kept_up.shutdown().await;
        }
        for instance in &self.instances {
            let log = std::fs::read_to_string(self.folder.join(format!("{}.log", instance.name)))?;
            if let Some(line) = log.lines().find(|line| line.contains("panicked at")) {
                self.journal.find(format!("{} panicked: {line}", instance.name));
            }
        }
        Ok(())
    }

    /// Removes everything from the servers.
    pub async fn demolish(self) -> Result<()> {
        if let Database::Postgres { url } = &self.database {
            let name = url.rsplit('/').next().unwrap_or_default().to_owned();
            let url =
                self.servers.database_url.as_deref().context("CAMPANILE_TEST_DATABASE_URL is not set")?;
            let client = database::connect(url).await?;
            client.batch_execute(&format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await?;
        }
        if self.round.backend == Backend::Servers && self.servers.steers_rabbitmq() {
            let listed =
                self.servers.rabbitmqctl(&["-q", "list_queues", "name", "--no-table-headers"]).await?;
            for queue in listed.lines().filter(|queue| queue.starts_with(&self.prefix)) {
                self.servers.rabbitmqctl(&["-q", "delete_queue", queue]).await?;
            }
        }
        Ok(())
    }
}

fn made(folder: PathBuf) -> Result<PathBuf> {
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    Ok(folder)
}

async fn make_database(servers: &Servers, name: &str) -> Result<String> {
    let url = servers.database_url.as_deref().context("CAMPANILE_TEST_DATABASE_URL is not set")?;
    let client = database::connect(url).await?;
    client.batch_execute(&format!("CREATE DATABASE {name}")).await?;
    with_database(url, name)
}

/// Short intervals and timeouts, so that minutes become seconds.
fn settings(round: &Round) -> Vec<(String, String)> {
    let mut variables: Vec<(String, String)> = [
        ("AUTH__ADMIN_KEY", KEY.to_owned()),
        // Calls of end users would answer 501, which the fuzz rounds take for a fault.
        ("AUTH__JWT__SECRET", format!("{KEY}-of-tokens")),
        ("SERVER__RATE_LIMITS__PER_KEY", "0".to_owned()),
        ("ENGINE__LEASE", format!("{}s", LEASE.as_secs())),
        ("DATABASE__MAX_CONNECTIONS", "6".to_owned()),
        ("RECOVER__REPUBLISH_AFTER", if round.sweep { "5s" } else { "1h" }.to_owned()),
        ("CHANNELS__SMS__DEADLINE", "1s".to_owned()),
        ("SEND__SMS__ON_DOUBT", round.on_doubt.as_str().to_owned()),
        // A text is retried until the provider accepts it.
        ("SEND__SMS__MAX_ATTEMPTS", "1000".to_owned()),
    ]
    .map(|(name, value)| (format!("CAMPANILE_{name}"), value))
    .into();
    for channel in ["EMAIL", "PUSH", "SMS"] {
        for (name, value) in [("POLL_INTERVAL", "100ms"), ("BACKOFF_BASE", "50ms"), ("BACKOFF_CAP", "1s")] {
            variables.push((format!("CAMPANILE_SEND__{channel}__{name}"), value.to_owned()));
        }
    }
    variables
}
