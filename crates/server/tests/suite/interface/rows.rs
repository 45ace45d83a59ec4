//! The seven tables that operators write: rows are returned with their defaults, replaced by key, filtered, paged and
//! deleted.

use campanile_testkit::on_both;
use serde_json::{Value, json};

use crate::interface::fresh::{Fresh, encoded, with};
use crate::support::Backend;

/// One table: its minimal and its full row, and what the minimal one means.
struct Table {
    path: &'static str,
    key: &'static [&'static str],
    least: Value,
    defaults: Value,
    most: Value,
}

fn tables() -> Vec<Table> {
    let mut tables = people();
    tables.extend(rules());
    tables
}

fn people() -> Vec<Table> {
    let quiet =
        json!({"quiet_hours_start": "22:00", "quiet_hours_end": "06:30", "quiet_hours_mode": "SUPPRESS"});
    let not_quiet =
        json!({"quiet_hours_start": null, "quiet_hours_end": null, "quiet_hours_mode": "SUPPRESS"});
    let preference = json!({"user_type": "CUSTOMER", "user_id": "42", "channel": "EMAIL"});
    let setting = json!({"entity_type": "RESTAURANT", "channel": "SMS"});
    vec![
        Table {
            path: "/v1/recipients",
            key: &["user_type", "user_id"],
            least: json!({"user_type": "RESTAURANT_USER", "user_id": 42}),
            defaults: json!({
                "user_id": "42", "entity_type": null, "entity_id": null, "role": null, "name": null, "email": null,
                "phone": null, "push_tokens": [], "slack_webhook": null, "addresses": {}, "locale": null,
                "time_zone": null, "active": true,
            }),
            most: json!({
                "user_type": "RESTAURANT_USER", "user_id": "42", "entity_type": "RESTAURANT", "entity_id": "5",
                "role": "CHEF", "name": "Zoë Ünal", "email": "zoe@example.com", "phone": "+390550100",
                "push_tokens": ["a", "b"], "slack_webhook": "https://hooks.slack.example/T/B/x", "addresses": {},
                "locale": "it-CH", "time_zone": "Europe/Rome", "active": false,
            }),
        },
        Table {
            path: "/v1/entities",
            key: &["entity_type", "entity_id"],
            least: json!({"entity_type": "RESTAURANT", "entity_id": 5}),
            defaults: json!({"entity_id": "5", "kind": null, "name": null}),
            most: json!({
                "entity_type": "RESTAURANT", "entity_id": "5", "kind": "TRATTORIA", "name": "Da \"Anna\" & figli",
            }),
        },
        Table {
            path: "/v1/preferences",
            key: &["user_type", "user_id", "channel", "event_type"],
            least: preference.clone(),
            defaults: merged(&not_quiet, &json!({"event_type": "*", "enabled": true, "min_priority": null})),
            most: merged(
                &merged(&preference, &quiet),
                &json!({"event_type": "*", "enabled": false, "min_priority": "HIGH"}),
            ),
        },
        Table {
            path: "/v1/settings",
            key: &["entity_type", "entity_id", "kind", "channel", "event_type"],
            least: setting.clone(),
            defaults: merged(
                &not_quiet,
                &json!({
                    "entity_id": "*", "kind": "*", "event_type": "*", "enabled": true, "max_recipients": null,
                    "min_priority": null,
                    "roles": null,
                }),
            ),
            most: merged(
                &merged(&setting, &quiet),
                &json!({
                    "entity_id": "*", "kind": "*", "event_type": "*", "enabled": false, "max_recipients": 3,
                    "min_priority": "NORMAL", "roles": ["MANAGER", "CHEF"],
                }),
            ),
        },
    ]
}

