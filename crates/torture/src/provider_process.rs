//! The provider's process, which no fault kills, and its ledger.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

#[derive(Debug)]
pub struct ProviderProcess {
    pub address: SocketAddr,
    http: reqwest::Client,
    /// Ends when this is dropped.
    _process: Child,
}

/// How often each (event, number) was accepted, and the violations of the provider's rules.
#[derive(Debug, Default)]
pub struct ProviderLedger {
    pub accepted: HashMap<(String, String), u32>,
    pub violations: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Line {
    n: u64,
    #[serde(default)]
    to: String,
    #[serde(default)]
    body: String,
    violation: Option<String>,
}

impl ProviderProcess {
    pub async fn start(ledger: &Path, seed: u64) -> Result<Self> {
        let ourselves = std::env::current_exe().context("our own program can't be found")?;
        let mut command = Command::new(ourselves);
        command.arg("provider").arg("--ledger").arg(ledger).args(["--seed", &seed.to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().context("the provider can't be started")?;
        let mut lines = BufReader::new(process.stdout.take().context("its output is piped")?).lines();
        let address = lines.next_line().await?.context("the provider says where it listens")?;
        let address = address.parse().with_context(|| format!("`{address}` is no address"))?;
        Ok(ProviderProcess { address, http: reqwest::Client::new(), _process: process })
    }

    /// Sets the permille of requests that fare badly from now on.
    pub async fn behave(&self, mode: Value) -> Result<()> {
        let answer = self.http.put(format!("http://{}/mode", self.address)).json(&mode).send().await?;
        ensure!(answer.status().is_success(), "the provider does not take {mode}: {}", answer.status());
        Ok(())
    }

    pub async fn behave_well(&self) -> Result<()> {
        self.behave(json!({})).await
    }

    pub async fn ledger(&self) -> Result<ProviderLedger> {
        let mut ledger = ProviderLedger::default();
        let mut after = 0;
        loop {
            let url = format!("http://{}/messages?after={after}", self.address);
            let lines: Vec<Line> = self.http.get(url).send().await?.error_for_status()?.json().await?;
            let Some(last) = lines.last() else { return Ok(ledger) };
            after = last.n;
            for line in lines {
                if let Some(violation) = line.violation {
                    ledger.violations.push(violation);
                } else {
                    // The text is the event's id.
                    *ledger.accepted.entry((line.body, line.to)).or_default() += 1;
                }
            }
        }
    }
}
