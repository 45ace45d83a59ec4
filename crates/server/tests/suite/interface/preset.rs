//! The restaurant preset: what loading it writes, and that its texts read well in three languages with any payload.

use campanile_testkit::on_both;
use serde_json::{Value, json};

use crate::interface::command::cli;
use crate::interface::fresh::{Fresh, with};
use crate::support::Backend;

const RESTAURANT: &str = include_str!("../../../presets/restaurant.json");
const LOCALES: [&str; 3] = ["it", "pt", "en"];

fn rows() -> Value {
    serde_json::from_str(RESTAURANT).expect("the preset is JSON")
}

fn count(table: &str) -> usize {
    rows()[table].as_array().expect("a table is a list").len()
}

async fn loading_it_writes_its_rows_and_loading_it_again_changes_nothing(backend: Backend) {
    let server = Fresh::start(backend);
    let default_routes = server.items("/v1/routing").await.len();
    // The layout of e-mails is a separate file, in MJML.
    let templates = count("templates") + 1;
    let total = count("audiences") + count("routing") + templates;
    let said = cli(&server, &["preset", "load", "restaurant"]).succeeded();
    assert!(said.contains("restaurant") && said.contains(&format!("{total} rows")), "{said}");
    let tables = async || {
        let (audiences, routing) = (server.items("/v1/audiences").await, server.items("/v1/routing").await);
        (audiences, routing, server.items("/v1/templates").await)
    };
    let loaded = tables().await;
    assert_eq!(loaded.0.len(), count("audiences"));
    assert_eq!(loaded.1.len(), default_routes + count("routing"));
    assert_eq!(loaded.2.len(), templates);

    // Changed rows are replaced, and added rows stay.
    let changed = json!([
        {"event_type": "CANCELLATION", "channel": "WEBSOCKET"}, {"event_type": "MINE", "channel": "EMAIL"},
    ]);
    server.put("/v1/routing", changed).await;
    let said = cli(&server, &["--json", "preset", "load", "restaurant"]).json();
    assert_eq!(said, json!({"written": total}));
    assert_eq!(server.items("/v1/routing?event_type=MINE").await.len(), 1);
    assert_eq!(server.delete("/v1/routing?event_type=MINE&channel=EMAIL").await.status, 204);
    assert_eq!(tables().await, loaded);
    cli(&server, &["preset", "load", "opera"]).failed(2, &["opera", "restaurant"]);
}

async fn preview(server: &Fresh, event_type: &str, locale: &str, payload: &Value) -> Value {
    let event = json!({"event_type": event_type, "payload": payload});
    let request = json!({"event": event, "channel": "EMAIL", "locale": locale});
    let answer = server.post("/v1/templates/preview", &request).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.body
}

async fn dates_are_written_in_the_language_of_the_reader_and_other_words_as_they_came(backend: Backend) {
    let server = Fresh::start(backend);
    cli(&server, &["preset", "load", "restaurant"]).succeeded();
    for (locale, date, time, words) in [
        ("it", "2026-01-08", "19:30", "in data 8 gennaio 2026 alle ore 19:30."),
        ("it", "2026-01-08", "2026-01-08T18:30:00Z", "in data 8 gennaio 2026 alle ore 18:30."),
        ("pt-PT", "2026-01-08", "19:30", "no dia 8 de janeiro de 2026 às 19:30."),
        ("en", "2026-01-08", "19:30", "on January 8, 2026 at 7:30 PM."),
        ("en", "Saturday", "half past seven", "on Saturday at half past seven."),
    ] {
        let payload = json!({"party": 4, "date": date, "time": time});
        let seen = preview(&server, "RESERVATION_CONFIRMED", locale, &payload).await;
        let body = seen["body"].as_str().unwrap();
        assert!(body.contains(words), "{words} is not in {body}");
    }
    let seen = preview(&server, "USER_REGISTERED", "it", &json!({"name": "Giulia"})).await;
    assert!(seen["html"].as_str().unwrap().contains("in base alle tue preferenze"), "{seen}");
    let chat = preview(&server, "CHAT_MESSAGE_SENT", "it", &plausible()).await;
    assert_eq!(chat["body"], "Are you open?");
}