fn rules() -> Vec<Table> {
    vec![
        Table {
            path: "/v1/routing",
            key: &["event_type", "channel"],
            least: json!({"channel": "SLACK"}),
            defaults: json!({
                "event_type": "*", "mandatory": false, "delivery_strategy": "IMMEDIATE", "priority": null,
                "min_priority": null,
            }),
            most: json!({
                "event_type": "*", "channel": "SLACK", "mandatory": true, "delivery_strategy": "IMMEDIATE",
                "priority": "LOW", "min_priority": "NORMAL",
            }),
        },
        Table {
            path: "/v1/audiences",
            key: &["event_type", "name"],
            least: json!({"event_type": "TEST", "name": "everybody", "recipient_type": "ALL"}),
            defaults: json!({
                "entity_path": null, "roles": null, "scope": "PERSONAL", "shared_read": false, "when": null,
            }),
            most: json!({
                "event_type": "TEST", "name": "everybody", "recipient_type": "RESTAURANT_USER",
                "entity_path": "/payload/a~1b/0", "roles": ["CHEF"], "scope": "TEAM", "shared_read": true,
                "when": "payload.total > 100",
            }),
        },
        Table {
            path: "/v1/templates",
            key: &["event_type", "channel", "locale"],
            least: json!({"title": "Something happened"}),
            defaults: json!({"event_type": "*", "channel": "*", "locale": "*", "body": "", "html": null, "url": null}),
            most: json!({
                "event_type": "*", "channel": "*", "locale": "*", "title": "{{ payload.guest }}",
                "body": "Ciao\n{{ recipient.name }}", "html": "<p>{{ payload.guest }}</p>",
                "url": "https://a.example/{{ aggregate_id }}",
            }),
        },
    ]
}

/// All fields of both, including nulls.
fn merged(first: &Value, second: &Value) -> Value {
    let fields = [first, second].into_iter().filter_map(Value::as_object).flatten();
    fields.map(|(name, value)| (name.clone(), value.clone())).collect()
}

fn query(row: &Value, columns: &[&str]) -> String {
    let pair = |column: &&str| format!("{column}={}", encoded(row[*column].as_str().expect("keys are text")));
    columns.iter().map(pair).collect::<Vec<_>>().join("&")
}

/// The only row of a list.
async fn only(server: &Fresh, path: &str) -> Value {
    let mut rows = server.items(path).await;
    assert_eq!(rows.len(), 1, "{path}: {rows:?}");
    rows.remove(0)
}

/// A row as it is listed: without the secret part of a webhook.
fn listed(row: &Value) -> Value {
    let mut row = row.clone();
    if let Some(webhook) = row.get_mut("slack_webhook") {
        *webhook = json!("https://hooks.slack.example/T/***");
    }
    row
}

async fn each_table_gives_back_what_was_put_with_its_defaults(backend: Backend) {
    let server = Fresh::start(backend);
    for Table { path, key, least, defaults, most } in tables() {
        let written = server.try_put(path, &json!([least])).await;
        assert_eq!((written.status, written.body), (200, json!({"written": 1})), "{path}");
        let filled_in = merged(&least, &defaults);
        let by_key = format!("{path}?{}", query(&filled_in, key));
        assert_eq!(only(&server, &by_key).await, filled_in, "{path}");

        // Replaced as a whole, repeatedly: absent fields have their defaults.
        server.put(path, json!([most])).await;
        assert_eq!(only(&server, &by_key).await, listed(&most), "{path}");
        server.put(path, json!([most, least])).await;
        assert_eq!(only(&server, &by_key).await, filled_in, "{path}: of one key the last counts");

        let gone = server.delete(&by_key).await;
        assert_eq!((gone.status, gone.body), (204, json!("")), "{path}");
        assert_eq!(server.items(&by_key).await.len(), 0, "{path}");
        server.delete(&by_key).await.assert_problem(404, "not-found");
        assert_eq!(server.try_put(path, &json!([])).await.body, json!({"written": 0}), "{path}");
    }
}

async fn a_row_is_deleted_by_its_whole_key(backend: Backend) {
    let server = Fresh::start(backend);
    for Table { path, key, least, defaults, .. } in tables() {
        let row = merged(&least, &defaults);
        server.put(path, json!([least])).await;
        for missing in key {
            let others: Vec<&str> = key.iter().copied().filter(|column| column != missing).collect();
            let wrong = with(&row, &json!({*missing: "another"}));
            server.delete(&format!("{path}?{}", query(&wrong, key))).await.assert_problem(404, "not-found");
            if row[*missing] != "*" {
                let answer = server.delete(&format!("{path}?{}", query(&row, &others))).await;
                answer.assert_problem(422, "invalid-query").assert_says(&[missing, "is missing"]);
            }
        }
        assert!(server.items(path).await.contains(&row), "{path}");
        // A deletion may omit what a row may omit.
        let needed: Vec<&str> = key.iter().copied().filter(|column| row[*column] != "*").collect();
        assert_eq!(server.delete(&format!("{path}?{}", query(&row, &needed))).await.status, 204, "{path}");
    }
}

