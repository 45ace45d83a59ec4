//! Invalid rows: each is refused with its position and field, and nothing of the request is stored.

use campanile_testkit::on_both;
use reqwest::Method;
use serde_json::{Value, json};

use crate::interface::fresh::{Fresh, encoded, with};
use crate::support::{Backend, staff, until};

const PATHS: [&str; 7] = [
    "/v1/recipients",
    "/v1/entities",
    "/v1/preferences",
    "/v1/settings",
    "/v1/routing",
    "/v1/audiences",
    "/v1/templates",
];

/// A valid row of this table.
fn good(path: &str) -> Value {
    match path {
        "/v1/recipients" => json!({"user_type": "RESTAURANT_USER", "user_id": 1}),
        "/v1/entities" => json!({"entity_type": "RESTAURANT", "entity_id": 5}),
        "/v1/preferences" => json!({"user_type": "CUSTOMER", "user_id": 1, "channel": "EMAIL"}),
        "/v1/settings" => json!({"entity_type": "RESTAURANT", "channel": "EMAIL"}),
        "/v1/routing" => json!({"event_type": "TEST", "channel": "EMAIL"}),
        "/v1/audiences" => json!({"event_type": "TEST", "name": "all", "recipient_type": "ALL"}),
        "/v1/templates" => json!({"title": "Something happened"}),
        other => panic!("{other} is no table"),
    }
}

/// Puts each invalid field into an otherwise valid row, next to two valid ones.
async fn assert_refused(server: &Fresh, path: &str, wrong: &[(Value, &str)]) {
    let before = server.items(path).await;
    for (fields, pointer) in wrong {
        let mut bad = good(path);
        for (name, value) in fields.as_object().unwrap() {
            bad[name] = value.clone();
        }
        let answer = server.try_put(path, &json!([good(path), good(path), bad])).await;
        answer.assert_problem(422, "invalid").assert_names(2, pointer).assert_says(&[pointer]);
        assert_eq!(server.items(path).await, before, "{path}: {fields}");
    }
}

async fn people_and_entities_that_are_wrong_are_refused(backend: Backend) {
    let server = Fresh::start(backend);
    let wrong = [
        (json!({"user_type": "DOG"}), "/user_type"),
        (json!({"user_type": "ALL"}), "/user_type"),
        (json!({"user_type": null}), "/user_type"),
        (json!({"user_id": ""}), "/user_id"),
        (json!({"user_id": "x".repeat(201)}), "/user_id"),
        (json!({"user_id": "a\u{0}b"}), "/user_id"),
        (json!({"user_id": true}), "/user_id"),
        (json!({"colour": "red"}), "/colour"),
        (json!({"time_zone": "Mars/Base"}), "/time_zone"),
        (json!({"time_zone": ""}), "/time_zone"),
        (json!({"time_zone": 1}), "/time_zone"),
        (json!({"email": "nobody"}), "/email"),
        (json!({"email": "a@example.com\r\nBcc: b@example.com"}), "/email"),
        (json!({"phone": 39_055}), "/phone"),
        (json!({"name": "x".repeat(2_001)}), "/name"),
        (json!({"push_tokens": "token"}), "/push_tokens"),
        (json!({"push_tokens": [1]}), "/push_tokens/0"),
        (json!({"push_tokens": [""]}), "/push_tokens/0"),
        (json!({"push_tokens": ["fine", "a b"]}), "/push_tokens/1"),
        (json!({"addresses": "7"}), "/addresses"),
        (json!({"addresses": {"FAX": "7"}}), "/addresses"),
        (json!({"addresses": {"EMAIL": "anna@example.com"}}), "/addresses/EMAIL"),
        (json!({"addresses": {"WEBSOCKET": "7"}}), "/addresses/WEBSOCKET"),
        (json!({"addresses": {"EMAIL": 7}}), "/addresses/EMAIL"),
        (json!({"active": "yes"}), "/active"),
        (json!({"entity_type": "RESTAURANT"}), "/entity_id"),
        (json!({"entity_id": 5}), "/entity_type"),
        (json!({"entity_type": "AGENCY", "entity_id": 5}), "/entity_type"),
        (json!({"user_type": "CUSTOMER", "entity_type": "RESTAURANT", "entity_id": 5}), "/entity_type"),
    ];
    assert_refused(&server, "/v1/recipients", &wrong).await;
    let wrong = [
        (json!({"entity_id": "*"}), "/entity_id"),
        (json!({"entity_id": {}}), "/entity_id"),
        (json!({"kind": "*"}), "/kind"),
        (json!({"kind": "BAR\u{0}"}), "/kind"),
        (json!({"name": "a\u{0}"}), "/name"),
        (json!({"name": 5}), "/name"),
        (json!({"owner": "Anna"}), "/owner"),
    ];
    assert_refused(&server, "/v1/entities", &wrong).await;
}

