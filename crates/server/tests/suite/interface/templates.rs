//! Templates: what is refused when they are written, the preview over HTTP and on the command line, folders of files,
//! and those of the preset.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::interface::command::{Ran, cli};
use crate::interface::fresh::{Fresh, with};
use crate::support::{Backend, reservation};

const LAYOUT: &str = "<mjml><mj-body><mj-section><mj-column>
<mj-text>{{ title }}</mj-text>
<mj-text>{{ body | paragraphs }}</mj-text>
</mj-column></mj-section></mj-body></mjml>";

fn order(payload: &Value) -> Value {
    json!({"event_type": "ORDER_CREATED", "payload": payload})
}

async fn preview(server: &Fresh, fields: &Value) -> Value {
    let request = with(&json!({"event": order(&json!({"at": "2026-01-21T18:30:00Z"}))}), fields);
    let answer = server.post("/v1/templates/preview", &request).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.body
}

#[tokio::test]
async fn a_template_that_can_not_be_used_is_refused_with_field_and_line() {
    let server = Fresh::start(Backend::Embedded);
    for (field, source, words) in [
        ("html", "<mjml>\n<mj-body>\n<mj-sect></mj-sect></mj-body></mjml>", ["line 3", "mj-sect"]),
        ("html", "<mjml>\n<mj-body><mj-include path=\"x\" /></mj-body></mjml>", ["line 2", "mj-include"]),
        ("html", "<mjml>\n<mj-body><mj-section>\n</mj-body></mjml>", ["line 3", "mj-section"]),
        ("body", "a\n{{ payload.at | dat }}", ["line 2", "dat"]),
        ("title", "{{ 'x' * 10 }}", ["line 1", "times"]),
    ] {
        let rows =
            json!([{"event_type": "A", "title": "a"}, with(&json!({"title": "t"}), &json!({field: source}))]);
        let answer = server.try_put("/v1/templates", &rows).await;
        answer.assert_problem(422, "invalid").assert_names(1, &format!("/{field}")).assert_says(&words);
    }
    assert_eq!(server.items("/v1/templates").await, Vec::<Value>::new());
}

#[tokio::test]
async fn a_preview_shows_title_body_and_html_as_the_recipient_would_read_them() {
    let server = Fresh::start(Backend::Embedded);
    let rows = json!([
        {"event_type": "ORDER_CREATED", "locale": "it", "title": "Ordine",
            "body": "Ciao {{ recipient.name }},\n\nalle {{ payload.at | time }}."},
        {"event_type": "ORDER_CREATED", "title": "Order", "body": "At {{ payload.at | time }}."},
        {"channel": "EMAIL", "title": "", "html": LAYOUT},
    ]);
    server.put("/v1/templates", rows).await;
    let person = json!({"user_type": "CUSTOMER", "user_id": 42, "name": "Anna <Rossi>", "locale": "it-CH",
        "time_zone": "Europe/Rome"});
    server.put("/v1/recipients", json!([person])).await;

    let seen =
        preview(&server, &json!({"channel": "EMAIL", "user": {"user_type": "CUSTOMER", "user_id": 42}}))
            .await;
    assert_eq!(seen["title"], "Ordine");
    assert_eq!(seen["body"], "Ciao Anna <Rossi>,\n\nalle 19:30.");
    let html = seen["html"].as_str().unwrap();
    assert!(html.contains("<p>Ciao Anna &lt;Rossi&gt;,</p><p>alle 19:30.</p>"), "{html}");
    assert_eq!(
        (&seen["template"], &seen["html_template"], &seen["locale"]),
        (&json!("ORDER_CREATED/*/it"), &json!("*/EMAIL/*"), &json!("it-CH"))
    );

    let inbox = preview(&server, &json!({"locale": "en", "recipient": {"time_zone": "Europe/London"}})).await;
    assert_eq!((&inbox["body"], &inbox["html"]), (&json!("At 6:30 PM."), &Value::Null));
    let nobody = preview(&server, &json!({"channel": "SMS"})).await;
    assert_eq!((&nobody["title"], &nobody["locale"]), (&json!("Order"), &json!("en")));
    let unknown =
        preview(&server, &json!({"event": {"event_type": "SOMETHING_ELSE"}, "channel": "EMAIL"})).await;
    assert_eq!((&unknown["title"], &unknown["template"]), (&json!("Something else"), &Value::Null));
    assert!(unknown["html"].as_str().unwrap().contains("Something else"));
    assert_eq!(server.items("/v1/events").await.len(), 0);
}

