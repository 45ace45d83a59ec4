//! Slack, from the event to the webhook: people who share one see an event once. Failures are recorded and affect
//! nobody else.

use campanile_testkit::on_both;
use campanile_testkit::provider::http::{Reply, Server};
use campanile_testkit::provider::slack;
use reqwest::Method;
use serde_json::{Value, json};

use crate::interface::command::cli;
use crate::interface::fresh::{Answer, Fresh};
use crate::support::sharers;
use crate::support::{Backend, reservation};

fn posted(_: &Value) -> Reply {
    Reply::json(200, "ok")
}

fn removed(_: &Value) -> Reply {
    Reply::json(404, "no_service")
}

fn busy(_: &Value) -> Reply {
    Reply::json(429, "").with("Retry-After", "60")
}

async fn start(backend: Backend, replies: fn(&Value) -> Reply) -> (Server<Value>, Fresh) {
    start_with(backend, replies, &[]).await
}

async fn start_with(
    backend: Backend,
    replies: fn(&Value) -> Reply,
    more: &[(&str, &str)],
) -> (Server<Value>, Fresh) {
    let slack = Server::start_with(slack::check, replies).await;
    let mut variables = vec![
        ("CAMPANILE_CHANNELS__SLACK__ALLOWED_HOSTS", slack.address.as_str()),
        ("CAMPANILE_CHANNELS__SLACK__DEADLINE", "2s"),
    ];
    variables.extend(more);
    let server = Fresh::start_with(backend, &variables);
    let routing = json!([{"event_type": "RESERVATION_REQUESTED", "channel": "SLACK", "mandatory": true}]);
    server.put("/v1/routing", routing).await;
    server.put("/v1/recipients", sharers(&slack.address)).await;
    (slack, server)
}

async fn people_who_share_a_webhook_see_an_event_once(backend: Backend) {
    let (slack, server) = start(backend, posted).await;
    let components = Answer::to(server.request(Method::GET, "/readyz")).await.body["components"].clone();
    assert_eq!(components["slack"], "ok");
    for number in 1..=3 {
        server.emit(&reservation(&format!("evt-{number}"))).await;
    }
    for number in 1..=3 {
        let trace = server.settled(&format!("evt-{number}")).await;
        let sends = trace["sends"].as_array().unwrap();
        assert_eq!(sends.len(), 3, "{trace}");
        assert!(sends.iter().all(|send| send["status"] == "SENT"), "{trace}");
        let shared = sends
            .iter()
            .filter(|send| send["external_id"].as_str().is_some_and(|id| id.starts_with("sent by ")));
        assert_eq!(shared.count(), 2, "one posted it: {trace}");
    }
    assert_eq!(slack.requests().len(), 3, "each event once");
    // Whoever knows a webhook can post to it.
    let masked = json!(format!("http://{}/services/***", slack.address));
    let sends = server.items("/v1/sends?channel=SLACK&event_id=evt-1").await;
    assert!(sends.len() == 3 && sends.iter().all(|send| send["recipient_address"] == masked), "{sends:?}");
    let trace = server.get("/v1/events/evt-1").await;
    assert!(trace.to_string().contains("/services/***"), "{trace}");
    assert!(!trace.to_string().contains(slack::PATH), "{trace}");
    let said = cli(&server, &["sends", "list", "--channel", "slack"]).succeeded();
    assert!(said.contains(masked.as_str().unwrap()) && !said.contains(slack::PATH), "{said}");
}