/// Field, value, and a word of the reason. No reason contains the value: some are secrets.
const NO_ADDRESSES: [(&str, &str, &str); 25] = [
    ("email", "", "has no @"),
    ("email", " ", "has no @"),
    ("email", "a@b@example.com", "before the @"),
    ("email", "anna rossi@example.com", "before the @"),
    ("email", " anna@example.com", "leading or trailing spaces"),
    ("email", "anna@example.com ", "leading or trailing spaces"),
    ("email", "anna@exa mple.com", "not a domain"),
    ("email", "anna@", "not a domain"),
    ("email", "anna@127.0.0.1", "not a domain"),
    ("email", "Anna <anna@example.com>", "display name"),
    ("email", "<anna@example.com>", "display name"),
    ("email", "a@example.com,b@example.com", "before the @"),
    ("phone", "", "country code"),
    ("phone", "055 123456", "country code"),
    ("phone", "+39 055 1234567", "digits only"),
    ("phone", "00390551234567", "digits only"),
    ("phone", "+39055123456789012", "15 digits"),
    ("phone", "+44 (0)20 7946 0000", "(0)"),
    ("phone", "whatsapp:+390551234567", "not part of a phone number"),
    ("slack_webhook", "", "not a URL"),
    ("slack_webhook", "#kitchen", "not a URL"),
    ("slack_webhook", "http://hooks.slack.com/services/T0/B0/x", "use https://"),
    ("slack_webhook", "https://me:pass@hooks.slack.com/x", "user"),
    ("locale", "", "language tag"),
    ("locale", "Italian!", "language tag"),
];

async fn addresses_that_can_not_be_sent_to_are_refused(backend: Backend) {
    let server = Fresh::start(backend);
    let path = "/v1/recipients";
    for (field, value, word) in NO_ADDRESSES {
        let bad = with(&good(path), &json!({field: value}));
        let answer = server.try_put(path, &json!([good(path), bad])).await;
        answer.assert_problem(422, "invalid").assert_names(1, &format!("/{field}")).assert_says(&[word]);
        assert!(value.len() < 5 || !answer.body.to_string().contains(value), "{value}: {}", answer.body);
    }
    assert_eq!(server.items(path).await, Vec::<Value>::new());
    let right = [
        ("email", json!("\"anna rossi\"@caff\u{e8}.it")),
        ("email", json!("o'neill+tag@mail.example.co.uk")),
        ("email", json!("\u{e9}@example.com")),
        ("phone", json!("+390550100001")),
        ("push_tokens", json!(["fMEP0vJqS0:APA91bHqX-device_one"])),
        ("locale", json!("zh_Hant_HK")),
    ];
    for (field, value) in right {
        server.put(path, json!([with(&good(path), &json!({field: value}))])).await;
        assert_eq!(server.items(path).await[0][field], value);
    }
    for (webhook, shown) in [
        ("https://hooks.slack.com/services/T0/B0/x", "https://hooks.slack.com/services/***"),
        ("http://127.0.0.1:8080/x", "http://127.0.0.1:8080/***"),
    ] {
        server.put(path, json!([with(&good(path), &json!({"slack_webhook": webhook}))])).await;
        assert_eq!(server.items(path).await[0]["slack_webhook"], shown);
    }
}

