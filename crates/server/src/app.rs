//! Opens database, broker, channels, engine and HTTP by the configuration, and stops them in order.

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use campanile_broker::{Broker, InProcess, RabbitMq};
use campanile_engine::{Engine, EngineConfig, Role, Running};
use campanile_store::Store;
use campanile_store::postgres::Postgres;
use campanile_store::sqlite::Sqlite;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::config::{BrokerChoice, Config, DatabaseChoice, LogFormat, MAX_UNDELIVERED};
use crate::data_folder;
use crate::escape::{Lines, log_fields};
use crate::http::{
    self, AccessControl, AccessLimits, AdminKey, App, MAX_UNKNOWN_KEY_LOOKUPS, SigningKeys, TlsFiles,
};
use crate::lease::Lease;
use crate::open_files;

/// How long a shutdown waits for responses in progress. Clients that are still sending a request then are cut off.
const HTTP_GRACE: Duration = Duration::from_secs(2);

/// A running server.
#[derive(Debug)]
pub struct Served {
    pub address: SocketAddr,
    pub admin_key: String,
    /// Channels whose messages are only captured.
    pub captured: Vec<&'static str>,
    running: Running,
    lease: Option<Lease>,
    http: JoinHandle<()>,
    stop_http: CancellationToken,
    config: Config,
}

impl Served {
    pub fn url(&self) -> String {
        self.config.server.url_of(self.address)
    }
}

/// Opens and starts everything. It binds the port first, so that a port in use is reported before anything is touched.
pub async fn serve(config: Config) -> anyhow::Result<Served> {
    let listener = TcpListener::bind(config.server.listen).await.with_context(|| {
        format!(
            "cannot listen on {}; choose another address with --listen or server.listen",
            config.server.listen
        )
    })?;
    serve_on(listener, config).await
}

pub async fn serve_on(listener: TcpListener, config: Config) -> anyhow::Result<Served> {
    let address = listener.local_addr()?;
    data_folder::make(&config)?;
    let store = open_store(&config).await?;
    let admin_key = data_folder::admin_key(&config)?;
    let engine_config = config.engine()?;
    let (broker, lease) = open_broker(&config, &engine_config, &store).await?;
    let (database, database_id) = (store.name(), store.identity().await?);
    let (roles, instance) = (engine_config.roles.clone(), engine_config.instance.clone());
    let broker_name = if roles.use_broker() { broker.name() } else { "not used" };
    let engine = Engine::new(store, broker, config.providers()?, engine_config).await?;
    let app = App {
        engine: engine.clone(),
        access: Arc::new(access_control(&config, &admin_key)?),
        metrics: metrics_handle(),
        local_only: address.ip().is_loopback(),
        public_host: config.server.public_url()?.and_then(|url| url.host_str().map(str::to_owned)),
        twilio_callbacks: config.twilio_callbacks()?.map(Arc::new),
        permits: http::permits(),
        heavy: http::Heavy::default(),
        body_timeout: config.server.body_timeout.0,
        write_probe: Arc::default(),
        database_id: database_id.into(),
        cors_origins: config.server.cors_origins()?.into(),
    };
    let tls = config.server.tls()?.map(|tls| TlsFiles::open(&tls.cert, &tls.key)).transpose()?.map(Arc::new);
    // Made at the first start, so that a first request does not wait for it.
    app.access.signing_keys.current(&engine).await?;
    let running = engine.start();
    let stop_http = CancellationToken::new();
    let routers = http::routers(&app, roles.has(Role::Api));
    let http = tokio::spawn(http::serve(listener, routers, http_limits(&config), tls, stop_http.clone()));
    tracing::info!(%address, instance, %roles, database, broker = broker_name, "campanile is up");
    let captured = engine.providers().iter().filter(|(_, chain)| chain.captures());
    let captured = captured.map(|(channel, _)| channel.as_str()).collect();
    Ok(Served { address, admin_key, captured, running, lease, http, stop_http, config })
}

fn access_control(config: &Config, admin_key: &str) -> anyhow::Result<AccessControl> {
    let limits = config.server.rate_limits;
    Ok(AccessControl {
        admin_key: AdminKey::new(admin_key.to_owned()),
        tokens: config.auth.jwt.verifier()?,
        signing_keys: SigningKeys::new(config.auth.signing_key()?),
        proxies: config.server.trusted_proxies()?,
        limits: AccessLimits::new(limits.per_key, limits.per_user, limits.per_address, limits.wrong_keys),
        unknown_key_lookups: Semaphore::new(MAX_UNKNOWN_KEY_LOOKUPS),
    })
}

