//! The table of `campanile trace`, for traces as a server answered them.
//!
//! `INSTA_UPDATE=always cargo nextest run trace_table` writes the snapshots anew.

use std::process::Command;

use campanile_testkit::provider::http::{Replies, Reply, Request, Server};
use serde_json::{Value, json};

use crate::interface::command::Ran;
use crate::interface::fresh::with;
use crate::support::home::campanile;

const DELIVERED: &str = include_str!("traces/delivered.json");
const NOBODY: &str = include_str!("traces/nobody.json");

fn parsed(trace: &str) -> Value {
    serde_json::from_str(trace).unwrap()
}

#[expect(clippy::unnecessary_wraps, reason = "a server's check may refuse a request, this one takes each")]
fn asked(request: &Request) -> Result<Option<String>, String> {
    Ok(Some(request.line.clone()))
}

/// What the command prints on a screen of this width.
async fn printed(trace: &Value, columns: usize) -> String {
    let answer = trace.to_string();
    let replies = Replies::ByRequest(Box::new(move |_: &String| Reply::json(200, &answer)));
    let server = Server::start_with(asked, replies).await;
    let folder = tempfile::tempdir().unwrap();
    let mut command: Command = campanile(folder.path());
    command.args(["--url", &format!("http://{}", server.address), "trace", "evt-0"]);
    let printed = Ran::of(command.env("COLUMNS", columns.to_string())).succeeded();
    assert_eq!(server.requests(), ["GET /v1/events/evt-0 HTTP/1.1"]);
    printed
}

/// Changes the only row of a list about this user and channel.
fn change(trace: &mut Value, list: &str, user: &str, channel: &str, fields: &Value) {
    let user_id = if list == "outbox" { "recipient_id" } else { "user_id" };
    let rows = trace[list].as_array_mut().unwrap();
    let row = rows.iter_mut().find(|row| row[user_id] == user && row["channel"] == channel).unwrap();
    *row = with(row, fields);
}

fn remove_send(trace: &mut Value, user: &str, channel: &str) {
    let sends = trace["sends"].as_array_mut().unwrap();
    sends.retain(|send| send["user_id"] != user || send["channel"] != channel);
}

fn with_failures() -> Value {
    let mut trace = parsed(DELIVERED);
    let failed = json!({"status": "FAILED", "sent_at": null, "last_error": "REJECTED: 550 no such user"});
    change(&mut trace, "sends", "1", "EMAIL", &failed);
    let unwritten =
        "TEMPLATE_ERROR: template RESERVATION_REQUESTED/PUSH/*/title, line 1: nothing is undefined";
    remove_send(&mut trace, "3", "PUSH");
    change(&mut trace, "outbox", "3", "PUSH", &json!({"status": "FAILED", "last_error": unwritten}));
    let dead_letter = |stage: &str, user: &str, channel: &str, error: &str| {
        json!({"stage": stage, "recipient_type": "RESTAURANT_USER", "recipient_id": user, "channel": channel,
               "error": error})
    };
    trace["dead_letters"] = json!([
        dead_letter("send", "1", "EMAIL", "REJECTED: 550 no such user"),
        dead_letter("fan_out", "3", "PUSH", unwritten),
    ]);
    trace
}

fn waiting() -> Value {
    let mut trace = parsed(DELIVERED);
    trace["event"] = with(&trace["event"], &json!({"status": "PUBLISHED", "processed_at": null}));
    let due = json!({"status": "DUE", "sent_at": null, "next_attempt_at": "2026-11-19T03:53:08.000Z"});
    change(&mut trace, "sends", "1", "EMAIL", &due);
    change(&mut trace, "sends", "2", "EMAIL", &with(&due, &json!({"deferrals": 2})));
    change(&mut trace, "sends", "1", "PUSH", &json!({"status": "SENDING", "sent_at": null}));
    change(&mut trace, "sends", "1", "SMS", &json!({"status": "IN_DOUBT", "sent_at": null}));
    remove_send(&mut trace, "4", "EMAIL");
    change(&mut trace, "outbox", "4", "EMAIL", &json!({"status": "PUBLISHED"}));
    trace
}

/// A large audience has counts instead of decisions.
fn large() -> Value {
    let mut trace = parsed(DELIVERED);
    let counts = json!({"EMAIL": {"SEND": 70_000, "USER_OFF": 1_200}, "SMS": {"NO_ADDRESS": 71_200}});
    let processed = json!({"recipients": 71_200, "sends": 70_000, "counts": counts});
    trace["processed"] = with(&trace["processed"], &processed);
    with(&trace, &json!({"decisions": null, "sends": [], "outbox": [], "next": "CUSTOMER:7"}))
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_are_as_before() {
    let delivered = parsed(DELIVERED);
    let traces = [
        ("delivered", delivered.clone(), 160),
        ("delivered_on_80_columns", delivered, 80),
        ("nobody", parsed(NOBODY), 160),
        ("with_failures", with_failures(), 240),
        ("with_failures_on_80_columns", with_failures(), 80),
        ("waiting", waiting(), 240),
        ("waiting_on_80_columns", waiting(), 80),
        ("large", large(), 80),
    ];
    for (name, trace, columns) in traces {
        insta::assert_snapshot!(name, printed(&trace, columns).await);
    }
}
