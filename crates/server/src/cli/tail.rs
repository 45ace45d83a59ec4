//! `campanile tail`: shows events as they arrive, and how they end.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use serde_json::Value;

use super::client::Client;
use super::output::{self, columns, fill, padded, width, wrapped};
use super::{CommandError, CommandResult};

const INTERVAL: Duration = Duration::from_millis(500);
const PAGE: usize = 1_000;
/// The most open events that are followed; beyond it the oldest are dropped.
const MAX_FOLLOWED: usize = 2_000;
/// The most pages of open events that are polled between two polls for new events.
const MAX_OPEN_PAGES: usize = 5;

#[derive(Debug, Args)]
pub struct Tail {
    /// Number of existing events to show first
    #[arg(long, short = 'n', default_value_t = 10)]
    lines: usize,
}

impl Tail {
    pub async fn run(&self, client: &Client, as_json: bool) -> CommandResult {
        tokio::select! {
            ended = self.follow(client, as_json) => ended,
            () = crate::app::told_to_stop() => Ok(()),
        }
    }

    async fn follow(&self, client: &Client, as_json: bool) -> CommandResult {
        let mut followed = Followed { seen: self.start(client).await?, ..Followed::default() };
        loop {
            let events = page(client, followed.seen).await?;
            print(followed.new_events(&events), as_json).await?;
            for _ in 0..MAX_OPEN_PAGES {
                let Some(after) = followed.next_page() else { break };
                let again = page(client, after).await?;
                print(followed.changes(&again), as_json).await?;
            }
            if events.len() < PAGE {
                tokio::time::sleep(INTERVAL).await;
            }
        }
    }

    /// The cursor at which to start.
    async fn start(&self, client: &Client) -> Result<i64, CommandError> {
        let page = client.get(&format!("/v1/events?limit={}", self.lines.clamp(1, PAGE))).await?;
        let items = page["items"].as_array().cloned().unwrap_or_default();
        let first = if self.lines == 0 { items.first() } else { items.last() };
        let id = first.map(id).unwrap_or_default();
        Ok(if self.lines == 0 { id } else { (id - 1).max(0) })
    }
}

async fn page(client: &Client, after: i64) -> Result<Vec<Value>, CommandError> {
    let mut page = client.get(&format!("/v1/events?order=oldest&cursor={after}&limit={PAGE}")).await?;
    match page["items"].take() {
        Value::Array(events) => Ok(events),
        _ => Ok(Vec::new()),
    }
}

/// What has been shown. New and open events are polled separately, so that an event that stays open does not delay
/// newer ones.
#[derive(Debug, Default)]
struct Followed {
    /// The newest event that has been shown.
    seen: i64,
    /// Open events by their position in the list, with the status that was last shown.
    open: BTreeMap<i64, String>,
    /// Open events up to this position were polled in the current round.
    polled_to: i64,
}

impl Followed {
    /// Records new events and returns them.
    fn new_events(&mut self, events: &[Value]) -> Vec<Value> {
        for event in events {
            self.keep(event);
            self.seen = self.seen.max(id(event));
        }
        while self.open.len() > MAX_FOLLOWED {
            self.open.pop_first();
        }
        events.to_vec()
    }

    /// The cursor of the next page with open events. `None` at the end of a round; the next call starts again.
    fn next_page(&mut self) -> Option<i64> {
        let next = self.open.range(self.polled_to + 1..).next().map(|(id, _)| id - 1);
        if next.is_none() {
            self.polled_to = 0;
        }
        next
    }

    /// Takes a page of events that have been shown, and returns those with another status.
    fn changes(&mut self, events: &[Value]) -> Vec<Value> {
        let known = events.iter().take_while(|event| id(event) <= self.seen);
        let last = known.clone().last().map_or(self.seen, id);
        let changed: Vec<Value> = known
            .filter(|event| self.open.get(&id(event)).is_some_and(|shown| shown != status(event)))
            .cloned()
            .collect();
        for event in &changed {
            self.keep(event);
        }
        self.polled_to = last;
        changed
    }