fn http_limits(config: &Config) -> http::Limits {
    let server = &config.server;
    let possible = open_files::raise_limit().map_or(usize::MAX, max_connections);
    if possible < server.max_connections {
        tracing::warn!(
            possible,
            wanted = server.max_connections,
            "the open file limit allows fewer connections than server.max_connections; \
             raise it (ulimit -Hn) or lower server.max_connections"
        );
    }
    http::Limits {
        max_connections: server.max_connections.min(possible),
        header_timeout: server.header_timeout.0,
        write_timeout: server.body_timeout.0,
        max_header_bytes: server.max_header_bytes,
    }
}

/// The connections that a limit on open files leaves for HTTP, after databases, brokers and providers.
fn max_connections(open_files: u64) -> usize {
    const OTHERS: usize = 256;
    let files = usize::try_from(open_files).unwrap_or(usize::MAX);
    // With a very low limit, HTTP gets half of it.
    files.saturating_sub(OTHERS + http::RESERVED_CONNECTIONS).max(files / 2).max(1)
}

async fn open_store(config: &Config) -> anyhow::Result<Arc<dyn Store>> {
    Ok(match config.database.choice(&config.data_dir)? {
        DatabaseChoice::Sqlite { path } => Arc::new(Sqlite::open(&path)?),
        DatabaseChoice::Postgres(postgres) => Arc::new(Postgres::open(&postgres).await?),
    })
}

/// Opens the broker. The in-process broker comes with the lease that makes it the only one on its database.
async fn open_broker(
    config: &Config,
    engine: &EngineConfig,
    store: &Arc<dyn Store>,
) -> anyhow::Result<(Arc<dyn Broker>, Option<Lease>)> {
    let queues = engine.user_types.queues();
    match config.broker_choice()? {
        BrokerChoice::RabbitMq(rabbitmq) if engine.roles.use_broker() => {
            Ok((Arc::new(RabbitMq::open(rabbitmq).await?), None))
        }
        // This instance never uses the broker, so this one is a placeholder.
        BrokerChoice::RabbitMq(_) => Ok((Arc::new(InProcess::new(queues, MAX_UNDELIVERED)), None)),
        BrokerChoice::InProcess => {
            let lease = Lease::take(Arc::clone(store), &engine.instance).await?;
            Ok((Arc::new(InProcess::new(queues, MAX_UNDELIVERED)), Some(lease)))
        }
    }
}

impl Served {
    /// Resolves when this instance must stop.
    pub async fn lost(&self) -> anyhow::Error {
        match &self.lease {
            Some(lease) => lease.lost().await,
            None => std::future::pending().await,
        }
    }

    /// Stops accepting requests and work, finishes what is in flight, and returns by the deadline. Only unfinished work
    /// of the engine is an error; a client that never ends its request is not.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        self.stop_http.cancel();
        let deadline = self.config.server.stop_deadline.0;
        let answered = tokio::time::timeout(HTTP_GRACE.min(deadline), &mut self.http);
        let (answered, finished) = tokio::join!(answered, self.running.stop(deadline));
        if let Some(lease) = self.lease {
            lease.release().await;
        }
        if answered.is_err() {
            self.http.abort();
            tracing::warn!("requests still running at the stop were aborted");
        }
        if !finished {
            bail!("not all work finished within {deadline:?}; the next start resumes it");
        }
        Ok(())
    }
}

/// The process has one recorder; a second server in the same process shares it.
fn metrics_handle() -> PrometheusHandle {
    static HANDLE: std::sync::OnceLock<PrometheusHandle> = std::sync::OnceLock::new();
    HANDLE
        .get_or_init(|| {
            let recorder = PrometheusBuilder::new().build_recorder();
            let handle = recorder.handle();
            if metrics::set_global_recorder(recorder).is_err() {
                tracing::warn!("a metrics recorder is already installed");
            }
            handle
        })
        .clone()
}

pub fn start_logging(config: &Config) {
    let filter = tracing_subscriber::EnvFilter::new(&config.log.filter);
    let coloured = config.log.format == LogFormat::Text && std::io::stderr().is_terminal();
    let lines = move || Lines { out: std::io::stderr(), coloured };
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(lines).with_ansi(coloured);
    let started = match config.log.format {
        LogFormat::Text => logs.fmt_fields(log_fields()).try_init(),
        LogFormat::Json => logs.json().try_init(),
    };
    // Logging is set up already, for example by a test that runs a demo.
    drop(started);
}

/// Resolves at Ctrl-C or SIGTERM. Both signals are caught from the call on, so a signal before the first poll also
/// stops the server in order.
pub fn told_to_stop() -> impl Future<Output = ()> {
    use tokio::signal::unix::{SignalKind, signal};
    let signals = [SignalKind::interrupt(), SignalKind::terminate()].map(signal);
    async move {
        let [interrupt, terminate] = signals.map(|signal| async {
            match signal {
                Ok(mut signal) => drop(signal.recv().await),
                Err(_) => std::future::pending().await,
            }
        });
        tokio::select! {
            () = interrupt => {}
            () = terminate => {}
        }
    }
}
