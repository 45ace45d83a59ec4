//! The worked examples of the design over HTTP, row by row: explained for a time of day, and as real events.

use std::collections::{BTreeMap, BTreeSet};

use campanile_testkit::on_both;
use serde_json::{Value, json};

use crate::interface::fresh::{Fresh, event, with};
use crate::support::{Backend, reservation, staff};

const AFTERNOON: &str = "2026-01-21T15:00:00Z";
const NIGHT: &str = "2026-01-21T23:00:00Z";
const CHANNELS: [&str; 4] = ["EMAIL", "PUSH", "SMS", "WEBSOCKET"];

/// Channels and verdicts of each user, by `TYPE id`.
type Verdicts = BTreeMap<String, BTreeMap<String, String>>;

fn verdicts(answer: &Value) -> Verdicts {
    let decisions = answer["decisions"].as_array().expect("decisions are a list").iter();
    let of =
        |decision: &Value| serde_json::from_value(decision["channels"].clone()).expect("verdicts by channel");
    decisions.map(|d| (who(&d["user_type"], &d["user_id"]), of(d))).collect()
}

fn who(user_type: &Value, user_id: &Value) -> String {
    format!("{} {}", user_type.as_str().unwrap_or_default(), user_id.as_str().unwrap_or_default())
}

async fn explain(server: &Fresh, event: &Value, at: &str) -> Verdicts {
    let answer = server.post("/v1/explain", &with(event, &json!({"at": at}))).await;
    assert_eq!((answer.status, &answer.body["failure"]), (200, &Value::Null), "{}", answer.body);
    verdicts(&answer.body)
}

/// The decisions of the real event, checked against its rows and sends.
async fn emit(server: &Fresh, event: &Value) -> Verdicts {
    server.emit(event).await;
    let trace = server.settled(event["event_id"].as_str().unwrap()).await;
    assert_eq!(trace["event"]["status"], "PROCESSED", "{trace}");
    let decided = verdicts(&trace);
    let to_send: BTreeSet<String> = decided
        .iter()
        .flat_map(|(user, channels)| {
            sent(channels).into_iter().map(move |channel| format!("{user} {channel}"))
        })
        .collect();
    let rows = |list: &str, user_type: &str, user_id: &str, status: &str| -> BTreeSet<String> {
        let rows =
            trace[list].as_array().unwrap().iter().inspect(|row| assert_eq!(row["status"], status, "{row}"));
        rows.map(|row| {
            format!("{} {}", who(&row[user_type], &row[user_id]), row["channel"].as_str().unwrap())
        })
        .collect()
    };
    assert_eq!(rows("outbox", "recipient_type", "recipient_id", "DELIVERED"), to_send);
    assert_eq!(rows("sends", "user_type", "user_id", "SENT"), to_send);
    decided
}

/// The used channels, in alphabetical order.
fn sent(channels: &BTreeMap<String, String>) -> Vec<&str> {
    channels.iter().filter(|(_, verdict)| *verdict == "SEND").map(|(channel, _)| channel.as_str()).collect()
}

fn count(decided: &Verdicts) -> usize {
    decided.values().map(|channels| sent(channels).len()).sum()
}

/// A setting of the entity for each channel; SMS as given.
fn settings(entity_type: &str, entity_id: u32, off: &str) -> Value {
    let setting = |channel: &str| {
        let enabled = channel != off;
        json!({"entity_type": entity_type, "entity_id": entity_id, "channel": channel, "enabled": enabled})
    };
    json!(CHANNELS.map(setting))
}

fn preferences(user_type: &str, user_id: u32, fields: &Value) -> Value {
    let preference = |channel: &str| {
        with(&json!({"user_type": user_type, "user_id": user_id, "channel": channel}), fields)
    };
    json!(CHANNELS.map(preference))
}

