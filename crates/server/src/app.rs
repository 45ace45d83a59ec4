//! Putting the parts together: database, broker, channels, engine and HTTP, by what the configuration says; and taking
//! them down in order.

use std::fs::OpenOptions;
use std::io::{IsTerminal, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use campanile_broker::InProcess;
use campanile_channels::Providers;
use campanile_engine::{Engine, Running};
use campanile_store::sqlite::Sqlite;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::config::{Config, LogFormat};
use crate::http::{self, AdminKey, App};

/// "Few" undelivered messages: the waiting is done in the database, where order can still change.
const MAX_UNDELIVERED: usize = 5_000;

/// A server that runs.
#[derive(Debug)]
pub struct Served {
    pub address: SocketAddr,
    pub admin_key: String,
    running: Running,
    http: JoinHandle<std::io::Result<()>>,
    stop_http: CancellationToken,
    config: Config,
}

/// Opens everything and starts it. Binding comes first, so that a taken port is told before anything is touched.
pub async fn serve(config: Config) -> anyhow::Result<Served> {
    let listener = TcpListener::bind(config.server.listen).await.with_context(|| {
        format!(
            "{} can't be listened on; choose another with --listen or server.listen",
            config.server.listen
        )
    })?;
    serve_on(listener, config).await
}

pub async fn serve_on(listener: TcpListener, config: Config) -> anyhow::Result<Served> {
    let address = listener.local_addr()?;
    let store = Sqlite::open(&config.database_path()?)?;
    let admin_key = admin_key(&config)?;
    let engine_config = config.engine()?;
    let broker = InProcess::new(engine_config.user_types.queues(), MAX_UNDELIVERED);
    let engine = Engine::new(Arc::new(store), Arc::new(broker), Providers::capture(), engine_config).await?;
    let app = App {
        engine: engine.clone(),
        admin_key: Arc::new(AdminKey::new(admin_key.clone())),
        metrics: metrics_handle(),
        local_only: address.ip().is_loopback(),
    };
    let running = engine.start();
    let stop_http = CancellationToken::new();
    let stopped = stop_http.clone();
    let http = tokio::spawn(async move {
        axum::serve(listener, http::router(app)).with_graceful_shutdown(stopped.cancelled_owned()).await
    });
    tracing::info!(%address, instance = engine.config.instance, "campanile is up");
    Ok(Served { address, admin_key, running, http, stop_http, config })
}

impl Served {
    /// Stops taking requests and work, finishes what is in flight, and ends within the deadline.
    pub async fn stop(self) -> anyhow::Result<()> {
        self.stop_http.cancel();
        let deadline = self.config.server.stop_deadline.0;
        let (http, finished) =
            tokio::join!(tokio::time::timeout(deadline, self.http), self.running.stop(deadline));
        if http.is_err() || !finished {
            bail!("not everything was finished within {deadline:?}; the next start takes over the rest");
        }
        Ok(())
    }
}

/// One recorder per process; a second server in it shares the first's.
fn metrics_handle() -> PrometheusHandle {
    static HANDLE: std::sync::OnceLock<PrometheusHandle> = std::sync::OnceLock::new();
    HANDLE
        .get_or_init(|| {
            let recorder = PrometheusBuilder::new().build_recorder();
            let handle = recorder.handle();
            if metrics::set_global_recorder(recorder).is_err() {
                tracing::warn!("metrics are recorded elsewhere already");
            }
            handle
        })
        .clone()
}

fn admin_key(config: &Config) -> anyhow::Result<String> {
    if !config.auth.admin_key.is_empty() {
        return Ok(config.auth.admin_key.clone());
    }
    let given = &config.auth.admin_key_file;
    if !given.as_os_str().is_empty() {
        return read_key(given)
            .with_context(|| format!("auth.admin_key_file {} can't be read", given.display()));
    }
    let path = config.data_dir.join("admin.key");
    match read_key(&path) {
        Ok(key) => Ok(key),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => make_key(&path),
        Err(error) => Err(error).with_context(|| format!("the admin key {} can't be read", path.display())),
    }
}

pub fn read_key(path: &Path) -> std::io::Result<String> {
    let key = std::fs::read_to_string(path)?.trim().to_owned();
    if key.is_empty() { Err(std::io::Error::other("it is empty")) } else { Ok(key) }
}

/// 256 random bits, readable by the owner only, and shown once if somebody is looking.
fn make_key(path: &Path) -> anyhow::Result<String> {
    let mut random = [0u8; 32];
    getrandom::fill(&mut random).map_err(|error| anyhow::anyhow!("no random numbers for a key: {error}"))?;
    let key = random.iter().fold("cmp_".to_owned(), |key, byte| format!("{key}{byte:02x}"));
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("{} can't be made", folder.display()))?;
    }
    let mut file = OpenOptions::new()
        .create_new(true)
        .write(true)
        .mode(0o600)
        .open(path)
        .with_context(|| format!("the admin key can't be kept in {}", path.display()))?;
    writeln!(file, "{key}")?;
    if std::io::stdout().is_terminal() {
        println!("The admin key, shown this once and kept in {}:\n\n    {key}\n", path.display());
    }
    Ok(key)
}

pub fn start_logging(config: &Config) {
    let filter = tracing_subscriber::EnvFilter::new(&config.log.filter);
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = match config.log.format {
        LogFormat::Text => logs.with_ansi(std::io::stderr().is_terminal()).try_init(),
        LogFormat::Json => logs.json().try_init(),
    };
    // Started already: a demo that is part of a test.
    drop(started);
}

/// Resolves at Ctrl-C or SIGTERM.
pub async fn told_to_stop() {
    use tokio::signal::unix::{SignalKind, signal};
    let terminated = async {
        match signal(SignalKind::terminate()) {
            Ok(mut terminate) => {
                terminate.recv().await;
            }
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        () = terminated => {}
    }
}