    fn keep(&mut self, event: &Value) {
        if ["PENDING", "PUBLISHED"].contains(&status(event)) {
            self.open.insert(id(event), status(event).to_owned());
        } else {
            self.open.remove(&id(event));
        }
    }
}

fn id(event: &Value) -> i64 {
    event["id"].as_i64().unwrap_or_default()
}

fn status(event: &Value) -> &str {
    event["status"].as_str().unwrap_or_default()
}

/// Prints on a thread of its own: a reader that has stopped reading must not prevent the command from ending.
async fn print(events: Vec<Value>, as_json: bool) -> CommandResult {
    if events.is_empty() {
        return Ok(());
    }
    let columns = columns();
    let lines: String = events
        .iter()
        .map(|event| if as_json { format!("{event}\n") } else { format!("{}\n", line(event, columns)) })
        .collect();
    tokio::task::spawn_blocking(move || output::write(&lines)).await??;
    Ok(())
}

/// On narrower screens the date and the fractions of a second are left out; `--json` has them.
const WIDE: usize = 100;

fn line(event: &Value, columns: usize) -> String {
    let text = |field: &str| event[field].as_str().unwrap_or_default();
    let when = ["processed_at", "published_at", "created_at"].into_iter().map(text).find(|t| !t.is_empty());
    let when = when.unwrap_or_default();
    let when = if columns < WIDE { when.get(11..19).unwrap_or(when) } else { when };
    let aggregate = format!("{}:{}", text("aggregate_type"), text("aggregate_id"));
    let status = format!("{:<9}", text("status"));
    let event_type = padded(text("event_type"), 28);
    let event_type = if columns < WIDE { text("event_type") } else { &event_type };
    let line = fill(&[when, &status, event_type, &aggregate, text("event_id")], "  ", (0, 4), columns);
    match text("last_error") {
        "" => line,
        error if width(&line) + 2 + width(error) <= columns => format!("{line}  {error}"),
        error => format!("{line}\n{}", wrapped(error, 4, 4, columns)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn events(ids: std::ops::RangeInclusive<i64>, status: &str) -> Vec<Value> {
        ids.map(|id| json!({ "id": id, "status": status })).collect()
    }

    #[test]
    fn one_that_stays_open_keeps_nothing_from_being_seen() {
        let mut followed = Followed::default();
        followed.new_events(&events(1..=1, "PENDING"));
        for first in [2, 1_002, 2_002] {
            assert_eq!(followed.new_events(&events(first..=first + 999, "PROCESSED")).len(), PAGE);
            assert_eq!(followed.seen, first + 999, "the next page lies behind");
        }
        assert_eq!(followed.next_page(), Some(0));
        let mut again = events(1..=1, "PENDING");
        again.extend(events(2..=1_000, "PROCESSED"));
        assert!(followed.changes(&again).is_empty());
        assert_eq!(followed.next_page(), None, "a round ends");
        assert_eq!(followed.next_page(), Some(0), "and the next begins");
        again[0]["status"] = json!("FAILED");
        assert_eq!(followed.changes(&again), [again[0].clone()]);
        assert_eq!((followed.next_page(), followed.next_page()), (None, None), "nothing is open any more");
    }

    #[test]
    fn open_ones_are_polled_page_by_page_and_the_oldest_are_given_up() {
        let mut followed = Followed::default();
        followed.new_events(&events(1..=3_000, "PENDING"));
        assert_eq!((followed.open.len(), followed.next_page()), (MAX_FOLLOWED, Some(1_000)));
        assert!(followed.changes(&events(1_001..=2_000, "PENDING")).is_empty());
        assert_eq!(followed.next_page(), Some(2_000));
        assert_eq!(
            followed.changes(&events(2_001..=3_100, "PROCESSED")).len(),
            1_000,
            "3001 was never shown"
        );
        assert_eq!((followed.next_page(), followed.next_page()), (None, Some(1_000)));
    }
}