/// Restaurant 5 with EMAIL, PUSH and WEBSOCKET on and SMS off; its first person has enabled everything.
async fn restaurant(server: &Fresh, people: usize) {
    server.put("/v1/recipients", json!(staff().as_array().unwrap()[..people])).await;
    server.put("/v1/settings", settings("RESTAURANT", 5, "SMS")).await;
    server.put("/v1/preferences", preferences("RESTAURANT_USER", 1, &json!({"enabled": true}))).await;
}

async fn a_reservation_in_the_afternoon_goes_by_what_the_group_has_on(backend: Backend) {
    let server = Fresh::start(backend);
    restaurant(&server, 1).await;
    let explained = explain(&server, &reservation("evt-1"), AFTERNOON).await;
    let channels = &explained["RESTAURANT_USER 1"];
    assert_eq!(sent(channels), ["EMAIL", "PUSH", "WEBSOCKET"]);
    assert_eq!((channels["SMS"].as_str(), channels["SLACK"].as_str()), ("GROUP_OFF", "NOT_ROUTED"));
    assert_eq!(emit(&server, &reservation("evt-1")).await, explained);
}

async fn at_night_quiet_hours_leave_the_web_socket(backend: Backend) {
    let server = Fresh::start(backend);
    restaurant(&server, 1).await;
    let quiet = json!({"quiet_hours_start": "22:00", "quiet_hours_end": "08:00"});
    server.put("/v1/preferences", preferences("RESTAURANT_USER", 1, &quiet)).await;
    let at = async |moment: &str| {
        explain(&server, &reservation("evt-1"), moment).await["RESTAURANT_USER 1"].clone()
    };
    let night = at(NIGHT).await;
    assert_eq!(sent(&night), ["WEBSOCKET"]);
    assert_eq!((night["EMAIL"].as_str(), night["PUSH"].as_str()), ("QUIET_HOURS", "QUIET_HOURS"));
    for awake in [AFTERNOON, "2026-01-21T21:59:59Z", "2026-01-22T08:00:00Z"] {
        assert_eq!(sent(&at(awake).await), ["EMAIL", "PUSH", "WEBSOCKET"], "{awake}");
    }
    for asleep in ["2026-01-21T22:00:00Z", "2026-01-22T00:00:00Z", "2026-01-22T07:59:59Z"] {
        assert_eq!(sent(&at(asleep).await), ["WEBSOCKET"], "{asleep}");
    }
    // In the person's own zone: 22:00 in Rome is 21:00 UTC in winter and 20:00 in summer.
    let in_rome = with(&staff()[0], &json!({"time_zone": "Europe/Rome"}));
    server.put("/v1/recipients", json!([in_rome])).await;
    for (moment, quiet) in [
        ("2026-01-21T20:59:59Z", false),
        ("2026-01-21T21:00:00Z", true),
        ("2026-07-21T19:59:59Z", false),
        ("2026-07-21T20:00:00Z", true),
    ] {
        assert_eq!(at(moment).await["EMAIL"] == "QUIET_HOURS", quiet, "{moment}");
    }
    let urgent = with(&reservation("evt-1"), &json!({"priority": "HIGH"}));
    let urgent = explain(&server, &urgent, NIGHT).await;
    assert_eq!(sent(&urgent["RESTAURANT_USER 1"]), ["EMAIL", "PUSH", "WEBSOCKET"]);
}

async fn three_staff_of_whom_one_has_push_off_are_eight_rows(backend: Backend) {
    let server = Fresh::start(backend);
    restaurant(&server, 3).await;
    let off = json!([{"user_type": "RESTAURANT_USER", "user_id": 3, "channel": "PUSH", "enabled": false}]);
    server.put("/v1/preferences", off).await;
    let explained = explain(&server, &reservation("evt-1"), AFTERNOON).await;
    let decided = emit(&server, &reservation("evt-1")).await;
    assert_eq!(decided, explained);
    assert_eq!(count(&decided), 3 + 3 + 2);
    assert_eq!(sent(&decided["RESTAURANT_USER 3"]), ["EMAIL", "WEBSOCKET"]);
    assert_eq!(decided["RESTAURANT_USER 3"]["PUSH"], "USER_OFF");
}

