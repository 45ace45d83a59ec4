//! The command line against a server: its output and exit codes.

use std::io::Write;
use std::process::Stdio;

use campanile_testkit::on_both;
use serde_json::{Value, json};

use crate::interface::command::{Ran, Watched, cli};
use crate::interface::fresh::{Fresh, encoded, event, with};
use crate::support::home::campanile;
use crate::support::{Backend, reservation, staff, until};

const WORLD: &str = include_str!("../../../presets/demo.json");
const RESERVATION: [&str; 4] = ["--type", "RESERVATION_REQUESTED", "--aggregate", "RESTAURANT:5"];

fn run(server: &Fresh, first: &[&str], rest: &[&str]) -> Ran {
    cli(server, &[first, rest].concat())
}

/// Loads the preset and the people of the demo.
async fn world(server: &Fresh) {
    cli(server, &["preset", "load", "restaurant"]).succeeded();
    let world: Value = serde_json::from_str(WORLD).unwrap();
    for table in ["entities", "recipients", "preferences", "settings"] {
        server.put(&format!("/v1/{table}"), world[table].clone()).await;
    }
}

#[track_caller]
fn assert_line(said: &str, parts: &[&str]) {
    let found = said.lines().any(|line| parts.iter().all(|part| line.contains(part)));
    assert!(found, "no line has {parts:?}:\n{said}");
}

async fn a_trace_says_why_bruno_got_no_push(backend: Backend) {
    let server = Fresh::start(backend);
    world(&server).await;
    run(&server, &["emit", "--id", "evt 1/ü"], &RESERVATION).succeeded();
    server.settled("evt%201%2F%C3%BC").await;
    let said = cli(&server, &["trace", "evt 1/ü"]).succeeded();
    assert_line(&said, &["RESERVATION_REQUESTED", "evt 1/ü", "RESTAURANT:5"]);
    assert_line(&said, &["PROCESSED", "accepted", "fanned out"]);
    assert_line(&said, &["Anna Rossi", "MANAGER", "RESTAURANT_USER 1", "sent"]);
    assert_line(&said, &["Bruno Conti", "sent", "user off", "only MANAGER", "no inbox yet", "not routed"]);
    assert_line(&said, &["Bruno Conti", "no PUSH", "USER_OFF", "user_notification_preferences"]);

    let of_one = cli(&server, &["trace", "evt 1/ü", "--user", "RESTAURANT_USER:2"]).succeeded();
    assert!(of_one.contains("Bruno Conti") && !of_one.contains("Anna Rossi"), "{of_one}");
    let printed = cli(&server, &["--json", "trace", "evt 1/ü"]).json();
    assert_eq!(printed, server.get("/v1/events/evt%201%2F%C3%BC").await);

    cli(&server, &["trace", "evt-404"]).failed(3, &["`evt-404`"]);
    cli(&server, &["--json", "trace", "evt-404"]).failed(3, &["`evt-404`"]);
    cli(&server, &["trace", "evt 1/ü", "--user", "2"]).failed(2, &["--user", "`2`", "RESTAURANT_USER:2"]);

    // For a failed event the failure comes first.
    cli(&server, &["emit", "--type", "ECLIPSE", "--aggregate", "MOON:1", "--id", "evt-2"]).succeeded();
    server.settled("evt-2").await;
    let said = cli(&server, &["trace", "evt-2"]).succeeded();
    assert_line(&said, &["FAILED"]);
    assert_line(&said, &["NO_AUDIENCE: ", "PUT /v1/audiences"]);
}

