//! Renders a trace as a table: one line per person, one column per channel.

use std::collections::HashMap;
use std::fmt::Write;
use std::io::IsTerminal;

use campanile_domain::channel::Channel;
use campanile_domain::time::{self, Timestamp};
use comfy_table::presets::NOTHING;
use comfy_table::{Attribute, Cell, Color, ContentArrangement, Table};
use serde_json::Value;

use super::output::{columns, fill, padded, width, wrapped};
use super::stages::stages;

/// Shown for a websocket send: it is done, but there is no inbox yet in which anybody sees it.
pub const NO_INBOX_YET: &str = "no inbox yet";

/// The channel of a send, if this release knows it. The server may be newer.
pub fn channel(send: &Value) -> Option<Channel> {
    text(send, "channel").parse().ok()
}

/// The event, people × channels, and details where needed.
pub fn trace(trace: &Value) -> String {
    let event = &trace["event"];
    let mut out = String::new();
    let aggregate = format!("{}:{}", text(event, "aggregate_type"), text(event, "aggregate_id"));
    let event_type = bold(text(event, "event_type"));
    let heading = fill(&[&event_type, text(event, "event_id"), &aggregate], "  ", (0, 2), columns());
    let _ = writeln!(out, "{heading}");
    let _ = writeln!(out, "{}", wrapped(&life(trace), 0, 2, columns()));
    if let Some(error) = event["last_error"].as_str() {
        let _ = writeln!(out, "{}", red(&wrapped(error, 0, 2, columns())));
    }
    let sends = Sends::of(trace);
    let people = trace["decisions"].as_array().map(Vec::as_slice).unwrap_or_default();
    if people.is_empty() {
        let _ = write!(out, "{}", summary(trace));
    } else {
        let _ = writeln!(out, "\n{}", table(&[], people, |person, channel| sends.cell(person, channel)));
    }
    let _ = write!(out, "{}", details(people));
    let _ = write!(out, "{}", dead_letters(trace));
    let stages = stages(trace, columns());
    if !stages.is_empty() {
        let _ = writeln!(out, "\n{}\n{stages}", bold("Stages"));
    }
    if let Some(next) = trace["next"].as_str() {
        let _ = writeln!(out, "more recipients after {next}; show one with --user TYPE:ID");
    }
    out.trim_end().to_owned()
}

/// The part of a trace that the demo shows.
pub fn short(trace: &Value, place: &str) -> String {
    let event = &trace["event"];
    let heading = [text(event, "event_type"), text(event, "event_id"), place];
    let sends = Sends::of(trace);
    let people = trace["decisions"].as_array().map(Vec::as_slice).unwrap_or_default();
    table(&heading, people, |person, channel| sends.cell(person, channel))
}