async fn text_messages_for_managers_leave_out_the_waiter(backend: Backend) {
    let server = Fresh::start(backend);
    restaurant(&server, 2).await;
    let managers =
        json!([{"entity_type": "RESTAURANT", "entity_id": 5, "channel": "SMS", "roles": ["MANAGER"]}]);
    server.put("/v1/settings", managers).await;
    let explained = explain(&server, &reservation("evt-1"), AFTERNOON).await;
    let decided = emit(&server, &reservation("evt-1")).await;
    assert_eq!(decided, explained);
    assert_eq!(sent(&decided["RESTAURANT_USER 1"]), ["EMAIL", "PUSH", "SMS", "WEBSOCKET"]);
    assert_eq!(sent(&decided["RESTAURANT_USER 2"]), ["EMAIL", "PUSH", "WEBSOCKET"]);
    assert_eq!(decided["RESTAURANT_USER 2"]["SMS"], "ROLE");
}

fn person(user_type: &str, user_id: u32) -> Value {
    json!({
        "user_type": user_type, "user_id": user_id, "email": format!("p{user_id}@example.com"),
        "phone": format!("+39055{user_id}"), "push_tokens": [format!("token-{user_id}")],
    })
}

async fn an_agency_without_push_is_told_by_the_others(backend: Backend) {
    let server = Fresh::start(backend);
    let agent =
        with(&person("AGENCY_USER", 7), &json!({"entity_type": "AGENCY", "entity_id": 10, "role": "AGENT"}));
    server.put("/v1/recipients", json!([agent])).await;
    server.put("/v1/settings", settings("AGENCY", 10, "PUSH")).await;
    server.put("/v1/preferences", preferences("AGENCY_USER", 7, &json!({"enabled": true}))).await;
    let event = event("evt-1", "PARTNER_ASSIGNMENT", "AGENCY", 10);
    let decided = emit(&server, &event).await;
    assert_eq!(decided, explain(&server, &event, AFTERNOON).await);
    assert_eq!(sent(&decided["AGENCY_USER 7"]), ["EMAIL", "SMS", "WEBSOCKET"]);
    assert_eq!(decided["AGENCY_USER 7"]["PUSH"], "GROUP_OFF");
}

async fn a_customer_has_no_group_and_gets_every_channel(backend: Backend) {
    let server = Fresh::start(backend);
    server.put("/v1/recipients", json!([person("CUSTOMER", 42), person("CUSTOMER", 43)])).await;
    let event = event("evt-1", "RESERVATION_CONFIRMED", "CUSTOMER", 42);
    let decided = emit(&server, &event).await;
    assert_eq!(decided, explain(&server, &event, AFTERNOON).await);
    assert_eq!(decided.keys().collect::<Vec<_>>(), ["CUSTOMER 42"]);
    assert_eq!(sent(&decided["CUSTOMER 42"]), CHANNELS);
}

async fn a_chat_message_goes_by_web_socket_though_the_user_has_all_off(backend: Backend) {
    let server = Fresh::start(backend);
    restaurant(&server, 1).await;
    server.put("/v1/settings", settings("RESTAURANT", 5, "none")).await;
    server.put("/v1/preferences", preferences("RESTAURANT_USER", 1, &json!({"enabled": false}))).await;
    let only = json!([{"event_type": "CHAT_MESSAGE_SENT", "channel": "WEBSOCKET", "mandatory": true}]);
    server.put("/v1/routing", only).await;
    let event = with(&reservation("evt-1"), &json!({"event_type": "CHAT_MESSAGE_SENT"}));
    let decided = emit(&server, &event).await;
    assert_eq!(decided, explain(&server, &event, AFTERNOON).await);
    let channels = &decided["RESTAURANT_USER 1"];
    assert_eq!(sent(channels), ["WEBSOCKET"]);
    assert!(["EMAIL", "PUSH", "SMS", "SLACK"].iter().all(|channel| channels[*channel] == "NOT_ROUTED"));
}