#[tokio::test]
async fn a_draft_is_seen_before_it_is_stored() {
    let server = Fresh::start(Backend::Embedded);
    server.put("/v1/templates", json!([{"event_type": "ORDER_CREATED", "title": "Stored"}])).await;
    let draft = json!({"title": "Draft",
        "html": "<h1>{{ title }}</h1><p>R&amp;D <a href=\"https://a.example\">here</a></p>"});
    let seen = preview(&server, &json!({"channel": "EMAIL", "locale": "pt", "template": draft})).await;
    assert_eq!(seen["title"], "Draft");
    assert_eq!(seen["body"], "Draft\n\nR&D here (https://a.example)");
    assert_eq!(seen["template"], "ORDER_CREATED/EMAIL/pt");
    assert_eq!(preview(&server, &json!({})).await["title"], "Stored");
    assert_eq!(server.items("/v1/templates").await.len(), 1);
}

#[tokio::test]
async fn a_preview_that_can_not_be_made_says_why() {
    let server = Fresh::start(Backend::Embedded);
    server
        .put("/v1/templates", json!([{"event_type": "ORDER_CREATED", "title": "a\n{{ payload.chair }}"}]))
        .await;
    let base = json!({"event": order(&json!({})), "channel": "EMAIL"});
    let asked = async |fields: Value| server.post("/v1/templates/preview", &with(&base, &fields)).await;

    let missing = asked(json!({})).await;
    missing.assert_problem(422, "invalid").assert_says(&[
        "ORDER_CREATED/*/*/title",
        "line 2",
        "payload.chair",
    ]);
    let draft = asked(json!({"template": {"title": "x", "html": "<mjml>\n<mj-body>"}})).await;
    draft.assert_problem(422, "invalid").assert_names(0, "/template/html").assert_says(&["line 2"]);
    let draft = asked(json!({"template": {"title": "{{ payload.sofa }}"}})).await;
    draft.assert_problem(422, "invalid").assert_names(0, "/template").assert_says(&["payload.sofa"]);
    asked(json!({"user": {"user_type": "CUSTOMER", "user_id": 7}})).await.assert_problem(404, "not-found");
    let both = asked(json!({"user": {"user_type": "CUSTOMER", "user_id": 7}, "recipient": {}})).await;
    both.assert_problem(422, "invalid").assert_names(0, "/user");
    for locale in ["it-CH-and-so-on-and-on", "", "*", &"a-".repeat(100_000)] {
        asked(json!({"locale": locale})).await.assert_problem(422, "invalid").assert_names(0, "/locale");
    }
    for (field, value) in [
        ("locale", json!("a".repeat(200_000))),
        ("name", json!("a\nb")),
        ("user_type", json!("PIGEON")),
        ("email", json!("x")),
    ] {
        let stranger = asked(json!({"recipient": {field: value}})).await;
        stranger.assert_problem(422, "invalid").assert_names(0, &format!("/recipient/{field}"));
    }
    asked(json!({"colour": "red"})).await.assert_problem(422, "invalid").assert_names(0, "/colour");
    asked(json!({"channel": "PIGEON"})).await.assert_problem(422, "invalid").assert_names(0, "/channel");
    asked(json!({"event": null})).await.assert_problem(422, "invalid").assert_names(0, "/event");
}

