//! Output fits the screen: 80 columns by default, else `COLUMNS` or the terminal's width. A reader that leaves early
//! ends a command quietly.

use std::process::{Command, Stdio};

use serde_json::{Value, json};
use unicode_width::UnicodeWidthStr;

use crate::interface::command::{Ran, Watched, cli};
use crate::interface::fresh::{Answer, Fresh, client, event};
use crate::support::home::campanile;
use crate::support::{Backend, until};

const WORLD: &str = include_str!("../../../presets/demo.json");

/// A server with the demo's people, a delivered event and two failed ones.
async fn world() -> Fresh {
    let server = Fresh::start(Backend::Embedded);
    cli(&server, &["preset", "load", "restaurant"]).succeeded();
    let world: Value = serde_json::from_str(WORLD).unwrap();
    for table in ["entities", "recipients", "preferences", "settings"] {
        server.put(&format!("/v1/{table}"), world[table].clone()).await;
    }
    let mut events = world["events"].as_array().unwrap().clone();
    for (number, event) in events.iter_mut().enumerate() {
        event["event_id"] = json!(format!("evt-{number}"));
    }
    events.push(event("evt-moon", "ECLIPSE", "MOON", 1));
    events.push(event("evt-nobody", "RESERVATION_REQUESTED", "RESTAURANT", 404));
    server.emit(&Value::Array(events.clone())).await;
    for event in &events {
        server.settled(event["event_id"].as_str().unwrap()).await;
    }
    server
}

/// A command on a screen of this width; without one, as in a pipe.
fn on_screen(server: &Fresh, columns: Option<usize>, arguments: &[&str]) -> Command {
    let mut command = campanile(server.folder());
    command.args(["--url", &server.url]).args(arguments);
    match columns {
        Some(columns) => command.env("COLUMNS", columns.to_string()),
        None => command.env_remove("COLUMNS"),
    };
    command
}

fn widest(text: &str) -> usize {
    text.lines().map(UnicodeWidthStr::width).max().unwrap_or_default()
}

#[track_caller]
fn assert_fits(text: &str, columns: usize) {
    for line in text.lines() {
        assert!(line.width() <= columns, "{} columns: {line}\n\n{text}", line.width());
    }
}

const RESERVATION: [&str; 5] = ["explain", "--type", "RESERVATION_REQUESTED", "--aggregate", "RESTAURANT:5"];

#[tokio::test]
async fn what_commands_print_fits_80_columns_and_uses_more_where_there_is_more() {
    let server = world().await;
    let commands: [&[&str]; 9] = [
        &["trace", "evt-0"],
        &["trace", "evt-5"],
        &["trace", "evt-moon"],
        &["trace", "evt-nobody"],
        &RESERVATION,
        &["explain", "--type", "ECLIPSE", "--aggregate", "MOON:1"],
        &["sends", "list"],
        &["dead-letters", "list"],
        &["dead-letters", "list", "--all"],
    ];
    for arguments in commands {
        let narrow = Ran::of(&mut on_screen(&server, Some(80), arguments)).succeeded();
        assert_fits(&narrow, 80);
        assert_fits(&Ran::of(&mut on_screen(&server, None, arguments)).succeeded(), 80);
        let wide = Ran::of(&mut on_screen(&server, Some(160), arguments)).succeeded();
        assert_fits(&wide, 160);
        assert!(widest(&wide) > 80, "{arguments:?} has room:\n{wide}");
        assert!(wide.lines().count() < narrow.lines().count(), "{arguments:?}:\n{wide}");
    }
    let commands: [&[&str]; 4] = [
        &["emit", "--type", "ORDER_CREATED", "--aggregate", "RESTAURANT:6", "--id", "evt-new"],
        &["dead-letters", "replay", "--event", "evt-moon"],
        &["preset", "load", "restaurant"],
        &["config", "check"],
    ];
    for arguments in commands {
        assert_fits(&Ran::of(&mut on_screen(&server, Some(80), arguments)).succeeded(), 80);
    }
    // This machine may have problems; they are shown in 80 columns, too.
    assert_fits(&Ran::of(&mut on_screen(&server, Some(80), &["doctor"])).out, 80);
}

