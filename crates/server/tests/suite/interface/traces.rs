//! The trace of an event: who was considered, what was decided and why, and where each row is.

use std::collections::BTreeSet;

use campanile_testkit::on_both;
use serde_json::{Value, json};

use crate::interface::fresh::{Fresh, encoded, event, with};
use crate::support::{Backend, reservation, staff, until};

fn rows<'a>(trace: &'a Value, name: &str) -> &'a [Value] {
    trace[name].as_array().map(Vec::as_slice).expect("a trace has lists")
}

/// Restaurant 5: person 2 has switched push off, and SMS is for managers.
async fn restaurant(server: &Fresh) {
    server.put("/v1/recipients", staff()).await;
    let no_push =
        json!([{"user_type": "RESTAURANT_USER", "user_id": 2, "channel": "PUSH", "enabled": false}]);
    server.put("/v1/preferences", no_push).await;
    let managers =
        json!([{"entity_type": "RESTAURANT", "entity_id": 5, "channel": "SMS", "roles": ["MANAGER"]}]);
    server.put("/v1/settings", managers).await;
}

async fn a_trace_tells_everything_about_an_event(backend: Backend) {
    let server = Fresh::start(backend);
    restaurant(&server).await;
    server.emit(&with(&reservation("evt-1"), &json!({"occurred_at": "2026-01-21T11:15:30+01:00"}))).await;
    let trace = server.settled("evt-1").await;

    let event = &trace["event"];
    assert_eq!(event["status"], "PROCESSED");
    assert_eq!(event["payload"], json!({"guest": "John Doe", "party": 4}));
    assert_eq!(event["occurred_at"], "2026-01-21T10:15:30.000Z");
    assert_eq!((&event["retry_count"], &event["last_error"]), (&json!(0), &Value::Null));
    for moment in ["created_at", "published_at", "processed_at"] {
        assert!(event[moment].as_str().is_some_and(|at| at.ends_with('Z')), "{moment}: {event}");
    }

    let decisions = rows(&trace, "decisions");
    let users: Vec<&Value> = decisions.iter().map(|d| &d["user_id"]).collect();
    assert_eq!(users, ["1", "2", "3"]);
    let waiter = &decisions[1];
    assert_eq!((&waiter["name"], &waiter["role"]), (&json!("Person 2"), &json!("WAITER")));
    let expected = json!({
        "EMAIL": "SEND", "PUSH": "USER_OFF", "SMS": "ROLE", "WEBSOCKET": "SEND", "SLACK": "NOT_ROUTED",
    });
    assert_eq!(waiter["channels"], expected);
    let because = &waiter["details"];
    assert_eq!(because["PUSH"], json!({"rule": "user_notification_preferences", "event_type": "*"}));
    assert_eq!(because["SMS"]["rule"], "entity_notification_settings");
    assert_eq!((&because["SMS"]["entity_id"], &because["SMS"]["roles"]), (&json!("5"), &json!(["MANAGER"])));
    assert!(because["EMAIL"].is_null());

    assert_eq!(rows(&trace, "outbox").len(), 4 + 2 + 3);
    for row in rows(&trace, "outbox") {
        assert_eq!((&row["event_id"], &row["status"]), (&json!("evt-1"), &json!("DELIVERED")), "{row}");
        // Without a template: the event type in words.
        assert_eq!((&row["title"], &row["body"]), (&json!("Reservation requested"), &json!("")), "{row}");
        assert_eq!((&row["priority"], &row["recipient_type"]), (&json!("NORMAL"), &json!("RESTAURANT_USER")));
    }
    let addresses: BTreeSet<&str> =
        rows(&trace, "outbox").iter().filter_map(|row| row["recipient_address"].as_str()).collect();
    let expected =
        ["", "+390550001", "p1@example.com", "p2@example.com", "p3@example.com", "token-1", "token-3"];
    assert_eq!(addresses, BTreeSet::from(expected));

    assert_eq!(rows(&trace, "notifications").len(), 3);
    for row in rows(&trace, "notifications") {
        assert_eq!((&row["entity_type"], &row["entity_id"]), (&json!("RESTAURANT"), &json!("5")), "{row}");
        assert_eq!((&row["shared_read"], &row["read_at"]), (&json!(true), &Value::Null), "{row}");
        assert_eq!(row["properties"]["payload"], event["payload"], "{row}");
    }
    assert_eq!(rows(&trace, "sends").len(), 9);
    for send in rows(&trace, "sends") {
        assert_eq!((&send["status"], &send["attempt_count"]), (&json!("SENT"), &json!(1)), "{send}");
        assert_eq!(send["attempts"], json!([]), "a first success is no attempt worth a row");
        assert!(send["sent_at"].is_string() && send["last_error"].is_null(), "{send}");
    }
    assert_eq!(trace["dead_letters"], json!([]));
    assert!(trace["next"].is_null());
}

