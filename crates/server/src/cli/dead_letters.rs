//! `campanile dead-letters`: lists dead letters as a table, and replays them.

use std::fmt::Write;

use anyhow::anyhow;
use campanile_domain::time::{self, Timestamp};
use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::client::{Client, encoded};
use super::invocation::Invocation;
use super::listing::{Row, listing, one_line, or_dash};
use super::output::{self, columns, say, wrapped};
use super::{CommandError, CommandResult};

#[derive(Debug, Subcommand)]
pub enum DeadLetters {
    /// List dead letters, oldest first
    List(List),
    /// Replay dead letters; recipients that were already notified are not notified again
    Replay(Replay),
}

#[derive(Debug, Args)]
pub struct List {
    #[command(flatten)]
    filter: Filter,
    /// Include replayed dead letters
    #[arg(long)]
    all: bool,
    /// Maximum number to list, up to 1000
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: usize,
}

#[derive(Debug, Args)]
pub struct Replay {
    #[command(flatten)]
    filter: Filter,
    /// Replay every dead letter that was not replayed yet; required without a filter
    #[arg(long)]
    all: bool,
    /// Maximum number to replay [default: 10000]
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
}

/// Filters; a dead letter must match all that are given
#[derive(Debug, Args)]
struct Filter {
    /// The dead letter with this id
    #[arg(long, value_name = "N")]
    id: Option<i64>,
    /// Dead letters of this event
    #[arg(long, value_name = "ID")]
    event: Option<String>,
    #[arg(long, value_name = "STAGE", help = "Stage that failed: fan_out, publish, receive or send")]
    stage: Option<String>,
    /// EMAIL, PUSH, SMS, WEBSOCKET or SLACK
    #[arg(long, value_name = "CHANNEL")]
    channel: Option<String>,
    /// Dead letters of this provider
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,
    #[arg(long, value_name = "CODE", help = "Error code, such as NO_RECIPIENTS")]
    reason: Option<String>,
    /// Text that the error contains
    #[arg(long, value_name = "TEXT")]
    error: Option<String>,
    /// Start after the dead letter with this id
    #[arg(long, value_name = "N")]
    cursor: Option<String>,
}

impl Filter {
    /// The given filters by their names in HTTP.
    fn given(&self) -> Map<String, Value> {
        let channel = self.channel.as_ref().map(|channel| channel.to_uppercase());
        let fields = [
            ("id", json!(self.id)),
            ("event_id", json!(self.event)),
            ("stage", json!(self.stage)),
            ("channel", json!(channel)),
            ("provider", json!(self.provider)),
            ("reason", json!(self.reason)),
            ("error", json!(self.error)),
            ("cursor", json!(self.cursor)),
        ];
        fields
            .into_iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }
}

impl DeadLetters {
    pub async fn run(&self, client: &Client, as_json: bool) -> CommandResult {
        match self {
            DeadLetters::List(list) => list.run(client, as_json).await,
            DeadLetters::Replay(replay) => replay.run(client, as_json).await,
        }
    }
}

impl List {
    async fn run(&self, client: &Client, as_json: bool) -> CommandResult {
        let mut given = self.filter.given();
        let filtered = !given.is_empty();
        given.insert("limit".to_owned(), json!(self.limit));
        given.insert("replayed".to_owned(), json!(self.all));
        let page = list(client, &given).await?;
        if as_json {
            say!("{page}")?;
            return Ok(());
        }
        let dead_letters = page["items"].as_array().map(Vec::as_slice).unwrap_or_default();
        if dead_letters.is_empty() {
            say!("{}", if filtered { "no dead letter matches" } else { "there are no dead letters" })?;
            return Ok(());
        }
        let columns = columns();
        output::write(&table(dead_letters, self.all, Timestamp::now(), columns))?;
        if let Some(last) = page["next"].as_str() {
            say!("there may be more; continue with --cursor {last}")?;
        }
        let replay = client.invocation.command_lines("dead-letters replay --id ID", 4, columns);
        say!("\nto replay, by id or by any filter of list:\n{replay}")?;
        Ok(())
    }
}

async fn list(client: &Client, given: &Map<String, Value>) -> Result<Value, CommandError> {
    let parameter = |(name, value): (&String, &Value)| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        format!("{name}={}", encoded(&text))
    };
    let query: Vec<String> = given.iter().map(parameter).collect();
    client.get(&format!("/v1/dead-letters?{}", query.join("&"))).await
}

impl Replay {
    async fn run(&self, client: &Client, as_json: bool) -> CommandResult {
        let mut body = self.filter.given();
        let narrows = body.keys().any(|name| name != "cursor");
        if narrows == self.all {
            let what = if narrows {
                "--all cannot be combined with filters; use one or the other"
            } else {
                "no filter: use --id, --event, --stage, --channel, --provider, --reason or --error, or --all"
            };
            return Err(CommandError::Usage(what.to_owned()));
        }
        if self.all {
            body.insert("all".to_owned(), json!(true));
        }
        if let Some(limit) = self.limit {
            body.insert("limit".to_owned(), json!(limit));
        }
        let answer = client.post("/v1/dead-letters/replay", &Value::Object(body)).await?;
        let (replayed, skipped) = (count(&answer, "replayed"), count(&answer, "skipped_total"));
        let found_before = match self.filter.id {
            Some(id) if replayed + skipped == 0 => Some(replayed_before(client, id).await?),
            _ => None,
        };
        match found_before {
            _ if as_json => say!("{answer}")?,
            Some(when) => say!("{when}")?,
            None => output::write(&outcome(&answer, &client.invocation, columns()))?,
        }
        if replayed == 0 && skipped > 0 {
            return Err(anyhow!("nothing was replayed").into());
        }
        Ok(())
    }
}

