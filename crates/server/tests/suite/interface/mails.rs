//! E-mail over real mail servers, from the event to what Python reads of it; and the errors without a mail server.

use campanile_testkit::on_both;
use campanile_testkit::provider::real_smtp::Python;
use reqwest::Method;
use serde_json::{Value, json};

use crate::interface::command::{Ran, cli};
use crate::interface::fresh::{Answer, Fresh};
use crate::support::home::campanile;
use crate::support::{Backend, Home, reservation, staff};

const FROM: (&str, &str) = ("CAMPANILE_CHANNELS__EMAIL__FROM", "Trattoria è buona <noreply@example.org>");
/// Within the lease of these tests.
const DEADLINE: (&str, &str) = ("CAMPANILE_CHANNELS__EMAIL__DEADLINE", "2s");

fn mail_server(port: u16) -> String {
    format!("smtp://127.0.0.1:{port}?tls=none")
}

fn start(backend: Backend, url: &str) -> Fresh {
    Fresh::start_with(backend, &[("CAMPANILE_CHANNELS__EMAIL__URL", url), FROM, DEADLINE])
}

fn of<'a>(trace: &'a Value, channel: &str) -> Vec<&'a Value> {
    trace["sends"].as_array().unwrap().iter().filter(|send| send["channel"] == channel).collect()
}

/// Only Anna, who reads Italian.
fn anna() -> Value {
    let mut anna = staff()[0].clone();
    anna["name"] = json!("Anna Rossi 🍕");
    anna["locale"] = json!("it-IT");
    json!([anna])
}

async fn a_mail_arrives_with_text_and_html_in_the_readers_language(backend: Backend) {
    let python = Python::start(&[]);
    let server = start(backend, &mail_server(python.port));
    let components = Answer::to(server.request(Method::GET, "/readyz")).await.body["components"].clone();
    assert_eq!(components["email"], "ok");
    server.put("/v1/recipients", anna()).await;
    let template = |locale: &str, title: &str, html: &str| {
        json!({
            "event_type": "RESERVATION_REQUESTED", "channel": "EMAIL", "locale": locale, "title": title,
            "body": "{{ recipient.name }}: {{ payload.guests }}", "html": html,
        })
    };
    let mjml = "<mjml><mj-body><mj-section><mj-column><mj-text>Perché no, {{ payload.note }}?</mj-text>\
        <mj-text>{{ payload.menu }}</mj-text></mj-column></mj-section></mj-body></mjml>";
    server
        .put("/v1/templates", json!([template("*", "New", "<p>no</p>"), template("it", "Così è", mjml)]))
        .await;
    let mut event = reservation("evt-1");
    event["payload"]["guests"] = json!(4);
    event["payload"]["note"] = json!("<b>São João</b>");
    event["payload"]["menu"] = json!("https://trattoria.example/menu?day='fri'");
    server.emit(&event).await;
    let trace = server.settled("evt-1").await;
    let sends = of(&trace, "EMAIL");
    let [send] = sends[..] else { panic!("{trace}") };
    assert_eq!((&send["status"], &send["provider"]), (&json!("SENT"), &json!("smtp")), "{send}");
    assert_eq!(send["external_id"], "PY1");
    let read = python.message();
    assert_eq!(read["headers"]["Subject"], "Così è");
    assert!(read["headers"]["To"].as_str().unwrap().starts_with("Anna Rossi 🍕 <"), "{read}");
    assert_eq!(read["text"].as_str().unwrap().trim(), "Anna Rossi 🍕: 4");
    let html = read["html"].as_str().unwrap();
    assert!(html.contains("Perché no, &lt;b&gt;São João&lt;"), "what an event says is no HTML: {html}");
    let menu = "https://trattoria.example/menu?day=&#x27;fri&#x27;";
    assert!(html.contains(menu), "links stay readable: {html}");
    assert!(html.contains("<!doctype html") || html.contains("<html"), "{html}");
    let id = format!("<{}.email@example.org>", send["notification_id"].as_str().unwrap());
    assert_eq!(read["headers"]["Message-ID"], id.as_str());
    assert_eq!(format!("<{}>", send["message_id"].as_str().unwrap()), id, "as the list says");
    let listed = server.items("/v1/sends?channel=EMAIL").await;
    assert_eq!(
        (&listed[0]["message_id"], &listed[0]["recipient_address"]),
        (&send["message_id"], &json!("p1@example.com"))
    );
    let said = cli(&server, &["sends", "list", "--channel", "email"]).succeeded();
    let id = format!("\n  MESSAGE-ID {}\n", send["message_id"].as_str().unwrap());
    assert!(said.contains(&id) && said.contains("p1@example.com"), "{said}");
}

