//! `/metrics`, which needs no key: everything that the guide and its alerts mention exists from the start, and changes
//! with what happens.

use std::collections::BTreeSet;
use std::str::FromStr;

use campanile_testkit::on_both;
use reqwest::Method;
use serde_json::json;

use crate::interface::fresh::{Answer, Fresh, event};
use crate::support::{Backend, reservation, staff, until};

const GUIDE: &str = include_str!("../../../../../docs/guides/operating.md");
const ALERTS: &str = include_str!("../../../../../docs/guides/alerts.yml");

async fn metrics(server: &Fresh) -> String {
    let answer = Answer::to(server.request(Method::GET, "/metrics")).await;
    assert!(answer.header("content-type").starts_with("text/plain"));
    answer.body.as_str().expect("metrics are text").to_owned()
}

/// The values of all series with this prefix: a name, optionally with its first labels.
async fn values<T: FromStr>(server: &Fresh, series: &str) -> Vec<T> {
    let of_this =
        |line: &&str| line.strip_prefix(series).is_some_and(|rest| rest.starts_with([' ', '{', ',', '}']));
    let text = metrics(server).await;
    text.lines().filter(of_this).filter_map(|line| line.rsplit(' ').next()?.parse().ok()).collect()
}

/// The sum of a counter over its labels.
async fn count(server: &Fresh, series: &str) -> u64 {
    values::<u64>(server, series).await.into_iter().sum()
}

async fn until_count(server: &Fresh, series: &str, expected: u64) {
    let what = format!("{series} is {expected}");
    until(&what, async || (count(server, series).await == expected).then_some(())).await;
}

/// Words with this prefix.
fn words<'a>(text: &'a str, beginning: &str) -> BTreeSet<&'a str> {
    let part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let starts = text.match_indices(beginning).map(|(at, _)| at);
    let whole = starts.filter(|at| !text[..*at].ends_with(part));
    whole.map(|at| text[at..].split(|c| !part(c)).next().unwrap_or_default()).collect()
}

/// For each `name{label="value"}`, the name, and the label with its value.
fn selected(text: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    for name in words(text, "campanile_") {
        for (at, _) in text.match_indices(&format!("{name}{{")) {
            let labels = text[at..].split(['{', '}']).nth(1).unwrap_or_default();
            let exact = labels.split(',').filter(|label| label.contains("=\""));
            found.extend(exact.map(|label| (name, label)));
        }
    }
    found
}

/// For each alert, the metrics of its expression and the labels by which it groups. Prometheus adds `instance`, and
/// `le` belongs to histograms.
fn grouped(text: &str) -> Vec<(BTreeSet<&str>, BTreeSet<&str>)> {
    let expressions = text.split("expr:").skip(1).filter_map(|alert| alert.split("for:").next());
    expressions.map(|expression| (words(expression, "campanile_"), groups(expression))).collect()
}

fn groups(expression: &str) -> BTreeSet<&str> {
    let groups = expression.split("by (").skip(1).filter_map(|rest| rest.split(')').next());
    let labels = groups.flat_map(|group| group.split(',').map(str::trim));
    labels.filter(|label| !["instance", "le"].contains(label)).collect()
}

/// The metric of a histogram's buckets, sum and count.
fn metric_of<'a>(series: &'a str, text: &str) -> &'a str {
    let whole = ["_bucket", "_sum", "_count"].iter().find_map(|end| series.strip_suffix(end));
    whole.filter(|name| text.contains(&format!("# TYPE {name} histogram"))).unwrap_or(series)
}

