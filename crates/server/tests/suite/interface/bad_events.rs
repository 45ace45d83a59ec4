//! Invalid events: each is refused with the field's name, and nothing of it is stored.

use std::io::{Read, Write};
use std::net::TcpStream;

use campanile_testkit::on_both;
use reqwest::Method;
use reqwest::header::CONTENT_TYPE;
use serde_json::{Value, json};

use crate::interface::fresh::{Answer, Fresh};
use crate::support::{Backend, KEY, reservation};

fn event_with(field: &str, value: Value) -> Value {
    let mut event = reservation("bad");
    event[field] = value;
    event
}

/// Asserts that an event is refused alone, next to a valid one, and by `explain`.
async fn assert_refused(server: &Fresh, event: &Value, pointer: &str) {
    server.post("/v1/events", event).await.assert_problem(422, "invalid").assert_names(0, pointer);
    let beside = server.post("/v1/events", &json!([reservation("good"), event])).await;
    beside.assert_problem(422, "invalid").assert_names(1, pointer).assert_says(&[pointer]);
    if pointer != "/event_id" {
        server.post("/v1/explain", event).await.assert_problem(422, "invalid").assert_names(0, pointer);
    }
}

async fn assert_nothing_written(server: &Fresh) {
    assert_eq!(server.items("/v1/events").await, Vec::<Value>::new());
    assert_eq!(server.captured().await.len(), 0);
}

async fn fields_of_the_wrong_type_are_named(backend: Backend) {
    let server = Fresh::start(backend);
    let no_text = [json!(null), json!(true), json!(1.5), json!([]), json!({}), json!("")];
    for field in ["event_id", "event_type", "aggregate_type", "aggregate_id"] {
        for value in &no_text {
            assert_refused(&server, &event_with(field, value.clone()), &format!("/{field}")).await;
        }
        let mut without = reservation("bad");
        without.as_object_mut().unwrap().remove(field);
        let answer = server.post("/v1/events", &without).await;
        answer.assert_problem(422, "invalid").assert_names(0, &format!("/{field}")).assert_says(&["missing"]);
    }
    for value in [json!(null), json!(true), json!(7), json!("text"), json!([]), json!([{}])] {
        assert_refused(&server, &event_with("payload", value), "/payload").await;
    }
    for value in [json!("URGENT"), json!("high"), json!(""), json!(5), json!({}), json!(["HIGH"])] {
        assert_refused(&server, &event_with("priority", value), "/priority").await;
    }
    for value in [
        "yesterday",
        "",
        "2026-13-01T00:00:00Z",
        "2026-02-30T00:00:00Z",
        "2026-01-21",
        "2026-01-21T10:00:00",
        "0000-12-31T23:59:59Z",
        "-000001-01-01T00:00:00Z",
        "9999-12-30T00:00:01Z",
    ] {
        assert_refused(&server, &event_with("occurred_at", json!(value)), "/occurred_at").await;
    }
    assert_refused(&server, &event_with("occurred_at", json!(1_768_990_530)), "/occurred_at").await;
    for field in ["colour", "status", "created_at", "retry_count", "Event_id", "payload "] {
        assert_refused(&server, &event_with(field, json!("x")), &format!("/{field}")).await;
    }
    let at = server.post("/v1/explain", &event_with("at", json!("noon"))).await;
    at.assert_problem(422, "invalid").assert_names(0, "/at");
    assert_nothing_written(&server).await;
}

/// The text of an event with this payload.
fn with_payload(event_id: &str, payload: &str) -> String {
    let mut event = reservation(event_id);
    event["payload"] = json!("HERE");
    event.to_string().replace("\"HERE\"", payload)
}

