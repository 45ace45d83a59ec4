//! `campanile sends`: lists sends as a table, and resolves sends in doubt, one by one or all that match.

use std::fmt::Write;

use anyhow::anyhow;
use campanile_domain::channel::Channel;
use campanile_domain::time::Timestamp;
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};

use super::client::{Client, encoded};
use super::dead_letters::{age, text};
use super::listing::{Row, listing, one_line, or_dash};
use super::output::{self, columns, cut, say, wrapped};
use super::trace_table::{NO_INBOX_YET, channel};
use super::{CommandError, CommandResult};

/// The most pages that are requested for one list. A page of the server may have fewer rows than requested, or none.
const MAX_PAGES: usize = 50;
/// Longer addresses are cut; push tokens have about 160 characters.
const MAX_ADDRESS_CHARS: usize = 40;
/// The most skipped sends that are listed with their reasons.
const MAX_LISTED: usize = 20;

#[derive(Debug, Subcommand)]
pub enum Sends {
    /// List sends: those in doubt and due oldest first, others newest first
    List(List),
    /// Resend sends in doubt; recipients that already got the message get it twice
    Resend(Resend),
    /// Settle sends in doubt whose outcome you know
    Settle(Settle),
}

#[derive(Debug, Args)]
pub struct List {
    #[arg(long, value_name = "STATUS", help = "DUE, SENDING, SENT, FAILED, IN_DOUBT or CANCELLED")]
    status: Option<String>,
    #[command(flatten)]
    filter: Filter,
    /// Maximum number to list, up to 1000
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: usize,
    /// Continue after an earlier list
    #[arg(long, value_name = "CURSOR")]
    cursor: Option<String>,
}

#[derive(Debug, Args)]
pub struct Resend {
    #[command(flatten)]
    chosen: Chosen,
}

