//! Expensive requests: templates and conditions that never end, and the largest bodies. They delay nobody else, and
//! memory stays limited.

use std::time::{Duration, Instant};

use campanile_testkit::on_both;
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use crate::interface::fresh::{Answer, Fresh, event};
use crate::support::{Backend, KEY, reservation, staff, until};

/// Minutes of work in a few bytes.
const ENDLESS: &str = "{% for a in range(999) %}{% for b in range(30) %}\
    {{ '' if payload.text | upper | lower | title }}{% endfor %}{% endfor %}";
/// Health responds within milliseconds if a thread is free, and after a minute if none is. Tests share their cores with
/// others.
const SOON: Duration = Duration::from_secs(10);

fn text() -> Value {
    json!({"restaurantId": 5, "text": "x".repeat(60_000)})
}

fn sent(server: &Fresh, method: Method, path: &str, body: String) -> RequestBuilder {
    server.request(method, path).bearer_auth(KEY).header("content-type", "application/json").body(body)
}

/// Sends all requests at the same time.
async fn answers(requests: impl Iterator<Item = RequestBuilder>) -> Vec<Answer> {
    let asked: Vec<_> = requests.map(|request| tokio::spawn(Answer::to(request))).collect();
    let mut answers = Vec::new();
    for answer in asked {
        answers.push(answer.await.unwrap());
    }
    answers
}

async fn health(server: &Fresh) -> Duration {
    let begun = Instant::now();
    assert_eq!(Answer::to(server.request(Method::GET, "/healthz")).await.status, 200);
    begun.elapsed()
}

async fn previews_without_an_end_keep_nobody_else_waiting(backend: Backend) {
    let server = Fresh::start(backend);
    let preview = json!({
        "event": {"event_type": "TEST", "payload": text()}, "template": {"title": "x", "body": ENDLESS},
    });
    let previews = async |count: usize| {
        let one = || sent(&server, Method::POST, "/v1/templates/preview", preview.to_string());
        answers((0..count).map(|_| one())).await
    };
    let healthy = async || {
        let mut slowest = Duration::ZERO;
        for _ in 0..10 {
            slowest = slowest.max(health(&server).await);
        }
        slowest
    };
    let (failed, slowest) = tokio::join!(previews(4), healthy());
    assert!(slowest < SOON, "{slowest:?}");
    for answer in failed {
        answer.assert_problem(422, "invalid").assert_says(&["TEST/*/*/body", "takes more than 100 ms"]);
    }
    // They are rendered one by one, and no more wait than there are permits.
    let (refused, others): (Vec<_>, Vec<_>) =
        previews(40).await.into_iter().partition(|answer| answer.status == 503);
    assert!(!refused.is_empty() && others.len() >= 16, "{} of 40 were refused", refused.len());
    assert!(refused.iter().all(|answer| answer.header("retry-after") == "5"));
    assert!(others.iter().all(|answer| answer.status == 422));
}

async fn a_template_without_an_end_fails_its_rows_and_no_other(backend: Backend) {
    let server = Fresh::start(backend);
    server.put("/v1/recipients", staff()).await;
    let body = format!("{{{{ recipient.name | default('', true) }}}}{ENDLESS}");
    let template = |channel: &str, fields: Value| {
        let mut row = json!({"event_type": "RESERVATION_REQUESTED", "channel": channel, "title": "New"});
        row.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        row
    };
    let rows = json!([
        template("SMS", json!({"body": body})),
        template("EMAIL", json!({"body": "b", "html": body}))
    ]);
    server.put("/v1/templates", rows).await;
    let mut slow = reservation("slow");
    slow["payload"] = text();
    server.emit(&slow).await;
    server.emit(&event("next", "ECLIPSE", "RESTAURANT", 5)).await;
    let slowest = health(&server).await;
    assert!(slowest < SOON, "{slowest:?}");
    server.settled("next").await;
    let trace = server.settled("slow").await;
    for (channel, part) in [("SMS", "SMS/*/body"), ("EMAIL", "EMAIL/*/html")] {
        let dead_letters = server.items(&format!("/v1/dead-letters?channel={channel}")).await;
        let errors: Vec<&str> =
            dead_letters.iter().map(|dead_letter| dead_letter["error"].as_str().unwrap()).collect();
        let template = format!("TEMPLATE_ERROR: template RESERVATION_REQUESTED/{part}");
        let is_right =
            |error: &&str| error.starts_with(&template) && error.contains("takes more than 100 ms");
        assert!(errors.len() == 3 && errors.iter().all(is_right), "{errors:?}");
    }
    let push = trace["sends"].as_array().unwrap().iter().filter(|send| send["channel"] == "PUSH");
    assert!(push.clone().count() > 0 && push.clone().all(|send| send["status"] == "SENT"), "{trace}");
}