async fn admins_without_a_webhook_are_told_at_that_of_their_user_type(backend: Backend) {
    let slack = Server::start_with(slack::check, posted as fn(&Value) -> Reply).await;
    let webhook = format!("http://{}{}", slack.address, slack::PATH);
    let server = Fresh::start_with(
        backend,
        &[
            ("CAMPANILE_CHANNELS__SLACK__ALLOWED_HOSTS", slack.address.as_str()),
            ("CAMPANILE_CHANNELS__SLACK__DEADLINE", "2s"),
            ("CAMPANILE_CHANNELS__SLACK__DEFAULT_WEBHOOK__ADMIN_USER", webhook.as_str()),
        ],
    );
    server.put("/v1/routing", json!([{"event_type": "KITCHEN_ALARM", "channel": "SLACK"}])).await;
    let audience = json!([{"event_type": "KITCHEN_ALARM", "name": "ADMINS", "recipient_type": "ADMIN_USER"}]);
    server.put("/v1/audiences", audience).await;
    let admins =
        json!([{"user_type": "ADMIN_USER", "user_id": 1}, {"user_type": "ADMIN_USER", "user_id": 2}]);
    server.put("/v1/recipients", admins).await;
    let mut alarm = reservation("evt-1");
    alarm["event_type"] = "KITCHEN_ALARM".into();
    server.emit(&alarm).await;
    let trace = server.settled("evt-1").await;
    let sends = trace["sends"].as_array().unwrap();
    assert_eq!(sends.len(), 2, "{trace}");
    assert!(sends.iter().all(|send| send["status"] == "SENT"), "{trace}");
    assert_eq!(slack.requests().len(), 1, "they share it");
    let explained = server.post("/v1/explain", &alarm).await.body;
    assert_eq!(explained["decisions"][0]["channels"]["SLACK"], "SEND", "{explained}");
}

async fn a_webhook_that_was_removed_fails_without_a_dead_letter_and_is_not_asked_again(backend: Backend) {
    let (slack, server) = start(backend, removed).await;
    server.emit(&reservation("evt-1")).await;
    let trace = server.settled("evt-1").await;
    let sends = trace["sends"].as_array().unwrap();
    assert!(sends.iter().all(|send| send["status"] == "FAILED"), "nobody posted it: {trace}");
    let errors: Vec<&str> = sends.iter().map(|send| send["last_error"].as_str().unwrap()).collect();
    assert!(errors.iter().any(|error| error.contains("no_service")), "{errors:?}");
    assert!(!errors.iter().any(|error| error.contains("/services/")), "a webhook is a secret: {errors:?}");
    assert_eq!(slack.requests().len(), 1, "who waited for the first heard that the webhook is dead");
    assert_eq!(server.items("/v1/dead-letters").await, Vec::<Value>::new());
    server.emit(&reservation("evt-2")).await;
    let trace = server.settled("evt-2").await;
    assert!(
        trace["decisions"].as_array().unwrap().iter().all(|one| one["channels"]["SLACK"] == "DEAD_ADDRESS"),
        "{trace}"
    );
    assert_eq!(slack.requests().len(), 1);
}

async fn a_webhook_that_stays_busy_is_given_up_when_its_time_is_up(backend: Backend) {
    let (slack, server) = start_with(backend, busy, &[("CAMPANILE_SEND__SLACK__WAIT_FOR", "500ms")]).await;
    server.emit(&reservation("evt-1")).await;
    let trace = server.settled("evt-1").await;
    let sends = trace["sends"].as_array().unwrap();
    assert_eq!(sends.len(), 3, "{trace}");
    for send in sends {
        assert_eq!((&send["status"], &send["attempt_count"]), (&json!("FAILED"), &json!(0)), "{trace}");
        assert!(send["last_error"].as_str().unwrap().starts_with("WAITED_TOO_LONG: "), "{trace}");
    }
    assert_eq!(slack.requests().len(), 1, "it was left alone for as long as it asked for");
    assert_eq!(server.items("/v1/dead-letters").await, Vec::<Value>::new());
}

on_both! {
    a_webhook_that_was_removed_fails_without_a_dead_letter_and_is_not_asked_again;
    people_who_share_a_webhook_see_an_event_once;
    admins_without_a_webhook_are_told_at_that_of_their_user_type;
    a_webhook_that_stays_busy_is_given_up_when_its_time_is_up;
}