async fn a_trace_can_be_asked_for_one_user(backend: Backend) {
    let server = Fresh::start(backend);
    restaurant(&server).await;
    let namesake = json!([{"user_type": "CUSTOMER", "user_id": 2, "email": "c2@example.com"}]);
    server.put("/v1/recipients", namesake).await;
    server.emit(&reservation("evt-1")).await;
    server.settled("evt-1").await;

    let trace = server.get("/v1/events/evt-1?user_type=RESTAURANT_USER&user_id=2").await;
    assert_eq!(trace["event"]["status"], "PROCESSED");
    for (list, user_id, count) in [
        ("decisions", "user_id", 1),
        ("outbox", "recipient_id", 2),
        ("notifications", "user_id", 1),
        ("sends", "user_id", 2),
    ] {
        assert_eq!(rows(&trace, list).len(), count, "{list}: {trace}");
        assert!(rows(&trace, list).iter().all(|row| row[user_id] == "2"), "{list}: {trace}");
    }
    // The same id with another type is another person, who is not concerned.
    let trace = server.get("/v1/events/evt-1?user_type=CUSTOMER&user_id=2").await;
    for list in ["decisions", "outbox", "notifications", "sends"] {
        assert_eq!(rows(&trace, list).len(), 0, "{list}: {trace}");
    }

    server.try_get("/v1/events/evt-2").await.assert_problem(404, "not-found").assert_says(&["`evt-2`"]);
    server.try_get("/v1/events/%FF").await.assert_problem(404, "not-found");
    let half = server.try_get("/v1/events/evt-1?user_id=2").await;
    half.assert_problem(422, "invalid-query").assert_says(&["user_type", "user_id"]);
    let half = server.try_get("/v1/events/evt-1?user_type=CUSTOMER").await;
    half.assert_problem(422, "invalid-query");
    let cursor = server.try_get("/v1/events/evt-1?cursor=nonsense").await;
    cursor.assert_problem(422, "invalid-query").assert_says(&["cursor"]);
}

async fn an_event_that_reaches_nobody_fails_and_says_why(backend: Backend) {
    let server = Fresh::start(backend);
    for (event, code, says) in [
        (event("evt-1", "LUNAR_ECLIPSE", "MOON", 5), "NO_AUDIENCE", "LUNAR_ECLIPSE"),
        (event("evt-2", "RESERVATION_REQUESTED", "RESTAURANT", 5), "NO_RECIPIENTS", "RESTAURANT 5"),
        (event("evt-3", "ORDER_CREATED", "ORDER", 5), "NO_AUDIENCE", "/payload/restaurantId"),
    ] {
        let explained = server.post("/v1/explain", &event).await;
        assert_eq!((explained.status, &explained.body["failure"]["code"]), (200, &json!(code)));
        assert!(explained.body["failure"]["detail"].as_str().unwrap().contains(says));

        server.emit(&event).await;
        let trace = server.settled(event["event_id"].as_str().unwrap()).await;
        assert_eq!(trace["event"]["status"], "FAILED", "{trace}");
        let error = trace["event"]["last_error"].as_str().unwrap();
        assert!(error.starts_with(&format!("{code}: ")) && error.contains(says), "{error}");
        let dead_letters = rows(&trace, "dead_letters");
        assert_eq!(dead_letters.len(), 1, "{trace}");
        assert_eq!(
            (&dead_letters[0]["reason"], &dead_letters[0]["stage"]),
            (&json!(code), &json!("fan_out"))
        );
        assert_eq!(rows(&trace, "outbox").len(), 0);
    }
    assert_eq!(server.captured().await.len(), 0);
}

