//! Sends: filtered and paged; and a person resolves a doubt, once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use campanile_testkit::on_both;
use campanile_testkit::provider::http::{Replies, Server};
use campanile_testkit::provider::twilio::{self, Fields};
use reqwest::Method;
use serde_json::{Value, json};

use crate::interface::command::cli;
use crate::interface::fresh::{Answer, Fresh, encoded, event};
use crate::support::{Backend, reservation, staff, until};

const SENDS: &str = "/v1/sends";
const DOUBTS: &str = "/v1/sends?status=IN_DOUBT";

/// A server with texts in doubt, and the switch that cures their provider. Its poll intervals are longer than the test
/// waits: resending wakes the sender.
async fn doubting(backend: Backend) -> (Fresh, Arc<AtomicBool>) {
    let well = Arc::new(AtomicBool::new(false));
    let cured = Arc::clone(&well);
    let reply = move |_: &Fields| {
        if cured.load(Ordering::SeqCst) { twilio::created(7) } else { twilio::error(500, 20500, "perhaps") }
    };
    let provider = Server::start_with(twilio::check, Replies::ByRequest(Box::new(reply))).await;
    let url = twilio::url(&provider.address, "%2B15005550006");
    let server = Fresh::start_with(
        backend,
        &[
            ("CAMPANILE_CHANNELS__SMS__URL", &url),
            ("CAMPANILE_ENGINE__LEASE", "1m"),
            ("CAMPANILE_SEND__SMS__ON_DOUBT", "hold"),
            ("CAMPANILE_SEND__SMS__POLL_INTERVAL", "10m"),
        ],
    );
    server.put("/v1/recipients", staff()).await;
    (server, well)
}

/// Emits, and returns the texts that are then in doubt.
async fn in_doubt(server: &Fresh, id: &str) -> Vec<Value> {
    server.emit(&reservation(id)).await;
    server.settled(id).await;
    server.items(&format!("{DOUBTS}&event_id={id}")).await
}

fn id(send: &Value) -> &str {
    send["id"].as_str().expect("a send has an id")
}

fn path(id: &str, verb: &str) -> String {
    format!("{SENDS}/{}/{verb}", encoded(id))
}

async fn status(server: &Fresh, event_id: &str, send: &str) -> String {
    let sends = server.items(&format!("{SENDS}?event_id={event_id}")).await;
    let found = sends.iter().find(|found| id(found) == send).expect("it is there");
    found["status"].as_str().expect("it has a status").to_owned()
}

async fn a_send_in_doubt_is_resent_once_and_goes_out_at_once(backend: Backend) {
    let (server, well) = doubting(backend).await;
    let doubts = in_doubt(&server, "evt-1").await;
    assert_eq!(doubts.len(), 3, "{doubts:?}");
    let send = &doubts[0];
    assert_eq!((&send["channel"], &send["event_id"]), (&json!("SMS"), &json!("evt-1")), "{send}");
    assert_eq!((&send["user_type"], &send["provider"]), (&json!("RESTAURANT_USER"), &json!("twilio")));
    assert!(send["in_doubt_since"].is_string() && send["next_attempt_at"].is_null(), "{send}");
    assert!(!send.as_object().unwrap().contains_key("cursor"), "{send}");

    well.store(true, Ordering::SeqCst);
    let answer = server.post(&path(id(send), "resend"), &json!({"note": "they say it never came"})).await;
    assert_eq!((answer.status, answer.body), (200, json!({"id": id(send), "status": "DUE"})));
    let trace = server.settled("evt-1").await;
    let after = trace["sends"].as_array().unwrap().iter().find(|found| found["id"] == send["id"]).unwrap();
    assert_eq!((&after["status"], &after["attempt_count"]), (&json!("SENT"), &json!(2)), "{after}");
    let outcomes: Vec<&Value> =
        after["attempts"].as_array().unwrap().iter().map(|attempt| &attempt["outcome"]).collect();
    assert_eq!(outcomes, ["UNKNOWN", "RESENT", "SENT"]);
    assert_eq!(after["attempts"][1]["error"], "they say it never came");
    assert_eq!(server.items(DOUBTS).await.len(), 2);

    let repeated = server.post(&path(id(send), "resend"), &json!({})).await;
    repeated.assert_problem(409, "not-in-doubt").assert_says(&[id(send), "already SENT"]);
    let bodiless = server.send(Method::POST, &path(id(&doubts[1]), "resend"), "").await;
    assert_eq!(bodiless.status, 200, "{}", bodiless.body);
}