async fn payloads_that_readers_disagree_on_are_refused_with_their_place(backend: Backend) {
    let server = Fresh::start(backend);
    let deep = format!("{{\"x\":{}{}}}", "[".repeat(2_000), "]".repeat(2_000));
    for (payload, words) in [
        (r#"{"n":[1e400]}"#, "`/n/0`"),
        (r#"{"n":1e-400}"#, "read as 0"),
        (r#"{"n":18446744073709551616}"#, "2^64-1"),
        (r#"{"n":{"m":1,"m":1}}"#, "the same key twice, at `/n/m`"),
        (r#"{"n":"\u0000"}"#, "\\u0000, at `/n`"),
        (r#"{"n":"\ud800"}"#, "surrogate"),
        (deep.as_str(), "64 levels"),
    ] {
        let event = with_payload("bad", payload);
        let lines = format!("{}\n{event}\n", reservation("good"));
        let lines = server
            .request(Method::POST, "/v1/events")
            .bearer_auth(KEY)
            .header(CONTENT_TYPE, "application/x-ndjson")
            .body(lines);
        Answer::to(lines)
            .await
            .assert_problem(422, "invalid")
            .assert_names(1, "/payload")
            .assert_says(&[words]);
        let preview = format!("{{\"event\":{event}}}");
        for (path, body, pointer) in [
            ("/v1/events", event.clone(), "/payload"),
            ("/v1/explain", event, "/payload"),
            ("/v1/templates/preview", preview, "/event/payload"),
        ] {
            let answer = server.send(Method::POST, path, body).await;
            answer.assert_problem(422, "invalid").assert_names(0, pointer).assert_says(&[words]);
        }
    }
    let twice = reservation("bad").to_string().replacen('{', "{\"event_type\":\"OTHER\",", 1);
    let answer = server.send(Method::POST, "/v1/events", twice).await;
    answer.assert_problem(422, "invalid").assert_says(&["duplicate field", "event_type"]);
    assert_nothing_written(&server).await;
}

async fn ids_that_no_url_can_name_are_refused(backend: Backend) {
    let server = Fresh::start(backend);
    for id in [".", ".."] {
        assert_refused(&server, &event_with("event_id", json!(id)), "/event_id").await;
    }
    assert_nothing_written(&server).await;
}

async fn events_that_sql_wrote_against_the_rules_fail_and_can_be_looked_at(backend: Backend) {
    let server = Fresh::start(backend);
    let insert = |id: &str, payload: &str| {
        format!(
            "INSERT INTO event_outbox (event_id, event_type, aggregate_type, aggregate_id, payload)
             VALUES ('{id}', 'T', 'RESTAURANT', '5', '{payload}')"
        )
    };
    let payload = r#"{"n": 1e400, "m": "\u0000"}"#;
    for statement in [insert("number", payload), insert("esc\u{1b}[31m", "{}")] {
        server.execute(&statement).await;
    }
    let trace = server.settled("number").await;
    assert_eq!((&trace["event"]["status"], &trace["event"]["payload"]), (&json!("FAILED"), &json!(payload)));
    assert!(trace["event"]["last_error"].as_str().unwrap().starts_with("UNREADABLE: column payload "));
    let of_user = server.get("/v1/events/number?user_type=CUSTOMER&user_id=1").await;
    assert_eq!(of_user["decisions"], json!([]));
    let trace = server.settled("esc%1B%5B31m").await;
    assert_eq!(
        (&trace["event"]["status"], &trace["event"]["event_id"]),
        (&json!("FAILED"), &json!("esc\u{1b}[31m"))
    );
}

async fn fields_beyond_their_limits_are_named(backend: Backend) {
    let server = Fresh::start(backend);
    for field in ["event_id", "event_type", "aggregate_type", "aggregate_id"] {
        for text in ["x".repeat(10_000), "x".repeat(201), "a\0b".to_owned(), "a\nb".to_owned()] {
            assert_refused(&server, &event_with(field, json!(text)), &format!("/{field}")).await;
        }
    }
    // With quotes and name, the payload is 8 bytes longer than its text.
    let payload = |bytes: usize| json!({"x": "y".repeat(bytes - 8)});
    assert_refused(&server, &event_with("payload", payload(64 * 1024 + 1)), "/payload").await;
    assert_nothing_written(&server).await;

    let mut largest = event_with("payload", payload(64 * 1024));
    largest["event_id"] = json!("ü".repeat(200));
    assert_eq!(server.emit(&largest).await["created"], true);
    let stored = server.settled(&"ü".repeat(200)).await;
    assert_eq!(stored["event"]["payload"], largest["payload"]);
}

async fn bodies_that_are_no_events_are_refused(backend: Backend) {
    let server = Fresh::start(backend);
    let deep = format!("{}{}", "[".repeat(1_000), "]".repeat(1_000));
    for body in ["7", "\"text\"", "null", "true", "[7]", "[null]", "[[]]", &deep] {
        let answer = server.send(Method::POST, "/v1/events", body.to_owned()).await;
        answer.assert_problem(422, "invalid").assert_names(0, "").assert_says(&["must be a JSON object"]);
    }
    let truncated = reservation("bad").to_string();
    let truncated = &truncated[..truncated.len() - 3];
    let not_utf8 = [b"{\"event_id\": \"".as_slice(), &[0xff, 0xfe], b"\"}"].concat();
    let not_utf8_value = [b"{\"event_id\": \"\xc3".as_slice(), b"\"}"].concat();
    for body in [
        Vec::new(),
        b" ".to_vec(),
        truncated.as_bytes().to_vec(),
        format!("{} {}", reservation("a"), reservation("b")).into_bytes(),
        b"event_id=1&event_type=2".to_vec(),
        not_utf8,
        not_utf8_value,
    ] {
        let answer = server.send(Method::POST, "/v1/events", body.clone()).await;
        answer.assert_problem(400, "malformed").assert_says(&["JSON"]);
        let answer = server.send(Method::POST, "/v1/explain", body.clone()).await;
        answer.assert_problem(400, "malformed");
        let answer = server.send(Method::PUT, "/v1/recipients", body).await;
        answer.assert_problem(400, "malformed");
    }
    server.post("/v1/explain", &json!([])).await.assert_problem(400, "malformed").assert_says(&["object"]);

    // For lines, the error names the first unreadable one.
    let lines = format!("{}\n\n{{\"event_id\": \n{}\n", reservation("a"), reservation("b"));
    let request = server
        .request(Method::POST, "/v1/events")
        .bearer_auth(KEY)
        .header(CONTENT_TYPE, "application/x-ndjson");
    Answer::to(request.body(lines)).await.assert_problem(400, "malformed").assert_says(&["line 3"]);
    assert_nothing_written(&server).await;
}

async fn a_body_of_ten_megabytes_is_too_large_however_it_is_sent(backend: Backend) {
    const BYTES: usize = 10_000_000;
    let server = Fresh::start(backend);
    for (method, path) in
        [(Method::POST, "/v1/events"), (Method::POST, "/v1/explain"), (Method::PUT, "/v1/recipients")]
    {
        let answer = server.send(method, path, vec![b' '; BYTES]).await;
        answer.assert_problem(413, "too-large").assert_says(&["bytes"]);
    }
    let answer = chunked(&server, BYTES);
    assert!(answer.starts_with("HTTP/1.1 413 ") && answer.contains("urn:campanile:too-large"), "{answer}");
    // A large body within the limit is read to its end.
    let answer = server.send(Method::POST, "/v1/events", vec![b' '; 8 * 1024 * 1024]).await;
    answer.assert_problem(400, "malformed");
    assert_nothing_written(&server).await;
}

/// Sends a whole body of unknown length, and returns the whole response.
fn chunked(server: &Fresh, bytes: usize) -> String {
    const CHUNK: usize = 100_000;
    let mut stream = TcpStream::connect(server.url.trim_start_matches("http://")).unwrap();
    let head = format!(
        "POST /v1/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {KEY}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let chunk = format!("{CHUNK:x}\r\n{}\r\n", " ".repeat(CHUNK));
    for _ in 0..bytes / CHUNK {
        stream.write_all(chunk.as_bytes()).unwrap();
    }
    stream.write_all(b"0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

async fn queries_that_make_no_sense_are_named(backend: Backend) {
    let server = Fresh::start(backend);
    for (path, words) in [
        ("/v1/events?colour=red", ["`colour`", "event_type"]),
        ("/v1/events?Status=FAILED", ["`Status`", "status"]),
        ("/v1/events?status=LOST", ["status", "LOST"]),
        ("/v1/events?status=failed", ["status", "failed"]),
        ("/v1/events?order=sideways", ["order", "oldest"]),
        ("/v1/events?cursor=abc", ["cursor", "abc"]),
        ("/v1/events?limit=0", ["limit", "1000"]),
        ("/v1/events?limit=1001", ["limit", "1000"]),
        ("/v1/events?limit=-1", ["limit", "1000"]),
        ("/v1/events?limit=ten", ["limit", "ten"]),
        ("/v1/events?limit=99999999999999999999", ["limit", "9999"]),
        ("/v1/events/evt-1?limit=5", ["`limit`", "cursor"]),
        ("/v1/captured?user_id=1", ["`user_id`", "event_id"]),
        ("/v1/captured?cursor=x", ["cursor", "x"]),
        ("/v1/captured?limit=0", ["limit", "1000"]),
    ] {
        server.try_get(path).await.assert_problem(422, "invalid-query").assert_says(&words);
    }
}

on_both! {
    fields_of_the_wrong_type_are_named;
    payloads_that_readers_disagree_on_are_refused_with_their_place;
    ids_that_no_url_can_name_are_refused;
    events_that_sql_wrote_against_the_rules_fail_and_can_be_looked_at;
    fields_beyond_their_limits_are_named;
    bodies_that_are_no_events_are_refused;
    a_body_of_ten_megabytes_is_too_large_however_it_is_sent;
    queries_that_make_no_sense_are_named;
}
