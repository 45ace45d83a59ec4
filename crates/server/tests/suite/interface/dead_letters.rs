//! Dead letters: filtered, paged, and replayed without duplicates.

use campanile_testkit::on_both;
use reqwest::Method;
use serde_json::{Value, json};

use crate::interface::command::cli;
use crate::interface::fresh::{Answer, Fresh, event};
use crate::support::{Backend, reservation, staff, until};

const DEAD_LETTERS_PATH: &str = "/v1/dead-letters";

async fn dead_letters(server: &Fresh, query: &str) -> Vec<Value> {
    server.items(&format!("{DEAD_LETTERS_PATH}?{query}")).await
}

fn events(dead_letters: &[Value]) -> Vec<&str> {
    dead_letters.iter().filter_map(|dead_letter| dead_letter["event_id"].as_str()).collect()
}

async fn try_replay(server: &Fresh, filter: &Value) -> Answer {
    server.post("/v1/dead-letters/replay", filter).await
}

async fn replay(server: &Fresh, filter: Value) -> Value {
    let answer = try_replay(server, &filter).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.body
}

/// The response of a replay that skipped nothing.
fn replayed(count: u32) -> Value {
    json!({"replayed": count, "skipped": [], "skipped_total": 0, "next": null})
}

/// Emits events of restaurant 5, which has no staff.
async fn fail(server: &Fresh, ids: &[&str]) {
    server.emit(&json!(ids.iter().map(|id| reservation(id)).collect::<Vec<_>>())).await;
    for id in ids {
        assert_eq!(server.settled(id).await["event"]["status"], "FAILED");
    }
}

/// The trace of a replayed event, once it is processed.
async fn processed(server: &Fresh, id: &str) -> Value {
    until(&format!("{id} is processed"), async || {
        let trace = server.settled(id).await;
        (trace["event"]["status"] == "PROCESSED").then_some(trace)
    })
    .await
}

async fn an_event_without_recipients_is_replayed_once_somebody_is_there(backend: Backend) {
    // Longer than the test waits: the replay wakes the fan-out.
    let server = Fresh::start_with(backend, &[("CAMPANILE_FAN_OUT__POLL_INTERVAL", "10m")]);
    fail(&server, &["evt-1"]).await;
    let dead_letter = dead_letters(&server, "event_id=evt-1").await.remove(0);
    assert_eq!((&dead_letter["stage"], &dead_letter["reason"]), (&json!("fan_out"), &json!("NO_RECIPIENTS")));
    assert!(dead_letter["error"].as_str().unwrap().starts_with("NO_RECIPIENTS: "), "{dead_letter}");
    assert!(dead_letter["created_at"].is_string() && dead_letter["replayed_at"].is_null(), "{dead_letter}");

    server.put("/v1/recipients", staff()).await;
    assert_eq!(replay(&server, json!({"all": true})).await, replayed(1));
    processed(&server, "evt-1").await;
    let captured = server.captured().await;
    assert_eq!(captured.len(), 9);
    assert!(captured.values().all(|count| *count == 1), "{captured:?}");

    assert_eq!(replay(&server, json!({"all": true})).await, replayed(0));
    assert_eq!(dead_letters(&server, "").await.len(), 0);
    let again = dead_letters(&server, "replayed=true").await.remove(0);
    assert!(again["replayed_at"].is_string(), "{again}");
    assert_eq!(server.captured().await, captured);
}

async fn what_fails_again_has_another_dead_letter(backend: Backend) {
    let server = Fresh::start(backend);
    fail(&server, &["evt-1"]).await;
    let first = dead_letters(&server, "").await.remove(0);
    assert_eq!(replay(&server, json!({"event_id": "evt-1"})).await, replayed(1));
    let second =
        until("it failed again", async || dead_letters(&server, "event_id=evt-1").await.first().cloned())
            .await;
    assert!(second["id"].as_i64() > first["id"].as_i64());
    assert_eq!(dead_letters(&server, "event_id=evt-1&replayed=true").await.len(), 2);
}