#[tokio::test]
async fn a_template_that_fails_at_fan_out_fails_its_row_and_nothing_else() {
    let server = Fresh::start(Backend::Embedded);
    let rows = json!([
        {"event_type": "RESERVATION_REQUESTED", "title": "Reservation"},
        {"event_type": "RESERVATION_REQUESTED", "channel": "EMAIL", "title": "Mail",
            "html": "<p>{{ payload.party | date }}</p><p>{{ payload.sofa }}</p>"},
    ]);
    server.put("/v1/templates", rows).await;
    server.put("/v1/recipients", crate::support::staff()).await;
    server.emit(&reservation("evt-1")).await;
    let trace = server.settled("evt-1").await;
    assert_eq!(trace["event"]["status"], "PROCESSED");
    for row in trace["outbox"].as_array().unwrap() {
        let failed = row["channel"] == "EMAIL";
        assert_eq!(row["status"], if failed { "FAILED" } else { "DELIVERED" }, "{row}");
        if failed {
            let error = row["last_error"].as_str().unwrap();
            assert!(error.starts_with("TEMPLATE_ERROR") && error.contains("EMAIL/*/html, line 1"), "{error}");
        }
    }
}

#[tokio::test]
async fn the_command_line_renders_what_the_preset_ships() {
    let server = Fresh::start(Backend::Embedded);
    cli(&server, &["preset", "load", "restaurant"]).succeeded();
    let payload = r#"{"restaurant": "Da Anna", "guest": "John <Doe>", "party": 4, "time": "19:30",
        "table": "7", "url": "https://a.example/r?a=1&b=2"}"#;
    let render = |arguments: &[&str]| {
        let base = ["template", "render", "--event", "RESERVATION_REQUESTED", "--payload", payload];
        cli(&server, &[&base[..], arguments].concat())
    };
    let said = render(&["--channel", "email", "--locale", "it"]).succeeded();
    for part in [
        "Richiesta di prenotazione: John <Doe>",
        "chiede un tavolo per 4",
        "RESERVATION_REQUESTED/EMAIL/it",
        "*/EMAIL/*",
    ] {
        assert!(said.contains(part), "{part} is not in {said}");
    }
    let text = render(&["--channel", "SMS", "--locale", "pt-PT", "--text"]).succeeded();
    assert!(text.contains("Novo pedido de reserva: John <Doe>") && !text.contains("template:"), "{text}");
    let html = render(&["--channel", "EMAIL", "--locale", "it", "--html"]).succeeded();
    for part in [
        "<!doctype html>",
        "lang=\"it\"",
        "John &lt;Doe&gt;",
        "Ospiti",
        "href=\"https://a.example/r?a=1&amp;b=2\"",
        "Apri",
    ] {
        assert!(html.contains(part), "{part} is not in {html}");
    }
    let file = server.folder().join("mail.html");
    render(&["--channel", "EMAIL", "--locale", "it", "--out", file.to_str().unwrap()]).succeeded();
    assert_eq!(fs::read_to_string(&file).unwrap().trim(), html.trim());
    let answer =
        cli(&server, &["--json", "template", "render", "--event", r#"{"event_type": "USER_REGISTERED"}"#])
            .json();
    assert_eq!(answer["template"], "USER_REGISTERED/*/*");

    render(&["--html"]).failed(1, &["html", "PUT /v1/templates"]);
    render(&["--user", "CUSTOMER"]).failed(2, &["TYPE:ID"]);
    render(&["--user", "CUSTOMER:9"]).failed(3, &["CUSTOMER 9"]);
    cli(&server, &["template", "render", "--event", "{"]).failed(2, &["--event", "JSON"]);
    cli(&server, &["template", "render", "--event", "@missing.json"]).failed(1, &["missing.json"]);
}

#[tokio::test]
async fn every_event_of_the_preset_has_html_in_three_languages() {
    let server = Fresh::start(Backend::Embedded);
    cli(&server, &["preset", "load", "restaurant"]).succeeded();
    let event_types = [
        "RESERVATION_REQUESTED",
        "RESERVATION_CONFIRMED",
        "CANCELLATION",
        "ORDER_CREATED",
        "PARTNER_ASSIGNMENT",
        "CHAT_MESSAGE_SENT",
        "USER_REGISTERED",
    ];
    let full = json!({
        "restaurant": "Da Anna", "guest": "John", "party": 4, "date": "21 January", "time": "19:30", "table": 7,
        "order": 311,
        "dishes": ["2 lasagne"], "notes": "n", "reason": "r", "partner": "p", "contact": "c", "sender": "s",
        "message": "m",
        "name": "Giulia", "email": "g@example.com", "url": 5,
    });
    let nulls: Value = full.as_object().unwrap().keys().map(|name| (name.clone(), Value::Null)).collect();
    for event_type in event_types {
        for locale in ["en", "it", "pt-PT"] {
            for payload in [&full, &nulls, &json!({})] {
                let event = json!({"event_type": event_type, "payload": payload});
                let seen =
                    preview(&server, &json!({"event": event, "channel": "EMAIL", "locale": locale})).await;
                let html = seen["html"].as_str().unwrap();
                assert!(html.contains(&format!("lang=\"{locale}\"")) && html.len() < 30_000, "{html}");
                for leftover in ["{{", "{%", ">none", "None", ">null", "jinja", "undefined"] {
                    assert!(!html.contains(leftover), "`{leftover}` in {event_type}: {html}");
                }
            }
        }
    }
}

fn write(folder: &Path, files: &[(&str, &str)]) {
    for (name, text) in files {
        let file = folder.join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }
}

#[tokio::test]
async fn a_folder_of_templates_is_loaded_all_or_nothing() {
    let server = Fresh::start(Backend::Embedded);
    let folder = tempfile::tempdir().unwrap();
    let load = || -> Ran { cli(&server, &["template", "load", folder.path().to_str().unwrap()]) };
    load().failed(1, &["no templates", "ORDER_CREATED/EMAIL.it.txt"]);
    write(
        folder.path(),
        &[
            ("README.md", "ours"),
            ("ORDER_CREATED/any.txt", "Order {{ payload.order }}\n\nLine 1\nLine 2\n"),
            ("ORDER_CREATED/EMAIL.it.txt", "\u{feff}Ordine"),
            ("ORDER_CREATED/EMAIL.it.mjml", &format!("\u{feff}{LAYOUT}")),
            ("any/EMAIL.html", "<p>{{ body }}</p>"),
        ],
    );
    assert!(load().succeeded().contains("3 templates written"));
    let rows = server.items("/v1/templates?event_type=ORDER_CREATED&channel=*").await;
    assert_eq!(
        (&rows[0]["title"], &rows[0]["body"]),
        (&json!("Order {{ payload.order }}"), &json!("Line 1\nLine 2"))
    );
    let rows = server.items("/v1/templates?event_type=ORDER_CREATED&channel=EMAIL").await;
    assert_eq!(
        (&rows[0]["title"], &rows[0]["locale"], &rows[0]["html"]),
        (&json!("Ordine"), &json!("it"), &json!(LAYOUT))
    );

    for (name, text, words) in [
        ("A/EMAIL.it.md", "x", ["EMAIL.it.md", ".txt"]),
        ("A/PIGEON.txt", "x", ["PIGEON", "A"]),
        ("A/any.txt", "title\nbody", ["any.txt", "empty line"]),
        ("A/any.html", "{% if %}", ["html", "line 1"]),
        ("A/any.mjml", "<!-- ours --><mjml></mjml>", ["any.mjml", "<mjml"]),
        ("A/any.it!.txt", "x", ["any.it!", "language"]),
        ("ORDER_CREATED/EMAIL.it.html", "x", ["EMAIL.it", "duplicate html"]),
        ("stray.txt", "x", ["stray.txt", "not a folder"]),
    ] {
        write(folder.path(), &[(name, text), ("B/any.txt", "new")]);
        load().failed(1, &words);
        fs::remove_file(folder.path().join(name)).unwrap();
        assert_eq!(server.items("/v1/templates").await.len(), 3, "{name}");
    }
    assert!(load().succeeded().contains("4 templates written"));
    cli(&server, &["template", "load", "nowhere"]).failed(1, &["nowhere", "cannot read"]);
}