async fn a_send_in_doubt_is_settled_as_what_a_person_knows(backend: Backend) {
    let (server, _) = doubting(backend).await;
    let doubts = in_doubt(&server, "evt-1").await;
    let settle = async |send: &Value, body: Value| server.post(&path(id(send), "settle"), &body).await;
    assert_eq!(settle(&doubts[0], json!({"as": "SENT"})).await.body["status"], "SENT");
    let failed = settle(&doubts[1], json!({"as": "FAILED", "note": "the number is gone"})).await;
    assert_eq!(failed.body["status"], "FAILED");
    assert_eq!(server.items(DOUBTS).await.len(), 1);
    let dead_letters = server.items("/v1/dead-letters?stage=send&reason=SETTLED&provider=twilio").await;
    assert_eq!((dead_letters.len(), &dead_letters[0]["error"]), (1, &json!("SETTLED: the number is gone")));
    let metrics = server.request(Method::GET, "/metrics").send().await.unwrap().text().await.unwrap();
    assert!(metrics.contains(r#"campanile_sends_total{channel="SMS",status="SENT"} 1"#), "{metrics}");

    let late = settle(&doubts[0], json!({"as": "FAILED"})).await;
    late.assert_problem(409, "not-in-doubt").assert_says(&["already SENT"]);
    let late = settle(&doubts[1], json!({"as": "SENT"})).await;
    late.assert_problem(409, "not-in-doubt").assert_says(&["FAILED", "dead-letters/replay"]);
    let late = server.post(&path(id(&doubts[1]), "resend"), &json!({})).await;
    late.assert_problem(409, "not-in-doubt").assert_says(&["dead-letters/replay"]);

    settle(&doubts[2], json!({})).await.assert_problem(422, "invalid").assert_names(0, "/as");
    settle(&doubts[2], json!({"as": "DUE"})).await.assert_problem(422, "invalid").assert_names(0, "/as");
    let colour = settle(&doubts[2], json!({"as": "SENT", "colour": 1})).await;
    colour.assert_problem(422, "invalid").assert_names(0, "/colour");
    for note in ["\u{0}", "a\nb", &"x".repeat(2_001)] {
        let answer = settle(&doubts[2], json!({"as": "SENT", "note": note})).await;
        answer.assert_problem(422, "invalid").assert_names(0, "/note");
    }
    settle(&doubts[2], json!([{"as": "SENT"}])).await.assert_problem(400, "malformed");
    assert_eq!(status(&server, "evt-1", id(&doubts[2])).await, "IN_DOUBT");
    for unknown in ["nonsense", "0197b3c4-0000-7000-8000-000000000000:SMS"] {
        let answer = server.post(&path(unknown, "settle"), &json!({"as": "SENT"})).await;
        answer.assert_problem(404, "not-found").assert_says(&[unknown]);
        server.post(&path(unknown, "resend"), &json!({})).await.assert_problem(404, "not-found");
    }
}

async fn of_several_persons_one_decides(backend: Backend) {
    let (server, _) = doubting(backend).await;
    let send = in_doubt(&server, "evt-1").await.remove(0);
    let path = path(id(&send), "settle");
    let decide = async |end: &str| server.post(&path, &json!({ "as": end })).await.status;
    let (a, b, c, d) = tokio::join!(decide("SENT"), decide("FAILED"), decide("SENT"), decide("FAILED"));
    let mut answers = [a, b, c, d];
    answers.sort_unstable();
    assert_eq!(answers, [200, 409, 409, 409]);
}

async fn sends_are_found_by_what_is_known_of_them(backend: Backend) {
    let server = Fresh::start(backend);
    server.put("/v1/recipients", staff()).await;
    for id in ["evt-1", "evt-2"] {
        server.emit(&reservation(id)).await;
        server.settled(id).await;
    }
    let all = server.items(SENDS).await;
    assert_eq!(server.pages(SENDS, 5).await, all);
    let ids: Vec<&str> = all.iter().map(id).collect();
    assert!(ids.is_sorted_by(|a, b| a > b), "the newest first: {ids:?}");
    let count = async |query: &str| server.items(&format!("{SENDS}?{query}")).await.len();
    let per_event = all.len() / 2;
    assert_eq!(count("event_id=evt-1").await, per_event);
    assert_eq!(count("event_id=evt-9").await, 0);
    assert_eq!(count("status=SENT").await, all.len());
    assert_eq!(count("status=FAILED").await, 0);
    assert_eq!(count("channel=EMAIL").await, 6);
    assert_eq!(count("channel=EMAIL&event_id=evt-2&user_type=RESTAURANT_USER&user_id=2").await, 1);
    assert_eq!(count("user_type=RESTAURANT_USER&user_id=2&channel=SMS").await, 2);
    assert_eq!(count("provider=realtime").await, 6);
    assert_eq!(count("status=DUE").await + count("status=IN_DOUBT").await, 0);
    let by_recipient = server.pages(&format!("{SENDS}?event_id=evt-1"), 3).await;
    assert_eq!(by_recipient.len(), per_event);

    for (query, words) in [
        ("status=LOST", ["`LOST`", "IN_DOUBT"]),
        ("channel=FAX", ["`FAX`", "EMAIL"]),
        ("cursor=7", ["cursor", "filters"]),
        ("status=IN_DOUBT&cursor=%5B%22x%22%5D", ["cursor", "filters"]),
        ("limit=0", ["limit", "1000"]),
        ("colour=red", ["`colour`", "event_id"]),
    ] {
        let answer = server.try_get(&format!("{SENDS}?{query}")).await;
        answer.assert_problem(422, "invalid-query").assert_says(&words);
    }
    Answer::to(server.request(Method::GET, SENDS)).await.assert_problem(401, "unauthorized");
    server.post(&path(ids[0], "resend"), &json!({})).await.assert_problem(409, "not-in-doubt");
}

async fn the_command_line_lists_resends_and_settles(backend: Backend) {
    let (server, well) = doubting(backend).await;
    assert!(cli(&server, &["sends", "list"]).succeeded().contains("there are no sends"));
    let doubts = in_doubt(&server, "evt-1").await;
    let more = in_doubt(&server, "evt-2").await;
    server.emit(&event("evt-3", "ECLIPSE", "MOON", 1)).await;

    let said = cli(&server, &["sends", "list", "--status", "in-doubt"]).succeeded();
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[0].starts_with("ID") && lines[0].ends_with("ERROR"), "{said}");
    assert!(doubts.iter().any(|send| lines[1].starts_with(id(send))), "the oldest first: {said}");
    assert!(lines[1].contains("IN_DOUBT  evt-1"), "{said}");
    assert!(said.contains(" sends settle ID --as SENT|FAILED"), "{said}");
    let few = cli(&server, &["sends", "list", "--status", "IN_DOUBT", "--limit", "2"]).succeeded();
    assert!(few.contains("--cursor '") && !few.contains("evt-2"), "{few}");
    let none = cli(&server, &["sends", "list", "--status", "failed"]).succeeded();
    assert!(none.contains("no send matches"), "{none}");
    let printed =
        cli(&server, &["--json", "sends", "list", "--status", "IN_DOUBT", "--event", "evt-2"]).json();
    assert_eq!(printed["items"].as_array().unwrap().len(), 3);
    assert!(printed["next"].is_null());
    let of_user =
        cli(&server, &["--json", "sends", "list", "--user", "RESTAURANT_USER:2", "--channel", "sms"]).json();
    assert_eq!(of_user["items"].as_array().unwrap().len(), 2);

    let said = cli(&server, &["sends", "settle", id(&doubts[0]), "--as", "sent", "--note", "they called"]);
    assert_eq!(said.succeeded().trim(), format!("{} is SENT now", id(&doubts[0])));
    cli(&server, &["sends", "settle", id(&doubts[0]), "--as", "FAILED"]).failed(1, &["already SENT"]);
    cli(&server, &["sends", "resend", "0197b3c4-0000-7000-8000-000000000000:SMS"]).failed(3, &["not found"]);
    let two = ["sends", "settle", id(&doubts[0]), id(&doubts[1]), "--as", "FAILED"];
    let said = cli(&server, &two);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.out.contains("settled 1\nskipped 1:\n") && said.out.contains("already SENT"), "{said:?}");

    well.store(true, Ordering::SeqCst);
    let said = cli(&server, &["--json", "sends", "resend", "--all", "--event", "evt-2"]).json();
    assert_eq!(said, json!({"resolved": 3, "skipped": []}));
    until("they are sent", async || (status(&server, "evt-2", id(&more[0])).await == "SENT").then_some(()))
        .await;
    let said = cli(&server, &["sends", "resend", "--all", "--channel", "SMS"]).succeeded();
    assert!(said.contains("1 are due again"), "{said}");
    let said = cli(&server, &["sends", "settle", "--all", "--as", "SENT"]).succeeded();
    assert!(said.contains("nothing was changed"), "{said}");

    cli(&server, &["sends", "resend"]).failed(2, &["--all", "ids"]);
    cli(&server, &["sends", "resend", "--channel", "SMS"]).failed(2, &["--all"]);
    cli(&server, &["sends", "resend", id(&doubts[2]), "--all"]).failed(2, &["--all"]);
    cli(&server, &["sends", "settle", id(&doubts[2])]).failed(2, &["--as"]);
    cli(&server, &["sends", "list", "--user", "42"]).failed(2, &["TYPE:ID"]);
    cli(&server, &["sends", "list", "--channel", "fax"]).failed(1, &["`FAX`"]);
    cli(&server, &["sends"]).failed(2, &["list", "resend", "settle"]);
}

on_both! {
    a_send_in_doubt_is_resent_once_and_goes_out_at_once;
    a_send_in_doubt_is_settled_as_what_a_person_knows;
    of_several_persons_one_decides;
    sends_are_found_by_what_is_known_of_them;
    the_command_line_lists_resends_and_settles;
}
