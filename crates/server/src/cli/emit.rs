//! `campanile emit`: emits an event.

use std::io::Read;

use anyhow::Context;
use campanile_domain::event::payload::Payload;
use clap::Args;
use serde_json::{Map, Value, json};

use super::client::Client;
use super::invocation::quoted;
use super::output::{columns, say, wrapped};
use super::{CommandError, CommandResult};

/// The event on the command line of `emit` and `explain`
#[derive(Debug, Args)]
pub struct EventArgs {
    /// The event's type, such as `RESERVATION_REQUESTED`
    #[arg(long = "type", value_name = "TYPE")]
    pub event_type: String,
    /// The aggregate, such as `RESTAURANT:5`
    #[arg(long, value_name = "TYPE:ID")]
    pub aggregate: String,
    /// The payload: a JSON object, @FILE, or @- for standard input
    #[arg(long, value_name = "JSON|@FILE")]
    pub payload: Option<String>,
    /// HIGH, NORMAL or LOW
    #[arg(long)]
    pub priority: Option<String>,
}

impl EventArgs {
    pub fn json(&self) -> Result<Map<String, Value>, CommandError> {
        let Some((aggregate_type, aggregate_id)) = self.aggregate.split_once(':') else {
            let what = format!("--aggregate: `{}` is not TYPE:ID, such as RESTAURANT:5", self.aggregate);
            return Err(CommandError::Usage(what));
        };
        let mut event = Map::new();
        event.insert("event_type".to_owned(), json!(self.event_type));
        event.insert("aggregate_type".to_owned(), json!(aggregate_type));
        event.insert("aggregate_id".to_owned(), json!(aggregate_id));
        if let Some(payload) = &self.payload {
            event.insert("payload".to_owned(), read_payload(payload)?);
        }
        if let Some(priority) = &self.priority {
            event.insert("priority".to_owned(), json!(priority));
        }
        Ok(event)
    }
}

/// Reads the payload, with the server's checks: a number or a key that gets lost before the server would go unnoticed.
pub fn read_payload(given: &str) -> Result<Value, CommandError> {
    let payload = Payload::new(read_text("--payload", given)?);
    payload.map(|payload| payload.value()).map_err(|error| CommandError::Usage(format!("--payload {error}")))
}

/// Reads JSON given directly, as @FILE, or as @- for standard input. Errors name `flag`.
pub fn read_json(flag: &str, given: &str) -> Result<Value, CommandError> {
    serde_json::from_str(&read_text(flag, given)?)
        .map_err(|error| CommandError::Usage(format!("{flag} is not JSON: {error}")))
}

fn read_text(flag: &str, given: &str) -> Result<String, CommandError> {
    Ok(match given.strip_prefix('@') {
        None => given.to_owned(),
        Some("-") => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text)?;
            text
        }
        Some(file) => std::fs::read_to_string(file).with_context(|| format!("{flag}: cannot read {file}"))?,
    })
}

#[derive(Debug, Args)]
pub struct Emit {
    #[command(flatten)]
    event: EventArgs,
    /// The event id; emitting an id again has no effect [default: a new id]
    #[arg(long, value_name = "ID")]
    id: Option<String>,
}

impl Emit {
    pub async fn run(&self, client: &Client, as_json: bool) -> CommandResult {
        let mut event = self.event.json()?;
        let id =
            self.id.clone().unwrap_or_else(|| campanile_domain::id::NotificationId::generate().to_string());
        event.insert("event_id".to_owned(), json!(id));
        let answer = client.post("/v1/events", &Value::Object(event)).await?;
        if as_json {
            say!("{answer}")?;
        } else if answer["created"] == json!(true) {
            let trace = client.invocation.command_lines(&format!("trace {}", quoted(&id)), 4, columns());
            say!("accepted {id}\nfollow it with:\n{trace}")?;
        } else {
            say!("{}", wrapped(&format!("already accepted: {id}; nothing is sent again"), 0, 0, columns()))?;
        }
        Ok(())
    }
}
