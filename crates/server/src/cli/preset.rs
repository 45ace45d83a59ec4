//! `campanile preset load`: rules that ship with the binary.

use anyhow::Context;
use campanile_domain::channel::Channel;
use clap::Subcommand;
use serde_json::{Value, json};

use super::CommandResult;
use super::client::Client;
use super::output::say;

const RESTAURANT: &str = include_str!("../../presets/restaurant.json");
/// The layout of all HTML, for any event's title and body.
const LAYOUT: &str = include_str!("../../presets/layout.mjml");

#[derive(Debug, Subcommand)]
pub enum Preset {
    /// Write a preset's audiences, routing and templates, replacing rows with the same keys
    Load {
        /// `restaurant`: reservations, orders, partners, chats and registrations, in English, Italian and Portuguese
        #[arg(value_parser = ["restaurant"])]
        name: String,
    },
}

impl Preset {
    pub async fn run(&self, client: &Client, as_json: bool) -> CommandResult {
        let Preset::Load { name } = self;
        let written = load_restaurant(client).await?;
        if as_json {
            say!("{}", json!({ "written": written }))?;
        } else {
            say!("preset {name}: {written} rows written")?;
        }
        Ok(())
    }
}

/// Loads the restaurant preset.
pub async fn load_restaurant(client: &Client) -> Result<u64, super::CommandError> {
    let mut rows = parsed(RESTAURANT)?;
    if let Some(Value::Array(templates)) = rows.get_mut("templates") {
        for channel in Channel::ALL.into_iter().filter(|channel| channel.facts().html) {
            templates.push(
                json!({ "event_type": "*", "channel": channel, "locale": "*", "title": "", "html": LAYOUT }),
            );
        }
    }
    write(client, &rows).await
}

pub async fn load(client: &Client, rows: &str) -> Result<u64, super::CommandError> {
    write(client, &parsed(rows)?).await
}

fn parsed(rows: &str) -> anyhow::Result<Value> {
    serde_json::from_str(rows).context("the built-in preset is not valid JSON")
}

/// Writes each array of an object to the path of the same name.
async fn write(client: &Client, rows: &Value) -> Result<u64, super::CommandError> {
    let mut written = 0;
    for (path, rows) in rows.as_object().into_iter().flatten().filter(|(path, _)| *path != "events") {
        let answer = client.put(&format!("/v1/{path}"), rows).await?;
        written += answer["written"].as_u64().unwrap_or_default();
    }
    Ok(written)
}
