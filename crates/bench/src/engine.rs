//! The engine as users run it: a process of the release build.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

const START_LIMIT: Duration = Duration::from_mins(1);
const STOP_LIMIT: Duration = Duration::from_mins(1);

/// The timeout of a request to the engine.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// The program with these settings and without the environment of the benchmark. The kernel ends it if the benchmark is
/// killed.
pub fn command(binary: &Path, variables: &[(String, String)]) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(binary);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("CAMPANILE_"))
    {
        command.env_remove(name);
    }
    command.envs(variables.iter().cloned()).stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// Checks that this is the program, before an hour is spent on it.
pub async fn check(binary: &Path) -> Result<()> {
    let mut command = Command::new(binary);
    let asked = command.arg("--version").stdin(Stdio::null()).kill_on_drop(true).output();
    let answer = tokio::time::timeout(ANSWER_LIMIT, asked).await.map_err(anyhow::Error::from);
    let answer = answer.and_then(|answer| Ok(answer?));
    let answer = answer.with_context(|| format!("{} can't be started", binary.display()))?;
    let version = String::from_utf8_lossy(&answer.stdout);
    ensure!(version.starts_with("campanile "), "{} is not Campanile; see --campanile", binary.display());
    Ok(())
}

#[derive(Debug)]
pub struct Engine {
    child: Child,
    pub pid: u32,
    meter: Meter,
}

/// Reads an engine's metrics.
#[derive(Debug, Clone)]
pub struct Meter {
    url: String,
    http: reqwest::Client,
}

impl Engine {
    pub async fn start(binary: &Path, variables: &[(String, String)], roles: Option<&str>) -> Result<Self> {
        let mut command = command(binary, variables);
        command.args(["serve", "--listen", "127.0.0.1:0"]);
        if let Some(roles) = roles {
            command.args(["--roles", roles]);
        }
        command.env("CAMPANILE_LOG__FILTER", "warn").stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("{} can't be started", binary.display()))?;
        let pid = child.id().context("it has a number")?;
        let mut lines = BufReader::new(child.stdout.take().context("its output is piped")?).lines();
        let first = tokio::time::timeout(START_LIMIT, lines.next_line())
            .await
            .context("the engine did not start")??;
        let first = first.context("the engine exited during start; see its output above")?;
        let url = first.rsplit(' ').next().unwrap_or_default().to_owned();
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        let http = reqwest::Client::builder().timeout(ANSWER_LIMIT).build()?;
        Ok(Engine { child, pid, meter: Meter { url, http } })
    }

    pub fn meter(&self) -> &Meter {
        &self.meter
    }

    /// The number of sends that were settled as sent since its start.
    pub async fn sent(&self) -> Result<f64> {
        self.meter.read("campanile_sends_total", "status=\"SENT\"").await
    }

    /// Stops it in order, as an operator does.
    pub async fn stop(mut self) -> Result<()> {
        let pid = Pid::from_raw(self.pid.cast_signed()).context("it has a number")?;
        kill_process(pid, Signal::TERM)?;
        let status =
            tokio::time::timeout(STOP_LIMIT, self.child.wait()).await.context("it does not stop")??;
        // Exit code 1 means that its deadline left unfinished work to the next instance.
        ensure!(status.code().is_some_and(|code| code <= 1), "the engine failed: {status}");
        Ok(())
    }
}

impl Meter {
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The sum of the metrics with this name whose labels contain `labels`.
    pub async fn read(&self, name: &str, labels: &str) -> Result<f64> {
        let text = self.all().await?;
        let of_it = text.lines().filter(|line| {
            line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']) && rest.contains(labels))
        });
        Ok(of_it.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum())
    }

    pub async fn all(&self) -> Result<String> {
        let answer =
            self.http.get(format!("{}/metrics", self.url)).send().await.context("cannot reach the engine")?;
        Ok(answer.error_for_status()?.text().await?)
    }
}
