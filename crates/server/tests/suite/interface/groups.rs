//! Users without an entity form a group by their user type: they share what an audience shares, and have common
//! settings. Also thresholds on routes and settings, and paths with several pointers.

use campanile_testkit::on_both;
use serde_json::{Value, json};

use crate::interface::fresh::{Fresh, event, with};
use crate::support::{Backend, staff};

/// Emits the event and waits until it is settled.
async fn trace(server: &Fresh, event: Value) -> Value {
    server.emit(&event).await;
    server.settled(event["event_id"].as_str().expect("an event has an id")).await
}

fn verdicts(trace: &Value, channel: &str) -> Vec<Value> {
    let decisions = trace["decisions"].as_array().expect("decisions");
    decisions.iter().map(|decision| decision["channels"][channel].clone()).collect()
}

fn person(user_type: &str, user_id: u32) -> Value {
    json!({
        "user_type": user_type, "user_id": user_id, "email": format!("p{user_id}@example.com"),
        "phone": format!("+390550{user_id:03}"), "push_tokens": [format!("token-{user_id}")],
    })
}

async fn admins_share_what_their_audience_shares(backend: Backend) {
    let server = Fresh::start(backend);
    server.put("/v1/recipients", json!([person("ADMIN_USER", 1), person("ADMIN_USER", 2)])).await;
    let audience = |name: &str, recipient_type: &str| {
        json!([{"event_type": "DISK_FULL", "name": name,
        "recipient_type": recipient_type, "shared_read": true}])
    };
    server.put("/v1/audiences", audience("admins", "ADMIN_USER")).await;
    let seen = trace(&server, event("disk-1", "DISK_FULL", "SERVER", 1)).await;
    let notifications = seen["notifications"].as_array().expect("notifications");
    assert_eq!(notifications.len(), 2);
    for notification in notifications {
        let shared =
            json!([notification["entity_type"], notification["entity_id"], notification["shared_read"]]);
        assert_eq!(shared, json!(["ADMIN_USER", "*", true]));
    }
    let everybody = server.try_put("/v1/audiences", &audience("everybody", "ALL")).await;
    everybody.assert_problem(422, "invalid").assert_names(0, "/shared_read");
}

async fn customers_have_settings_by_their_user_type(backend: Backend) {
    let server = Fresh::start(backend);
    server.put("/v1/recipients", json!([person("CUSTOMER", 42), person("CUSTOMER", 43)])).await;
    server
        .put(
            "/v1/settings",
            json!([
                {"entity_type": "CUSTOMER", "channel": "SMS", "min_priority": "HIGH"},
                {"entity_type": "CUSTOMER", "channel": "PUSH", "enabled": false},
                {"entity_type": "CUSTOMER", "channel": "EMAIL", "quiet_hours_start": "00:00",
                    "quiet_hours_end": "23:59",
                 "event_type": "NEWS"},
            ]),
        )
        .await;
    let paid = event("paid-42", "PAID", "CUSTOMER", 42);
    let usual = trace(&server, paid.clone()).await;
    assert_eq!(verdicts(&usual, "SMS"), ["LOW_PRIORITY"]);
    assert_eq!(verdicts(&usual, "PUSH"), ["GROUP_OFF"]);
    assert_eq!(verdicts(&usual, "EMAIL"), ["SEND"]);
    let details = &usual["decisions"][0]["details"]["SMS"];
    assert_eq!(details["rule"], "entity_notification_settings", "{details}");
    let urgent = with(&paid, &json!({"event_id": "paid-42-now", "priority": "HIGH"}));
    assert_eq!(verdicts(&trace(&server, urgent).await, "SMS"), ["SEND"]);

    // A customer has no entity, so a setting applies to all customers or none.
    let one = json!([{"entity_type": "CUSTOMER", "entity_id": 42, "channel": "SMS"}]);
    server.try_put("/v1/settings", &one).await.assert_problem(422, "invalid").assert_names(0, "/entity_id");
    let staff = json!([{"entity_type": "RESTAURANT_USER", "channel": "SMS"}]);
    let refused = server.try_put("/v1/settings", &staff).await;
    refused.assert_problem(422, "invalid").assert_names(0, "/entity_type").assert_says(&["RESTAURANT"]);
}

async fn a_route_has_a_threshold(backend: Backend) {
    let server = Fresh::start(backend);
    server.put("/v1/recipients", json!([person("CUSTOMER", 42)])).await;
    server
        .put(
            "/v1/routing",
            json!([
                {"event_type": "PAID", "channel": "SMS", "mandatory": true, "min_priority": "HIGH"},
                {"event_type": "PAID", "channel": "EMAIL", "min_priority": "NORMAL"},
            ]),
        )
        .await;
    let paid = event("paid-1", "PAID", "CUSTOMER", 42);
    let usual = trace(&server, paid.clone()).await;
    assert_eq!(
        (verdicts(&usual, "SMS"), verdicts(&usual, "EMAIL")),
        (vec![json!("LOW_PRIORITY")], vec![json!("SEND")])
    );
    let low = trace(&server, with(&paid, &json!({"event_id": "paid-2", "priority": "LOW"}))).await;
    assert_eq!(verdicts(&low, "EMAIL"), ["LOW_PRIORITY"]);
    let high = trace(&server, with(&paid, &json!({"event_id": "paid-3", "priority": "HIGH"}))).await;
    assert_eq!(verdicts(&high, "SMS"), ["SEND"]);
}

async fn the_first_pointer_that_leads_somewhere_counts(backend: Backend) {
    let server = Fresh::start(backend);
    server.put("/v1/recipients", staff()).await;
    let audience = json!([{
        "event_type": "TABLE_MOVED", "name": "staff", "recipient_type": "RESTAURANT_USER",
        "entity_path": "/payload/venue /payload/restaurantId",
    }]);
    server.put("/v1/audiences", audience).await;
    for (event_id, event_type, payload) in [
        ("moved-1", "TABLE_MOVED", json!({"venue": 5, "restaurantId": 6})),
        ("moved-2", "TABLE_MOVED", json!({"venue": null, "restaurantId": "5"})),
        // Without an audience the aggregate type decides, and both spellings are accepted.
        ("booked-1", "TABLE_BOOKED", json!({"restaurantId": 5})),
        ("booked-2", "TABLE_BOOKED", json!({"restaurant_id": 5})),
    ] {
        let event = with(&event(event_id, event_type, "RESERVATION", 100), &json!({"payload": payload}));
        assert_eq!(verdicts(&trace(&server, event).await, "EMAIL"), ["SEND", "SEND", "SEND"], "{event_id}");
    }
    let nowhere =
        trace(&server, with(&event("moved-3", "TABLE_MOVED", "RESERVATION", 100), &json!({"payload": {}})))
            .await;
    let error = nowhere["event"]["last_error"].as_str().expect("an error");
    assert!(
        error.starts_with("NO_AUDIENCE: ") && error.contains("/payload/venue or /payload/restaurantId"),
        "{error}"
    );
}

on_both! {
    admins_share_what_their_audience_shares;
    customers_have_settings_by_their_user_type;
    a_route_has_a_threshold;
    the_first_pointer_that_leads_somewhere_counts;
}
