//! `campanile demo`: loads the restaurant preset, emits events, and shows what each person got and why not more. It
//! runs the real server with the embedded defaults in a folder of its own, and uses it over HTTP.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use campanile_domain::channel::Channel;
use campanile_domain::time::Timestamp;
use campanile_store::sqlite::lock::try_lock;
use clap::Args;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::client::Client;
use super::invocation::{Invocation, quoted};
use super::output::{columns, say, wrapped};
use super::preset::{load, load_restaurant};
use super::serve::Backend;
use super::trace_table::channel;
use super::{CommandError, CommandResult, trace_table};
use crate::app::{self, Served};
use crate::config::Config;
use crate::data_folder::make_private;

const WORLD: &str = include_str!("../../presets/demo.json");
const SENDS_TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

#[derive(Debug, Args)]
pub struct Demo {
    /// Exit when all sends have finished; exit code 0 only if all succeeded
    #[arg(long)]
    exit: bool,
    /// Where to listen [default: 127.0.0.1:8400, or a free port if that is taken]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<SocketAddr>,
    #[command(flatten)]
    pub backend: Backend,
}

impl Demo {
    pub async fn run(&self, mut config: Config) -> CommandResult {
        // The tables matter here, not the log.
        "warn".clone_into(&mut config.log.filter);
        app::start_logging(&config);
        // The demo ignores the URLs that this machine's server is configured with, unless a flag sets them.
        if self.backend.database_url.is_none() {
            (config.database.url, config.database.url_file) = Default::default();
        }
        if self.backend.broker_url.is_none() {
            (config.broker.url, config.broker.url_file) = Default::default();
        }
        config.engine.roles = String::new();
        config.data_dir = fresh_folder(&config.data_dir)?;
        let listener = self.listener(config.server.listen).await?;
        let served = app::serve_on(listener, config.clone()).await?;
        // A database that is kept has the ids of earlier demos already.
        let prefix = match &self.backend.database_url {
            None => "demo".to_owned(),
            Some(_) => format!("demo-{:x}", Timestamp::now().as_millisecond()),
        };
        let shown = show(&served, &config, &prefix).await;
        let ended = match (&shown, self.exit) {
            (Ok(all), true) => {
                let all = *all;
                served.stop().await?;
                all
            }
            (Ok(all), false) => {
                let all = *all;
                stay(served, &config, &prefix).await?;
                all
            }
            (Err(_), _) => {
                served.stop().await?;
                false
            }
        };
        shown?;
        if ended {
            Ok(())
        } else {
            Err(anyhow::anyhow!("not all sends finished within {SENDS_TIMEOUT:?}").into())
        }
    }

    /// Uses a free port if the configured one is taken, unless it was given on the command line.
    async fn listener(&self, configured: SocketAddr) -> anyhow::Result<TcpListener> {
        match TcpListener::bind(configured).await {
            Ok(listener) => Ok(listener),
            Err(_) if self.listen.is_none() => {
                Ok(TcpListener::bind(SocketAddr::new(configured.ip(), 0)).await?)
            }
            Err(error) => Err(error).with_context(|| format!("cannot listen on {configured}")),
        }
    }
}

/// A folder for this demo. The last demo's folder is emptied, unless that demo is still running.
fn fresh_folder(data_dir: &Path) -> anyhow::Result<PathBuf> {
    for number in 1..100 {
        let name = if number == 1 { "demo".to_owned() } else { format!("demo-{number}") };
        let folder = data_dir.join(name);
        make_private(&folder)?;
        let ours = try_lock(&folder).with_context(|| format!("cannot lock {}", folder.display()))?;
        if ours.is_some() {
            for file in ["campanile.db", "campanile.db-wal", "campanile.db-shm", "admin.key"] {
                match std::fs::remove_file(folder.join(file)) {
                    Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                        return Err(error).with_context(|| format!("cannot empty {}", folder.display()));
                    }
                    _ => {}
                }
            }
            return Ok(folder);
        }
    }
    anyhow::bail!("99 demos already run in {}; stop one", data_dir.display())
}

