//! `Idempotency-Key`: an action that is repeated under the same key is done once.

use std::io::Write;
use std::net::TcpStream;

use campanile_testkit::{Backend, until};
use reqwest::Method;
use serde_json::{Value, json};

use crate::interface::fresh::{Answer, Fresh};
use crate::support::KEY;

async fn replay(server: &Fresh, key: &str, caller: &str, body: &Value) -> Answer {
    let request = server.request(Method::POST, "/v1/dead-letters/replay").bearer_auth(caller);
    Answer::to(request.header("idempotency-key", key).body(body.to_string())).await
}

async fn dead_letter(server: &Fresh, id: &str) {
    server
        .emit(
            &json!({ "event_id": id, "event_type": "NOBODYS", "aggregate_type": "MOON", "aggregate_id": 1 }),
        )
        .await;
    server.settled(id).await;
}

#[tokio::test]
async fn a_repeated_action_gets_the_same_answer_and_is_done_once() {
    for backend in [Backend::Embedded, Backend::Servers] {
        let server = Fresh::start(backend);
        dead_letter(&server, "lost").await;
        let body = json!({ "event_id": "lost" });
        let first = replay(&server, "k-1", KEY, &body).await;
        assert_eq!((first.status, &first.body["replayed"]), (200, &json!(1)));
        assert_eq!(first.header("idempotent-replayed"), "");
        server.settled("lost").await;
        for _ in 0..3 {
            let again = replay(&server, "k-1", KEY, &body).await;
            assert_eq!((again.status, &again.body), (200, &first.body));
            assert_eq!(again.header("idempotent-replayed"), "true");
            assert_eq!(again.header("content-type"), "application/json");
        }
        let other = replay(&server, "k-1", KEY, &json!({ "all": true })).await;
        other.assert_problem(422, "key-reused");
        let created = server.post("/v1/api-keys", &json!({ "name": "x", "scopes": ["operate"] })).await;
        let caller = created.body["key"].as_str().expect("there is a key").to_owned();
        let of_other = replay(&server, "k-1", &caller, &body).await;
        assert_eq!(of_other.header("idempotent-replayed"), "", "callers have keys of their own");
        let changes = server.items("/v1/audit?object_type=dead_letter").await;
        assert_eq!(changes.len(), 2, "{changes:?}");
    }
}

#[tokio::test]
async fn problems_of_the_caller_are_repeated_too() {
    let server = Fresh::start(Backend::Embedded);
    let first = replay(&server, "k", KEY, &json!({ "colour": "red" })).await;
    let again = replay(&server, "k", KEY, &json!({ "colour": "red" })).await;
    first.assert_problem(422, "invalid");
    again.assert_problem(422, "invalid");
    assert_eq!(again.header("idempotent-replayed"), "true");
}

#[tokio::test]
async fn of_requests_at_the_same_time_one_acts_and_the_others_wait() {
    let server = Fresh::start(Backend::Servers);
    for number in 0..20 {
        dead_letter(&server, &format!("lost-{number}")).await;
    }
    let body = json!({ "all": true });
    let all = (0..8).map(|_| replay(&server, "k", KEY, &body));
    let answers = futures(all).await;
    let acted: Vec<&Answer> =
        answers.iter().filter(|a| a.status == 200 && a.header("idempotent-replayed").is_empty()).collect();
    assert_eq!(acted.len(), 1, "{answers:?}");
    for answer in answers.iter().filter(|answer| answer.status != 200) {
        answer.assert_problem(409, "in-flight");
        assert!(answer.header("retry-after").parse::<u32>().is_ok_and(|seconds| seconds >= 1));
    }
    assert_eq!(server.items("/v1/audit?object_type=dead_letter").await.len(), 20);
}

/// Runs requests at the same time.
async fn futures(requests: impl Iterator<Item = impl Future<Output = Answer>>) -> Vec<Answer> {
    let mut answers = Vec::new();
    let mut waiting: Vec<_> = requests.map(Box::pin).collect();
    while !waiting.is_empty() {
        let (answer, index) = std::future::poll_fn(|context| {
            let ready = waiting.iter_mut().enumerate().find_map(|(index, request)| {
                match request.as_mut().poll(context) {
                    std::task::Poll::Ready(answer) => Some((answer, index)),
                    std::task::Poll::Pending => None,
                }
            });
            ready.map_or(std::task::Poll::Pending, std::task::Poll::Ready)
        })
        .await;
        answers.push(answer);
        drop(waiting.swap_remove(index));
    }
    answers
}

#[tokio::test]
async fn an_action_goes_on_when_its_client_disconnects_and_its_answer_is_kept() {
    for backend in [Backend::Embedded, Backend::Servers] {
        let server = Fresh::start(backend);
        dead_letter(&server, "lost").await;
        let body = json!({ "event_id": "lost" });
        let address = server.url.trim_start_matches("http://");
        let mut stream = TcpStream::connect(address).expect("the server listens");
        let request = format!(
            "POST /v1/dead-letters/replay HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {KEY}\r\n\
             Idempotency-Key: k\r\nContent-Length: {}\r\n\r\n{body}",
            body.to_string().len()
        );
        stream.write_all(request.as_bytes()).expect("the server reads");
        until("the action begins", async || {
            (server.count("SELECT count(*) FROM idempotency_key").await > 0).then_some(())
        })
        .await;
        drop(stream);
        let again = until("the answer is kept", async || {
            let again = replay(&server, "k", KEY, &body).await;
            (again.status == 200).then_some(again)
        })
        .await;
        assert_eq!((again.header("idempotent-replayed"), &again.body["replayed"]), ("true", &json!(1)));
    }
}

#[tokio::test]
async fn a_request_that_died_blocks_its_key_for_no_longer_than_a_minute() {
    let server = Fresh::start(Backend::Embedded);
    let body = json!({ "event_id": "lost" });
    replay(&server, "k", KEY, &body).await;
    // As a crash would leave it: taken, and without an answer.
    server
        .execute(
            "UPDATE idempotency_key SET status = NULL, body = NULL, lease_until = '2999-01-01T00:00:00.000Z'",
        )
        .await;
    let blocked = replay(&server, "k", KEY, &body).await;
    blocked.assert_problem(409, "in-flight");
    server.execute("UPDATE idempotency_key SET lease_until = '2020-01-01T00:00:00.000Z'").await;
    assert_eq!(replay(&server, "k", KEY, &body).await.status, 200);
}

#[tokio::test]
async fn keys_that_cannot_be_right_are_refused() {
    let server = Fresh::start(Backend::Embedded);
    for key in [String::new(), "x".repeat(256)] {
        let answer = replay(&server, &key, KEY, &json!({ "all": true })).await;
        answer.assert_problem(422, "idempotency-key").assert_says(&["between 1 and 255"]);
    }
    let request = server.request(Method::POST, "/v1/dead-letters/replay").bearer_auth(KEY);
    let twice = request.header("idempotency-key", "a").header("idempotency-key", "b").body("{\"all\": true}");
    Answer::to(twice).await.assert_problem(422, "idempotency-key").assert_says(&["more than once"]);
}
