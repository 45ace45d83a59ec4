//! Emitting events: one, an array, lines; repeated, contradictory, and too many.

use campanile_testkit::on_both;
use reqwest::Method;
use reqwest::header::CONTENT_TYPE;
use serde_json::{Value, json};

use crate::interface::fresh::{Answer, Fresh, with};
use crate::support::{Backend, KEY, reservation, staff};

async fn the_same_event_again_is_known_and_another_body_is_refused(backend: Backend) {
    let server = Fresh::start(backend);
    let first = server.post("/v1/events", &reservation("evt-1")).await;
    assert_eq!(first.status, 202);
    assert_eq!(first.body, json!({"event_id": "evt-1", "created": true}));

    // The same event in another notation: other order, spaces, numbers instead of texts.
    let again = r#"{ "payload": {"party": 4, "guest": "John Doe"}, "aggregate_id": 5, "aggregate_type": "RESTAURANT",
        "event_type": "RESERVATION_REQUESTED", "event_id": "evt-1" }"#;
    let again = server.send(Method::POST, "/v1/events", again).await;
    assert_eq!((again.status, again.body), (202, json!({"event_id": "evt-1", "created": false})));

    let before = server.settled("evt-1").await["event"].clone();
    for other in [
        json!({"payload": {"guest": "Jane Doe"}}),
        json!({"payload": null}),
        json!({"event_type": "CANCELLATION"}),
        json!({"aggregate_type": "RESERVATION"}),
        json!({"aggregate_id": "6"}),
        json!({"priority": "HIGH"}),
        json!({"occurred_at": "2026-01-21T10:15:30Z"}),
    ] {
        let answer = server.post("/v1/events", &with(&reservation("evt-1"), &other)).await;
        answer.assert_problem(409, "conflict").assert_names(0, "/event_id");
    }
    assert_eq!(server.get("/v1/events/evt-1").await["event"], before);
    assert_eq!(server.items("/v1/events").await.len(), 1);
}

async fn arrays_and_lines_are_answered_in_their_order(backend: Backend) {
    let server = Fresh::start(backend);
    let created = |id: &str, created: bool| json!({"event_id": id, "created": created});
    let array = json!([reservation("z"), reservation("a"), reservation("m")]);
    let answer = server.post("/v1/events", &array).await;
    assert_eq!(answer.status, 202);
    assert_eq!(answer.body, json!([created("z", true), created("a", true), created("m", true)]));

    let lines = format!("{}\r\n\n{}\n{}", reservation("y"), reservation("a"), reservation("b"));
    for content_type in ["application/x-ndjson", "application/x-ndjson; charset=utf-8"] {
        let request =
            server.request(Method::POST, "/v1/events").bearer_auth(KEY).header(CONTENT_TYPE, content_type);
        let answer = Answer::to(request.body(lines.clone())).await;
        let fresh = content_type == "application/x-ndjson";
        assert_eq!(answer.status, 202);
        assert_eq!(answer.body, json!([created("y", fresh), created("a", false), created("b", fresh)]));
    }
    let ids: Vec<Value> =
        server.items("/v1/events?order=oldest").await.iter().map(|e| e["event_id"].clone()).collect();
    assert_eq!(ids, ["z", "a", "m", "y", "b"]);

    // An object returns an object, an array of one an array, and an empty array an empty array.
    assert_eq!(server.emit(&json!([reservation("one")])).await, json!([created("one", true)]));
    assert_eq!(server.emit(&json!([])).await, json!([]));
}

