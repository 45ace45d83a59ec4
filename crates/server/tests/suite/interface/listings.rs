//! Lists of events and of captured messages: filters, orders, pages.

use campanile_testkit::on_both;
use serde_json::{Value, json};

use crate::interface::fresh::{Fresh, encoded, with};
use crate::support::{Backend, reservation, staff};

fn ids(items: &[Value]) -> Vec<&str> {
    items.iter().filter_map(|event| event["event_id"].as_str()).collect()
}

async fn events_are_found_by_status_and_type_in_either_order_page_by_page(backend: Backend) {
    let server = Fresh::start(backend);
    server.put("/v1/recipients", staff()).await;
    let mut events: Vec<Value> = (1..=7).map(|n| reservation(&format!("good-{n}"))).collect();
    events.extend((1..=4).map(|n| with(&reservation(&format!("bad-{n}")), &json!({"aggregate_id": 404}))));
    events.extend((1..=2).map(|n| with(&reservation(&format!("other-{n}")), &json!({"event_type": "TEST"}))));
    let all: Vec<&str> = ids(&events);
    server.emit(&json!(events)).await;
    for id in &all {
        server.settled(id).await;
    }

    for limit in [1, 3, 13, 1_000] {
        assert_eq!(ids(&server.pages("/v1/events?order=oldest", limit).await), all, "{limit} at a time");
        let newest = server.pages("/v1/events?order=newest", limit).await;
        assert_eq!(ids(&newest), all.iter().rev().copied().collect::<Vec<_>>(), "{limit} at a time");
    }
    assert_eq!(server.items("/v1/events").await[0]["event_id"], "other-2", "the newest first, unless asked");

    let failed = server.pages("/v1/events?status=FAILED&order=oldest", 3).await;
    assert_eq!(ids(&failed), ["bad-1", "bad-2", "bad-3", "bad-4"]);
    assert!(failed.iter().all(|event| event["last_error"].as_str().unwrap().starts_with("NO_RECIPIENTS: ")));
    assert_eq!(server.items("/v1/events?status=PROCESSED").await.len(), 9);
    assert_eq!(server.items("/v1/events?status=CANCELLED").await.len(), 0);
    assert_eq!(ids(&server.items("/v1/events?event_type=TEST").await), ["other-2", "other-1"]);
    assert_eq!(server.items("/v1/events?event_type=TEST&status=FAILED").await.len(), 0);
    assert_eq!(server.items("/v1/events?event_type=NONE").await.len(), 0);
}

async fn what_was_captured_is_listed_page_by_page_and_by_event(backend: Backend) {
    let server = Fresh::start(backend);
    server.put("/v1/recipients", staff()).await;
    server.emit(&json!([reservation("evt-1"), reservation("evt-2")])).await;
    server.settled("evt-1").await;
    server.settled("evt-2").await;

    let all = server.items("/v1/captured").await;
    assert_eq!(all.len(), 2 * 3 * 3);
    let first = &all[0];
    assert_eq!((&first["title"], &first["body"]), (&json!("Reservation requested"), &json!("")));
    for column in ["event_id", "user_type", "user_id", "channel", "address", "at"] {
        assert!(first[column].as_str().is_some_and(|text| !text.is_empty()), "{column}: {first}");
    }
    assert!(all.windows(2).all(|pair| pair[0]["id"].as_i64() < pair[1]["id"].as_i64()));
    for limit in [1, 4, 18] {
        assert_eq!(server.pages("/v1/captured", limit).await, all, "{limit} at a time");
    }
    let of_one = server.pages("/v1/captured?event_id=evt-2", 2).await;
    let expected: Vec<&Value> = all.iter().filter(|message| message["event_id"] == "evt-2").collect();
    assert_eq!(of_one.iter().collect::<Vec<_>>(), expected);
    assert_eq!(server.items("/v1/captured?event_id=evt-3").await.len(), 0);
    let sms: Vec<&Value> = of_one.iter().filter(|m| m["channel"] == "SMS" && m["user_id"] == "1").collect();
    assert_eq!((sms.len(), &sms[0]["address"]), (1, &json!("+390550001")));
}

async fn what_no_database_can_look_for_is_named(backend: Backend) {
    let server = Fresh::start(backend);
    for path in [
        "/v1/sends?event_id=%00",
        "/v1/events?event_type=a%00b",
        "/v1/dead-letters?event_id=%00",
        "/v1/captured?event_id=%00",
    ] {
        server
            .try_get(path)
            .await
            .assert_problem(422, "invalid-query")
            .assert_says(&["must not contain NUL"]);
    }
    server.try_get("/v1/events/a%00b").await.assert_problem(404, "not-found");
    let id = "01970000-0000-7000-8000-000000000000";
    for (filter, cursor) in [
        ("event_id=evt-1", json!(["CUSTOMER", "1\u{0}", "SMS"])),
        ("status=IN_DOUBT", json!(["-009999-01-02T00:00:00Z", id, "SMS"])),
        ("status=IN_DOUBT", json!(["2026-01-21T10:15:30+25:00", id, "SMS"])),
        ("status=DUE", json!(["SMS", "1", "2026-01-21T10:15:30Z[UTC]", id])),
    ] {
        let path = format!("/v1/sends?{filter}&cursor={}", encoded(&cursor.to_string()));
        server.try_get(&path).await.assert_problem(422, "invalid-query").assert_says(&["cursor"]);
    }
}

on_both! {
    events_are_found_by_status_and_type_in_either_order_page_by_page;
    what_was_captured_is_listed_page_by_page_and_by_event;
    what_no_database_can_look_for_is_named;
}
