//! `kill -9` at each boundary of the pipeline, on both back ends. The ledger compares what was committed with what was
//! captured: none lost, no duplicates.

use std::collections::BTreeMap;

use crate::support::{Backend, Home, Server, reservation, staff, until};
use campanile_testkit::on_both;
use reqwest::Method;
use serde_json::{Value, json};

const EVENTS: usize = 20;

/// Runs the load into a crash at the failpoint, restarts, and checks the ledger.
async fn survives(backend: Backend, failpoint: &str) {
    let home = Home::new(backend);
    let mut server = Server::start_with(&home, &[("CAMPANILE_KILL_AT", failpoint)]);
    server.put("/v1/recipients", staff()).await;
    let events: Vec<Value> = (1..=EVENTS).map(|n| reservation(&format!("evt-{n}"))).collect();
    for batch in events.chunks(EVENTS / 4) {
        // A producer without an answer repeats its request later; here that is after the crash.
        server.try_call(Method::POST, "/v1/events", Some(&json!(batch))).await;
        // One batch after the other, so that each stage runs several times.
        server.settled_or_dead(batch[0]["event_id"].as_str().unwrap()).await;
    }
    server.died_by_sigkill().await;

    let server = Server::start(&home);
    server.emit(&json!(events)).await;
    let expected = (1..=EVENTS).flat_map(|n| expected_of(&format!("evt-{n}"), 1..=3));
    check_ledger(&server, EVENTS, expected.collect()).await;
}

/// Every send of an event that must have been captured once.
fn expected_of(event_id: &str, users: impl Iterator<Item = u32>) -> Vec<(String, u32)> {
    let channels = ["EMAIL", "PUSH", "SMS"];
    users.flat_map(|user| channels.map(|c| (format!("{event_id}/RESTAURANT_USER {user}/{c}"), 1))).collect()
}

async fn check_ledger(server: &Server, events: usize, expected: BTreeMap<String, u32>) {
    for n in 1..=events {
        let trace = server.settled(&format!("evt-{n}")).await;
        assert_eq!(trace["event"]["status"], "PROCESSED", "{trace}");
        let sockets = trace["sends"].as_array().unwrap().iter().filter(|s| s["channel"] == "WEBSOCKET");
        assert!(sockets.into_iter().all(|s| s["status"] == "SENT"));
        assert_eq!(trace["dead_letters"], json!([]));
    }
    let captured = server.captured().await;
    let lost: Vec<_> = expected.keys().filter(|key| !captured.contains_key(*key)).collect();
    let twice: Vec<_> = captured.iter().filter(|(_, count)| **count > 1).collect();
    assert!(lost.is_empty(), "lost: {lost:?}");
    assert!(twice.is_empty(), "twice: {twice:?}");
    assert_eq!(captured, expected);
}

/// A large audience: several thousand people of one restaurant.
async fn people(server: &Server, count: u32) {
    let person = |id: u32| {
        json!({
            "user_type": "RESTAURANT_USER", "user_id": id, "entity_type": "RESTAURANT", "entity_id": 5,
            "role": "WAITER",
            "email": format!("p{id}@example.com"), "phone": format!("+39{id:07}"),
            "push_tokens": [format!("token-{id}")],
        })
    };
    server.put("/v1/recipients", Value::Array((1..=count).map(person).collect())).await;
}

async fn survives_between_chunks(backend: Backend, failpoint: &str) {
    const PEOPLE: u32 = 5_000;
    let home = Home::new(backend);
    let mut server = Server::start_with(&home, &[("CAMPANILE_KILL_AT", failpoint)]);
    people(&server, PEOPLE).await;
    server.try_call(Method::POST, "/v1/events", Some(&reservation("evt-1"))).await;
    server.died_by_sigkill().await;
    let server = Server::start(&home);
    let processed = until("the large event is fanned out and received", async || {
        let trace = server.get("/v1/events/evt-1").await;
        (trace["event"]["status"] == "PROCESSED").then_some(trace)
    })
    .await;
    assert_eq!(processed["processed"]["recipients"], PEOPLE);
    assert_eq!(processed["processed"]["sends"], PEOPLE * 4);
    let expected: BTreeMap<String, u32> = expected_of("evt-1", 1..=PEOPLE).into_iter().collect();
    until("everybody is told", async || (server.captured().await.len() >= expected.len()).then_some(()))
        .await;
    assert_eq!(server.captured().await, expected);
}