#[derive(Debug, Args)]
pub struct Settle {
    #[command(flatten)]
    chosen: Chosen,
    /// The outcome
    #[arg(long = "as", value_name = "END", value_enum, ignore_case = true)]
    end: End,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
#[value(rename_all = "UPPER")]
enum End {
    Sent,
    Failed,
}

/// The sends in doubt to resolve
#[derive(Debug, Args)]
struct Chosen {
    /// Send ids, as shown by `sends list`
    #[arg(value_name = "ID")]
    ids: Vec<String>,
    /// Every send in doubt that matches the filters
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    filter: Filter,
    /// A note stored with the send
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
}

/// Filters; a send must match all that are given
#[derive(Debug, Args)]
struct Filter {
    /// EMAIL, PUSH, SMS, WEBSOCKET or SLACK
    #[arg(long, value_name = "CHANNEL")]
    channel: Option<String>,
    /// Sends of this event
    #[arg(long, value_name = "ID")]
    event: Option<String>,
    /// Sends to this user
    #[arg(long, value_name = "TYPE:ID")]
    user: Option<String>,
    /// Sends of this provider
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,
}

impl Filter {
    /// The given filters by their names in HTTP.
    fn given(&self) -> Result<Vec<(&'static str, String)>, CommandError> {
        let user = self.user.as_deref().map(|user| {
            let wrong =
                || CommandError::Usage(format!("--user: `{user}` is not TYPE:ID, such as CUSTOMER:42"));
            user.split_once(':').ok_or_else(wrong)
        });
        let (user_type, user_id) = user.transpose()?.unzip();
        let fields = [
            ("channel", self.channel.as_ref().map(|channel| channel.to_uppercase())),
            ("event_id", self.event.clone()),
            ("user_type", user_type.map(str::to_owned)),
            ("user_id", user_id.map(str::to_owned)),
            ("provider", self.provider.clone()),
        ];
        Ok(fields.into_iter().filter_map(|(name, value)| Some((name, value?))).collect())
    }
}

impl Sends {
    pub async fn run(&self, client: &Client, as_json: bool) -> CommandResult {
        match self {
            Sends::List(list) => list.run(client, as_json).await,
            Sends::Resend(resend) => {
                let body = json!({ "note": resend.chosen.note });
                resend.chosen.resolve(client, "resend", &body, as_json).await
            }
            Sends::Settle(settle) => {
                let end = match settle.end {
                    End::Sent => "SENT",
                    End::Failed => "FAILED",
                };
                let body = json!({ "as": end, "note": settle.chosen.note });
                settle.chosen.resolve(client, "settle", &body, as_json).await
            }
        }
    }
}

impl List {
    async fn run(&self, client: &Client, as_json: bool) -> CommandResult {
        let mut given = self.filter.given()?;
        if let Some(status) = &self.status {
            given.push(("status", status.to_uppercase().replace('-', "_")));
        }
        let page = gather(client, &given, self.cursor.clone(), self.limit).await?;
        if as_json {
            say!("{}", json!({ "items": page.items, "next": page.next }))?;
            return Ok(());
        }
        if page.items.is_empty() && page.next.is_none() {
            say!("{}", if given.is_empty() { "there are no sends" } else { "no send matches" })?;
            return Ok(());
        }
        let columns = columns();
        output::write(&table(&page.items, Timestamp::now(), columns))?;
        if let Some(next) = &page.next {
            say!("there may be more; continue with --cursor '{next}'")?;
        }
        if page.items.iter().any(|send| send["status"] == "IN_DOUBT") {
            let [resend, settle] = ["sends resend ID", "sends settle ID --as SENT|FAILED"]
                .map(|command| client.invocation.command_lines(command, 4, columns));
            say!("\nto resolve a send in doubt:\n{resend}\n{settle}")?;
        }
        Ok(())
    }
}

/// Rows of several pages.
struct Gathered {
    items: Vec<Value>,
    next: Option<String>,
}

/// Requests pages until there are enough rows.
async fn gather(
    client: &Client,
    given: &[(&str, String)],
    cursor: Option<String>,
    limit: usize,
) -> Result<Gathered, CommandError> {
    let mut found = Gathered { items: Vec::new(), next: cursor };
    for _ in 0..MAX_PAGES {
        let mut query: Vec<String> =
            given.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
        query.push(format!("limit={}", limit.saturating_sub(found.items.len())));
        query.extend(found.next.as_ref().map(|next| format!("cursor={}", encoded(next))));
        let mut page = client.get(&format!("/v1/sends?{}", query.join("&"))).await?;
        if let Value::Array(items) = page["items"].take() {
            found.items.extend(items);
        }
        found.next = page["next"].as_str().map(str::to_owned);
        if found.next.is_none() || found.items.len() >= limit {
            break;
        }
    }
    Ok(found)
}

impl Chosen {
    async fn resolve(&self, client: &Client, verb: &str, body: &Value, as_json: bool) -> CommandResult {
        let given = self.filter.given()?;
        let by_filter = self.all || !given.is_empty();
        if by_filter != self.ids.is_empty() || (!given.is_empty() && !self.all) {
            let what = "no sends selected: give ids, or --all with optional --channel, --event, --user and --provider";
            return Err(CommandError::Usage(what.to_owned()));
        }
        if let [id] = &self.ids[..] {
            let answer = post(client, id, verb, body).await?;
            if as_json {
                say!("{answer}")?;
            } else {
                say!("{id} is {} now", text(&answer, "status"))?;
            }
            return Ok(());
        }
        // All are listed first, so that sends that become in doubt meanwhile are not included.
        let ids = if self.all { all_in_doubt(client, given).await? } else { self.ids.clone() };
        let (mut done, mut left) = (0_usize, Vec::new());
        for id in &ids {
            match post(client, id, verb, body).await {
                Ok(_) => done += 1,
                Err(CommandError::NotFound(why)) => left.push((id, why)),
                Err(CommandError::Failed(error)) => left.push((id, error.to_string())),
                Err(other @ CommandError::Usage(_)) => return Err(other),
            }
        }
        if as_json {
            let left: Vec<Value> = left.iter().map(|(id, why)| json!({ "id": id, "reason": why })).collect();
            say!("{}", json!({ "resolved": done, "skipped": left }))?;
        } else {
            output::write(&outcome(verb, done, &left))?;
        }
        // A named send that was skipped is a failure. With `--all`, somebody else may have resolved it first.
        let failed = if self.all { done == 0 && !left.is_empty() } else { !left.is_empty() };
        if failed { Err(anyhow!("{} of {} were skipped", left.len(), ids.len()).into()) } else { Ok(()) }
    }
}

async fn post(client: &Client, id: &str, verb: &str, body: &Value) -> Result<Value, CommandError> {
    client.post(&format!("/v1/sends/{}/{verb}", encoded(id)), body).await
}

async fn all_in_doubt(
    client: &Client,
    mut given: Vec<(&'static str, String)>,
) -> Result<Vec<String>, CommandError> {
    const PAGE: usize = 1_000;
    given.push(("status", "IN_DOUBT".to_owned()));
    let (mut ids, mut cursor) = (Vec::new(), None);
    loop {
        let page = gather(client, &given, cursor, PAGE).await?;
        ids.extend(page.items.iter().map(|send| text(send, "id").to_owned()));
        cursor = page.next;
        if cursor.is_none() {
            return Ok(ids);
        }
    }
}

fn outcome(verb: &str, done: usize, left: &[(&String, String)]) -> String {
    let mut out = match (verb, done) {
        (_, 0) => "nothing was changed\n".to_owned(),
        ("resend", done) => format!("{done} are due again and will be sent now\n"),
        (_, done) => format!("settled {done}\n"),
    };
    if !left.is_empty() {
        let _ = writeln!(out, "skipped {}:", left.len());
    }
    for (_, why) in left.iter().take(MAX_LISTED) {
        let _ = writeln!(out, "{}", wrapped(why, 2, 4, columns()));
    }
    if let Some(more) = left.len().checked_sub(MAX_LISTED).filter(|more| *more > 0) {
        let _ = writeln!(out, "  … and {more} more");
    }
    out
}

fn table(sends: &[Value], now: Timestamp, columns: usize) -> String {
    let header = ["ID", "AGE", "STATUS", "EVENT", "RECIPIENT", "ADDRESS", "ATTEMPTS", "PROVIDER", "RECEIPT"];
    let row = |send: &Value| Row { cells: cells(send, now), note: note(send), below: message_id(send) };
    listing(&header, "ERROR", &sends.iter().map(row).collect::<Vec<_>>(), columns)
}

/// The cells of a row. For a send in doubt, the age counts from the doubt.
fn cells(send: &Value, now: Timestamp) -> Vec<String> {
    let since = if send["in_doubt_since"].is_null() { "created_at" } else { "in_doubt_since" };
    let recipient = format!("{} {}", text(send, "user_type"), text(send, "user_id"));
    vec![
        text(send, "id").to_owned(),
        age(send, since, now),
        text(send, "status").to_owned(),
        or_dash(text(send, "event_id")),
        or_dash(recipient.trim()),
        or_dash(&address(send)),
        attempts(send),
        or_dash(text(send, "provider")),
        or_dash(text(send, "receipt")),
    ]
}

/// The address; of several, the first and the number of others.
fn address(send: &Value) -> String {
    let address = one_line(text(send, "recipient_address"));
    match address.split_once(' ') {
        Some((first, others)) if channel(send).is_some_and(Channel::has_many_addresses) => {
            format!("{} +{}", cut(first, MAX_ADDRESS_CHARS), others.split(' ').count())
        }
        _ => cut(&address, MAX_ADDRESS_CHARS),
    }
}

/// The `Message-ID`, with which an e-mail can be found in the log of a mail server.
fn message_id(send: &Value) -> String {
    match text(send, "message_id") {
        "" => String::new(),
        id => format!("MESSAGE-ID {id}"),
    }
}

/// The number of attempts. Deferrals do not count as attempts and are shown separately.
fn attempts(send: &Value) -> String {
    match send["deferrals"].as_u64() {
        None | Some(0) => send["attempt_count"].to_string(),
        Some(deferrals) => format!("{} +{deferrals} deferred", send["attempt_count"]),
    }
}

fn note(send: &Value) -> String {
    match text(send, "last_error") {
        "" if channel(send).is_some_and(Channel::is_sent_on_receipt) => NO_INBOX_YET.to_owned(),
        error => one_line(error),
    }
}

#[cfg(test)]
mod tests {
    use campanile_domain::time;

    use super::*;

    #[test]
    fn a_send_is_one_line_with_the_age_of_its_doubt() {
        let now = time::from_text("2026-01-21T12:00:00Z").unwrap();
        let send = json!({
            "id": "0197:SMS", "status": "IN_DOUBT", "event_id": "evt-1", "user_type": "CUSTOMER", "user_id": "42",
            "recipient_address": "+39055", "attempt_count": 1, "provider": "twilio", "receipt": null,
            "created_at": "2026-01-20T12:00:00Z",
            "in_doubt_since": "2026-01-21T11:58:00Z", "last_error": format!("no\nanswer {}", "ü".repeat(300)),
        });
        let shown = table(&[send], now, 160);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines.len(), 3, "{shown}");
        assert!(
            lines[1].starts_with(
                "0197:SMS  2 min  IN_DOUBT  evt-1  CUSTOMER 42  +39055   1         twilio    -        no answer üü"
            ),
            "{shown}"
        );
        assert!(lines[1].ends_with('…') && lines[1].chars().count() <= 160, "{shown}");
    }

    #[test]
    fn addresses_and_message_ids_are_shown() {
        let of = |channel: &str, at: &str| address(&json!({ "channel": channel, "recipient_address": at }));
        assert_eq!(of("EMAIL", "\"anna rossi\"@example.com"), "\"anna rossi\"@example.com");
        assert_eq!(of("EMAIL", &"x".repeat(50)), format!("{}…", "x".repeat(39)));
        assert_eq!(of("PUSH", "one two three"), "one +2");
        assert_eq!((of("PUSH", "one").as_str(), of("WEBSOCKET", "").as_str()), ("one", ""));
        let send = json!({ "id": "0197:EMAIL", "message_id": "0197.email@example.com" });
        assert!(table(&[send], Timestamp::now(), 80).contains("\n  MESSAGE-ID 0197.email@example.com\n"));
    }

    #[test]
    fn deferrals_are_shown_beside_attempts() {
        let attempts = |deferrals| attempts(&json!({ "attempt_count": 0, "deferrals": deferrals }));
        assert_eq!((attempts(0).as_str(), attempts(3).as_str()), ("0", "0 +3 deferred"));
    }

    #[test]
    fn what_was_left_alone_is_named_and_the_rest_counted() {
        let id = "a".to_owned();
        let left: Vec<(&String, String)> = (0..22).map(|n| (&id, format!("{n} is SENT"))).collect();
        let said = outcome("resend", 3, &left);
        assert!(
            said.starts_with("3 are due again and will be sent now\nskipped 22:\n  0 is SENT\n"),
            "{said}"
        );
        assert!(said.ends_with("  19 is SENT\n  … and 2 more\n"), "{said}");
        assert_eq!(outcome("settle", 0, &[]), "nothing was changed\n");
    }
}
