//! Liveness, readiness and metrics, which need no key.

use reqwest::Method;
use serde_json::json;

use crate::fresh::{Answer, Fresh};
use crate::support::{reservation, staff, until};

/// The sum of a counter over its labels.
async fn counter(server: &Fresh, name: &str) -> u64 {
    let text = Answer::to(server.request(Method::GET, "/metrics")).await.body;
    let lines = text.as_str().expect("metrics are text").lines().filter(|line| !line.starts_with('#'));
    let of_this =
        lines.filter(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with([' ', '{'])));
    of_this.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

#[tokio::test]
async fn a_server_says_that_it_lives_and_what_it_is_made_of() {
    let server = Fresh::start();
    let live = Answer::to(server.request(Method::GET, "/healthz")).await;
    assert_eq!((live.status, live.body), (200, json!("ok\n")));
    let ready = Answer::to(server.request(Method::GET, "/readyz")).await;
    assert_eq!(ready.status, 200);
    let components = &ready.body["components"];
    assert_eq!((&components["database"], &components["broker"]), (&json!("ok"), &json!("ok")));
    for channel in ["email", "push", "sms", "slack"] {
        assert!(
            components[channel].as_str().is_some_and(|state| state.starts_with("capture")),
            "{components}"
        );
    }
}

#[tokio::test]
async fn counters_rise_with_what_happens() {
    const COUNTERS: [(&str, u64); 6] = [
        ("campanile_events_accepted_total", 2),
        ("campanile_fan_out_events_total", 2),
        ("campanile_fan_out_rows_total", 24),
        ("campanile_published_total", 24),
        ("campanile_received_total", 24),
        ("campanile_sends_total", 18),
    ];
    let server = Fresh::start();
    server.put("/v1/recipients", staff()).await;
    for rounds in 1..=2 {
        let events = [1, 2].map(|n| reservation(&format!("evt-{rounds}-{n}")));
        server.emit(&json!(events)).await;
        // Repetitions count once.
        server.emit(&json!(events)).await;
        for (name, each) in COUNTERS {
            until(&format!("{name} is {}", each * rounds), async || {
                (counter(&server, name).await == each * rounds).then_some(())
            })
            .await;
        }
    }
    let metrics = Answer::to(server.request(Method::GET, "/metrics")).await;
    assert!(metrics.header("content-type").starts_with("text/plain"));
    for line in
        ["# TYPE campanile_sends_total counter", r#"campanile_sends_total{channel="EMAIL",status="SENT"} 12"#]
    {
        assert!(metrics.body.as_str().unwrap().lines().any(|l| l == line), "{line}");
    }
}