/// Loads the preset, emits the events, and prints the result of each. Returns whether everything arrived.
async fn show(served: &Served, config: &Config, prefix: &str) -> Result<bool, CommandError> {
    let url = config.server.url_of(served.address);
    let invocation = Invocation::new(None, &url, config);
    let client = Client::new(&url, Some(served.admin_key.clone()), false, config, invocation, Vec::new())?;
    load_restaurant(&client).await?;
    load(&client, WORLD).await?;
    let world: Value = serde_json::from_str(WORLD).context("the demo's world is JSON")?;
    let mut events = world["events"].as_array().cloned().unwrap_or_default();
    for (number, event) in events.iter_mut().enumerate() {
        event["event_id"] = json!(format!("{prefix}-{}", number + 1));
    }
    client.post("/v1/events", &Value::Array(events.clone())).await?;
    let mut all = true;
    let (mut sent, mut kept, mut withheld, mut captured) = (0, 0, 0, 0);
    for event in &events {
        let event_id = event["event_id"].as_str().unwrap_or_default();
        let trace = arrived(&client, event_id).await?;
        say!("{}\n", trace_table::short(&trace, &place(&world, event)))?;
        let tally = Tally::of(&trace);
        all &= tally.missing == 0 && trace["event"]["status"] == "PROCESSED";
        sent += tally.sent;
        kept += tally.kept;
        withheld += tally.withheld;
        let messages = client.get(&format!("/v1/captured?limit=1000&event_id={event_id}")).await?;
        captured += messages["items"].as_array().map_or(0, Vec::len);
    }
    let count = events.len();
    let total = format!(
        "{count} events: {sent} sent ({captured} captured locally, not delivered), \
         {kept} held for the inbox (not implemented yet), {withheld} suppressed for the reasons above."
    );
    say!("{}", wrapped(&total, 0, 0, columns()))?;
    Ok(all)
}

/// The name of the restaurant or agency, for the heading.
fn place(world: &Value, event: &Value) -> String {
    let aggregate = event["aggregate_type"].as_str().unwrap_or_default();
    let (entity_type, id) = match aggregate {
        "ORDER" | "RESERVATION" => ("RESTAURANT", &event["payload"]["restaurantId"]),
        other => (other, &event["aggregate_id"]),
    };
    let id = id.as_str().map_or_else(|| id.to_string(), str::to_owned);
    let named = |entity: &&Value| entity["entity_type"] == entity_type && entity["entity_id"] == id.as_str();
    let entity = world["entities"].as_array().into_iter().flatten().find(named);
    match entity.and_then(|entity| entity["name"].as_str()) {
        Some(name) => name.to_owned(),
        None => format!("{aggregate} {id}"),
    }
}

/// Waits until everything in the trace is sent, or the timeout, and returns the trace.
async fn arrived(client: &Client, event_id: &str) -> Result<Value, CommandError> {
    let begun = std::time::Instant::now();
    loop {
        let trace = client.get(&format!("/v1/events/{event_id}")).await?;
        let done = ["PROCESSED", "FAILED"].contains(&trace["event"]["status"].as_str().unwrap_or_default());
        if done && Tally::of(&trace).missing == 0 || begun.elapsed() > SENDS_TIMEOUT {
            return Ok(trace);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Compares decided and delivered messages.
struct Tally {
    sent: usize,
    /// Sent by being received: they count as sent, but nobody sees them until there is an inbox.
    kept: usize,
    missing: usize,
    withheld: usize,
}

impl Tally {
    fn of(trace: &Value) -> Self {
        let decisions = trace["decisions"].as_array().into_iter().flatten();
        let verdicts: Vec<&Value> =
            decisions.flat_map(|d| d["channels"].as_object().into_iter().flatten().map(|(_, v)| v)).collect();
        let to_send = verdicts.iter().filter(|verdict| **verdict == "SEND").count();
        let withheld =
            verdicts.iter().filter(|verdict| **verdict != "SEND" && **verdict != "NOT_ROUTED").count();
        let done = trace["sends"].as_array().into_iter().flatten().filter(|send| send["status"] == "SENT");
        let is_kept = |send: &&Value| channel(send).is_some_and(Channel::is_sent_on_receipt);
        let (kept, sent): (Vec<&Value>, Vec<&Value>) = done.partition(is_kept);
        let (sent, kept) = (sent.len(), kept.len());
        Tally { sent, kept, missing: to_send.saturating_sub(sent + kept), withheld }
    }
}

async fn stay(served: Served, config: &Config, prefix: &str) -> CommandResult {
    let url = config.server.url_of(served.address);
    let columns = columns();
    let invocation = Invocation::new(None, &url, config);
    let commands = [
        format!("trace {prefix}-1"),
        "explain --type RESERVATION_REQUESTED --aggregate RESTAURANT:5".to_owned(),
        "emit --type ORDER_CREATED --aggregate RESTAURANT:6".to_owned(),
    ];
    let commands = commands.map(|command| invocation.command_lines(&command, 4, columns)).join("\n");
    let key = quoted(&config.data_dir.join("admin.key").display().to_string());
    let asked = say!(
        "\nRunning at {url}; press Ctrl-C to stop.\nTry these from another terminal in this folder:\n\n{commands}\n    \
         curl -H \"Authorization: Bearer $(cat {key})\" \\\n        {url}/v1/captured\n"
    );
    // Standard output is closed, so nobody sees how to use the server.
    if let Err(error) = asked {
        served.stop().await?;
        return Err(error.into());
    }
    app::told_to_stop().await;
    served.stop().await?;
    Ok(())
}
