//! An event is seen at a webhook once or not at all: nobody posts it again who can't know whether it was posted.

use serde_json::{Value, json};

use crate::providers::http::{self, Reply};
use crate::providers::{sharers, slack};
use crate::support::{Backend, Home, Server, reservation};

fn posted(_: &Value) -> Reply {
    Reply::json(200, "ok")
}

async fn killed_at(backend: Backend, failpoint: &str, status: &str, posts: [usize; 2]) {
    let [before, after] = posts;
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
    assert_eq!(slack.requests().len(), before);

    let server = Server::start_with(&home, &variables[..2]);
    let trace = server.settled("evt-1").await;
    let sends = trace["sends"].as_array().unwrap();
    assert_eq!(sends.len(), 3, "{trace}");
    assert!(sends.iter().all(|send| send["status"] == status), "{trace}");
    assert_eq!(slack.requests().len(), after, "nobody posts it again who may have posted it: {trace}");
    server.emit(&reservation("evt-2")).await;
    let trace = server.settled("evt-2").await;
    assert!(trace["sends"].as_array().unwrap().iter().all(|send| send["status"] == "SENT"), "{trace}");
    assert_eq!(slack.requests().len(), after + 1);
}

async fn killed_before_slack_was_asked(backend: Backend) {
    killed_at(backend, "send.before_provider", "FAILED", [0, 0]).await;
}

async fn killed_after_slack_said_yes(backend: Backend) {
    killed_at(backend, "send.after_provider", "FAILED", [1, 1]).await;
}

/// Claimed, and never begun: it is certain that nothing was posted, so it still is.
async fn killed_before_anybody_asked_to_post(backend: Backend) {
    killed_at(backend, "receive.after_commit", "SENT", [0, 1]).await;
}

on_both! {
    killed_before_slack_was_asked;
    killed_after_slack_said_yes;
    killed_before_anybody_asked_to_post;
}
