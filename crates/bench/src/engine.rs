//! The engine as everybody runs it: a process of the release build.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

const START_LIMIT: Duration = Duration::from_mins(1);
const STOP_LIMIT: Duration = Duration::from_mins(1);

#[derive(Debug)]
pub struct Engine {
    child: Child,
    pub pid: u32,
    url: String,
    http: reqwest::Client,
}

impl Engine {
    pub async fn start(binary: &Path, variables: &[(String, String)], roles: Option<&str>) -> Result<Self> {
        let mut command = Command::new("setpriv");
        // Whoever starts it may be killed; then the kernel ends it.
        command.args(["--pdeathsig", "KILL", "--"]).arg(binary).args(["serve", "--listen", "127.0.0.1:0"]);
        if let Some(roles) = roles {
            command.args(["--roles", roles]);
        }
        for (name, _) in
            std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("CAMPANILE_"))
        {
            command.env_remove(name);
        }
        command.envs(variables.iter().cloned()).env("CAMPANILE_LOG__FILTER", "warn");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().with_context(|| format!("{} can't be started", binary.display()))?;
        let pid = child.id().context("it has a number")?;
        let mut lines = BufReader::new(child.stdout.take().context("its output is piped")?).lines();
        let first =
            tokio::time::timeout(START_LIMIT, lines.next_line()).await.context("it does not come up")??;
        let first = first.context("it ended before it was up; what is wrong stands above")?;
        let url = first.rsplit(' ').next().unwrap_or_default().to_owned();
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Ok(Engine { child, pid, url, http: reqwest::Client::new() })
    }

    /// All of its metrics of this name, added up, where the labels contain these words.
    pub async fn metric(&self, name: &str, labels: &str) -> Result<f64> {
        let text = self.metrics().await?;
        let of_it = text.lines().filter(|line| {
            line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']) && rest.contains(labels))
        });
        Ok(of_it.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum())
    }

    pub async fn metrics(&self) -> Result<String> {
        let answer =
            self.http.get(format!("{}/metrics", self.url)).send().await.context("the engine is gone")?;
        Ok(answer.error_for_status()?.text().await?)
    }

    /// How many sends were settled as sent since it began.
    pub async fn sent(&self) -> Result<f64> {
        self.metric("campanile_sends_total", "status=\"SENT\"").await
    }

    /// In order, as an operator does.
    pub async fn stop(mut self) -> Result<()> {
        let pid = Pid::from_raw(self.pid.cast_signed()).context("it has a number")?;
        kill_process(pid, Signal::TERM)?;
        let status =
            tokio::time::timeout(STOP_LIMIT, self.child.wait()).await.context("it does not stop")??;
        // What its deadline leaves unfinished is left to the next, and it says so by a one.
        ensure!(status.code().is_some_and(|code| code <= 1), "the engine ended badly: {status}");
        Ok(())
    }
}
