//! `campanile tail`: events as they come, and how they end.

use std::collections::HashMap;
use std::io::Write;
use std::time::Duration;

use clap::Args;
use serde_json::Value;

use super::client::Client;
use super::{Failure, Outcome};

const INTERVAL: Duration = Duration::from_millis(500);
const PAGE: usize = 1_000;
/// Events whose end is still awaited; beyond it the oldest are not followed any more.
const MAX_FOLLOWED: usize = 2_000;

#[derive(Debug, Args)]
pub struct Tail {
    /// Begin with so many that are there already
    #[arg(long, short = 'n', default_value_t = 10)]
    lines: usize,
}

impl Tail {
    pub async fn run(&self, client: &Client, as_json: bool) -> Outcome {
        let mut seen = self.start(client).await?;
        let mut open: HashMap<i64, String> = HashMap::new();
        loop {
            let from = open.keys().min().map_or(seen, |oldest| (oldest - 1).min(seen));
            let page = client.get(&format!("/v1/events?order=oldest&cursor={from}&limit={PAGE}")).await?;
            let events = page["items"].as_array().cloned().unwrap_or_default();
            for event in &events {
                let id = event["id"].as_i64().unwrap_or_default();
                let status = event["status"].as_str().unwrap_or_default().to_owned();
                if open.get(&id) != Some(&status) && (id > seen || open.contains_key(&id)) {
                    print(event, as_json)?;
                }
                if ["PENDING", "PUBLISHED"].contains(&status.as_str()) {
                    open.insert(id, status);
                } else {
                    open.remove(&id);
                }
                seen = seen.max(id);
            }
            if open.len() > MAX_FOLLOWED {
                open.clear();
            }
            if events.len() < PAGE {
                tokio::select! {
                    () = tokio::time::sleep(INTERVAL) => {}
                    () = crate::app::told_to_stop() => return Ok(()),
                }
            }
        }
    }

    /// The event behind which to begin.
    async fn start(&self, client: &Client) -> Result<i64, Failure> {
        let page = client.get(&format!("/v1/events?limit={}", self.lines.clamp(1, PAGE))).await?;
        let items = page["items"].as_array().cloned().unwrap_or_default();
        let first = if self.lines == 0 { items.first() } else { items.last() };
        let id = first.and_then(|event| event["id"].as_i64()).unwrap_or_default();
        Ok(if self.lines == 0 { id } else { (id - 1).max(0) })
    }
}

fn print(event: &Value, as_json: bool) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    if as_json {
        return writeln!(out, "{event}");
    }
    let text = |field: &str| event[field].as_str().unwrap_or_default();
    let when = ["processed_at", "published_at", "created_at"].into_iter().map(text).find(|t| !t.is_empty());
    writeln!(
        out,
        "{}  {:<9}  {:<28}  {}:{}  {}  {}",
        when.unwrap_or_default(),
        text("status"),
        text("event_type"),
        text("aggregate_type"),
        text("aggregate_id"),
        text("event_id"),
        text("last_error")
    )
}