/// The response of `explain`.
pub fn decisions(event_type: &str, aggregate: &str, answer: &Value) -> String {
    if let Some(detail) = answer["failure"]["detail"].as_str() {
        let line = format!("no recipients: {}: {detail}", text(&answer["failure"], "code"));
        return wrapped(&line, 0, 2, columns());
    }
    let people = answer["decisions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let heading = [event_type, aggregate];
    let cell = |person: &Value, channel: Channel| match verdict(person, channel) {
        "SEND" if channel.is_sent_on_receipt() => withheld(NO_INBOX_YET),
        "SEND" => sent("send"),
        _ => withheld(&why_not(person, channel)),
    };
    let mut out = format!("{}\n{}", table(&heading, people, cell), details(people));
    for audience in answer["empty_audiences"].as_array().into_iter().flatten() {
        let _ = writeln!(out, "no recipients in audience {}", audience.as_str().unwrap_or_default());
    }
    if answer["truncated"] == true {
        let _ = writeln!(out, "… and more recipients");
    }
    out.trim_end().to_owned()
}

/// What happened when, and the current status of the event.
fn life(trace: &Value) -> String {
    let event = &trace["event"];
    let begun = moment(event, "created_at");
    let mut parts = vec![format!("accepted {}", text(event, "created_at"))];
    for (word, column) in [("fanned out", "published_at"), ("closed", "processed_at")] {
        if let (Some(begun), Some(at)) = (begun, moment(event, column)) {
            parts.push(format!("{word} +{} ms", time::between(begun, at).as_millis()));
        }
    }
    let status = text(event, "status");
    let status = if status == "FAILED" { red(status) } else { bold(status) };
    let by = text(&trace["processed"], "instance");
    let by = if by.is_empty() { String::new() } else { format!(", by {by}") };
    format!("{status}: {}{by}", parts.join(", "))
}

/// Counts, for large audiences and events without decisions.
fn summary(trace: &Value) -> String {
    let processed = &trace["processed"];
    let mut out = String::new();
    if let Some(recipients) = processed["recipients"].as_u64().filter(|n| *n > 0) {
        let _ = writeln!(out, "\n{recipients} recipients considered, {} sends:", processed["sends"]);
        for (channel, verdicts) in processed["counts"].as_object().into_iter().flatten() {
            let verdicts: Vec<String> =
                verdicts.as_object().into_iter().flatten().map(|(v, n)| format!("{v} {n}")).collect();
            let verdicts = wrapped(&verdicts.join(", "), 13, 13, columns());
            let _ = writeln!(out, "  {channel:<10} {}", verdicts.trim_start());
        }
        let _ = writeln!(out, "show one recipient with --user TYPE:ID");
    }
    out
}

/// The rule behind each channel that was not used, if it says more than the verdict.
fn details(people: &[Value]) -> String {
    let mut out = String::new();
    for person in people {
        for channel in Channel::ALL {
            let detail = &person["details"][channel.as_str()];
            let Some(rule) = detail["rule"].as_str() else { continue };
            if verdict(person, channel) == "UNSUPPORTED" {
                continue;
            }
            let facts: Vec<String> = detail
                .as_object()
                .into_iter()
                .flatten()
                .filter(|(key, value)| *key != "rule" && *value != "*" && !value.is_null())
                .map(|(key, value)| format!("{key} {}", plain(value)))
                .collect();
            let who = who(person);
            let facts = if facts.is_empty() { String::new() } else { format!(" ({})", facts.join(", ")) };
            let line = format!("{who}: no {channel}, {}: {rule}{facts}", verdict(person, channel));
            let _ = writeln!(out, "{}", wrapped(&line, 2, 6, columns()));
        }
    }
    if out.is_empty() { out } else { format!("\n{}\n{out}", bold("Why not")) }
}

fn dead_letters(trace: &Value) -> String {
    let dead_letters = trace["dead_letters"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut out = String::new();
    for dead_letter in dead_letters {
        let whom = ["stage", "recipient_type", "recipient_id", "channel"]
            .map(|column| text(dead_letter, column))
            .join(" ");
        let line = format!("{}: {}", whom.trim(), text(dead_letter, "error"));
        let _ = writeln!(out, "{}", wrapped(&line, 2, 6, columns()));
    }
    if out.is_empty() { out } else { format!("\n{}\n{out}", bold("Dead letters")) }
}

/// The sends of a trace, by user and channel.
struct Sends<'a> {
    begun: Option<Timestamp>,
    by_key: HashMap<(&'a str, &'a str, &'a str), &'a Value>,
    outbox: HashMap<(&'a str, &'a str, &'a str), &'a Value>,
}

impl<'a> Sends<'a> {
    fn of(trace: &'a Value) -> Self {
        let index = |rows: &'a str, user_type: &'a str, user_id: &'a str| {
            let key =
                move |row: &'a Value| ((text(row, user_type), text(row, user_id), text(row, "channel")), row);
            trace[rows].as_array().into_iter().flatten().map(key).collect()
        };
        Sends {
            begun: moment(&trace["event"], "created_at"),
            by_key: index("sends", "user_type", "user_id"),
            outbox: index("outbox", "recipient_type", "recipient_id"),
        }
    }

    fn cell(&self, person: &Value, channel: Channel) -> Cell {
        if verdict(person, channel) != "SEND" {
            return withheld(&why_not(person, channel));
        }
        let key = (text(person, "user_type"), text(person, "user_id"), channel.as_str());
        if let Some(send) = self.by_key.get(&key) {
            return match (text(send, "status"), self.begun.zip(moment(send, "sent_at"))) {
                ("SENT", _) if channel.is_sent_on_receipt() => withheld(NO_INBOX_YET),
                ("SENT", Some((begun, at))) => {
                    sent(&format!("sent {} ms", time::between(begun, at).as_millis()))
                }
                ("FAILED", _) => failed(&format!("failed: {}", text(send, "last_error"))),
                ("DUE", _) => {
                    let due = format!("due {}", text(send, "next_attempt_at"));
                    under_way(&match send["deferrals"].as_u64() {
                        None | Some(0) => due,
                        Some(deferrals) => format!("deferred {deferrals}x, {due}"),
                    })
                }
                (status, _) => under_way(&status.to_lowercase().replace('_', " ")),
            };
        }
        match self.outbox.get(&key).map(|row| (text(row, "status"), text(row, "last_error"))) {
            Some(("FAILED", error)) => {
                failed(&format!("failed: {}", error.split(':').next().unwrap_or_default()))
            }
            Some((status, _)) => under_way(&status.to_lowercase()),
            None => under_way("waiting"),
        }
    }
}

/// One line per person and a column per channel. If that does not fit the screen, values that are equal for all move
/// below the table.
fn table(heading: &[&str], people: &[Value], cell: impl Fn(&Value, Channel) -> Cell) -> String {
    let columns = columns();
    let wide = wide_table(heading, people, &cell);
    let natural: usize =
        wide.column_max_content_widths().into_iter().map(|width| usize::from(width) + GAP).sum();
    if natural <= columns + GAP { lines(&wide) } else { narrow_table(heading, people, &cell, columns) }
}

/// Blanks between two columns.
const GAP: usize = 2;

fn wide_table(heading: &[&str], people: &[Value], cell: impl Fn(&Value, Channel) -> Cell) -> Table {
    let heading = heading.join("  ");
    let header = std::iter::once(heading.as_str()).chain(Channel::ALL.iter().map(|channel| channel.as_str()));
    let mut table = plain_table(header);
    for person in people {
        let who = format!(
            "  {:<18} {:<9} {} {}",
            text(person, "name"),
            text(person, "role"),
            text(person, "user_type"),
            text(person, "user_id")
        );
        let cells = Channel::ALL.iter().map(|&channel| cell(person, channel));
        table.add_row(std::iter::once(Cell::new(who)).chain(cells));
    }
    pad(&mut table);
    table
}

/// A table that groups people by user type and wraps cells where necessary.
fn narrow_table(
    heading: &[&str],
    people: &[Value],
    cell: impl Fn(&Value, Channel) -> Cell,
    columns: usize,
) -> String {
    let same = |channel: Channel| -> Option<String> {
        let cells =
            || people.iter().map(|person| (verdict(person, channel), cell(person, channel).content()));
        let (_, first) = cells().next()?;
        let withheld =
            cells().all(|(verdict, text)| text == first && (verdict != "SEND" || text == NO_INBOX_YET));
        withheld.then_some(first)
    };
    let (same, shown): (Vec<_>, Vec<_>) =
        Channel::ALL.iter().map(|&channel| (channel, same(channel))).partition(|(_, same)| same.is_some());
    let first_type = people.first().map(|person| text(person, "user_type")).unwrap_or_default();
    let channels = shown.iter().map(|(channel, _)| channel.as_str());
    let group = format!("  {first_type}");
    let mut table = plain_table([group.as_str(), ""].into_iter().chain(channels));
    let id_width = people.iter().map(|person| width(text(person, "user_id"))).max().unwrap_or_default();
    let mut user_type = first_type;
    for person in people {
        if text(person, "user_type") != user_type {
            user_type = text(person, "user_type");
            table.add_row([Cell::new(format!("  {user_type}")).add_attribute(Attribute::Bold)]);
        }
        let who = format!("  {}  {}", padded(text(person, "user_id"), id_width), text(person, "name"));
        let cells = shown.iter().map(|&(channel, _)| cell(person, channel));
        table.add_row([Cell::new(who.trim_end()), Cell::new(text(person, "role"))].into_iter().chain(cells));
    }
    pad(&mut table);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(u16::try_from(columns + GAP).unwrap_or(u16::MAX));
    let mut out = lines(&table);
    if !heading.is_empty() {
        out = format!("{}\n{out}", bold(&fill(heading, "  ", (0, 2), columns)));
    }
    let same: Vec<String> = same
        .iter()
        .map(|(channel, why)| format!("{channel}: {}", why.as_deref().unwrap_or_default()))
        .collect();
    if !same.is_empty() {
        let _ = write!(out, "\n{}", wrapped(&same.join("; "), 2, 4, columns));
    }
    out
}

fn plain_table<'a>(header: impl Iterator<Item = &'a str>) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING);
    table.set_header(header.map(|name| Cell::new(name).add_attribute(Attribute::Bold)));
    table
}