async fn a_batch_with_something_wrong_in_it_writes_nothing(backend: Backend) {
    let server = Fresh::start(backend);
    server.emit(&reservation("known")).await;
    let other = with(&reservation("known"), &json!({"payload": {"guest": "Jane"}}));
    let invalid = with(&reservation("invalid"), &json!({"event_type": ""}));

    let conflict = json!([reservation("new-1"), other, reservation("new-2")]);
    server.post("/v1/events", &conflict).await.assert_problem(409, "conflict").assert_names(1, "/event_id");

    let one_invalid = json!([reservation("new-1"), reservation("new-2"), invalid]);
    let answer = server.post("/v1/events", &one_invalid).await;
    answer.assert_problem(422, "invalid").assert_names(2, "/event_type");

    // Invalid events are reported before conflicts.
    let both = json!([other, invalid]);
    server.post("/v1/events", &both).await.assert_problem(422, "invalid").assert_names(1, "/event_type");

    let several = server.post("/v1/events", &json!([invalid, reservation("new-1"), invalid])).await;
    let positions: Vec<&Value> =
        several.body["errors"].as_array().unwrap().iter().map(|error| &error["index"]).collect();
    assert_eq!(positions, [0, 2]);
    several.assert_problem(422, "invalid").assert_says(&["2 problems", "nothing was written"]);

    let events = server.items("/v1/events").await;
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(server.get("/v1/events/known").await["event"]["payload"]["guest"], "John Doe");
}

async fn an_id_twice_in_one_call_counts_once_or_contradicts_itself(backend: Backend) {
    let server = Fresh::start(backend);
    let twice = server.emit(&json!([reservation("evt-1"), reservation("evt-2"), reservation("evt-1")])).await;
    let created: Vec<&Value> = twice.as_array().unwrap().iter().map(|a| &a["created"]).collect();
    assert_eq!(created, [true, true, false]);

    let other = with(&reservation("evt-3"), &json!({"aggregate_id": "6"}));
    let answer = server.post("/v1/events", &json!([reservation("evt-3"), other])).await;
    answer.assert_problem(422, "invalid").assert_names(1, "/event_id");
    // Even if the id is known with the first body: 422 comes before 409.
    let other = with(&reservation("evt-1"), &json!({"aggregate_id": "6"}));
    let answer = server.post("/v1/events", &json!([reservation("evt-1"), other])).await;
    answer.assert_problem(422, "invalid").assert_names(1, "/event_id");
    assert_eq!(server.items("/v1/events").await.len(), 2);
}

async fn numbers_are_ids_too(backend: Backend) {
    let server = Fresh::start(backend);
    server.put("/v1/recipients", staff()).await;
    let event =
        json!({"event_id": 7, "event_type": "TEST", "aggregate_type": "RESTAURANT", "aggregate_id": 5});
    assert_eq!(server.emit(&event).await, json!({"event_id": "7", "created": true}));
    let trace = server.settled("7").await;
    assert_eq!(trace["event"]["aggregate_id"], "5");
    assert_eq!(trace["event"]["payload"], json!({}));
    assert_eq!(trace["decisions"].as_array().unwrap().len(), 3);
    assert_eq!(server.emit(&with(&event, &json!({"event_id": "7"}))).await["created"], false);
}

async fn a_thousand_events_at_once_are_accepted_and_not_one_more(backend: Backend) {
    let server = Fresh::start(backend);
    let many = |count: usize| json!((0..count).map(|n| reservation(&format!("evt-{n}"))).collect::<Vec<_>>());
    let answer = server.post("/v1/events", &many(1001)).await;
    answer.assert_problem(422, "invalid").assert_says(&["1000", "1001"]);
    assert_eq!(server.items("/v1/events").await.len(), 0);
    let answers = server.emit(&many(1000)).await;
    assert_eq!(answers.as_array().unwrap().len(), 1000);
    assert!(answers.as_array().unwrap().iter().all(|answer| answer["created"] == true));
}

on_both! {
    the_same_event_again_is_known_and_another_body_is_refused;
    arrays_and_lines_are_answered_in_their_order;
    a_batch_with_something_wrong_in_it_writes_nothing;
    an_id_twice_in_one_call_counts_once_or_contradicts_itself;
    numbers_are_ids_too;
    a_thousand_events_at_once_are_accepted_and_not_one_more;
}
