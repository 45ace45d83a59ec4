//! The command line. `serve`, `migrate` and `demo` open the database, and `doctor` examines it. All other commands use
//! a running server over HTTP. Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not found.

mod api_keys;
mod client;
mod config_command;
mod dead_letters;
mod demo;
mod doctor;
mod emit;
mod explain;
mod invocation;
mod listing;
pub(crate) mod output;
mod preset;
mod sends;
mod serve;
mod stages;
mod tail;
mod template;
mod template_folder;
mod trace;
mod trace_table;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use campanile_store::StoreError;
use clap::{Args, Parser, Subcommand};
use reqwest::Certificate;

use crate::config::{Config, Flags};
use client::Client;
use config_command::ConfigCommand;
use invocation::Invocation;
use output::ReaderGone;
use serve::{Backend, Serve};

/// How long to wait at exit for blocking tasks, such as a write to a pipe that nobody reads. Then they are abandoned.
const BLOCKING_TASKS_TIMEOUT: Duration = Duration::from_secs(1);

/// Self-hosted notification engine: e-mail, push, SMS, WebSocket and Slack.
#[derive(Debug, Parser)]
#[command(name = "campanile", version, propagate_version = true)]
struct Cli {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Args)]
struct Common {
    /// A configuration file; `campanile config print` shows every key
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Folder of the embedded database and the admin key [default: ./campanile-data]
    #[arg(long, global = true, value_name = "FOLDER")]
    data_dir: Option<PathBuf>,
    /// The server's URL [default: the configured address on this machine]
    #[arg(long, global = true, env = "CAMPANILE_URL", value_name = "URL")]
    url: Option<String>,
    /// The API key [default: admin.key in the data folder]
    #[arg(long, global = true, env = "CAMPANILE_KEY", hide_env_values = true, value_name = "KEY")]
    key: Option<String>,
    /// A PEM file with the authority of the server's certificate [default: those of the system, and server.tls.cert]
    #[arg(long, global = true, env = "CAMPANILE_CA_FILE", value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// Print JSON instead of text
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the whole pipeline with example data and no configuration
    Demo(demo::Demo),
    /// Run the server
    Serve(Serve),
    /// Create or upgrade the database schema, then exit
    Migrate(serve::Migrate),
    /// Load a built-in set of rules
    #[command(subcommand)]
    Preset(preset::Preset),
    /// Emit an event
    Emit(emit::Emit),
    /// Show an event's recipients, decisions and delivery status
    Trace(trace::Trace),
    /// Show who would be notified of an event and why; sends nothing
    Explain(explain::Explain),
    /// Follow new events
    Tail(tail::Tail),
    /// Render a template, or load templates from a folder
    #[command(subcommand)]
    Template(template::TemplateCommand),
    /// List or replay dead letters (permanent failures)
    #[command(subcommand)]
    DeadLetters(dead_letters::DeadLetters),
    /// List sends, and resolve sends whose delivery is unknown (in doubt)
    #[command(subcommand)]
    Sends(sends::Sends),
    /// Create, list or revoke API keys
    #[command(subcommand)]
    ApiKey(api_keys::ApiKeys),
    /// Replace the key that signs tickets and other tokens
    #[command(subcommand)]
    SigningKey(api_keys::SigningKey),
    /// Diagnose connectivity and configuration problems; changes nothing
    Doctor(doctor::Doctor),
    /// Check or print the configuration
    #[command(subcommand)]
    Config(ConfigCommand),
}

/// Why a command failed.
#[derive(Debug)]
pub enum CommandError {
    NotFound(String),
    /// The command line is invalid.
    Usage(String),
    Failed(anyhow::Error),
}

impl<E: Into<anyhow::Error>> From<E> for CommandError {
    fn from(error: E) -> Self {
        CommandError::Failed(error.into())
    }
}

pub type CommandResult = Result<(), CommandError>;

pub fn run() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() => error.exit(),
        Err(help) => return print_help(&help.render().to_string()),
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("campanile: cannot start the runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    let ended = runtime.block_on(dispatch(cli));
    runtime.shutdown_timeout(BLOCKING_TASKS_TIMEOUT);
    exit_code(ended)
}

fn print_help(text: &str) -> ExitCode {
    exit_code(output::say!("{}", output::hanging(text, output::columns())).map_err(CommandError::from))
}