/// Explains why nothing was replayed. A dead letter that somebody else replayed is no error; one that does not exist
/// is.
async fn replayed_before(client: &Client, id: i64) -> Result<String, CommandError> {
    let by_id = Map::from_iter([("id".to_owned(), json!(id)), ("replayed".to_owned(), json!(true))]);
    let page = list(client, &by_id).await?;
    let Some(dead_letter) = page["items"].get(0) else {
        return Err(CommandError::NotFound(format!("no dead letter has the id {id}")));
    };
    match dead_letter["replayed_at"].as_str() {
        Some(at) => Ok(format!("nothing to replay: dead letter {id} was already replayed at {at}")),
        None => Err(CommandError::NotFound(format!("dead letter {id} does not match the other filters"))),
    }
}

fn count(answer: &Value, field: &str) -> u64 {
    answer[field].as_u64().unwrap_or_default()
}

fn outcome(answer: &Value, invocation: &Invocation, columns: usize) -> String {
    let mut out = match count(answer, "replayed") {
        0 => "nothing to replay\n".to_owned(),
        count => {
            let tail = invocation.command_lines("tail", 4, columns);
            format!("replayed {count}; follow the events with\n{tail}\n")
        }
    };
    let skipped = answer["skipped"].as_array().map(Vec::as_slice).unwrap_or_default();
    let total = count(answer, "skipped_total");
    if total > 0 {
        let _ = writeln!(out, "skipped {total}:");
    }
    for dead_letter in skipped {
        let line = format!("{}  {}", dead_letter["id"], text(dead_letter, "reason"));
        let _ = writeln!(out, "{}", wrapped(&line, 2, 4, columns));
    }
    if let Some(more) = total.checked_sub(skipped.len() as u64).filter(|more| *more > 0) {
        let _ = writeln!(out, "  … and {more} more");
    }
    if let Some(last) = answer["next"].as_str() {
        let _ = writeln!(out, "there may be more; continue with --cursor {last}");
    }
    out
}

fn table(dead_letters: &[Value], with_replays: bool, now: Timestamp, columns: usize) -> String {
    let mut header = vec!["ID", "AGE", "STAGE", "EVENT", "RECIPIENT", "CHANNEL", "REASON"];
    if with_replays {
        header.insert(2, "REPLAYED");
    }
    let row = |dead_letter: &Value| {
        let mut cells = cells(dead_letter, now);
        if with_replays {
            cells.insert(2, age(dead_letter, "replayed_at", now));
        }
        Row { cells, note: error(dead_letter), ..Row::default() }
    };
    listing(&header, "ERROR", &dead_letters.iter().map(row).collect::<Vec<_>>(), columns)
}

fn cells(dead_letter: &Value, now: Timestamp) -> Vec<String> {
    let recipient = format!("{} {}", text(dead_letter, "recipient_type"), text(dead_letter, "recipient_id"));
    vec![
        dead_letter["id"].to_string(),
        age(dead_letter, "created_at", now),
        text(dead_letter, "stage").to_owned(),
        or_dash(text(dead_letter, "event_id")),
        or_dash(recipient.trim()),
        or_dash(text(dead_letter, "channel")),
        text(dead_letter, "reason").to_owned(),
    ]
}

/// The error on one line, without its leading code, which has a column of its own.
fn error(dead_letter: &Value) -> String {
    let error = text(dead_letter, "error");
    let code = format!("{}: ", text(dead_letter, "reason"));
    one_line(error.strip_prefix(&code).unwrap_or(error))
}

pub fn age(dead_letter: &Value, field: &str, now: Timestamp) -> String {
    let Some(at) = dead_letter[field].as_str().and_then(time::from_text) else { return "-".to_owned() };
    match time::between(at, now).as_secs() {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds @ 60..3_600 => format!("{} min", seconds / 60),
        seconds @ 3_600..172_800 => format!("{} h", seconds / 3_600),
        seconds => format!("{} d", seconds / 86_400),
    }
}

pub fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_letter_is_one_line_however_long_its_error() {
        let now = time::from_text("2026-01-21T12:00:00Z").unwrap();
        let dead_letter = |error: &str, created_at: &str| {
            json!({"id": 7, "stage": "send", "event_id": "evt-1", "recipient_type": "CUSTOMER", "recipient_id": "42",
                   "channel": "SMS", "reason": "EXHAUSTED", "error": error, "created_at": created_at})
        };
        let long = format!("EXHAUSTED: 503\nService {}", "ü".repeat(300));
        let shown = table(
            &[
                dead_letter(&long, "2026-01-21T11:59:18Z"),
                dead_letter("EXHAUSTED: busy", "2026-01-17T00:00:00Z"),
            ],
            false,
            now,
            160,
        );
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines.len(), 4, "{shown}");
        assert!(
            lines[1].starts_with("7   42 s  send   evt-1  CUSTOMER 42  SMS      EXHAUSTED  503 Service üü")
        );
        assert!(lines[1].ends_with('…') && lines[1].chars().count() <= 160, "{shown}");
        assert!(lines[2].starts_with("7   4 d ") && lines[2].ends_with("  busy"), "{shown}");
    }

    #[test]
    fn what_was_left_alone_is_named_and_the_rest_counted() {
        let answer = json!({"replayed": 0, "skipped": [{"id": 3, "reason": "its send is SENT"}], "skipped_total": 5,
            "next": "9"});
        let usual = Invocation::for_tests("http://127.0.0.1:8400", "campanile-data");
        let said = outcome(&answer, &usual, 80);
        assert_eq!(
            said,
            "nothing to replay\nskipped 5:\n  3 its send is SENT\n  … and 4 more\nthere may be more; \
             continue with --cursor 9\n"
        );
    }
}