async fn dead_letters_are_found_by_what_is_known_of_them_page_by_page(backend: Backend) {
    let server = Fresh::start(backend);
    let ids = ["evt-1", "evt-2", "evt-3", "evt-4", "evt-5"];
    fail(&server, &ids).await;
    server.emit(&event("evt-6", "ECLIPSE", "MOON", 1)).await;
    server.settled("evt-6").await;

    let all = dead_letters(&server, "").await;
    assert_eq!(all.len(), 6);
    assert!(all.windows(2).all(|pair| pair[0]["id"].as_i64() < pair[1]["id"].as_i64()));
    for limit in [1, 3, 6] {
        assert_eq!(server.pages(DEAD_LETTERS_PATH, limit).await, all, "{limit} at a time");
    }
    assert_eq!(events(&dead_letters(&server, "reason=NO_AUDIENCE").await), ["evt-6"]);
    assert_eq!(events(&dead_letters(&server, "error=event%20type%20%60ECLIPSE").await), ["evt-6"]);
    assert_eq!(events(&dead_letters(&server, "event_id=evt-3&stage=fan_out").await), ["evt-3"]);
    let third = all.iter().find(|dead_letter| dead_letter["event_id"] == "evt-3").unwrap();
    assert_eq!(&dead_letters(&server, &format!("id={}", third["id"])).await, std::slice::from_ref(third));
    for nothing in ["channel=EMAIL", "provider=capture", "stage=send", "error=%25", "event_id=evt-3&id=0"] {
        assert_eq!(dead_letters(&server, nothing).await.len(), 0, "{nothing}");
    }
    assert_eq!(dead_letters(&server, "replayed=false").await.len(), 6);
}

async fn a_replay_takes_what_the_filter_says_and_no_more_than_its_limit(backend: Backend) {
    let server = Fresh::start(backend);
    fail(&server, &["evt-1", "evt-2", "evt-3", "evt-4"]).await;
    let all = dead_letters(&server, "").await;
    let id = |place: usize| all[place]["id"].clone();
    server.put("/v1/recipients", staff()).await;

    assert_eq!(replay(&server, json!({"reason": "NO_AUDIENCE"})).await, replayed(0));
    assert_eq!(replay(&server, json!({"channel": "EMAIL", "event_id": "evt-1"})).await, replayed(0));
    assert_eq!(replay(&server, json!({"id": id(1)})).await, replayed(1));
    assert_eq!(replay(&server, json!({"id": id(1)})).await, replayed(0), "it was replayed already");
    server.settled("evt-2").await;

    let first = replay(&server, json!({"all": true, "limit": 1})).await;
    assert_eq!((&first["replayed"], &first["next"]), (&json!(1), &json!(id(0).to_string())));
    let rest = replay(&server, json!({"cursor": first["next"], "stage": "fan_out"})).await;
    assert_eq!(rest, replayed(2));
    for id in ["evt-1", "evt-2", "evt-3", "evt-4"] {
        assert_eq!(processed(&server, id).await["dead_letters"].as_array().unwrap().len(), 1);
    }
    let captured = server.captured().await;
    assert!(captured.len() == 36 && captured.values().all(|count| *count == 1), "{captured:?}");
}

/// More than one transaction. They fail again at once, and the walk does not follow them.
async fn many_are_replayed_each_once_however_soon_they_fail_again(backend: Backend) {
    const MANY: usize = 2_100;
    let server = Fresh::start(backend);
    let events: Vec<Value> = (1..=MANY).map(|n| reservation(&format!("evt-{n}"))).collect();
    for some in events.chunks(700) {
        server.emit(&json!(some)).await;
    }
    let failed = async |replayed: &str, count: usize| {
        until(&format!("{count} have failed"), async || {
            (dead_letters(&server, replayed).await.len() == count).then_some(())
        })
        .await;
    };
    failed("replayed=true", MANY).await;
    assert_eq!(replay(&server, json!({"all": true})).await["replayed"], MANY);
    failed("replayed=true", 2 * MANY).await;
    failed("replayed=false", MANY).await;
}

/// A failing template fails one row, which then has nothing to send.
async fn without_text(server: &Fresh) {
    server.put("/v1/recipients", staff()).await;
    server
        .put(
            "/v1/templates",
            json!([{"event_type": "RESERVATION_REQUESTED", "channel": "SMS", "title": "T",
                "body": "{{ payload.nobody_gave_this }}"}]),
        )
        .await;
}