async fn who_reads_the_default_language_reads_it_in_the_whole_mail(backend: Backend) {
    let server = Fresh::start(backend);
    cli(&server, &["preset", "load", "restaurant"]).succeeded();
    let seen = preview(&server, "RESERVATION_REQUESTED", "nl", &plausible()).await;
    let html = seen["html"].as_str().unwrap();
    for part in ["lang=\"en\"", "Guests", "You receive this e-mail because of"] {
        assert!(html.contains(part), "{part} is not in {html}");
    }
}

/// One person of each kind for each language; the number is that of the language.
async fn people(server: &Fresh) {
    let person = |locale: &str, user_type: &str, entity: Option<(&str, u32)>, role: Option<&str>| {
        json!({
            "user_type": user_type, "user_id": locale, "entity_type": entity.map(|e| e.0),
            "entity_id": entity.map(|e| e.1), "role": role, "name": format!("Kim {locale}"),
            "email": format!("{locale}@example.com"), "phone": "+390550", "push_tokens": ["token"], "locale": locale,
        })
    };
    let all: Vec<Value> = LOCALES
        .iter()
        .flat_map(|locale| {
            [
                person(locale, "RESTAURANT_USER", Some(("RESTAURANT", 5)), Some("CHEF")),
                person(locale, "AGENCY_USER", Some(("AGENCY", 10)), Some("AGENT")),
                person(locale, "CUSTOMER", None, None),
                person(locale, "ADMIN_USER", None, None),
            ]
        })
        .collect();
    server.put("/v1/recipients", json!(all)).await;
}

/// All fields that the templates use.
fn plausible() -> Value {
    json!({
        "reservationId": 1001, "restaurantId": 5, "restaurant": "Trattoria da Anna", "guest": "John Doe", "party": 4,
        "date": "21 January", "time": "19:30", "table": "7", "notes": "A high chair, please",
        "reason": "The flight is late",
        "order": 311, "dishes": ["2 lasagne", "1 tiramisù"], "partner": "O Marinheiro", "contact": "Inês Almeida",
        "sender": "Rui Costa", "text": "Are you open?", "name": "Giulia Bianchi", "email": "giulia@example.com",
    })
}