#[tokio::test]
async fn wide_characters_count_as_wide() {
    let server = world().await;
    let people = json!([
        {"user_type": "RESTAURANT_USER", "user_id": 70, "name": "山田 花子 🍣", "email": "hanako@example.com",
            "entity_type": "RESTAURANT",
         "entity_id": 70, "role": "店長"},
        {"user_type": "RESTAURANT_USER", "user_id": 71, "name": "鈴木一郎鈴木一郎鈴木一郎", "entity_type": "RESTAURANT",
            "entity_id": 70},
    ]);
    server.put("/v1/recipients", people).await;
    let long = "予約リクエスト".repeat(5);
    server
        .emit(&json!([
            event("寿司-🍣-1", "ORDER_CREATED", "RESTAURANT", 70),
            event("寿司-2", &long, "食堂", 1)
        ]))
        .await;
    for id in ["寿司-🍣-1", "寿司-2"] {
        server.settled(id).await;
    }
    let tail = Watched::start(&mut on_screen(&server, Some(80), &["tail"]));
    tail.line(&["食堂:1"]).await;
    assert_fits(&tail.lines().join("\n"), 80);
    let commands: [&[&str]; 6] = [
        &["trace", "寿司-🍣-1"],
        &["trace", "寿司-2"],
        &["explain", "--type", "ORDER_CREATED", "--aggregate", "RESTAURANT:70"],
        &["explain", "--type", &long, "--aggregate", "食堂:1"],
        &["sends", "list"],
        &["dead-letters", "list"],
    ];
    for arguments in commands {
        for columns in [80, 160] {
            assert_fits(&Ran::of(&mut on_screen(&server, Some(columns), arguments)).succeeded(), columns);
        }
    }
}

#[test]
fn help_fits_80_columns() {
    let folder = tempfile::tempdir().unwrap();
    for command in [
        "",
        "demo",
        "serve",
        "migrate",
        "preset load",
        "emit",
        "trace",
        "explain",
        "tail",
        "template render",
        "template load",
        "dead-letters list",
        "dead-letters replay",
        "sends list",
        "sends resend",
        "sends settle",
        "doctor",
        "config check",
        "config print",
    ] {
        let mut asked = campanile(folder.path());
        asked.env("COLUMNS", "80").args(command.split_whitespace()).arg("--help");
        let said = Ran::of(&mut asked).succeeded();
        assert!(said.contains("Usage: campanile"), "{said}");
        assert_fits(&said, 80);
    }
}

#[tokio::test]
async fn nothing_that_a_person_looks_for_is_lost_on_a_narrow_screen() {
    let server = world().await;
    let trace = Ran::of(&mut on_screen(&server, Some(80), &["trace", "evt-0"])).succeeded();
    for part in [
        "Anna Rossi",
        "RESTAURANT_USER",
        "only MANAGER",
        "user off",
        "WEBSOCKET: no inbox yet",
        "SLACK: not routed",
    ] {
        assert!(trace.contains(part), "`{part}` is not in\n{trace}");
    }
    let two_types = Ran::of(&mut on_screen(&server, Some(80), &["trace", "evt-5"])).succeeded();
    for part in ["ADMIN_USER", "Sofia Marini", "CUSTOMER", "Giulia Bianchi"] {
        assert!(two_types.contains(part), "`{part}` is not in\n{two_types}");
    }
    let sends =
        Ran::of(&mut on_screen(&server, Some(80), &["sends", "list", "--event", "evt-1"])).succeeded();
    let items = server.items("/v1/sends?event_id=evt-1").await;
    assert_eq!(items.len(), 4);
    for send in &items {
        assert!(sends.contains(send["id"].as_str().unwrap()), "{send} is not in\n{sends}");
    }
    assert_eq!(sends.matches("no inbox yet").count(), 1, "{sends}");
    let dead_letters = Ran::of(&mut on_screen(&server, Some(80), &["dead-letters", "list"])).succeeded();
    let words: Vec<&str> = dead_letters.split_whitespace().collect();
    assert!(words.join(" ").contains("add one with PUT /v1/audiences"), "{dead_letters}");
}

#[tokio::test]
async fn web_sockets_are_not_called_sent_before_there_is_an_inbox() {
    let server = world().await;
    for columns in [80, 200] {
        for arguments in [["trace", "evt-1"].as_slice(), &RESERVATION] {
            let said = Ran::of(&mut on_screen(&server, Some(columns), arguments)).succeeded();
            assert!(said.contains("no inbox yet"), "{said}");
        }
    }
    // The JSON output is complete.
    let trace = server.get("/v1/events/evt-1").await;
    let sends = trace["sends"].as_array().unwrap();
    assert!(sends.iter().any(|send| send["channel"] == "WEBSOCKET" && send["status"] == "SENT"), "{trace}");
}