async fn what_makes_no_sense_is_named(backend: Backend) {
    let server = Fresh::start(backend);
    for (query, word) in [
        ("colour=red", "`colour`"),
        ("after=1", "`after`"),
        ("limit=0", "limit"),
        ("limit=1001", "1000"),
        ("cursor=x", "cursor"),
        ("id=x", "id"),
        ("replayed=maybe", "`maybe`"),
        ("stage=sned", "fan_out, publish, receive, send"),
        ("channel=email", "EMAIL"),
    ] {
        let answer = server.try_get(&format!("{DEAD_LETTERS_PATH}?{query}")).await;
        answer.assert_problem(422, "invalid-query").assert_says(&[word]);
    }
    for (body, pointer) in [
        (json!({"colour": "red"}), "/colour"),
        (json!({"replayed": true}), "/replayed"),
        (json!({"limit": 0}), "/limit"),
        (json!({"limit": 100_001}), "/limit"),
        (json!({"limit": "all"}), "/limit"),
        (json!({"id": "one"}), "/id"),
        (json!({"stage": "sned"}), "/stage"),
        (json!({"channel": "email"}), "/channel"),
        (json!({"event_id": ""}), "/event_id"),
        (json!({}), "/all"),
        (json!({"all": false, "cursor": "0", "limit": 5}), "/all"),
        (json!({"all": true, "cursor": "first"}), "/cursor"),
        (json!({"all": true, "cursor": 0}), "/cursor"),
        (json!({"id": null, "event_id": null, "stage": null, "reason": null}), "/all"),
        (json!({"all": true, "stage": "send"}), "/all"),
        (json!({"all": "yes"}), "/all"),
        (json!({"reason": "a\u{0}b"}), "/reason"),
        (json!({"error": "\u{0}"}), "/error"),
    ] {
        try_replay(&server, &body).await.assert_problem(422, "invalid").assert_names(0, pointer);
    }
    try_replay(&server, &json!([])).await.assert_problem(400, "malformed");
    server.send(Method::POST, "/v1/dead-letters/replay", "").await.assert_problem(400, "malformed");
    let keyless = Answer::to(server.request(Method::GET, DEAD_LETTERS_PATH)).await;
    keyless.assert_problem(401, "unauthorized");
}

async fn the_command_line_lists_and_replays(backend: Backend) {
    let server = Fresh::start(backend);
    assert!(cli(&server, &["dead-letters", "list"]).succeeded().contains("there are no dead letters"));
    fail(&server, &["evt-1", "evt-2"]).await;
    server.emit(&event("evt-3", "ECLIPSE", "MOON", 1)).await;
    server.settled("evt-3").await;
    let id = |dead_letter: &Value| dead_letter["id"].to_string();
    let all = dead_letters(&server, "").await;

    let said = cli(&server, &["dead-letters", "list"]).succeeded();
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[0].starts_with("ID") && lines[0].ends_with("ERROR"), "{said}");
    let words: Vec<&str> = lines[1].split_whitespace().collect();
    assert_eq!((words[0], words[2]), (id(&all[0]).as_str(), "s"), "{said}");
    assert_eq!(words[3..8], ["fan_out", "evt-1", "-", "-", "NO_RECIPIENTS"], "{said}");
    assert!(lines[1].contains("NO_RECIPIENTS  no active recipient"), "the code is said once: {said}");
    let few = cli(&server, &["dead-letters", "list", "--limit", "2"]).succeeded();
    assert!(!few.contains("evt-3") && few.contains(&format!("--cursor {}", id(&all[1]))), "{few}");
    let one = cli(&server, &["dead-letters", "list", "--reason", "NO_AUDIENCE", "--error", "`ECLIPSE`"])
        .succeeded();
    assert!(one.contains("evt-3") && !one.contains("evt-1"), "{one}");
    let none = cli(&server, &["dead-letters", "list", "--channel", "email"]).succeeded();
    assert!(none.contains("no dead letter matches"), "{none}");
    let printed = cli(&server, &["--json", "dead-letters", "list", "--event", "evt-1"]).json();
    assert_eq!(printed, server.get(&format!("{DEAD_LETTERS_PATH}?event_id=evt-1")).await);

    server.put("/v1/recipients", staff()).await;
    let first = id(&all[0]);
    let said = cli(&server, &["dead-letters", "replay", "--id", &first]).succeeded();
    assert!(said.contains("replayed 1"), "{said}");
    let again = cli(&server, &["dead-letters", "replay", "--id", &first]).succeeded();
    assert!(again.contains(&format!("{first} was already replayed")), "{again}");
    let printed = cli(&server, &["dead-letters", "replay", "--json", "--event", "evt-2"]).json();
    assert_eq!(printed, replayed(1));
    let none = cli(&server, &["dead-letters", "replay", "--stage", "send"]).succeeded();
    assert!(none.contains("nothing to replay"), "{none}");
    let rest = cli(&server, &["dead-letters", "replay", "--all"]).succeeded();
    assert!(rest.contains("replayed 1"), "{rest}");
    let past = cli(&server, &["dead-letters", "list", "--all", "--event", "evt-1"]).succeeded();
    assert!(past.lines().next().unwrap().contains("REPLAYED") && past.contains("evt-1"), "{past}");

    cli(&server, &["dead-letters", "replay"]).failed(2, &["--all", "--event"]);
    cli(&server, &["dead-letters", "replay", "--cursor", "1"]).failed(2, &["--all"]);
    cli(&server, &["dead-letters", "replay", "--all", "--id", "1"]).failed(2, &["one or the other"]);
    cli(&server, &["dead-letters", "replay", "--id", "9999"]).failed(3, &["9999"]);
    cli(&server, &["dead-letters", "list", "--stage", "sned"]).failed(1, &["`sned`", "fan_out"]);
    cli(&server, &["dead-letters"]).failed(2, &["list", "replay"]);
}