fn exit_code(ended: CommandResult) -> ExitCode {
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(CommandError::NotFound(what)) => {
            eprintln!("campanile: {what}");
            ExitCode::from(3)
        }
        Err(CommandError::Usage(what)) => {
            eprintln!("campanile: {what}");
            ExitCode::from(2)
        }
        // The reader closed the pipe on purpose, as in `campanile tail | head`.
        Err(CommandError::Failed(error)) if error.is::<ReaderGone>() => ExitCode::SUCCESS,
        Err(CommandError::Failed(error)) => {
            eprintln!("campanile: {}", with_causes(&error));
            ExitCode::FAILURE
        }
    }
}

/// The error and what caused it. A store's error already tells the errors below it.
fn with_causes(error: &anyhow::Error) -> String {
    let mut texts = Vec::new();
    for cause in error.chain() {
        texts.push(cause.to_string());
        if cause.is::<StoreError>() {
            break;
        }
    }
    texts.join(": ")
}

async fn dispatch(cli: Cli) -> CommandResult {
    let Cli { common, command } = cli;
    let flags = |serve: &Serve| Flags {
        file: common.config.clone(),
        data_dir: common.data_dir.clone(),
        listen: serve.listen,
        database_url: serve.backend.database_url.clone(),
        broker_url: serve.backend.broker_url.clone(),
        roles: serve.roles.clone(),
    };
    let no_flags = || flags(&Serve::default());
    match command {
        Command::Demo(demo) => {
            let served = Serve { listen: demo.listen, roles: None, backend: demo.backend.clone() };
            demo.run(Config::load(&flags(&served))?).await
        }
        Command::Serve(serve) => Box::pin(serve.run(Config::load_to_serve(&flags(&serve))?)).await,
        Command::Migrate(migrate) => {
            let backend = Backend { database_url: migrate.database_url.clone(), broker_url: None };
            migrate.run(Config::load(&flags(&Serve { backend, ..Serve::default() }))?).await
        }
        Command::Doctor(doctor) => {
            doctor.run(&flags(&doctor.serve), common.url.as_deref(), common.json).await
        }
        Command::Config(ConfigCommand::Check(serve)) => config_command::check(&flags(&serve)),
        Command::Config(ConfigCommand::Print(print)) => print.run(&no_flags()),
        Command::Preset(preset) => preset.run(&common.client(&no_flags())?, common.json).await,
        Command::Emit(emit) => emit.run(&common.client(&no_flags())?, common.json).await,
        Command::Trace(trace) => trace.run(&common.client(&no_flags())?, common.json).await,
        Command::Explain(explain) => explain.run(&common.client(&no_flags())?, common.json).await,
        Command::DeadLetters(dead_letters) => {
            dead_letters.run(&common.client(&no_flags())?, common.json).await
        }
        Command::ApiKey(api_keys) => api_keys.run(&common.client(&no_flags())?, common.json).await,
        Command::SigningKey(signing_key) => signing_key.run(&common.client(&no_flags())?, common.json).await,
        Command::Sends(sends) => sends.run(&common.client(&no_flags())?, common.json).await,
        Command::Template(template) => template.run(&common.client(&no_flags())?, common.json).await,
        Command::Tail(tail) => tail.run(&common.client(&no_flags())?, common.json).await,
    }
}

/// The certificates that the commands trust beside those of the system. The configuration has the certificate of the
/// server on this machine, which this user may not be allowed to read.
fn trusted(ca_file: Option<&Path>, config: &Config) -> anyhow::Result<Vec<Certificate>> {
    let read = |file: &Path| {
        let pem = std::fs::read(file).map_err(anyhow::Error::from);
        let parsed = pem.and_then(|pem| Ok(Certificate::from_pem_bundle(&pem)?));
        parsed.with_context(|| format!("cannot read certificates from {}", file.display()))
    };
    let own = config.server.tls()?.and_then(|tls| read(&tls.cert).ok()).unwrap_or_default();
    let given = ca_file.map(read).transpose()?.unwrap_or_default();
    Ok(own.into_iter().chain(given).collect())
}

impl Common {
    fn client(&self, flags: &Flags) -> anyhow::Result<Client> {
        let config = Config::load(flags)?;
        let url = self.url.clone().unwrap_or_else(|| config.server.url_of(config.server.listen));
        let invocation = Invocation::new(self.config.as_deref(), &url, &config);
        let trusted = trusted(self.ca_file.as_deref(), &config)?;
        Client::new(&url, self.key.clone(), self.json, &config, invocation, trusted)
    }
}