async fn three_audiences_are_four_notifications(backend: Backend) {
    let server = Fresh::start(backend);
    let waiter = with(&person("RESTAURANT_USER", 50), &json!({"entity_type": "RESTAURANT", "entity_id": 5}));
    // The waiter's id is also a customer's, who is not concerned.
    let people = [
        person("ADMIN_USER", 1),
        person("ADMIN_USER", 2),
        waiter,
        person("CUSTOMER", 456),
        person("CUSTOMER", 50),
    ];
    server.put("/v1/recipients", json!(people)).await;
    let audience = |name: &str, user_type: &str, path: Value| {
        let audience = json!({"event_type": "CANCELLATION", "name": name, "recipient_type": user_type});
        with(&audience, &json!({"entity_path": path}))
    };
    let audiences = json!([
        audience("admins", "ADMIN_USER", Value::Null),
        audience("staff", "RESTAURANT_USER", json!("/payload/restaurantId")),
        audience("customer", "CUSTOMER", json!("/payload/customerId")),
    ]);
    server.put("/v1/audiences", audiences).await;
    let event = json!({
        "event_id": "evt-1", "event_type": "CANCELLATION", "aggregate_type": "RESERVATION", "aggregate_id": 1001,
        "payload": {"restaurantId": 5, "customerId": 456},
    });
    let decided = emit(&server, &event).await;
    assert_eq!(decided, explain(&server, &event, AFTERNOON).await);
    assert_eq!(
        decided.keys().collect::<Vec<_>>(),
        ["ADMIN_USER 1", "ADMIN_USER 2", "CUSTOMER 456", "RESTAURANT_USER 50"]
    );
    assert_eq!(sent(&decided["ADMIN_USER 1"]), ["EMAIL", "WEBSOCKET"]);
    assert_eq!(decided["ADMIN_USER 1"]["PUSH"], "UNSUPPORTED");
    assert_eq!(sent(&decided["RESTAURANT_USER 50"]), CHANNELS);
    let trace = server.get("/v1/events/evt-1").await;
    assert_eq!(trace["notifications"].as_array().unwrap().len(), 4);
    let audience = |decision: &Value| decision["audience"].as_str().unwrap().to_owned();
    let audiences: BTreeSet<String> = trace["decisions"].as_array().unwrap().iter().map(audience).collect();
    assert_eq!(audiences, BTreeSet::from(["admins", "customer", "staff"].map(str::to_owned)));
}

async fn explaining_writes_nothing(backend: Backend) {
    let server = Fresh::start(backend);
    restaurant(&server, 3).await;
    for at in [AFTERNOON, NIGHT] {
        explain(&server, &with(&reservation("evt-1"), &json!({"event_id": null})), at).await;
        explain(&server, &reservation("evt-1"), at).await;
    }
    assert_eq!(server.items("/v1/events").await.len(), 0);
    assert_eq!(server.captured().await.len(), 0);
    assert_eq!(server.emit(&reservation("evt-1")).await["created"], true);
}

on_both! {
    a_reservation_in_the_afternoon_goes_by_what_the_group_has_on;
    at_night_quiet_hours_leave_the_web_socket;
    three_staff_of_whom_one_has_push_off_are_eight_rows;
    text_messages_for_managers_leave_out_the_waiter;
    an_agency_without_push_is_told_by_the_others;
    a_customer_has_no_group_and_gets_every_channel;
    a_chat_message_goes_by_web_socket_though_the_user_has_all_off;
    three_audiences_are_four_notifications;
    explaining_writes_nothing;
}