async fn a_row_that_had_no_text_is_replayed_when_its_template_is_mended_and_not_before(backend: Backend) {
    let server = Fresh::start(backend);
    without_text(&server).await;
    server.emit(&reservation("evt-1")).await;
    server.settled("evt-1").await;
    let all = dead_letters(&server, "").await;
    assert_eq!(all.len(), 3, "{all:?}");
    assert_eq!(dead_letters(&server, "channel=SMS&stage=fan_out").await, all);

    let answer = replay(&server, json!({"all": true})).await;
    assert_eq!((&answer["replayed"], &answer["skipped_total"]), (&json!(0), &json!(3)));
    let skipped = answer["skipped"].as_array().unwrap();
    assert_eq!(
        skipped.iter().map(|s| &s["id"]).collect::<Vec<_>>(),
        all.iter().map(|l| &l["id"]).collect::<Vec<_>>()
    );
    let reason = skipped[0]["reason"].as_str().unwrap();
    assert!(reason.starts_with("its text still can't be rendered: template"), "{answer}");
    assert!(reason.contains("payload.nobody_gave_this"), "{answer}");
    assert_eq!(dead_letters(&server, "").await, all, "they stay");

    let said = cli(&server, &["dead-letters", "replay", "--all"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.out.contains("skipped 3") && said.out.contains("still can't be rendered"), "{said:?}");
    assert!(said.err.contains("nothing was replayed"), "{said:?}");
    let said = cli(&server, &["dead-letters", "list", "--channel", "sms"]).succeeded();
    assert!(said.contains("RESTAURANT_USER 1  SMS      TEMPLATE_ERROR  "), "{said}");

    let told_before = server.captured().await;
    let mended =
        json!([{"event_type": "RESERVATION_REQUESTED", "channel": "SMS", "title": "T", "body": "Mended"}]);
    server.put("/v1/templates", mended).await;
    assert_eq!(replay(&server, json!({"reason": "TEMPLATE_ERROR"})).await, replayed(3));
    let trace = server.settled("evt-1").await;
    let texts: Vec<&Value> =
        trace["outbox"].as_array().unwrap().iter().filter(|row| row["channel"] == "SMS").collect();
    assert!(texts.iter().all(|row| row["body"] == "Mended" && row["status"] == "DELIVERED"), "{trace}");
    let told = server.captured().await;
    assert_eq!(told.len(), told_before.len() + 3, "who was told is not told again: {told:?}");
    assert!(told.values().all(|times| *times == 1), "{told:?}");
}

on_both! {
    an_event_without_recipients_is_replayed_once_somebody_is_there;
    what_fails_again_has_another_dead_letter;
    dead_letters_are_found_by_what_is_known_of_them_page_by_page;
    a_replay_takes_what_the_filter_says_and_no_more_than_its_limit;
    many_are_replayed_each_once_however_soon_they_fail_again;
    what_makes_no_sense_is_named;
    the_command_line_lists_and_replays;
    a_row_that_had_no_text_is_replayed_when_its_template_is_mended_and_not_before;
}
