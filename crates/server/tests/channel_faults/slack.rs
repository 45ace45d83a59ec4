//! An event is seen at a webhook once or not at all: nobody posts it again who can't know whether it was posted.

use serde_json::{Value, json};

use crate::providers::http::{self, Reply};
use crate::providers::{sharers, slack};
use crate::support::{Backend, Home, Server, reservation};

fn posted(_: &Value) -> Reply {
    Reply::json(200, "ok")
}

async fn killed_at(backend: Backend, failpoint: &str, posts: usize) {
    let slack = http::Server::start_with(slack::check, posted as fn(&Value) -> Reply).await;
    let home = Home::new(backend);
    let variables = [
        ("CAMPANILE_CHANNELS__SLACK__ALLOWED_HOSTS", slack.address.as_str()),
        ("CAMPANILE_CHANNELS__SLACK__DEADLINE", "2s"),
        ("CAMPANILE_KILL_AT", failpoint),
    ];
    let mut server = Server::start_with(&home, &variables);
    let routing = json!([{"event_type": "RESERVATION_REQUESTED", "channel": "SLACK", "mandatory": true}]);
    server.put("/v1/routing", routing).await;
    server.put("/v1/recipients", sharers(&slack.address)).await;
    server.emit(&reservation("evt-1")).await;
    server.died_by_sigkill().await;

    let server = Server::start_with(&home, &variables[..2]);
    let trace = server.settled("evt-1").await;
    let sends = trace["sends"].as_array().unwrap();
    assert_eq!(sends.len(), 3, "{trace}");
    assert!(sends.iter().all(|send| send["status"] == "FAILED"), "nobody knows that it was posted: {trace}");
    assert_eq!(slack.requests().len(), posts, "nobody posts it again: {trace}");
    server.emit(&reservation("evt-2")).await;
    let trace = server.settled("evt-2").await;
    assert!(trace["sends"].as_array().unwrap().iter().all(|send| send["status"] == "SENT"), "{trace}");
    assert_eq!(slack.requests().len(), posts + 1);
}

async fn killed_before_slack_was_asked(backend: Backend) {
    killed_at(backend, "send.before_provider", 0).await;
}

async fn killed_after_slack_said_yes(backend: Backend) {
    killed_at(backend, "send.after_provider", 1).await;
}

on_both! {
    killed_before_slack_was_asked;
    killed_after_slack_said_yes;
}
