//! Instance and time of every stage, in the trace, also after a restart; and the latencies in the metrics.

use campanile_testkit::on_both;
use reqwest::Method;
use serde_json::{Value, json};

use crate::interface::command::Ran;
use crate::interface::fresh::{Answer, Fresh, with};
use crate::support::{Backend, Home, Server, reservation, staff, until};

const STAGES: [&str; 4] = ["publish", "receive", "send", "settle"];

fn start(home: &Home, name: &str) -> Server {
    Server::start_with(home, &[("CAMPANILE_ENGINE__INSTANCE", name)])
}

/// Asserts that this instance ran every stage of every send, in order.
#[track_caller]
fn assert_run_by(trace: &Value, name: &str) {
    let fan_out = &trace["event"]["stages"]["fan_out"];
    assert_eq!(fan_out["instance"], name, "{fan_out}");
    let at = |stage: &Value| stage["at"].as_str().unwrap_or_else(|| panic!("{stage} has no time")).to_owned();
    assert!(trace["event"]["created_at"].as_str().unwrap() <= at(fan_out).as_str());
    let sends = trace["sends"].as_array().expect("a trace has sends");
    assert_eq!(sends.len(), 12);
    for send in sends {
        let stages = STAGES.map(|stage| &send["stages"][stage]);
        assert!(stages.iter().all(|stage| stage["instance"] == name), "{send}");
        let times = stages.map(at);
        assert!(at(fan_out) <= times[0] && times.is_sorted(), "{send}");
    }
}

async fn a_trace_has_instance_and_time_of_every_stage_after_a_restart_too(backend: Backend) {
    let home = Home::new(backend);
    let mut first = start(&home, "first");
    first.put("/v1/recipients", staff()).await;
    first.emit(&reservation("evt-1")).await;
    let before = first.settled("evt-1").await;
    assert_run_by(&before, "first");
    assert!(first.terminate().success());

    let second = start(&home, "second");
    let after = second.get("/v1/events/evt-1").await;
    assert_eq!((&after["sends"], &after["event"]["stages"]), (&before["sends"], &before["event"]["stages"]));
    second.emit(&reservation("evt-2")).await;
    assert_run_by(&second.settled("evt-2").await, "second");

    let trace = Ran::of(home.campanile().args(["--url", &second.url, "trace", "evt-2"])).succeeded();
    for stage in ["fan_out", "publish", "receive", "send", "settle"] {
        let line = trace.lines().find(|line| line.trim_start().starts_with(stage));
        let line = line.unwrap_or_else(|| panic!("no line for {stage}: {trace}"));
        assert!(line.contains(" ms") && line.ends_with("second") && line.chars().count() <= 80, "{line}");
    }
}

/// The value of a series in `/metrics`.
async fn metric(server: &Fresh, series: &str) -> Option<f64> {
    let answer = Answer::to(server.request(Method::GET, "/metrics")).await;
    let text = answer.body.as_str().expect("metrics are text").to_owned();
    text.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok())
}

async fn metrics_tell_how_long_events_took_by_stage_channel_and_priority(backend: Backend) {
    let server = Fresh::start(backend);
    server.put("/v1/recipients", staff()).await;
    let series = |stage: &str, end: &str, channel: &str, priority: &str| {
        format!("campanile_event_to_{stage}_seconds_{end}{{channel=\"{channel}\",priority=\"{priority}\"")
    };
    let urgent = with(&reservation("evt-2"), &json!({"priority": "HIGH"}));
    server.emit(&json!([reservation("evt-1"), urgent])).await;
    server.settled("evt-1").await;
    server.settled("evt-2").await;
    for stage in ["fan_out", "received", "sent"] {
        for channel in ["EMAIL", "PUSH", "SMS", "WEBSOCKET"] {
            for priority in ["HIGH", "NORMAL"] {
                let count = format!("{}}}", series(stage, "count", channel, priority));
                // Outcomes are counted a moment after they are written.
                until(&format!("{count} is 3"), async || metric(&server, &count).await.filter(|n| *n >= 3.0))
                    .await;
                assert_eq!(metric(&server, &count).await, Some(3.0));
                let longest = format!("{},le=\"+Inf\"}}", series(stage, "bucket", channel, priority));
                assert_eq!(metric(&server, &longest).await, Some(3.0));
                let within_an_hour = format!("{},le=\"3600\"}}", series(stage, "bucket", channel, priority));
                assert_eq!(metric(&server, &within_an_hour).await, Some(3.0));
            }
        }
        for (channel, priority) in [("SLACK", "NORMAL"), ("EMAIL", "LOW")] {
            let count = format!("{}}}", series(stage, "count", channel, priority));
            assert_eq!(metric(&server, &count).await, Some(0.0), "nothing of it was sent");
        }
    }
    let sum =
        async |stage: &str| metric(&server, &format!("{}}}", series(stage, "sum", "EMAIL", "HIGH"))).await;
    let (fan_out, received, sent) = (sum("fan_out").await, sum("received").await, sum("sent").await);
    assert!(sent < Some(3.0 * 60.0) && received < Some(3.0 * 60.0), "{fan_out:?}, {received:?}, {sent:?}");
    assert!(received <= sent, "{received:?}, {sent:?}");
    server.emit(&reservation("evt-1")).await;
    let count = format!("{}}}", series("fan_out", "count", "EMAIL", "NORMAL"));
    assert_eq!(metric(&server, &count).await, Some(3.0), "what comes again counts once");
}

on_both! {
    a_trace_has_instance_and_time_of_every_stage_after_a_restart_too;
    metrics_tell_how_long_events_took_by_stage_channel_and_priority;
}