async fn emit_hands_in_an_event(backend: Backend) {
    let server = Fresh::start(backend);
    server.put("/v1/recipients", staff()).await;
    let payload = r#"{"guest": "John Doe", "party": 4}"#;
    let said = run(&server, &["emit", "--id", "evt-1", "--payload", payload], &RESERVATION).succeeded();
    assert!(said.contains("accepted evt-1") && said.contains("trace evt-1"), "{said}");
    // It is the same event as over HTTP.
    assert_eq!(server.emit(&reservation("evt-1")).await["created"], false);
    let again = run(&server, &["emit", "--id", "evt-1", "--payload", payload], &RESERVATION).succeeded();
    assert!(again.contains("already accepted") && again.contains("evt-1"), "{again}");
    let json = run(&server, &["emit", "--json", "--id", "evt-1", "--payload", payload], &RESERVATION).json();
    assert_eq!(json, json!({"event_id": "evt-1", "created": false}));
    run(&server, &["emit", "--id", "evt-1"], &RESERVATION)
        .failed(1, &["different body", "nothing was changed"]);

    // Without an id each one is another event.
    let ids = [(); 2].map(|()| run(&server, &["emit", "--json"], &RESERVATION).json()["event_id"].clone());
    assert_ne!(ids[0], ids[1]);
    server.settled(ids[1].as_str().unwrap()).await;

    let file = server.folder().join("payload.json");
    std::fs::write(&file, payload).unwrap();
    let from_file = format!("@{}", file.display());
    run(&server, &["emit", "--id", "evt-2", "--priority", "HIGH", "--payload", &from_file], &RESERVATION)
        .succeeded();
    let event = &server.settled("evt-2").await["event"];
    assert_eq!((&event["payload"]["party"], &event["priority"]), (&json!(4), &json!("HIGH")));

    let mut piped = campanile(server.folder());
    piped.args(["--url", &server.url, "emit", "--id", "evt-3", "--payload", "@-"]).args(RESERVATION);
    let mut child = piped.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(payload.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(server.settled("evt-3").await["event"]["payload"]["guest"], "John Doe");
}

async fn mistakes_are_told_with_what_to_do(backend: Backend) {
    let server = Fresh::start(backend);
    for (arguments, code, words) in [
        (["emit", "--type", "T", "--aggregate", "RESTAURANT"].as_slice(), 2, ["--aggregate", "TYPE:ID"]),
        (&["explain", "--type", "T", "--aggregate", "5"], 2, ["--aggregate", "TYPE:ID"]),
        (&["emit", "--type", "T", "--aggregate", "R:5", "--payload", "{nope"], 2, ["--payload", "JSON"]),
        (
            &["emit", "--type", "T", "--aggregate", "R:5", "--payload", "@/none.json"],
            1,
            ["--payload", "/none.json"],
        ),
        (&["emit", "--type", "T", "--aggregate", "R:5", "--payload", "[]"], 2, ["--payload", "object"]),
        (
            &["emit", "--type", "T", "--aggregate", "R:5", "--payload", "{\"n\": 1e400}"],
            2,
            ["--payload", "`/n`"],
        ),
        (&["emit", "--type", "T", "--aggregate", "R:5", "--priority", "URGENT"], 1, ["/priority", "HIGH"]),
        (&["emit", "--type", "T", "--aggregate", "R:"], 1, ["/aggregate_id", "empty"]),
        (&["emit", "--type", "T"], 2, ["--aggregate", "Usage"]),
        (&["explain", "--type", "T", "--aggregate", "R:5", "--at", "noon"], 1, ["/at", "RFC 3339"]),
        (&["trace"], 2, ["EVENT_ID", "Usage"]),
        (&["frobnicate"], 2, ["frobnicate", "Usage"]),
        (&[], 2, ["emit", "Usage"]),
        (&["--colour", "red", "trace", "x"], 2, ["--colour", "Usage"]),
        (&["--key", "wrong", "trace", "x"], 1, ["key", "admin.key"]),
    ] {
        cli(&server, arguments).failed(code, &words);
    }
    assert_eq!(server.items("/v1/events").await.len(), 0);

    let mut elsewhere = campanile(server.folder());
    elsewhere.args(["--url", "http://127.0.0.1:1", "trace", "x"]);
    Ran::of(&mut elsewhere)
        .failed(1, &["http://127.0.0.1:1", "campanile --data-dir", "serve --listen 127.0.0.1:1"]);
    let mut keyless = campanile(server.folder());
    keyless.env_remove("CAMPANILE_AUTH__ADMIN_KEY").args(["--url", &server.url, "trace", "x"]);
    Ran::of(&mut keyless).failed(1, &["no API key", "--key", "admin.key"]);

    for (flag, word) in [("--help", "explain"), ("--version", "campanile ")] {
        assert!(cli(&server, &[flag]).succeeded().contains(word));
    }
}

async fn explain_answers_before_anything_is_sent(backend: Backend) {
    let server = Fresh::start(backend);
    world(&server).await;
    let said = run(&server, &["explain", "--at", "2026-01-21T12:00:00Z"], &RESERVATION).succeeded();
    assert_line(&said, &["RESERVATION_REQUESTED", "RESTAURANT:5", "EMAIL", "WEBSOCKET"]);
    assert_line(&said, &["Bruno Conti", "RESTAURANT_USER 2", "send", "user off", "only MANAGER"]);
    assert_line(&said, &["Bruno Conti", "no PUSH", "USER_OFF"]);
    assert_line(&said, &["Carla Greco", "no EMAIL", "QUIET_HOURS", "00:00-23:59", "Europe/Rome"]);
    // A minute before midnight Carla's quiet hours are over.
    let late = run(&server, &["explain", "--at", "2026-01-21T22:59:30Z"], &RESERVATION).succeeded();
    assert!(said.contains("quiet 00:00-23:59") && !late.contains("quiet"), "{late}");
    let high = run(&server, &["explain", "--priority", "HIGH"], &RESERVATION).succeeded();
    assert!(!high.contains("quiet"), "{high}");

    let nobody = cli(&server, &["explain", "--type", "ECLIPSE", "--aggregate", "MOON:1"]).succeeded();
    assert!(nobody.contains("no recipients: NO_AUDIENCE"), "{nobody}");
    let asked = event("any", "RESERVATION_REQUESTED", "RESTAURANT", 5);
    let asked = with(&asked, &json!({"at": "2026-01-21T12:00:00Z"}));
    let printed = run(&server, &["explain", "--json", "--at", "2026-01-21T12:00:00Z"], &RESERVATION).json();
    assert_eq!(printed, server.post("/v1/explain", &asked).await.body);
    assert_eq!(server.items("/v1/events").await.len(), 0);
}

async fn tail_shows_events_as_they_come_and_how_they_end(backend: Backend) {
    let server = Fresh::start(backend);
    server.put("/v1/recipients", staff()).await;
    for n in 1..=3 {
        server.emit(&reservation(&format!("old-{n}"))).await;
        server.settled(&format!("old-{n}")).await;
    }
    let tail = |arguments: &[&str]| {
        let mut command = campanile(server.folder());
        Watched::start(command.args(["--url", &server.url, "tail"]).args(arguments))
    };
    let (mut people, programs, fresh) = (tail(&["-n", "2"]), tail(&["--json"]), tail(&["-n", "0"]));
    people.line(&["PROCESSED", "RESERVATION_REQUESTED", "RESTAURANT:5", "old-3"]).await;
    assert_eq!(people.lines().len(), 2, "{:?}", people.lines());
    programs.line(&["old-1"]).await;

    server.emit(&reservation("new-1")).await;
    server.emit(&event("new-2", "ECLIPSE", "MOON", 1)).await;
    people.line(&["PROCESSED", "new-1"]).await;
    people.line(&["FAILED", "MOON:1", "new-2", "NO_AUDIENCE"]).await;
    let line = programs.line(&["PROCESSED", "new-1"]).await;
    let event: Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&event["event_id"], &event["status"]), (&json!("new-1"), &json!("PROCESSED")));
    // This one prints nothing until something happens, so it is unknown when it has started to watch.
    let mut count = 0;
    until("a tail without a past shows what comes", async || {
        count += 1;
        server.emit(&reservation(&format!("newer-{count}"))).await;
        fresh.lines().iter().any(|line| line.contains("newer-")).then_some(())
    })
    .await;
    assert!(fresh.lines().iter().all(|line| !line.contains("old-")), "{:?}", fresh.lines());
    assert!(people.terminate().success());
}