async fn an_event_is_still_known(backend: Backend) {
    let home = Home::new(backend);
    let mut server = Server::start(&home);
    server.put("/v1/recipients", staff()).await;
    server.emit(&reservation("evt-1")).await;
    server.settled("evt-1").await;
    server.kill();
    let server = Server::start(&home);
    assert_eq!(server.emit(&reservation("evt-1")).await["created"], false);
    let captured = server.captured().await;
    assert!(captured.values().all(|count| *count == 1), "{captured:?}");
    assert_eq!(captured.len(), 9);
}

async fn stops_in_order(backend: Backend) {
    let home = Home::new(backend);
    let mut server = Server::start(&home);
    server.put("/v1/recipients", staff()).await;
    let events: Vec<Value> = (1..=200).map(|n| reservation(&format!("evt-{n}"))).collect();
    server.emit(&json!(events)).await;
    let begun = std::time::Instant::now();
    let status = server.terminate();
    assert!(status.success(), "{status}");
    assert!(begun.elapsed().as_secs() < 12);
    let server = Server::start(&home);
    let expected = (1..=200).flat_map(|n| expected_of(&format!("evt-{n}"), 1..=3)).collect();
    check_ledger(&server, 200, expected).await;
    // Nothing is in doubt: a shutdown releases what it did not begin.
    let trace = server.get("/v1/events/evt-200").await;
    let attempts = trace["sends"].as_array().unwrap().iter().map(|s| s["attempt_count"].clone());
    assert!(attempts.into_iter().all(|count| count == 1), "{trace}");
}

on_both! {
    killed_after_the_commit_of_accept: |on| survives(on, "accept.after_commit:2");
    killed_in_fan_out_before_its_commit: |on| survives(on, "fan_out.before_commit");
    killed_in_fan_out_after_its_commit: |on| survives(on, "fan_out.after_commit");
    killed_in_a_later_fan_out_before_its_commit: |on| survives(on, "fan_out.before_commit:2");
    killed_in_publish_before_the_confirm: |on| survives(on, "publish.before_confirm");
    killed_in_publish_after_the_confirm: |on| survives(on, "publish.after_confirm");
    killed_in_a_later_publish_after_the_confirm: |on| survives(on, "publish.after_confirm:2");
    killed_in_receive_before_its_commit: |on| survives(on, "receive.before_commit");
    killed_in_receive_after_its_commit_before_the_ack: |on| survives(on, "receive.after_commit");
    killed_in_send_before_the_provider: |on| survives(on, "send.before_provider:7");
    killed_in_send_after_the_provider: |on| survives(on, "send.after_provider:7");
    killed_in_settle_before_its_commit: |on| survives(on, "settle.before_commit");
    killed_in_settle_after_its_commit: |on| survives(on, "settle.after_commit");
    killed_in_a_later_settle_before_its_commit: |on| survives(on, "settle.before_commit:2");
    killed_between_chunks_of_a_large_audience: |on| survives_between_chunks(on, "fan_out.between_chunks:3");
    killed_before_the_commit_of_a_chunk_of_a_large_audience: |on| survives_between_chunks(on,
        "fan_out.before_commit:4");
    an_event_is_still_known_after_a_crash: an_event_is_still_known;
    sigterm_finishes_what_is_in_flight_and_exits_in_time: stops_in_order;
}

#[tokio::test]
async fn a_second_instance_on_one_file_is_refused() {
    let home = Home::new(Backend::Embedded);
    let server = Server::start(&home);
    for deleted in [false, true] {
        if deleted {
            std::fs::remove_file(home.path().join("campanile.lock")).unwrap();
        }
        let mut second = home.campanile();
        let output = second.args(["serve", "--listen", "127.0.0.1:0"]).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            said.contains("another Campanile is already running") && said.contains("campanile.lock"),
            "{said}"
        );
    }
    // The first instance is not disturbed.
    assert_eq!(server.get("/readyz").await["components"]["database"], "ok");
}

/// Also while it waits for its database, long before it listens.
#[tokio::test]
async fn one_that_is_still_starting_stops_in_order() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let url = format!("postgres://campanile@{}/campanile", silent.local_addr().expect("it is bound"));
    let home = Home::new(Backend::Embedded);
    let mut command = home.campanile();
    let mut starting = command.args(["serve", "--database-url", &url]).spawn().expect("the binary was built");
    let (_connection, _) = silent.accept().expect("it asks for its database");
    let told = std::process::Command::new("kill").args(["-TERM", &starting.id().to_string()]).status();
    assert!(told.expect("kill is there").success());
    let status = starting.wait().expect("it is our child");
    assert_eq!(status.code(), Some(0), "{status}");
}