/// Rows written by SQL are not checked.
async fn a_condition_that_asks_for_a_hundred_terabytes_fails_its_event_only(backend: Backend) {
    let server = Fresh::start(backend);
    server.put("/v1/recipients", staff()).await;
    for (event_type, when) in [
        ("HUGE", "(''a'' ~ payload.text|indent(100000000000000))|length > 1"),
        ("ENDLESS", "payload.names | select(''in'', payload.list) | list"),
    ] {
        server
            .execute(&format!(
                "INSERT INTO event_audience (event_type, name, recipient_type, \"when\")
                 VALUES ('{event_type}', 'staff', 'RESTAURANT_USER', '{when}')"
            ))
            .await;
    }
    let payload = json!({"text": "a\nb", "names": vec!["a"; 4_900], "list": vec![1; 4_900]});
    let huge = |id: &str, event_type: &str| {
        let mut event = event(id, event_type, "RESTAURANT", 5);
        event["payload"] = payload.clone();
        event
    };
    until("the rules are read again", async || {
        let explained = server.post("/v1/explain", &huge("explained", "ENDLESS")).await;
        (explained.body["failure"]["code"] == "WHEN_ERROR").then_some(())
    })
    .await;
    for (event_type, reason) in [("HUGE", "indent"), ("ENDLESS", "takes more than 100 ms")] {
        server.emit(&huge(event_type, event_type)).await;
        let failed = until("it ends", async || {
            let trace = server.try_get(&format!("/v1/events/{event_type}")).await.body;
            (trace["event"]["status"] == "FAILED").then_some(trace)
        })
        .await;
        let error = failed["event"]["last_error"].as_str().unwrap();
        assert!(error.starts_with("WHEN_ERROR: audience `staff`") && error.contains(reason), "{error}");
    }
    server.emit(&reservation("next")).await;
    assert_eq!(server.settled("next").await["event"]["status"], "PROCESSED");
}

fn resident_mib(server: &Fresh) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() / 1024
}

async fn eight_bodies_of_eight_megabytes_take_no_more_memory_than_is_documented(backend: Backend) {
    let server = Fresh::start_with(backend, &[("CAMPANILE_FAN_OUT__INITIAL_DELAY", "600s")]);
    server.emit(&event("first", "ECLIPSE", "MOON", 1)).await;
    let before = resident_mib(&server);
    // Every second byte is a value of 32 bytes if the text is parsed at once. Most bodies are wrong at their end,
    // because writing all of them would take long.
    let events = |call: usize| {
        let numbers = vec!["1"; 3_900].join(",");
        let one = |n: usize| {
            let id = if call > 0 && n == 999 { String::new() } else { format!("{call}-{n}") };
            format!(
                r#"{{"event_id":"{id}","event_type":"T","aggregate_type":"MOON","aggregate_id":"1",
                    "payload":{{"n":[{numbers}]}}}}"#
            )
        };
        format!("[{}]", (0..1_000).map(one).collect::<Vec<_>>().join(","))
    };
    let sent_at_once = (0..8).map(|call| sent(&server, Method::POST, "/v1/events", events(call)));
    let statuses: Vec<u16> = answers(sent_at_once).await.iter().map(|answer| answer.status).collect();
    assert_eq!(statuses, [202, 422, 422, 422, 422, 422, 422, 422]);
    let many_items = format!("[{}]", vec!["1"; 4_000_000].join(","));
    let tokens = vec!["\"a\""; 2_000_000].join(",");
    let many_values = format!(r#"[{{"user_type":"CUSTOMER","user_id":1,"push_tokens":[{tokens}]}}]"#);
    for (path, body, says) in [
        ("/v1/recipients", &many_items, "at most 10000 rows per request, got 4000000"),
        ("/v1/recipients", &many_values, "at most 250000 values per request"),
    ] {
        let answer = server.send(Method::PUT, path, body.clone()).await;
        answer.assert_problem(422, "invalid").assert_says(&[says]);
    }
    let grown = resident_mib(&server) - before;
    assert!(grown < 300, "{grown} MiB, from {before}");
}

on_both! {
    previews_without_an_end_keep_nobody_else_waiting;
    a_template_without_an_end_fails_its_rows_and_no_other;
    a_condition_that_asks_for_a_hundred_terabytes_fails_its_event_only;
    eight_bodies_of_eight_megabytes_take_no_more_memory_than_is_documented;
}