async fn people_are_filtered_and_paged_and_each_comes_once(backend: Backend) {
    let server = Fresh::start(backend);
    let person = |n: usize| {
        let role = if n.is_multiple_of(3) { "CHEF" } else { "WAITER" };
        json!({
            "user_type": "RESTAURANT_USER", "user_id": format!("ü/{n}?&\"'%"), "entity_type": "RESTAURANT",
            "entity_id": n % 2, "role": role, "active": !n.is_multiple_of(5),
        })
    };
    let mut people: Vec<Value> = (0..30).map(person).collect();
    people.push(json!({"user_type": "CUSTOMER", "user_id": "1"}));
    server.put("/v1/recipients", json!(people)).await;
    let all = server.items("/v1/recipients").await;
    assert_eq!(all.len(), 31);
    for limit in [1, 7, 31] {
        assert_eq!(server.pages("/v1/recipients", limit).await, all, "{limit} at a time");
    }
    for (filter, count) in [
        ("user_type=CUSTOMER", 1),
        ("user_type=GUEST", 0),
        ("user_type=RESTAURANT_USER&user_id=%C3%BC%2F7%3F%26%22%27%25", 1),
        ("entity_type=RESTAURANT&entity_id=1", 15),
        ("role=CHEF", 10),
        ("active=false", 6),
        ("active=true&entity_id=0&role=CHEF", 4),
    ] {
        assert_eq!(server.pages(&format!("/v1/recipients?{filter}"), 4).await.len(), count, "{filter}");
    }
}

async fn rules_are_filtered_by_their_key_and_paged(backend: Backend) {
    let server = Fresh::start(backend);
    let routes: Vec<Value> = ["A", "B", "C"]
        .iter()
        .flat_map(|event_type| {
            ["EMAIL", "PUSH", "SMS"].map(|c| json!({"event_type": event_type, "channel": c}))
        })
        .collect();
    server.put("/v1/routing", json!(routes)).await;
    // A new installation has the default routes.
    let default = server.items("/v1/routing?event_type=*").await;
    let channels: Vec<&Value> = default.iter().map(|route| &route["channel"]).collect();
    assert_eq!(channels, ["EMAIL", "PUSH", "SMS", "WEBSOCKET"]);
    assert!(default.iter().all(|route| (route["mandatory"] == true) == (route["channel"] == "WEBSOCKET")));
    assert_eq!(server.pages("/v1/routing", 2).await.len(), 9 + 4);
    assert_eq!(server.pages("/v1/routing?event_type=B", 2).await.len(), 3);
    assert_eq!(server.items("/v1/routing?channel=PUSH").await.len(), 3 + 1);

    let kinds = json!([
        {"entity_type": "RESTAURANT", "entity_id": 1, "kind": "BAR"},
        {"entity_type": "RESTAURANT", "entity_id": 2, "kind": "BAR"},
        {"entity_type": "AGENCY", "entity_id": 1},
    ]);
    server.put("/v1/entities", kinds).await;
    assert_eq!(server.items("/v1/entities?kind=BAR").await.len(), 2);
    assert_eq!(server.items("/v1/entities?entity_id=1").await.len(), 2);
    for path in ["/v1/preferences", "/v1/settings", "/v1/audiences", "/v1/templates"] {
        assert_eq!(
            server.items(path).await.len(),
            0,
            "{path}: an empty installation has no rows but the defaults"
        );
    }
}

async fn ten_thousand_rows_are_written_at_once_and_not_one_more(backend: Backend) {
    let server = Fresh::start(backend);
    let many = |count: usize| {
        json!((0..count).map(|n| json!({"entity_type": "RESTAURANT", "entity_id": n})).collect::<Vec<_>>())
    };
    let answer = server.try_put("/v1/entities", &many(10_001)).await;
    answer.assert_problem(422, "invalid").assert_says(&["10000", "10001"]);
    assert_eq!(server.items("/v1/entities").await.len(), 0);
    let answer = server.try_put("/v1/entities", &many(10_000)).await;
    assert_eq!(answer.body, json!({"written": 10_000}));
    assert_eq!(server.items("/v1/entities").await.len(), 10_000);
}

on_both! {
    each_table_gives_back_what_was_put_with_its_defaults;
    a_row_is_deleted_by_its_whole_key;
    people_are_filtered_and_paged_and_each_comes_once;
    rules_are_filtered_by_their_key_and_paged;
    ten_thousand_rows_are_written_at_once_and_not_one_more;
}