/// Text that a producer may write by SQL, and that a terminal would obey.
async fn nothing_that_sql_wrote_reaches_the_terminal_as_a_command(backend: Backend) {
    const HARMFUL: &str = "x\u{1b}[2J\u{9b}31m\u{7f}\u{202e}";
    let server = Fresh::start(backend);
    let insert = format!(
        "INSERT INTO event_outbox (event_id, event_type, aggregate_type, aggregate_id)
         VALUES ('{HARMFUL}', 'T\n{HARMFUL}', 'A{HARMFUL}', '5');
         INSERT INTO dead_letter (stage, event_id, recipient_type, recipient_id, reason, error, created_at)
         VALUES ('send', '{HARMFUL}', 'T{HARMFUL}', '1{HARMFUL}', 'R{HARMFUL}', '{HARMFUL}\nbusy',
             '2026-01-21T10:15:30Z')"
    );
    server.execute(&insert).await;
    let path = encoded(HARMFUL);
    server.settled(&path).await;
    let tail = Watched::start(campanile(server.folder()).args(["--url", &server.url, "tail"]));
    let shown = tail.line(&["x\\u001b[2J"]).await;
    let lists = [vec!["trace", HARMFUL], vec!["dead-letters", "list"]];
    for list in lists {
        for as_json in [false, true] {
            let said =
                if as_json { cli(&server, &[&["--json"], &list[..]].concat()) } else { cli(&server, &list) };
            let said = said.succeeded();
            assert!(!said.chars().any(|c| c != '\n' && c.is_control() || c == '\u{202e}'), "{said:?}");
            assert!(said.contains("x\\u001b[2J\\u009b31m\\u007f\\u202e"), "{said:?}");
        }
    }
    assert!(!shown.chars().any(char::is_control), "{shown:?}");
    let printed = cli(&server, &["--json", "trace", HARMFUL]).json();
    assert_eq!(printed["event"]["event_id"], HARMFUL, "programs get it as it is");
    let unknown = "missing\u{1b}[2J";
    let ran = cli(&server, &["trace", unknown]);
    assert!(!ran.err.contains('\u{1b}'), "{ran:?}");
    ran.failed(3, &["missing\\u001b[2J"]);
}

on_both! {
    a_trace_says_why_bruno_got_no_push;
    emit_hands_in_an_event;
    mistakes_are_told_with_what_to_do;
    explain_answers_before_anything_is_sent;
    tail_shows_events_as_they_come_and_how_they_end;
    nothing_that_sql_wrote_reaches_the_terminal_as_a_command;
}
