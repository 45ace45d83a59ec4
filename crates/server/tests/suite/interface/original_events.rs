//! The sample events of the descriptions that Campanile is based on, with the restaurant preset: each finds its
//! recipients and reads well in English, Italian and Portuguese.
//!
//! The payloads are those of the descriptions. Abbreviations (`{...}`) are filled with the fields that they name
//! elsewhere. Ids that they show next to the payload are in it, because an event has no such columns. The description
//! of mailings has no events.

use campanile_testkit::on_both;
use serde_json::{Value, json};

use crate::interface::command::cli;
use crate::interface::fresh::Fresh;
use crate::interface::preset::assert_reads_well;
use crate::support::Backend;

struct Sample {
    /// The description that it comes from.
    from: &'static str,
    event_type: &'static str,
    aggregate: (&'static str, u32),
    payload: Value,
    /// The recipients: a user type and the ids.
    told: (&'static str, &'static [&'static str]),
    /// The body in the inbox: en, it, pt.
    reads: [&'static str; 3],
}

const STAFF: (&str, &[&str]) = ("RESTAURANT_USER", &["chef", "manager", "waiter"]);
const AGENCY: (&str, &[&str]) = ("AGENCY_USER", &["agent", "manager"]);
const CUSTOMER: (&str, &[&str]) = ("CUSTOMER", &["42"]);

const PLAIN_REQUEST: [&str; 3] = [
    "A guest would like a table.",
    "Un ospite chiede un tavolo.",
    "Um cliente gostaria de reservar uma mesa.",
];

/// Reservation requests: three descriptions have one, with five payloads.
fn requests() -> Vec<Sample> {
    let request = |from, aggregate, payload, reads| Sample {
        from,
        event_type: "RESERVATION_REQUESTED",
        aggregate,
        payload,
        told: STAFF,
        reads,
    };
    vec![
        request("outbox producer, evt-123-456", ("RESTAURANT", 5), json!({}), PLAIN_REQUEST),
        request("idempotency, evt-001", ("RESTAURANT", 5), json!({"restaurant_id": 5}), PLAIN_REQUEST),
        request(
            "timeline, RES_REQ_123_456",
            ("RESERVATION", 123),
            json!({"restaurant_id": 5, "customer_id": 456}),
            PLAIN_REQUEST,
        ),
        request(
            "architecture, RESERVATION_REQUESTED_100_1234567890",
            ("RESERVATION", 100),
            json!({
                "reservationId": 100, "customerId": 42, "restaurantId": 5, "email": "customer@example.com",
                "date": "2025-11-20", "pax": 4, "kids": 1, "notes": "Special occasion",
            }),
            [
                "customer@example.com would like a table for 4 (1 child) on November 20, 2025. Note: Special occasion",
                "customer@example.com chiede un tavolo per 4 (1 bambino) in data 20 novembre 2025. Nota: \
                 Special occasion",
                "customer@example.com gostaria de reservar uma mesa para 4 (1 criança) no dia 20 de novembro de 2025. \
                 Nota: Special occasion",
            ],
        ),
        request(
            "architecture, evt-1",
            ("RESERVATION", 100),
            json!({"reservationId": 100, "customerId": 42, "restaurantId": 5}),
            PLAIN_REQUEST,
        ),
        request(
            "architecture, what the listener gets",
            ("RESTAURANT", 5),
            json!({"restaurant_name": "Trattoria da Anna", "customer_name": "John Doe", "time": "19:30", "table": 5}),
            [
                "John Doe would like a table at 7:30 PM. Table: 5.",
                "John Doe chiede un tavolo alle ore 19:30. Tavolo: 5.",
                "John Doe gostaria de reservar uma mesa às 19:30. Mesa: 5.",
            ],
        ),
        request(
            "architecture, layer 1",
            ("RESERVATION", 100),
            json!({"reservationId": 100, "customerId": 42, "restaurant_id": 5, "time": "19:30", "people": 4}),
            [
                "A guest would like a table for 4 at 7:30 PM.",
                "Un ospite chiede un tavolo per 4 alle ore 19:30.",
                "Um cliente gostaria de reservar uma mesa para 4 às 19:30.",
            ],
        ),
        request(
            "architecture, with its own words",
            ("RESERVATION", 100),
            json!({"title": "New reservation", "body": "Table for 4 at 19:30", "restaurantId": 5}),
            PLAIN_REQUEST,
        ),
    ]
}

fn others() -> Vec<Sample> {
    let sample = |from, event_type, aggregate, payload, told, reads| Sample {
        from,
        event_type,
        aggregate,
        payload,
        told,
        reads,
    };
    let partner = [
        "Your agency has been assigned a new partner.",
        "Alla tua agenzia è stato assegnato un nuovo partner.",
        "Foi atribuído um novo parceiro à sua agência.",
    ];
    let confirmed = [
        "The restaurant has confirmed your table. See you soon!",
        "Il ristorante ha confermato il tuo tavolo. A presto!",
        "O restaurante confirmou a sua mesa. Até breve!",
    ];
    let order = ["A new order has come in.", "È arrivato un nuovo ordine.", "Chegou um novo pedido."];
    let cancelled = [
        "The reservation has been cancelled.",
        "La prenotazione è stata annullata.",
        "A reserva foi cancelada.",
    ];
    let chat = ["You have a new message.", "Hai un nuovo messaggio.", "Tem uma nova mensagem."];
    vec![
        sample(
            "architecture, agency event",
            "PARTNER_ASSIGNMENT",
            ("AGENCY", 10),
            json!({"agencyId": 10}),
            AGENCY,
            partner,
        ),
        sample(
            "the same about the partner",
            "PARTNER_ASSIGNMENT",
            ("PARTNER", 6),
            json!({"agency_id": 10}),
            AGENCY,
            partner,
        ),
        sample(
            "architecture, customer event",
            "RESERVATION_CONFIRMED",
            ("CUSTOMER", 42),
            json!({"customerId": 42}),
            CUSTOMER,
            confirmed,
        ),
        sample(
            "the same about the reservation",
            "RESERVATION_CONFIRMED",
            ("RESERVATION", 100),
            json!({"customer_id": 42}),
            CUSTOMER,
            confirmed,
        ),
        sample("outbox producer, by name", "ORDER_CREATED", ("RESTAURANT", 5), json!({}), STAFF, order),
        sample("the same", "ORDER_CREATED", ("ORDER", 7), json!({"restaurant_id": 5}), STAFF, order),
        sample("architecture, by name", "CANCELLATION", ("RESTAURANT", 5), json!({}), STAFF, cancelled),
        sample(
            "the same",
            "CANCELLATION",
            ("RESERVATION", 100),
            json!({"restaurant_id": 5}),
            STAFF,
            cancelled,
        ),
        sample("architecture, by name", "CHAT_MESSAGE_SENT", ("CUSTOMER", 42), json!({}), CUSTOMER, chat),
        sample(
            "the same in a reservation",
            "CHAT_MESSAGE_SENT",
            ("RESERVATION", 100),
            json!({"customer_id": 42, "restaurant_id": 5, "initiated_by": "STAFF"}),
            CUSTOMER,
            chat,
        ),
        sample(
            "outbox producer, user registrations",
            "USER_REGISTERED",
            ("CUSTOMER", 42),
            json!({}),
            CUSTOMER,
            [
                "Your account is ready. Book a table whenever you like: we will keep you posted at every step.",
                "Il tuo account è pronto. Prenota un tavolo quando vuoi: ti terremo al corrente a ogni passo.",
                "A sua conta está pronta. Reserve uma mesa quando quiser: daremos notícias a cada passo.",
            ],
        ),
    ]
}

/// The recipients, and colleagues whose role is not concerned.
fn people() -> Value {
    let person = |user_type: &str, user_id: &str, entity: Option<(&str, u32)>, role: Option<&str>| {
        json!({
            "user_type": user_type, "user_id": user_id, "entity_type": entity.map(|e| e.0),
            "entity_id": entity.map(|e| e.1), "role": role, "name": "Kim", "email": format!("{user_id}@example.com"),
        })
    };
    let (restaurant, agency) = (Some(("RESTAURANT", 5)), Some(("AGENCY", 10)));
    json!([
        person("RESTAURANT_USER", "manager", restaurant, Some("MANAGER")),
        person("RESTAURANT_USER", "chef", restaurant, Some("CHEF")),
        person("RESTAURANT_USER", "waiter", restaurant, Some("WAITER")),
        person("RESTAURANT_USER", "accountant", restaurant, Some("ACCOUNTANT")),
        person("AGENCY_USER", "agent", agency, Some("AGENT")),
        person("AGENCY_USER", "manager", agency, Some("MANAGER")),
        person("AGENCY_USER", "driver", agency, Some("DRIVER")),
        person("CUSTOMER", "42", None, None),
        person("CUSTOMER", "456", None, None),
    ])
}

async fn every_sample_event_finds_its_people_and_reads_well_in_three_languages(backend: Backend) {
    let server = Fresh::start(backend);
    cli(&server, &["preset", "load", "restaurant"]).succeeded();
    server.put("/v1/recipients", people()).await;
    let samples: Vec<Sample> = requests().into_iter().chain(others()).collect();
    for (number, sample) in samples.iter().enumerate() {
        let event = json!({
            "event_id": format!("sample-{number}"), "event_type": sample.event_type,
            "aggregate_type": sample.aggregate.0, "aggregate_id": sample.aggregate.1, "payload": sample.payload,
        });
        server.emit(&event).await;
        assert_told(sample, &server.settled(&format!("sample-{number}")).await);
        for (locale, reads) in ["en", "it", "pt"].into_iter().zip(sample.reads) {
            assert_reads(&server, sample, &event, locale, reads).await;
        }
    }
}

fn assert_told(sample: &Sample, trace: &Value) {
    let from = sample.from;
    assert_eq!(trace["event"]["status"], "PROCESSED", "{from}: {trace}");
    let (user_type, ids) = sample.told;
    let mut told: Vec<&str> = trace["notifications"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|row| row["user_type"] == user_type)
        .map(|row| row["user_id"].as_str().unwrap())
        .collect();
    told.sort_unstable();
    assert_eq!(told, ids, "{from}: {trace}");
    let others = trace["notifications"].as_array().unwrap().len() - told.len();
    assert_eq!(others, 0, "{from} tells somebody else: {trace}");
}

async fn assert_reads(server: &Fresh, sample: &Sample, event: &Value, locale: &str, reads: &str) {
    let from = sample.from;
    for channel in ["*", "EMAIL", "SMS"] {
        let recipient = json!({"user_type": sample.told.0, "name": "Kim"});
        let request = json!({"event": event, "channel": channel, "locale": locale, "recipient": recipient});
        let seen = server.post("/v1/templates/preview", &request).await;
        assert_eq!(seen.status, 200, "{from}: {}", seen.body);
        let text = |field: &str| seen.body[field].as_str().unwrap_or_default().to_owned();
        for part in [text("title"), text("body")] {
            assert_reads_well(&part);
        }
        match channel {
            "*" => assert_eq!(text("body"), reads, "{from}, {locale}"),
            "EMAIL" => assert_shows_the_facts(sample, &format!("{}\n{}", text("title"), text("body"))),
            _ => assert!(text("body").chars().count() <= 160, "{from}, {locale}: {}", text("body")),
        }
    }
}

/// An e-mail has room for everything that is useful.
fn assert_shows_the_facts(sample: &Sample, mail: &str) {
    for field in ["reservationId", "customer_name", "people", "pax", "notes", "table"] {
        let fact = match &sample.payload[field] {
            Value::Null => continue,
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        assert!(mail.contains(&fact), "{}: {field} {fact} is not in\n{mail}", sample.from);
    }
}

on_both! {
    every_sample_event_finds_its_people_and_reads_well_in_three_languages;
}