async fn a_fresh_server_has_every_metric_of_the_guide_and_of_the_alerts(backend: Backend) {
    let server = Fresh::start(backend);
    let documented = words(GUIDE, "campanile_");
    let watched = words(ALERTS, "campanile_");
    assert!(documented.len() > 15 && watched.len() > 10, "{documented:?}, {watched:?}");
    let text = until("the first measurement is served", async || {
        let text = metrics(&server).await;
        let measured = ["campanile_oldest_waiting_seconds{", "campanile_queue_depth{"];
        measured.iter().all(|gauge| text.contains(gauge)).then_some(text)
    })
    .await;
    let series: Vec<&str> = text.lines().filter(|line| line.starts_with("campanile_")).collect();
    let names: BTreeSet<&str> = series
        .iter()
        .filter_map(|line| line.split(['{', ' ']).next())
        .map(|name| metric_of(name, &text))
        .collect();
    let documented: BTreeSet<&str> = documented.into_iter().map(|name| metric_of(name, &text)).collect();
    let watched: BTreeSet<&str> = watched.into_iter().map(|name| metric_of(name, &text)).collect();
    assert_eq!(names, documented, "what is served is in the guide, and the other way round");
    assert_eq!(watched.difference(&names).count(), 0, "{watched:?} are not all among {names:?}");
    for (name, label) in selected(ALERTS) {
        let is_served = |line: &&str| line.starts_with(&format!("{name}{{")) && line.contains(label);
        assert!(series.iter().any(is_served), "no series of {name} has {label}");
    }
    for (metrics, labels) in grouped(ALERTS) {
        for label in labels {
            let has_label = |line: &&str| {
                metrics.iter().any(|name| line.starts_with(&format!("{name}{{")))
                    && line.contains(&format!("{label}=\""))
            };
            assert!(series.iter().any(has_label), "no series of {metrics:?} has the label {label}");
        }
    }
    for name in names {
        assert!(text.contains(&format!("# HELP {name} ")), "{name} does not say what it means");
    }
}

#[test]
fn the_guide_names_every_alert_and_no_other() {
    let alerts: BTreeSet<&str> =
        ALERTS.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(alerts.len() > 15, "{alerts:?}");
    let told: BTreeSet<&str> =
        words(GUIDE, "Campanile").into_iter().filter(|word| *word != "Campanile").collect();
    assert_eq!(alerts, told);
}

async fn counters_rise_with_what_happens(backend: Backend) {
    const COUNTERS: [(&str, u64); 7] = [
        ("campanile_events_accepted_total", 2),
        ("campanile_duplicates_refused_total{stage=\"accept\"", 2),
        ("campanile_fan_out_events_total", 2),
        ("campanile_fan_out_rows_total", 24),
        ("campanile_published_total", 24),
        ("campanile_received_total", 24),
        ("campanile_sends_total", 24),
    ];
    let server = Fresh::start(backend);
    server.put("/v1/recipients", staff()).await;
    for rounds in 1..=2 {
        let events = [1, 2].map(|n| reservation(&format!("evt-{rounds}-{n}")));
        server.emit(&json!(events)).await;
        // Repetitions count once, and as duplicates.
        server.emit(&json!(events)).await;
        for (name, each) in COUNTERS {
            until_count(&server, name, each * rounds).await;
        }
    }
    let text = metrics(&server).await;
    for line in [
        "# TYPE campanile_sends_total counter",
        r#"campanile_sends_total{channel="EMAIL",status="SENT"} 12"#,
        r#"campanile_sends_total{channel="WEBSOCKET",status="SENT"} 12"#,
        r#"campanile_sends_total{channel="SLACK",status="SENT"} 0"#,
    ] {
        assert!(text.lines().any(|l| l == line), "{line}");
    }
    assert_eq!(count(&server, "campanile_dead_letters_total").await, 0);
    server.emit(&event("nobody", "ECLIPSE", "MOON", 1)).await;
    until_count(&server, "campanile_dead_letters_total{stage=\"fan_out\"", 1).await;
    until_count(&server, "campanile_dead_letters_total", 1).await;
}

async fn the_age_of_what_waits_rises_while_nobody_decides(backend: Backend) {
    let age = |stage: &str| format!("campanile_oldest_waiting_seconds{{stage=\"{stage}\"");
    let server = Fresh::start_with(backend, &[("CAMPANILE_FAN_OUT__INITIAL_DELAY", "60s")]);
    let measured = async |stage: &str| values::<f64>(&server, &age(stage)).await.pop();
    until("it is measured, and nothing waits", async || measured("fan_out").await.filter(|age| *age == 0.0))
        .await;
    server.emit(&reservation("evt-1")).await;
    until("the event has waited", async || measured("fan_out").await.filter(|age| *age > 0.0)).await;
    assert_eq!(measured("send").await, Some(0.0));
}

on_both! {
    a_fresh_server_has_every_metric_of_the_guide_and_of_the_alerts;
    counters_rise_with_what_happens;
    the_age_of_what_waits_rises_while_nobody_decides;
}