fn pad(table: &mut Table) {
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
}

fn lines(table: &Table) -> String {
    table.to_string().lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}

/// Colours: green for sent, red for failed, yellow for in progress, and dim for channels that were not used.
fn sent(text: &str) -> Cell {
    Cell::new(text).fg(Color::Green)
}

fn failed(text: &str) -> Cell {
    Cell::new(text).fg(Color::Red)
}

fn under_way(text: &str) -> Cell {
    Cell::new(text).fg(Color::Yellow)
}

fn withheld(text: &str) -> Cell {
    Cell::new(text).add_attribute(Attribute::Dim)
}

fn verdict(person: &Value, channel: Channel) -> &str {
    person["channels"][channel.as_str()].as_str().unwrap_or_default()
}

/// A verdict in a few words, with the fact behind it.
fn why_not(person: &Value, channel: Channel) -> String {
    let detail = &person["details"][channel.as_str()];
    match verdict(person, channel) {
        "ROLE" => format!("only {}", plain(&detail["roles"])),
        "LOW_PRIORITY" => format!("only {}", plain(&detail["min_priority"])),
        "QUIET_HOURS" => format!("quiet {}", plain(&detail["quiet_hours"])),
        "MAX_RECIPIENTS" => format!("beyond max {}", plain(&detail["max_recipients"])),
        other => other.to_lowercase().replace('_', " "),
    }
}

fn who(person: &Value) -> String {
    let user = format!("{} {}", text(person, "user_type"), text(person, "user_id"));
    match text(person, "name") {
        "" => user,
        name => format!("{name} ({user})"),
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

fn moment(value: &Value, field: &str) -> Option<Timestamp> {
    time::from_text(value[field].as_str()?)
}

fn bold(text: &str) -> String {
    styled("1", text)
}

fn red(text: &str) -> String {
    styled("31", text)
}

fn styled(code: &str, text: &str) -> String {
    if std::io::stdout().is_terminal() { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
}
