//! Pushes by FCM, from the event to each device: the result of every token is kept, and only the remaining ones are
//! requested again.

use std::collections::{BTreeMap, BTreeSet};

use campanile_domain::time::Timestamp;
use campanile_testkit::on_both;
use campanile_testkit::provider::fcm::{FcmRequest, PROJECT};
use campanile_testkit::provider::google::{Google, error, told};
use campanile_testkit::provider::http::Reply;
use reqwest::Method;
use serde_json::{Value, json};

use crate::interface::command::Ran;
use crate::interface::fresh::{Answer, Fresh};
use crate::support::home::campanile;
use crate::support::{Backend, Home, reservation, staff};

/// `gone` is unregistered. `busy` is reached at the second request, and by then `leaving` is gone, too.
fn by_token() -> impl FnMut(&FcmRequest) -> Reply {
    let mut known = BTreeSet::new();
    move |asked| {
        let is_first = known.insert(asked.token().to_owned());
        match asked.token() {
            "leaving" | "busy" if is_first => error(503, "UNAVAILABLE", "UNAVAILABLE"),
            "gone" | "leaving" => error(404, "NOT_FOUND", "UNREGISTERED"),
            _ => told(asked),
        }
    }
}

fn serve(backend: Backend, google: &Google) -> Fresh {
    serve_with(backend, google, &[])
}

fn serve_with(backend: Backend, google: &Google, more: &[(&str, &str)]) -> Fresh {
    let given = google.variables();
    let mut variables: Vec<_> = given.iter().map(|(name, value)| (*name, value.as_str())).collect();
    variables.extend(more);
    variables.push(("CAMPANILE_CHANNELS__PUSH__DEADLINE", "2s"));
    Fresh::start_with(backend, &variables)
}

/// One person with these devices.
fn anna(tokens: &[&str]) -> Value {
    let mut anna = staff()[0].clone();
    anna["push_tokens"] = json!(tokens);
    json!([anna])
}

fn push(trace: &Value) -> &Value {
    trace["sends"].as_array().unwrap().iter().find(|send| send["channel"] == "PUSH").unwrap()
}

fn counts(of: &[(&str, usize)]) -> BTreeMap<String, usize> {
    of.iter().map(|(token, count)| ((*token).to_owned(), *count)).collect()
}

async fn each_device_is_told_once_and_one_that_is_gone_is_never_asked_for_again(backend: Backend) {
    let google = Google::start(by_token()).await;
    let server = serve(backend, &google);
    let components = Answer::to(server.request(Method::GET, "/readyz")).await.body["components"].clone();
    assert_eq!(components["push"], "ok");
    server.put("/v1/recipients", anna(&["alive", "busy", "gone"])).await;
    server.emit(&reservation("evt-1")).await;
    let trace = server.settled("evt-1").await;
    let send = push(&trace);
    assert_eq!((&send["status"], &send["provider"]), (&json!("SENT"), &json!("fcm")), "{trace}");
    assert_eq!(send["attempt_count"], 2);
    let became: BTreeMap<&str, &str> = send["addresses"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["address"].as_str().unwrap(), one["outcome"].as_str().unwrap()))
        .collect();
    assert_eq!(became, [("alive", "SENT"), ("busy", "SENT"), ("gone", "DEAD")].into(), "{send}");
    assert_eq!(google.asked(), counts(&[("alive", 1), ("busy", 2), ("gone", 1)]));
    assert_eq!(google.tokens.requests().len(), 1, "one access token for all of it");

    // The next decision leaves dead addresses out; if no other is left, that is the reason.
    server.emit(&reservation("evt-2")).await;
    assert_eq!(push(&server.settled("evt-2").await)["status"], "SENT");
    assert_eq!(google.asked(), counts(&[("alive", 2), ("busy", 3), ("gone", 1)]));
    server.put("/v1/recipients", anna(&["gone"])).await;
    server.emit(&reservation("evt-3")).await;
    let trace = server.settled("evt-3").await;
    assert_eq!(trace["decisions"][0]["channels"]["PUSH"], "DEAD_ADDRESS", "{trace}");
}

