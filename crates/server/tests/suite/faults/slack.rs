//! An event is seen at a webhook once or not at all: it is not posted again if it is unknown whether it was posted.
//! Posts wait for a busy webhook, and a restart loses none of them.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use campanile_testkit::on_both;
use campanile_testkit::provider::http::{self, Replies, Reply};
use campanile_testkit::provider::slack;
use serde_json::{Value, json};

use crate::support::sharers;
use crate::support::{Backend, Home, Server, reservation, until};

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

/// Claimed and never begun: certainly nothing was posted.
async fn killed_before_anybody_asked_to_post(backend: Backend) {
    killed_at(backend, "receive.after_commit", "SENT", [0, 1]).await;
}

fn busy(seconds: u32) -> Reply {
    Reply::json(429, r#"{"ok": false, "error": "rate_limited"}"#).with("Retry-After", &seconds.to_string())
}

/// One person reads the webhook, and sees who a reservation is for.
async fn one_reader(server: &Server, slack: &str) {
    let routing = json!([{"event_type": "RESERVATION_REQUESTED", "channel": "SLACK", "mandatory": true}]);
    server.put("/v1/routing", routing).await;
    let template =
        json!([{"event_type": "RESERVATION_REQUESTED", "channel": "SLACK", "title": "{{ payload.guest }}"}]);
    server.put("/v1/templates", template).await;
    let mut people = sharers(slack);
    people.as_array_mut().unwrap().truncate(1);
    server.put("/v1/recipients", people).await;
}

/// Slack as documented, but twenty times as fast: it accepts one message per interval, and says when to come back.
async fn a_burst_is_posted_as_fast_as_the_webhook_takes_it(backend: Backend) {
    const EVENTS: usize = 60;
    const PAUSE: Duration = Duration::from_millis(50);
    let taken: Arc<Mutex<Vec<String>>> = Arc::default();
    let (mut last, posts) = (None::<Instant>, Arc::clone(&taken));
    let paced = move |posted: &Value| {
        if last.is_some_and(|last| last.elapsed() < PAUSE) {
            return busy(0);
        }
        last = Some(Instant::now());
        posts.lock().unwrap().push(posted["text"].as_str().unwrap().to_owned());
        Reply::json(200, "ok")
    };
    let slack = http::Server::start_with(slack::check, Replies::ByRequest(Box::new(paced))).await;
    let home = Home::new(backend);
    let server = Server::start_with(
        &home,
        &[
            ("CAMPANILE_CHANNELS__SLACK__ALLOWED_HOSTS", slack.address.as_str()),
            ("CAMPANILE_CHANNELS__SLACK__DEADLINE", "2s"),
            ("CAMPANILE_CHANNELS__SLACK__RATE", "25"),
        ],
    );
    one_reader(&server, &slack.address).await;
    let guest = |number: usize| format!("Guest {number:02}");
    let events: Vec<Value> = (0..EVENTS)
        .map(|number| {
            let mut event = reservation(&format!("evt-{number}"));
            event["payload"]["guest"] = guest(number).into();
            event
        })
        .collect();
    server.emit(&json!(events)).await;
    for number in 0..EVENTS {
        let trace = server.settled(&format!("evt-{number}")).await;
        let send = &trace["sends"][0];
        assert_eq!((&send["status"], &send["attempt_count"]), (&json!("SENT"), &json!(1)), "{trace}");
    }
    let mut taken = taken.lock().unwrap().clone();
    taken.sort();
    assert_eq!(taken, (0..EVENTS).map(guest).collect::<Vec<_>>(), "each once");
}

async fn what_waits_for_a_busy_webhook_survives_a_restart(backend: Backend) {
    let mut is_busy = true;
    let busy_once =
        move |_: &Value| if std::mem::take(&mut is_busy) { busy(3) } else { Reply::json(200, "ok") };
    let slack = http::Server::start_with(slack::check, Replies::ByRequest(Box::new(busy_once))).await;
    let home = Home::new(backend);
    let variables = [
        ("CAMPANILE_CHANNELS__SLACK__ALLOWED_HOSTS", slack.address.as_str()),
        ("CAMPANILE_CHANNELS__SLACK__DEADLINE", "2s"),
    ];
    let mut server = Server::start_with(&home, &variables);
    one_reader(&server, &slack.address).await;
    server.emit(&reservation("evt-1")).await;
    let waits = until("it waits", async || {
        let trace = server.get("/v1/events/evt-1").await;
        let send = trace["sends"].get(0)?.clone();
        (send["status"] == "DUE" && send["deferrals"] == 1).then_some(send)
    })
    .await;
    assert!(waits["last_error"].as_str().unwrap().contains("429"), "{waits}");
    assert_eq!(waits["attempt_count"], 0);
    server.kill();

    let server = Server::start_with(&home, &variables);
    let trace = server.settled("evt-1").await;
    assert_eq!(trace["sends"][0]["status"], "SENT", "{trace}");
    assert_eq!(trace["sends"][0]["deferred_since"], waits["deferred_since"], "{trace}");
    assert_eq!(slack.requests().len(), 2);
}

on_both! {
    a_burst_is_posted_as_fast_as_the_webhook_takes_it;
    what_waits_for_a_busy_webhook_survives_a_restart;
    killed_before_slack_was_asked;
    killed_after_slack_said_yes;
    killed_before_anybody_asked_to_post;
}