async fn preferences_and_settings_that_are_wrong_are_refused(backend: Backend) {
    let server = Fresh::start(backend);
    let for_both = [
        (json!({"channel": "FAX"}), "/channel"),
        (json!({"channel": "email"}), "/channel"),
        (json!({"channel": "*"}), "/channel"),
        (json!({"enabled": "no"}), "/enabled"),
        (json!({"enabled": null}), "/enabled"),
        (json!({"quiet_hours_start": "25:00", "quiet_hours_end": "08:00"}), "/quiet_hours_start"),
        (json!({"quiet_hours_start": "22:00", "quiet_hours_end": "8:00"}), "/quiet_hours_end"),
        (json!({"quiet_hours_start": "22:60", "quiet_hours_end": "08:00"}), "/quiet_hours_start"),
        (json!({"quiet_hours_start": 22, "quiet_hours_end": 8}), "/quiet_hours_end"),
        (json!({"quiet_hours_start": "08:00", "quiet_hours_end": "08:00"}), "/quiet_hours_end"),
        (json!({"quiet_hours_start": "22:00"}), "/quiet_hours_end"),
        (json!({"quiet_hours_end": "08:00"}), "/quiet_hours_start"),
        (
            json!({"quiet_hours_start": "22:00", "quiet_hours_end": "08:00", "quiet_hours_mode": "DEFER"}),
            "/quiet_hours_mode",
        ),
        (json!({"quiet_hours_mode": "LATER"}), "/quiet_hours_mode"),
        (json!({"quiet_hours_enabled": true}), "/quiet_hours_enabled"),
    ];
    assert_refused(&server, "/v1/preferences", &for_both).await;
    assert_refused(&server, "/v1/settings", &for_both).await;
    let of_users = [
        (json!({"user_type": "DOG"}), "/user_type"),
        (json!({"min_priority": "URGENT"}), "/min_priority"),
        (json!({"event_type": ""}), "/event_type"),
        (json!({"time_zone": "Europe/Rome"}), "/time_zone"),
    ];
    assert_refused(&server, "/v1/preferences", &of_users).await;
    let of_groups = [
        (json!({"entity_type": "MOON"}), "/entity_type"),
        (json!({"entity_id": 5, "kind": "BAR"}), "/kind"),
        (json!({"max_recipients": -1}), "/max_recipients"),
        (json!({"max_recipients": 1.5}), "/max_recipients"),
        (json!({"max_recipients": "three"}), "/max_recipients"),
        (json!({"roles": "MANAGER"}), "/roles"),
        (json!({"roles": [5]}), "/roles/0"),
        (json!({"roles": ["CHEF", "a\u{0}b"]}), "/roles/1"),
        (json!({"kind": "BAR\u{0}"}), "/kind"),
        (json!({"entity_id": "5\u{0}"}), "/entity_id"),
    ];
    assert_refused(&server, "/v1/settings", &of_groups).await;
}

async fn rules_that_are_wrong_are_refused(backend: Backend) {
    let server = Fresh::start(backend);
    let routes = [
        (json!({"channel": "FAX"}), "/channel"),
        (json!({"mandatory": 1}), "/mandatory"),
        (json!({"priority": "URGENT"}), "/priority"),
        (json!({"delivery_strategy": "DELAYED"}), "/delivery_strategy"),
        (json!({"delivery_strategy": "AGGREGATE"}), "/delivery_strategy"),
        (json!({"delay_seconds": 60}), "/delay_seconds"),
        (json!({"enabled": true}), "/enabled"),
    ];
    assert_refused(&server, "/v1/routing", &routes).await;
    let audiences = [
        (json!({"event_type": "*"}), "/event_type"),
        (json!({"name": ""}), "/name"),
        (json!({"recipient_type": "DOG"}), "/recipient_type"),
        (json!({"recipient_type": "CUSTOMER", "entity_path": "payload.customerId"}), "/entity_path"),
        (json!({"recipient_type": "CUSTOMER", "entity_path": ""}), "/entity_path"),
        (json!({"recipient_type": "CUSTOMER", "entity_path": 5}), "/entity_path"),
        (json!({"entity_path": "/payload/customerId"}), "/entity_path"),
        (json!({"roles": "CHEF"}), "/roles"),
        (json!({"roles": [""]}), "/roles/0"),
        (json!({"roles": ["a\u{0}b"]}), "/roles/0"),
        (json!({"scope": "WORLD"}), "/scope"),
        (json!({"shared_read": "yes"}), "/shared_read"),
        (json!({"when": "payload.total >"}), "/when"),
        (json!({"when": ""}), "/when"),
        (json!({"when": "{{ payload.total }}"}), "/when"),
        (json!({"when": true}), "/when"),
        (json!({"when": "payload.a == 'a\u{0}b'"}), "/when"),
        (json!({"when": "('a\nb'|indent(100000000000000))|length > 1"}), "/when"),
        (json!({"when": "payload.list | select('nope')"}), "/when"),
    ];
    assert_refused(&server, "/v1/audiences", &audiences).await;
    let templates = [
        (json!({"title": "{{ payload.guest"}), "/title"),
        (json!({"title": 5}), "/title"),
        (json!({"body": "{% if payload.guest %}"}), "/body"),
        (json!({"html": "{% for %}"}), "/html"),
        (json!({"channel": "FAX"}), "/channel"),
        (json!({"subject": "Ciao"}), "/subject"),
        (json!({"title": "a\u{0}b"}), "/title"),
        (json!({"body": "a\u{0}b"}), "/body"),
        (json!({"html": "a\u{0}b"}), "/html"),
        (json!({"url": "https://a.example/\u{0}"}), "/url"),
        (json!({"body": "{% if payload.a is nope %}{% endif %}"}), "/body"),
        (json!({"body": "{{ payload.list | selectattr('a', 'nope') | list }}"}), "/body"),
    ];
    assert_refused(&server, "/v1/templates", &templates).await;
}