async fn who_was_told_on_one_device_was_told_although_the_other_turns_out_to_be_gone_later(backend: Backend) {
    let google = Google::start(by_token()).await;
    let server = serve(backend, &google);
    server.put("/v1/recipients", anna(&["alive", "leaving"])).await;
    server.emit(&reservation("evt-1")).await;
    let trace = server.settled("evt-1").await;
    let send = push(&trace);
    assert_eq!((&send["status"], &send["attempt_count"]), (&json!("SENT"), &json!(2)), "{trace}");
    assert_eq!(google.asked(), counts(&[("alive", 1), ("leaving", 2)]));
    assert_eq!(server.items("/v1/dead-letters").await, Vec::<Value>::new());
}

async fn an_account_that_may_not_send_is_named_at_the_first_refusal(backend: Backend) {
    fn forbidden(_: &FcmRequest) -> Reply {
        error(403, "PERMISSION_DENIED", "")
    }
    let google = Google::start(forbidden).await;
    let server = serve(backend, &google);
    server.put("/v1/recipients", anna(&["alive"])).await;
    server.emit(&reservation("evt-1")).await;
    server.settled("evt-1").await;
    let components = Answer::to(server.request(Method::GET, "/readyz")).await.body["components"].clone();
    assert_eq!(components["push"], "rejects our credentials or account, see `campanile doctor`: fcm (403)");
}

async fn a_push_leads_where_its_template_says_and_lives_as_long_as_configured(backend: Backend) {
    let google = Google::start(told).await;
    let variables = [
        ("CAMPANILE_CHANNELS__PUSH__TTL", "2h"),
        ("CAMPANILE_CHANNELS__PUSH__SOUND", "bell.caf"),
        ("CAMPANILE_CHANNELS__PUSH__ANDROID_CHANNEL", "orders"),
    ];
    let server = serve_with(backend, &google, &variables);
    server.put("/v1/recipients", anna(&["alive"])).await;
    let template = json!([{"event_type": "RESERVATION_REQUESTED", "channel": "PUSH", "locale": "*", "title": "New",
        "body": "From {{ payload.guest }}", "url": "https://example.org/events/{{ event_id | urlencode }}"}]);
    server.put("/v1/templates", template).await;
    server.emit(&reservation("evt-1")).await;
    let trace = server.settled("evt-1").await;
    assert_eq!(push(&trace)["status"], "SENT", "{trace}");
    let message = google.messages().remove(0);
    let link = "https://example.org/events/evt-1";
    assert_eq!(
        (&message["data"]["url"], &message["webpush"]["fcm_options"]["link"]),
        (&json!(link), &json!(link))
    );
    let shown =
        json!({"tag": message["data"]["notification_id"], "sound": "bell.caf", "channel_id": "orders"});
    assert_eq!(message["android"]["notification"], shown);
    assert_eq!(message["apns"]["payload"], json!({"aps": {"sound": "bell.caf"}}));
    let at = |value: &Value| value.as_str().unwrap().parse::<Timestamp>().unwrap().as_second();
    let expires: i64 = message["apns"]["headers"]["apns-expiration"].as_str().unwrap().parse().unwrap();
    assert_eq!(expires, at(&trace["event"]["created_at"]) + 2 * 3_600);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_is_let_in_and_pushes_to_nobody() {
    fn nobody(asked: &FcmRequest) -> Reply {
        assert!(asked.validate_only, "nothing is sent");
        let violation = json!({"@type": "type.googleapis.com/google.rpc.BadRequest",
            "fieldViolations": [{"field": "message.token", "description": "no"}]});
        let error =
            json!({"code": 400, "message": "no", "status": "INVALID_ARGUMENT", "details": [violation]});
        Reply::json(400, &json!({ "error": error }).to_string())
    }
    let google = Google::start(nobody).await;
    let home = Home::new(Backend::Embedded);
    let mut command = campanile(home.path());
    let ran = Ran::of(command.envs(google.variables()).arg("doctor"));
    assert!(
        ran.out.contains("PUSH is sent by fcm") && ran.out.contains(&format!("for project {PROJECT}")),
        "{ran:?}"
    );
    assert_eq!(google.asked(), counts(&[("nobody", 1)]));
}

on_both! {
    each_device_is_told_once_and_one_that_is_gone_is_never_asked_for_again;
    who_was_told_on_one_device_was_told_although_the_other_turns_out_to_be_gone_later;
    an_account_that_may_not_send_is_named_at_the_first_refusal;
    a_push_leads_where_its_template_says_and_lives_as_long_as_configured;
}