#[tokio::test]
async fn tail_fits_the_screen() {
    let server = world().await;
    let narrow = Watched::start(&mut on_screen(&server, Some(80), &["tail"]));
    let wide = Watched::start(&mut on_screen(&server, Some(160), &["tail"]));
    narrow.line(&["RESTAURANT:404"]).await;
    wide.line(&["RESTAURANT:404"]).await;
    assert_fits(&narrow.lines().join("\n"), 80);
    assert_fits(&wide.lines().join("\n"), 160);
    assert!(widest(&wide.lines().join("\n")) > 80);
}

#[tokio::test]
async fn hints_carry_what_reaches_the_same_server() {
    let server = world().await;
    let folder = server.folder().display().to_string();
    let emit = ["emit", "--type", "ORDER_CREATED", "--aggregate", "RESTAURANT:6", "--id", "it's new"];
    let said = Ran::of(&mut on_screen(&server, Some(200), &emit)).succeeded();
    let hint = format!("campanile --url {} --data-dir {folder} trace 'it'\\''s new'", server.url);
    assert!(said.contains(&hint), "{hint} is not in\n{said}");
    for (arguments, command) in [
        (["dead-letters", "list"].as_slice(), "dead-letters replay --id ID"),
        (&["doctor"], "dead-letters list"),
        (&["dead-letters", "replay", "--event", "evt-moon"], "tail"),
    ] {
        let said = Ran::of(&mut on_screen(&server, Some(200), arguments)).succeeded();
        let hint = format!("campanile --url {} --data-dir {folder} {command}", server.url);
        assert!(said.contains(&hint), "{hint} is not in\n{said}");
    }
    let mut nowhere = campanile(server.folder());
    nowhere.args(["--url", "http://127.0.0.1:1", "trace", "x"]);
    let remedy = format!("campanile --data-dir {folder} serve --listen 127.0.0.1:1");
    Ran::of(&mut nowhere).failed(1, &[&remedy]);
}

/// Starts the command, closes its output before it can have written anything, and waits for its end.
fn unread(command: &mut Command) -> (Option<i32>, String) {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.expect("the binary was built");
    drop(child.stdout.take());
    let ended = child.wait_with_output().expect("it is our child");
    (ended.status.code(), String::from_utf8(ended.stderr).expect("what it says is text"))
}

#[tokio::test]
async fn a_reader_that_leaves_early_ends_the_command_quietly() {
    let server = world().await;
    let commands: [&[&str]; 10] = [
        &["--help"],
        &["trace", "evt-0"],
        &["--json", "trace", "evt-0"],
        &RESERVATION,
        &["sends", "list"],
        &["dead-letters", "list"],
        &["tail"],
        &["config", "print", "--reference"],
        &["template", "render", "--event", "ORDER_CREATED"],
        &["preset", "load", "restaurant"],
    ];
    for arguments in commands {
        let ended = unread(&mut on_screen(&server, None, arguments));
        assert_eq!(ended, (Some(0), String::new()), "{arguments:?}");
    }
    let mut demo = campanile(&server.folder().join("for-the-demo"));
    let (code, said) = unread(demo.args(["demo", "--listen", "127.0.0.1:0"]));
    assert_eq!((code, said.contains("panicked")), (Some(0), false), "{said}");
}

#[tokio::test]
async fn a_server_goes_on_when_nobody_reads_what_it_says() {
    let folder = tempfile::tempdir().unwrap();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut serve = campanile(folder.path());
    serve.args(["serve", "--listen", &free.to_string()]).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = serve.spawn().unwrap();
    drop(child.stdout.take());
    let alive = until("it answers", async || {
        let asked = client().get(format!("http://{free}/healthz")).send().await;
        asked.ok().map(|answer| answer.status().as_u16())
    })
    .await;
    assert_eq!(alive, 200);
    let ready = Answer::to(client().get(format!("http://{free}/readyz"))).await;
    assert_eq!(ready.status, 200, "{}", ready.body);
    child.kill().unwrap();
    child.wait().unwrap();
}
