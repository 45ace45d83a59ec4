//! What an end user chooses: read and written with the user's own token, and followed by the next event.

use campanile_testkit::on_both;
use campanile_testkit::token::{Algorithm, Issuer};
use reqwest::Method;
use serde_json::{Value, json};

use crate::interface::fresh::{Answer, Fresh};
use crate::interface::permissions::{claims, start, trusting};
use crate::support::{Backend, reservation, staff};

const PATH: &str = "/v1/inbox/preferences";
const EVENT_TYPE: &str = "RESERVATION_REQUESTED";

/// A server with three people and rules for one event type, and what signs their tokens.
async fn restaurant(backend: Backend) -> (Fresh, Issuer, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("there is room");
    let issuer = Issuer::new();
    let server = start(backend, &trusting(&issuer, folder.path()));
    server.put("/v1/recipients", staff()).await;
    let route = |channel: &str, mandatory: bool| -> Value {
        json!({ "event_type": EVENT_TYPE, "channel": channel, "mandatory": mandatory })
    };
    server.put("/v1/routing", json!([route("EMAIL", true), route("SMS", false), route("PUSH", false)])).await;
    (server, issuer, folder)
}

async fn call(server: &Fresh, token: &str, method: Method, body: &Value) -> Answer {
    Answer::to(server.request(method, PATH).bearer_auth(token).body(body.to_string())).await
}

/// What the user sees of one event type and channel.
async fn seen(server: &Fresh, token: &str, event_type: &str, channel: &str) -> Value {
    let answer = call(server, token, Method::GET, &Value::Null).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let items = answer.body["items"].as_array().expect("a list").clone();
    let found = items.into_iter().find(|item| item["event_type"] == event_type && item["channel"] == channel);
    found.unwrap_or_else(|| panic!("{event_type} {channel} is not in {}", answer.body))
}

async fn a_choice_is_seen_and_followed(backend: Backend) {
    let (server, issuer, _folder) = restaurant(backend).await;
    let token = issuer.token(Algorithm::Es256, &claims("RESTAURANT_USER", "1"));
    let sms = seen(&server, &token, "RESERVATION_REQUESTED", "SMS").await;
    assert_eq!((&sms["enabled"], &sms["own"], &sms["locked"]), (&json!(true), &json!(false), &Value::Null));
    assert_eq!(sms["effective"], "SEND");
    let off = json!([{ "event_type": "RESERVATION_REQUESTED", "channel": "SMS", "enabled": false }]);
    let written = call(&server, &token, Method::PUT, &off).await;
    assert_eq!((written.status, &written.body), (200, &json!({ "written": 1 })));
    let sms = seen(&server, &token, "RESERVATION_REQUESTED", "SMS").await;
    assert_eq!(
        (&sms["enabled"], &sms["own"], &sms["effective"]),
        (&json!(false), &json!(true), &json!("USER_OFF"))
    );
    server.emit(&reservation("evt-1")).await;
    let trace = server.settled("evt-1").await;
    let of_user = |id: &str| {
        let decisions = trace["decisions"].as_array().expect("there are decisions");
        decisions.iter().find(|decision| decision["user_id"] == id).expect("the user was considered")["channels"]["SMS"]
            .clone()
    };
    assert_eq!((of_user("1"), of_user("2")), (json!("USER_OFF"), json!("SEND")));
    assert!(server.items("/v1/audit?object_type=user_notification_preferences").await.is_empty());
}

async fn what_is_locked_says_why_and_stays_on(backend: Backend) {
    let (server, issuer, _folder) = restaurant(backend).await;
    let team = json!({ "event_type": "ALARM", "name": "staff", "recipient_type": "RESTAURANT_USER", "scope": "TEAM" });
    server.put("/v1/audiences", json!([team])).await;
    let token = issuer.token(Algorithm::Es256, &claims("RESTAURANT_USER", "1"));
    assert_eq!(seen(&server, &token, "RESERVATION_REQUESTED", "EMAIL").await["locked"], "MANDATORY");
    assert_eq!(seen(&server, &token, "ALARM", "EMAIL").await["locked"], "TEAM");
    for (event_type, says) in [("RESERVATION_REQUESTED", "mandatory"), ("ALARM", "whole team")] {
        let off = json!([{ "event_type": event_type, "channel": "EMAIL", "enabled": false }]);
        let answer = call(&server, &token, Method::PUT, &off).await;
        answer.assert_problem(422, "invalid").assert_names(0, "/enabled").assert_says(&[says]);
    }
    let quiet = json!({ "channel": "EMAIL", "quiet_hours_start": "00:00", "quiet_hours_end": "23:59" });
    assert_eq!(call(&server, &token, Method::PUT, &json!([quiet])).await.status, 200);
    let email = seen(&server, &token, "RESERVATION_REQUESTED", "EMAIL").await;
    assert_eq!((&email["own"], &email["quiet_hours_start"]), (&json!(false), &json!("00:00")), "{email}");
}

async fn a_user_reaches_only_their_own_preferences(backend: Backend) {
    let (server, issuer, _folder) = restaurant(backend).await;
    let off = json!([{ "channel": "SMS", "enabled": false }]);
    let anna = issuer.token(Algorithm::Es256, &claims("RESTAURANT_USER", "1"));
    assert_eq!(call(&server, &anna, Method::PUT, &off).await.status, 200);
    let bruno = issuer.token(Algorithm::Es256, &claims("RESTAURANT_USER", "2"));
    assert_eq!(seen(&server, &bruno, "*", "SMS").await["enabled"], true);
    let foreign = json!([{ "channel": "SMS", "user_id": "1" }]);
    call(&server, &bruno, Method::PUT, &foreign)
        .await
        .assert_problem(422, "invalid")
        .assert_names(0, "/user_id");
    // User 1 of another type is somebody else, and here nobody.
    let customer = issuer.token(Algorithm::Es256, &claims("CUSTOMER", "1"));
    call(&server, &customer, Method::GET, &Value::Null).await.assert_problem(404, "not-found");
    server.try_get(PATH).await.assert_problem(403, "forbidden").assert_says(&["end users"]);
}

async fn choices_that_cannot_be_right_are_refused_and_named(backend: Backend) {
    let (server, issuer, _folder) = restaurant(backend).await;
    let token = issuer.token(Algorithm::Es256, &claims("RESTAURANT_USER", "1"));
    for (choice, pointer) in [
        (json!({}), "/channel"),
        (json!({ "channel": "FAX" }), "/channel"),
        (json!({ "channel": "SMS", "enabled": "no" }), "/enabled"),
        (json!({ "channel": "SMS", "quiet_hours_start": "22:00" }), "/quiet_hours_end"),
        (json!({ "channel": "SMS", "quiet_hours_start": "25:00" }), "/quiet_hours_start"),
        (json!({ "channel": "SMS", "colour": "red" }), "/colour"),
    ] {
        let answer = call(&server, &token, Method::PUT, &json!([choice])).await;
        answer.assert_problem(422, "invalid").assert_names(0, pointer);
    }
    call(&server, &token, Method::PUT, &json!({})).await.assert_problem(400, "malformed");
    assert!(server.items("/v1/preferences").await.is_empty());
}

on_both! {
    a_choice_is_seen_and_followed;
    what_is_locked_says_why_and_stays_on;
    a_user_reaches_only_their_own_preferences;
    choices_that_cannot_be_right_are_refused_and_named;
}