async fn a_language_has_one_row_however_it_is_written(backend: Backend) {
    let server = Fresh::start(backend);
    server.put("/v1/recipients", staff()).await;
    let row = |locale: &str, title: &str| {
        json!({"event_type": "RESERVATION_REQUESTED", "locale": locale,
        "title": title})
    };
    let both = json!([row("it", "Ciao"), row("de", "Hallo"), row("IT", "Salve")]);
    let refused = server.try_put("/v1/templates", &both).await;
    refused.assert_problem(422, "invalid").assert_names(2, "/locale").assert_says(&["`IT`", "`it` in row 0"]);
    let locales = async || {
        let rows = server.items("/v1/templates?event_type=RESERVATION_REQUESTED").await;
        rows.iter().map(|row| row["locale"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert!(locales().await.is_empty());
    for (locale, title) in [("it", "Ciao"), ("IT", "Salve"), ("it_ch", "Grüezi"), ("it-CH", "Salve")] {
        server.put("/v1/templates", json!([row(locale, title)])).await;
    }
    assert_eq!(locales().await, ["it", "it-CH"]);
    let found = server.items("/v1/templates?event_type=RESERVATION_REQUESTED&locale=IT_ch").await;
    assert_eq!((found.len(), &found[0]["title"]), (1, &json!("Salve")));

    // A duplicate that SQL wrote has no effect and can be deleted.
    let sql =
        "INSERT INTO template (event_type, locale, title) VALUES ('RESERVATION_REQUESTED', 'IT', 'SQL')";
    server.execute(sql).await;
    let preview = json!({"event": {"event_type": "RESERVATION_REQUESTED"}, "locale": "IT"});
    until("the rules are read again", async || {
        server.put("/v1/templates", json!([row("fr", "Salut")])).await;
        let french = with(&preview, &json!({"locale": "fr"}));
        (server.post("/v1/templates/preview", &french).await.body["title"] == "Salut").then_some(())
    })
    .await;
    assert_eq!(server.post("/v1/templates/preview", &preview).await.body["title"], "Salve");
    let key = "/v1/templates?event_type=RESERVATION_REQUESTED&locale=IT";
    for (status, left) in
        [(204, ["fr", "it", "it-CH"].as_slice()), (204, &["fr", "it-CH"]), (404, &["fr", "it-CH"])]
    {
        assert_eq!(server.delete(key).await.status, status);
        assert_eq!(locales().await, left);
    }
}

async fn one_bad_row_among_a_hundred_keeps_all_out(backend: Backend) {
    let server = Fresh::start(backend);
    for path in PATHS {
        let before = server.items(path).await;
        let row = |n: usize| match path {
            "/v1/recipients" => with(&good(path), &json!({"user_id": n})),
            "/v1/entities" => with(&good(path), &json!({"entity_id": n})),
            _ => with(&good(path), &json!({"event_type": format!("T{n}")})),
        };
        let mut rows: Vec<Value> = (0..100).map(row).collect();
        rows.insert(57, with(&row(57), &json!({"colour": "red"})));
        let answer = server.try_put(path, &json!(rows)).await;
        answer.assert_problem(422, "invalid").assert_names(57, "/colour");
        assert_eq!(server.items(path).await, before, "{path}");
        rows.remove(57);
        let answer = server.try_put(path, &json!(rows)).await;
        assert_eq!((answer.status, answer.body), (200, json!({"written": 100})), "{path}");
        assert_eq!(server.items(path).await.len(), before.len() + 100, "{path}");
    }
}

async fn what_is_no_array_of_rows_is_refused(backend: Backend) {
    let server = Fresh::start(backend);
    for path in PATHS {
        let before = server.items(path).await;
        for body in [
            good(path).to_string(),
            "{}".to_owned(),
            "7".to_owned(),
            "null".to_owned(),
            format!("[{}", good(path)),
        ] {
            server.send(Method::PUT, path, body).await.assert_problem(400, "malformed");
        }
        for body in [json!([7]), json!([null]), json!([[]])] {
            let answer = server.try_put(path, &body).await;
            answer.assert_problem(422, "invalid").assert_names(0, "").assert_says(&["must be a JSON object"]);
        }
        for field in good(path)
            .as_object()
            .unwrap()
            .keys()
            .filter(|name| !(path == "/v1/routing" && *name == "event_type"))
        {
            let answer = server.try_put(path, &json!([with(&good(path), &json!({field: null}))])).await;
            answer
                .assert_problem(422, "invalid")
                .assert_names(0, &format!("/{field}"))
                .assert_says(&["missing"]);
        }
        assert_eq!(server.items(path).await, before, "{path}");
    }
}

async fn queries_that_make_no_sense_are_named(backend: Backend) {
    let server = Fresh::start(backend);
    for path in PATHS {
        let parts = match path {
            "/v1/recipients" | "/v1/entities" | "/v1/routing" | "/v1/audiences" => 2,
            "/v1/templates" => 3,
            "/v1/preferences" => 4,
            _ => 5,
        };
        let nul_in_cursor = format!("cursor={}", encoded(&json!(vec!["a\u{0}"; parts]).to_string()));
        for (query, words) in [
            ("colour=red", ["`colour`", "cursor"]),
            ("limit=0", ["limit", "1000"]),
            ("limit=1001", ["limit", "1000"]),
            ("limit=many", ["limit", "many"]),
            ("cursor=nonsense", ["cursor", "of this list"]),
            ("cursor=7", ["cursor", "of this list"]),
            ("cursor=%5B%22a%22%5D", ["cursor", "of this list"]),
            (&nul_in_cursor, ["cursor", "of this list"]),
        ] {
            let answer = server.try_get(&format!("{path}?{query}")).await;
            answer.assert_problem(422, "invalid-query").assert_says(&words);
        }
        let key = match path {
            "/v1/templates" => "locale=none".to_owned(),
            _ => good(path)
                .as_object()
                .unwrap()
                .keys()
                .map(|name| format!("{name}=none"))
                .collect::<Vec<_>>()
                .join("&"),
        };
        if !["/v1/audiences"].contains(&path) {
            server.delete(&format!("{path}?{key}")).await.assert_problem(404, "not-found");
        }
        let answer = server.delete(&format!("{path}?{key}&colour={}", encoded("red & blue"))).await;
        answer.assert_problem(422, "invalid-query").assert_says(&["unknown parameter"]);
    }
    let answer = server.try_get("/v1/recipients?active=perhaps").await;
    answer.assert_problem(422, "invalid-query").assert_says(&["active", "perhaps"]);
}

on_both! {
    people_and_entities_that_are_wrong_are_refused;
    addresses_that_can_not_be_sent_to_are_refused;
    preferences_and_settings_that_are_wrong_are_refused;
    rules_that_are_wrong_are_refused;
    a_language_has_one_row_however_it_is_written;
    one_bad_row_among_a_hundred_keeps_all_out;
    what_is_no_array_of_rows_is_refused;
    queries_that_make_no_sense_are_named;
}