async fn a_url_is_enough_and_the_doctor_says_whom_mails_are_from(backend: Backend) {
    let python = Python::start(&[]);
    let url = format!("smtp://127.0.0.1:{}", python.port);
    let server = Fresh::start_with(backend, &[("CAMPANILE_CHANNELS__EMAIL__URL", &url), DEADLINE]);
    server.put("/v1/recipients", anna()).await;
    server.emit(&reservation("evt-1")).await;
    let trace = server.settled("evt-1").await;
    assert_eq!(of(&trace, "EMAIL")[0]["status"], "SENT", "{trace}");
    assert_eq!(python.message()["headers"]["From"], "campanile@localhost");
    let home = Home::new(Backend::Embedded);
    let doctor = |url: &str| {
        let mut command = campanile(home.path());
        Ran::of(command.env("CAMPANILE_CHANNELS__EMAIL__URL", url).args(["doctor", "--url", &server.url])).out
    };
    let said = doctor(&url);
    assert!(
        said.contains(&format!("EMAIL is sent by smtp: login at 127.0.0.1:{} succeeded", python.port)),
        "{said}"
    );
    assert!(
        said.contains("e-mail is sent from campanile@localhost because channels.email.from is not set"),
        "{said}"
    );
    let mailbox = doctor("smtp://anna%40example.com:secret@127.0.0.1:1");
    assert!(mailbox.contains("e-mail is sent from anna@example.com"), "{mailbox}");
    assert!(mailbox.contains("is unreachable") && !mailbox.contains("secret"), "{mailbox}");
}

async fn bounces_and_headers_are_as_configured(backend: Backend) {
    let python = Python::start(&[]);
    let server = Fresh::start_with(
        backend,
        &[
            ("CAMPANILE_CHANNELS__EMAIL__URL", &mail_server(python.port)),
            FROM,
            DEADLINE,
            ("CAMPANILE_CHANNELS__EMAIL__ENVELOPE_FROM", "bounces@example.org"),
            ("CAMPANILE_CHANNELS__EMAIL__HEADERS__LIST-ID", "<trattoria.example.org>"),
        ],
    );
    server.put("/v1/recipients", anna()).await;
    server.emit(&reservation("evt-1")).await;
    let trace = server.settled("evt-1").await;
    assert_eq!(of(&trace, "EMAIL")[0]["status"], "SENT", "{trace}");
    let read = python.message();
    assert_eq!(read["from"], "bounces@example.org");
    let headers = read["headers"].as_object().unwrap();
    let list_id = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("list-id"));
    assert_eq!(list_id.map(|(_, value)| value), Some(&json!("<trattoria.example.org>")), "{read}");
}

