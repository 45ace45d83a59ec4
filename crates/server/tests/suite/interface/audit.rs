//! The record of changes over HTTP, and what a key without the scope `payload` sees.

use campanile_testkit::Backend;
use reqwest::Method;
use serde_json::{Value, json};

use crate::interface::fresh::{Answer, Fresh};
use crate::support::{reservation, staff};

async fn key(server: &Fresh, scopes: &[&str]) -> String {
    let created = server.post("/v1/api-keys", &json!({ "name": "key", "scopes": scopes })).await;
    created.body["key"].as_str().expect("there is a key").to_owned()
}

#[tokio::test]
async fn changes_and_actions_are_recorded_and_events_are_not() {
    for backend in [Backend::Embedded, Backend::Servers] {
        let server = Fresh::start(backend);
        let rules = key(&server, &["rules"]).await;
        let put = server.request(Method::PUT, "/v1/recipients").bearer_auth(&rules).body(staff().to_string());
        assert_eq!(Answer::to(put).await.status, 200);
        assert_eq!(server.delete("/v1/recipients?user_type=RESTAURANT_USER&user_id=3").await.status, 204);
        server
            .emit(&json!({
                "event_id": "lost", "event_type": "NOBODYS", "aggregate_type": "MOON", "aggregate_id": 1,
            }))
            .await;
        server.settled("lost").await;
        let replayed = server.post("/v1/dead-letters/replay", &json!({ "event_id": "lost" })).await;
        assert_eq!(replayed.body["replayed"], 1, "{}", replayed.body);
        let changes = server.items("/v1/audit").await;
        let shown: Vec<String> = changes
            .iter()
            .map(|change| {
                let text = |field: &str| change[field].as_str().unwrap_or_default();
                format!("{} {} {}", text("action"), text("object_type"), text("actor_name"))
            })
            .collect();
        assert_eq!(
            shown,
            [
                "REPLAY dead_letter admin key",
                "DELETE recipient admin key",
                "PUT recipient key",
                "PUT recipient key",
                "PUT recipient key",
                "CREATE api_key admin key",
            ]
        );
        assert_eq!(changes[1]["before"]["email"], "p3@example.com");
        assert!(changes[1]["after"].is_null());
        let of_one = server
            .items("/v1/audit?object_type=recipient&object_id=%5B%22RESTAURANT_USER%22%2C%223%22%5D")
            .await;
        assert_eq!(of_one.len(), 2);
        assert_eq!(server.items("/v1/audit?actor_id=").await.len(), 3);
        assert_eq!(server.pages("/v1/audit?object_type=recipient", 1).await.len(), 4);
        for wrong in ["object_id=x", "object_type=a&actor_id=b", "cursor=x", "colour=red"] {
            server.try_get(&format!("/v1/audit?{wrong}")).await.assert_problem(422, "invalid-query");
        }
    }
}

#[tokio::test]
async fn a_webhook_is_shown_to_nobody_and_its_mask_is_no_webhook() {
    let server = Fresh::start(Backend::Embedded);
    let rules = key(&server, &["rules"]).await;
    let row = json!({ "user_type": "ADMIN_USER", "user_id": "1", "email": "root@example.com",
        "slack_webhook": "https://hooks.slack.com/services/T0/B0/very-secret" });
    server.put("/v1/recipients", json!([row])).await;
    let listed = Answer::to(server.request(Method::GET, "/v1/recipients").bearer_auth(&rules)).await;
    let listed = listed.body["items"][0].clone();
    assert_eq!(listed["slack_webhook"], "https://hooks.slack.com/services/***");
    assert_eq!(listed["email"], "root@example.com", "whoever writes addresses sees them");
    let again = server.try_put("/v1/recipients", &json!([listed])).await;
    again.assert_problem(422, "invalid").assert_names(0, "/slack_webhook");
    let preview = server
        .post(
            "/v1/templates/preview",
            &json!({ "event": { "event_type": "T" }, "user": { "user_type": "ADMIN_USER", "user_id": "1" },
                "template": { "title": "{{ recipient.email }} {{ recipient.slack_webhook }}" } }),
        )
        .await;
    assert!(!preview.body.to_string().contains("very-secret"), "{}", preview.body);
    assert!(!json!(server.items("/v1/audit").await).to_string().contains("very-secret"));
}

#[tokio::test]
async fn texts_of_errors_are_searched_only_by_who_may_see_them() {
    let server = Fresh::start(Backend::Embedded);
    let keys =
        [key(&server, &["read", "operate"]).await, key(&server, &["read", "operate", "payload"]).await];
    for (key, status) in keys.iter().zip([403, 200]) {
        let list = server.request(Method::GET, "/v1/dead-letters?error=%2B39").bearer_auth(key);
        assert_eq!(Answer::to(list).await.status, status);
        let replay = server.request(Method::POST, "/v1/dead-letters/replay").bearer_auth(key);
        assert_eq!(Answer::to(replay.body(json!({ "error": "+39" }).to_string())).await.status, status);
    }
}

#[tokio::test]
async fn without_the_scope_payload_no_address_and_no_text_is_seen() {
    for backend in [Backend::Embedded, Backend::Servers] {
        let server = Fresh::start(backend);
        server.put("/v1/recipients", staff()).await;
        server.emit(&reservation("evt-1")).await;
        server.settled("evt-1").await;
        let (little, all) = (key(&server, &["read"]).await, key(&server, &["read", "payload"]).await);
        let read = async |key: &str, path: &str| {
            let answer = Answer::to(server.request(Method::GET, path).bearer_auth(key)).await;
            assert_eq!(answer.status, 200, "{path}: {}", answer.body);
            answer.body
        };
        for path in ["/v1/events/evt-1", "/v1/events", "/v1/sends", "/v1/dead-letters"] {
            let hidden = read(&little, path).await.to_string();
            for secret in ["@example.com", "+39055", "token-", "John Doe", "Reservation requested"] {
                assert!(!hidden.contains(secret), "{secret} in {path}: {hidden}");
            }
        }
        let trace = read(&little, "/v1/events/evt-1").await;
        assert_eq!(
            (&trace["event"]["payload"], &trace["sends"][0]["recipient_address"]),
            (&Value::Null, &json!("***"))
        );
        assert_eq!(trace["decisions"][0]["name"], "Person 1", "names are no addresses");
        let trace = read(&all, "/v1/events/evt-1").await;
        assert_eq!(trace["event"]["payload"]["guest"], "John Doe");
        assert!(trace.to_string().contains("p1@example.com"));
        let captured = server.request(Method::GET, "/v1/captured").bearer_auth(&little);
        Answer::to(captured).await.assert_problem(403, "missing-scope").assert_says(&["`payload`"]);
        assert!(!read(&all, "/v1/captured").await["items"].as_array().expect("a list").is_empty());
    }
}
