//! `campanile explain`: shows the decisions about an event without sending anything.

use clap::Args;
use serde_json::{Value, json};

use super::CommandResult;
use super::client::Client;
use super::emit::EventArgs;
use super::output::say;
use super::trace_table;

#[derive(Debug, Args)]
pub struct Explain {
    #[command(flatten)]
    event: EventArgs,
    /// Evaluate at this time (RFC 3339), for example to test quiet hours
    #[arg(long, value_name = "TIME")]
    at: Option<String>,
}

impl Explain {
    pub async fn run(&self, client: &Client, as_json: bool) -> CommandResult {
        let mut event = self.event.json()?;
        if let Some(at) = &self.at {
            event.insert("at".to_owned(), json!(at));
        }
        let answer = client.post("/v1/explain", &Value::Object(event)).await?;
        if as_json {
            say!("{answer}")?;
            return Ok(());
        }
        say!("{}", trace_table::decisions(&self.event.event_type, &self.event.aggregate, &answer))?;
        Ok(())
    }
}