async fn a_large_audience_is_counted_paged_and_answered_one_by_one(backend: Backend) {
    const GUESTS: usize = 1_100;
    let server = Fresh::start(backend);
    let guests: Vec<Value> = (0..GUESTS)
        .map(|n| json!({"user_type": "GUEST", "user_id": format!("g {n}"), "name": format!("Guest {n}")}))
        .collect();
    server.put("/v1/recipients", json!(guests)).await;
    let audience = json!([{"event_type": "FIREWORKS", "name": "guests", "recipient_type": "GUEST"}]);
    server.put("/v1/audiences", audience).await;
    server.emit(&event("evt-1", "FIREWORKS", "TOWN", 1)).await;
    let trace = until("the event has ended", async || {
        let trace = server.get("/v1/events/evt-1").await;
        (trace["event"]["status"] == "PROCESSED").then_some(trace)
    })
    .await;
    assert_eq!(
        (&trace["processed"]["recipients"], &trace["processed"]["sends"]),
        (&json!(GUESTS), &json!(GUESTS))
    );
    assert_eq!(trace["processed"]["counts"]["WEBSOCKET"], json!({"SEND": GUESTS}));
    assert_eq!(trace["processed"]["counts"]["EMAIL"], json!({"UNSUPPORTED": GUESTS}));
    assert_eq!(rows(&trace, "decisions").len(), 0, "above a thousand there are counts only");

    let one = server.get("/v1/events/evt-1?user_type=GUEST&user_id=g%20777").await;
    let decisions = rows(&one, "decisions");
    assert_eq!((decisions.len(), &decisions[0]["channels"]["WEBSOCKET"]), (1, &json!("SEND")), "{one}");
    assert_eq!((&decisions[0]["name"], rows(&one, "sends").len()), (&json!("Guest 777"), 1));
    let nobody = server.get("/v1/events/evt-1?user_type=GUEST&user_id=nobody").await;
    assert_eq!(rows(&nobody, "decisions").len(), 0);

    let mut seen = Vec::new();
    let mut page = trace;
    loop {
        assert!(rows(&page, "outbox").len() <= 1_000);
        assert_eq!(rows(&page, "outbox").len(), rows(&page, "sends").len());
        seen.extend(rows(&page, "notifications").iter().map(|row| row["user_id"].to_string()));
        let Some(next) = page["next"].as_str() else { break };
        page = server.get(&format!("/v1/events/evt-1?cursor={}", encoded(next))).await;
    }
    assert_eq!(seen.len(), GUESTS);
    assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), GUESTS);
}

async fn a_high_event_overtakes_and_is_not_held_back_by_quiet_hours(backend: Backend) {
    // They are in one transaction and claimed one at a time, so that their order shows.
    let server = Fresh::start_with(backend, &[("CAMPANILE_FAN_OUT__BATCH", "1")]);
    server.put("/v1/recipients", staff()).await;
    // The person's and the group's quiet hours cover the whole day together.
    let morning = json!({"channel": "EMAIL", "quiet_hours_start": "00:00", "quiet_hours_end": "12:00"});
    let evening = json!({"channel": "EMAIL", "quiet_hours_start": "12:00", "quiet_hours_end": "00:00"});
    let of_user = with(&morning, &json!({"user_type": "RESTAURANT_USER", "user_id": 1}));
    server.put("/v1/preferences", json!([of_user])).await;
    server.put("/v1/settings", json!([with(&evening, &json!({"entity_type": "RESTAURANT"}))])).await;
    let urgent_route =
        json!([{"event_type": "FIRE", "channel": "WEBSOCKET", "mandatory": true, "priority": "HIGH"}]);
    server.put("/v1/routing", urgent_route).await;
    let mut events: Vec<Value> = (1..=20).map(|n| reservation(&format!("normal-{n}"))).collect();
    events.insert(0, with(&reservation("low"), &json!({"priority": "LOW"})));
    events.push(with(&reservation("high"), &json!({"priority": "HIGH"})));
    events.push(with(&reservation("by-route"), &json!({"event_type": "FIRE"})));
    server.emit(&json!(events)).await;

    let mut order = Vec::new();
    for event in &events {
        let id = event["event_id"].as_str().unwrap();
        let published = server.settled(id).await["event"]["published_at"].as_str().unwrap().to_owned();
        order.push((published, id));
    }
    order.sort();
    let place = |id: &str| order.iter().position(|(_, other)| *other == id).unwrap();
    // On a slow machine a second worker may claim one of the next events while a batch is still being decided.
    assert!(place("high") <= 2 && place("by-route") <= 3 && place("low") >= events.len() - 3, "{order:?}");
    let email = |trace: &Value| rows(trace, "decisions")[0]["channels"]["EMAIL"].clone();
    let high = server.get("/v1/events/high").await;
    assert_eq!(email(&high), "SEND");
    assert!(
        rows(&high, "outbox").iter().all(|row| row["priority"] == "HIGH" && row["status"] == "DELIVERED")
    );
    assert_eq!(email(&server.get("/v1/events/low").await), "QUIET_HOURS");
}

on_both! {
    a_trace_tells_everything_about_an_event;
    a_trace_can_be_asked_for_one_user;
    an_event_that_reaches_nobody_fails_and_says_why;
    a_large_audience_is_counted_paged_and_answered_one_by_one;
    a_high_event_overtakes_and_is_not_held_back_by_quiet_hours;
}