/// The beginning of the inbox title in each language.
type Titles = [&'static str; 3];

/// Event type, aggregate type, recipients, and titles.
const CASES: [(&str, &str, &str, Titles); 10] = [
    (
        "RESERVATION_REQUESTED",
        "RESTAURANT",
        "RESTAURANT_USER",
        ["Nuova richiesta", "Novo pedido de reserva", "New reservation"],
    ),
    ("RESERVATION_CONFIRMED", "CUSTOMER", "CUSTOMER", ["Il tuo tavolo", "A sua mesa", "Your table"]),
    (
        "CANCELLATION",
        "RESTAURANT",
        "RESTAURANT_USER",
        ["Prenotazione annullata", "Reserva cancelada", "Reservation cancelled"],
    ),
    ("CANCELLATION", "CUSTOMER", "CUSTOMER", ["La tua prenotazione", "A sua reserva", "Your reservation"]),
    ("ORDER_CREATED", "RESTAURANT", "RESTAURANT_USER", ["Nuovo ordine", "Novo pedido", "New order"]),
    ("PARTNER_ASSIGNMENT", "AGENCY", "AGENCY_USER", ["Un nuovo partner", "Um novo parceiro", "New partner"]),
    (
        "CHAT_MESSAGE_SENT",
        "RESTAURANT",
        "RESTAURANT_USER",
        ["Nuovo messaggio", "Nova mensagem", "New message"],
    ),
    ("CHAT_MESSAGE_SENT", "CUSTOMER", "CUSTOMER", ["Nuovo messaggio", "Nova mensagem", "New message"]),
    ("USER_REGISTERED", "CUSTOMER", "ADMIN_USER", ["Nuovo utente", "Novo utilizador", "New user"]),
    (
        "USER_REGISTERED",
        "CUSTOMER",
        "CUSTOMER",
        ["Che bello", "Damos-lhe as boas-vindas", "Welcome, Kim en!"],
    ),
];

/// The events of a case: one for all languages, or one per customer.
fn events(case: usize, payload: &Value) -> Vec<Value> {
    let (event_type, aggregate_type, _, _) = CASES[case];
    let event = |id: &str, payload: &Value| {
        let event = json!({"event_type": event_type, "aggregate_type": aggregate_type, "aggregate_id": id});
        with(&event, &json!({"payload": payload}))
    };
    match aggregate_type {
        "RESTAURANT" => vec![event("5", payload)],
        "AGENCY" => vec![event("10", payload)],
        _ => LOCALES
            .iter()
            .map(|customer| {
                let mut payload = payload.clone();
                if event_type == "USER_REGISTERED" && CASES[case].2 == "CUSTOMER" {
                    payload["customerId"] = json!(customer);
                }
                event(customer, &payload)
            })
            .collect(),
    }
}

async fn every_event_type_speaks_three_languages_whatever_the_payload(backend: Backend) {
    let server = Fresh::start(backend);
    cli(&server, &["preset", "load", "restaurant"]).succeeded();
    people(&server).await;
    let nulls: Value =
        plausible().as_object().unwrap().keys().map(|name| (name.clone(), Value::Null)).collect();
    let mut emitted = Vec::new();
    for (payload_name, payload) in [("plausible", plausible()), ("empty", json!({})), ("null", nulls)] {
        for case in 0..CASES.len() {
            for (n, mut event) in events(case, &payload).into_iter().enumerate() {
                let explained = server.post("/v1/explain", &event).await;
                assert!(explained.body["failure"].is_null(), "{}", explained.body);
                assert_ne!(explained.body["decisions"], json!([]), "{event}");
                event["event_id"] = json!(format!("{payload_name}-{case}-{n}"));
                emitted.push((case, event));
            }
        }
    }
    server.emit(&emitted.iter().map(|(_, event)| event.clone()).collect()).await;
    for (case, event) in &emitted {
        let trace = server.settled(event["event_id"].as_str().unwrap()).await;
        assert_eq!(
            (&trace["event"]["status"], &trace["dead_letters"]),
            (&json!("PROCESSED"), &json!([])),
            "{event}"
        );
        assert_readable(*case, &trace);
    }
}

/// Asserts that a text has no gaps, no leftovers of a template, and no technical words.
pub fn assert_reads_well(text: &str) {
    assert!(!text.trim().is_empty());
    for leftover in ["{{", "{%", "}}", "%}", "  ", " .", " ,", ",,", ", .", "()", "[", "]"] {
        assert!(!text.contains(leftover), "`{leftover}` in {text}");
    }
    let mut words = text.split(|c: char| !c.is_alphanumeric());
    assert!(!words.any(|word| ["none", "None", "null", "undefined"].contains(&word)), "{text}");
}

fn assert_readable(case: usize, trace: &Value) {
    let (_, _, told, titles) = CASES[case];
    let outbox = trace["outbox"].as_array().unwrap();
    assert!(outbox.iter().any(|row| row["channel"] != "WEBSOCKET") || titles[2] == "New message", "{trace}");
    for row in outbox {
        assert_eq!((&row["status"], &row["last_error"]), (&json!("DELIVERED"), &Value::Null), "{row}");
    }
    let notifications = trace["notifications"].as_array().unwrap();
    for row in outbox.iter().chain(notifications) {
        let (title, body) = (row["title"].as_str().unwrap(), row["body"].as_str().unwrap());
        assert!(!title.trim().is_empty() && !body.trim().is_empty(), "{row}");
        for text in [title, body] {
            assert_reads_well(text);
        }
    }
    let concerned: Vec<&Value> = notifications.iter().filter(|row| row["user_type"] == told).collect();
    assert!(!concerned.is_empty(), "{trace}");
    for row in concerned {
        let language = LOCALES.iter().position(|locale| row["user_id"] == *locale).unwrap();
        let title = row["title"].as_str().unwrap();
        assert!(title.starts_with(titles[language]), "{title} does not begin with {}", titles[language]);
    }
}

on_both! {
    loading_it_writes_its_rows_and_loading_it_again_changes_nothing;
    dates_are_written_in_the_language_of_the_reader_and_other_words_as_they_came;
    who_reads_the_default_language_reads_it_in_the_whole_mail;
    every_event_type_speaks_three_languages_whatever_the_payload;
}