async fn nothing_that_people_write_becomes_a_header_or_another_mail(backend: Backend) {
    let python = Python::start(&[]);
    let server = start(backend, &mail_server(python.port));
    let mut quoted = anna()[0].clone();
    quoted["name"] = json!("Anna \"la Rossa\", <eve@example.com>");
    quoted["email"] = json!("\"anna rossi\"@caff\u{e8}.it");
    server.put("/v1/recipients", json!([quoted])).await;
    let template = json!([{"event_type": "RESERVATION_REQUESTED", "channel": "EMAIL",
        "title": "{{ payload.subject }}", "body": "{{ payload.text }}"}]);
    server.put("/v1/templates", template).await;
    let mut event = reservation("evt-1");
    event["payload"]["subject"] = json!("Ciao\r\nBcc: eve@example.com\r\n\r\n<script>");
    event["payload"]["text"] = json!("uno\r.\r\nMAIL FROM:<eve@example.com>\r\n.\r\ndue");
    server.emit(&event).await;
    let trace = server.settled("evt-1").await;
    assert_eq!(of(&trace, "EMAIL")[0]["status"], "SENT", "{trace}");
    let read = python.message();
    assert_eq!(read["headers"]["Subject"], "Ciao Bcc: eve@example.com <script>");
    assert!(read["headers"]["Bcc"].is_null() && read["defects"] == json!([]), "{read}");
    assert_eq!(read["to"], json!(["\"anna rossi\"@xn--caff-8oa.it"]), "one recipient: {read}");
    let text = read["text"].as_str().unwrap();
    assert!(text.contains("MAIL FROM:<eve@example.com>") && text.trim_end().ends_with("due"), "{text:?}");
}

async fn html_that_can_not_be_written_fails_that_mail_and_nothing_else(backend: Backend) {
    let python = Python::start(&[]);
    let server = start(backend, &mail_server(python.port));
    server.put("/v1/recipients", staff()).await;
    let html = "<p>ok</p>\n{% if recipient.user_id == '2' %}{{ payload.nobody_gave_this }}{% endif %}";
    let template = json!([{"event_type": "RESERVATION_REQUESTED", "channel": "EMAIL", "title": "New", "body": "b",
        "html": html}]);
    server.put("/v1/templates", template).await;
    server.emit(&reservation("evt-1")).await;
    let trace = server.settled("evt-1").await;
    let (failed, sent): (Vec<_>, Vec<_>) =
        of(&trace, "EMAIL").into_iter().partition(|send| send["status"] == "FAILED");
    assert_eq!((failed.len(), sent.len()), (1, 2), "{trace}");
    let error = failed[0]["last_error"].as_str().unwrap();
    assert!(
        error.starts_with("TEMPLATE_ERROR: template RESERVATION_REQUESTED/EMAIL/*")
            && error.contains("line 2")
            && error.contains("payload.nobody_gave_this"),
        "{error}"
    );
    let dead_letters = server.items("/v1/dead-letters?channel=EMAIL").await;
    assert_eq!(
        (dead_letters.len(), &dead_letters[0]["reason"]),
        (1, &json!("TEMPLATE_ERROR")),
        "{dead_letters:?}"
    );
    assert!(of(&trace, "SMS").iter().all(|send| send["status"] == "SENT"), "{trace}");
}

async fn html_that_can_not_be_written_is_seen_before_there_is_a_mail_server(backend: Backend) {
    let server = Fresh::start(backend);
    server.put("/v1/recipients", anna()).await;
    let template = json!([{"event_type": "RESERVATION_REQUESTED", "channel": "EMAIL", "title": "New", "body": "b",
        "html": "<p>{{ payload.nobody_gave_this }}</p>"}]);
    server.put("/v1/templates", template).await;
    server.emit(&reservation("evt-1")).await;
    let trace = server.settled("evt-1").await;
    let email = of(&trace, "EMAIL")[0];
    assert_eq!(email["status"], "FAILED", "{trace}");
    assert!(email["last_error"].as_str().unwrap().contains("payload.nobody_gave_this"), "{email}");
    assert!(of(&trace, "SMS").iter().all(|send| send["status"] == "SENT"), "{trace}");
}

async fn a_mail_server_that_refuses_our_password_is_named_at_the_first_refusal(backend: Backend) {
    let python = Python::start(&["--user", "anna", "--password", "right"]);
    let server = start(backend, &format!("smtp://anna:wr0ng@127.0.0.1:{}?tls=none", python.port));
    server.put("/v1/recipients", anna()).await;
    server.emit(&reservation("evt-1")).await;
    let trace = server.settled("evt-1").await;
    assert_eq!(of(&trace, "EMAIL")[0]["status"], "FAILED", "{trace}");
    let components = Answer::to(server.request(Method::GET, "/readyz")).await.body["components"].clone();
    assert_eq!(
        components["email"],
        "rejects our credentials or account, see `campanile doctor`: smtp (535 5.7.8)"
    );
}

async fn a_captured_mail_has_its_html_and_large_ones_come_on_several_pages(backend: Backend) {
    let server = Fresh::start(backend);
    server.put("/v1/recipients", anna()).await;
    let html = "<p>{{ recipient.name }}: {{ payload.note }}</p>";
    let template = json!([{"event_type": "RESERVATION_REQUESTED", "channel": "EMAIL", "title": "New", "body": "b",
        "html": html}]);
    server.put("/v1/templates", template).await;
    let mut event = reservation("evt-1");
    event["payload"]["note"] = json!("<b>");
    server.emit(&event).await;
    server.settled("evt-1").await;
    let captured = server.items("/v1/captured?event_id=evt-1").await;
    let html_of = |channel: &str| {
        let message = captured.iter().find(|message| message["channel"] == channel);
        message.unwrap_or_else(|| panic!("{channel} is not in {captured:?}"))["html"].clone()
    };
    assert_eq!(html_of("EMAIL"), "<p>Anna Rossi 🍕: &lt;b&gt;</p>");
    assert!(html_of("SMS").is_null() && html_of("PUSH").is_null());

    let large = format!("<p>{}</p>", "x".repeat(200_000));
    let template =
        json!([{"event_type": "LARGE", "channel": "EMAIL", "title": "New", "body": "b", "html": large}]);
    server.put("/v1/templates", template).await;
    server.put("/v1/routing", json!([{"event_type": "LARGE", "channel": "EMAIL"}])).await;
    let events: Vec<Value> = (0..60)
        .map(|n| crate::interface::fresh::event(&format!("large-{n}"), "LARGE", "RESTAURANT", 5))
        .collect();
    server.emit(&json!(events)).await;
    for n in 0..60 {
        server.settled(&format!("large-{n}")).await;
    }
    let page = server.get("/v1/captured?limit=1000").await;
    assert!(
        page["next"].is_string() && page["items"].as_array().unwrap().len() < 60,
        "a page has some megabytes"
    );
    let all = server.captured().await;
    assert_eq!(all.keys().filter(|key| key.starts_with("large-")).count(), 60);
}

async fn the_next_mail_server_takes_over_from_one_that_is_down(backend: Backend) {
    let python = Python::start(&[]);
    let server = start(backend, &format!("smtp://127.0.0.1:1 {}", mail_server(python.port)));
    server.put("/v1/recipients", staff()).await;
    for number in 0..3 {
        server.emit(&reservation(&format!("evt-{number}"))).await;
    }
    for number in 0..3 {
        let trace = server.settled(&format!("evt-{number}")).await;
        for send in of(&trace, "EMAIL") {
            assert_eq!((&send["status"], &send["provider"]), (&json!("SENT"), &json!("smtp-2")), "{send}");
            assert_eq!(send["attempt_count"], 1, "it was the same attempt");
        }
    }
    let components = Answer::to(server.request(Method::GET, "/readyz")).await.body["components"].clone();
    assert_eq!(components["email"], "down, using the next provider: smtp");
}

on_both! {
    a_mail_arrives_with_text_and_html_in_the_readers_language;
    a_url_is_enough_and_the_doctor_says_whom_mails_are_from;
    bounces_and_headers_are_as_configured;
    nothing_that_people_write_becomes_a_header_or_another_mail;
    html_that_can_not_be_written_fails_that_mail_and_nothing_else;
    html_that_can_not_be_written_is_seen_before_there_is_a_mail_server;
    a_mail_server_that_refuses_our_password_is_named_at_the_first_refusal;
    a_captured_mail_has_its_html_and_large_ones_come_on_several_pages;
    the_next_mail_server_takes_over_from_one_that_is_down;
}
