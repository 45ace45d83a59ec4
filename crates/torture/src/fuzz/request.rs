//! The requests to mutate: at least one valid example of every endpoint.

use std::fmt;

use anyhow::Result;
use reqwest::header::{CONTENT_TYPE, HeaderValue};
use serde_json::{Value, json};

use super::harvest::Harvest;
use super::mutate;
use crate::random::Random;
use crate::world::KEY;

/// The path of an endpoint, with `{}` for an id, and its methods.
pub struct Endpoint {
    pub path: &'static str,
    methods: &'static [&'static str],
    /// Names of query parameters.
    query: &'static [&'static str],
    /// A valid body, for the methods that have one.
    body: fn() -> Value,
}

impl Endpoint {
    const fn get(path: &'static str, query: &'static [&'static str]) -> Self {
        Endpoint { path, methods: &["GET"], query, body: || Value::Null }
    }

    const fn post(path: &'static str, body: fn() -> Value) -> Self {
        Endpoint { path, methods: &["POST"], query: &[], body }
    }

    const fn table(path: &'static str, query: &'static [&'static str], body: fn() -> Value) -> Self {
        Endpoint { path, methods: &["PUT", "PUT", "GET", "DELETE"], query, body }
    }
}

/// All endpoints of the server.
pub const ENDPOINTS: &[Endpoint] = &[
    Endpoint {
        path: "/v1/events",
        methods: &["POST", "POST", "POST", "GET"],
        query: &[
            "status",
            "event_type",
            "aggregate_type",
            "aggregate_id",
            "user_type",
            "user_id",
            "since",
            "until",
            "error_code",
            "order",
            "cursor",
            "limit",
        ],
        body: event,
    },
    Endpoint::get("/v1/events/{}", &["user_type", "user_id", "cursor", "limit"]),
    Endpoint::post("/v1/explain", event),
    Endpoint::post("/v1/templates/preview", preview),
    Endpoint::get("/v1/captured", &["event_id", "user_type", "user_id", "channel", "cursor", "limit"]),
    Endpoint::get(
        "/v1/dead-letters",
        &["event_id", "stage", "channel", "provider", "reason", "error", "replayed", "cursor", "limit"],
    ),
    Endpoint::post("/v1/dead-letters/replay", || json!({ "event_id": "fuzz-1", "limit": 10 })),
    Endpoint::get(
        "/v1/sends",
        &["status", "channel", "event_id", "user_type", "user_id", "provider", "cursor", "limit"],
    ),
    Endpoint::post("/v1/sends/{}/resend", || json!({ "note": "they said it never came" })),
    Endpoint::post("/v1/sends/{}/settle", || json!({ "outcome": "sent", "note": "seen in the log" })),
    Endpoint::post("/v1/callbacks/twilio", || Value::from("MessageSid=SM1&MessageStatus=delivered")),
    Endpoint::table(
        "/v1/recipients",
        &["user_type", "user_id", "entity_type", "entity_id", "cursor", "limit"],
        || {
            json!([{ "user_type": "RESTAURANT_USER", "user_id": 50, "name": "Anna", "email": "anna@example.com",
                "phone": "+390551234567", "push_tokens": ["t1"], "entity_type": "RESTAURANT", "entity_id": 5,
                "role": "MANAGER", "locale": "it", "time_zone": "Europe/Rome", "active": true }])
        },
    ),
    Endpoint::table(
        "/v1/entities",
        &["entity_type", "entity_id", "cursor", "limit"],
        || json!([{ "entity_type": "RESTAURANT", "entity_id": 5, "kind": "TRATTORIA", "name": "Da Anna" }]),
    ),
    Endpoint::table(
        "/v1/preferences",
        &["user_type", "user_id", "channel", "event_type", "cursor", "limit"],
        || {
            json!([{ "user_type": "RESTAURANT_USER", "user_id": 50, "channel": "EMAIL", "event_type": "*",
                "enabled": true, "min_priority": "NORMAL", "quiet_hours_start": "22:00", "quiet_hours_end": "08:00" }])
        },
    ),
    Endpoint::table(
        "/v1/settings",
        &["entity_type", "entity_id", "kind", "channel", "event_type", "cursor", "limit"],
        || {
            json!([{ "entity_type": "RESTAURANT", "entity_id": 5, "channel": "SMS", "roles": ["MANAGER"],
                "max_recipients": 3, "enabled": true }])
        },
    ),
    Endpoint::table(
        "/v1/routing",
        &["event_type", "channel", "cursor", "limit"],
        || json!([{ "event_type": "FUZZED", "channel": "EMAIL", "mandatory": true, "priority": "HIGH" }]),
    ),
    Endpoint::table("/v1/audiences", &["event_type", "name", "cursor", "limit"], || {
        json!([{ "event_type": "FUZZED", "name": "staff", "recipient_type": "RESTAURANT_USER",
            "entity_path": "/payload/restaurantId", "roles": ["MANAGER"], "scope": "TEAM", "shared_read": true,
            "when": "payload.party > 2" }])
    }),
    Endpoint::table("/v1/templates", &["event_type", "channel", "locale", "cursor", "limit"], || {
        json!([{ "event_type": "FUZZED", "channel": "EMAIL", "locale": "it", "title": "{{ payload.guest }}",
            "body": "{{ payload.party }} persone", "html": "<p>{{ body }}</p>",
            "url": "https://example.com/{{ event_id }}" }])
    }),
    Endpoint {
        path: "/v1/api-keys",
        methods: &["POST", "GET"],
        query: &["cursor", "limit"],
        body: || json!({ "name": "fuzz", "scopes": ["read"], "expires_at": "2030-01-01T00:00:00Z" }),
    },
    Endpoint { path: "/v1/api-keys/{}", methods: &["DELETE"], query: &[], body: || Value::Null },
    Endpoint::post("/v1/signing-key/rotate", || json!({ "revoke_old": true })),
    Endpoint::post("/v1/tickets", || {
        json!({ "user_type": "CUSTOMER", "user_id": 42, "entity_type": "RESTAURANT", "entity_id": 5, "name": "Anna",
            "valid_seconds": 60 })
    }),
    Endpoint {
        path: "/v1/inbox/preferences",
        methods: &["GET", "PUT"],
        query: &[],
        body: || json!([{ "event_type": "FUZZED", "channel": "EMAIL", "enabled": false }]),
    },
    Endpoint::get("/v1/audit", &["object_type", "object_id", "actor_id", "cursor", "limit"]),
    Endpoint::get("/openapi.json", &[]),
    Endpoint::get("/docs", &[]),
    Endpoint::get("/docs/scalar.js", &[]),
    Endpoint::get("/healthz", &[]),
    Endpoint::get("/readyz", &[]),
    Endpoint::get("/metrics", &[]),
];

fn event() -> Value {
    json!({ "event_id": "fuzz-1", "event_type": "FUZZED", "aggregate_type": "RESTAURANT", "aggregate_id": 5,
        "payload": { "restaurantId": 5, "guest": "John", "party": 4 }, "priority": "NORMAL",
        "occurred_at": "2026-01-21T10:15:30Z" })
}

fn preview() -> Value {
    json!({ "event_type": "FUZZED", "channel": "EMAIL", "locale": "it", "payload": { "guest": "John" },
        "template": { "title": "{{ payload.guest }}", "body": "x", "html": "<b>{{ body }}</b>" } })
}

/// One request, ready to be sent.
pub struct Request {
    method: String,
    target: String,
    content_type: Option<String>,
    authorization: Option<String>,
    body: Vec<u8>,
}

impl Request {
    pub fn draw(harvest: &Harvest, random: &mut Random) -> Self {
        let index = usize::try_from(random.below(ENDPOINTS.len() as u64)).unwrap_or(0);
        Self::to(&ENDPOINTS[index], harvest, random)
    }

    fn to(endpoint: &Endpoint, harvest: &Harvest, random: &mut Random) -> Self {
        let method = match random.below(20) {
            0 => *random.pick(&["PATCH", "OPTIONS", "HEAD", "TRACE", "FOO"]).unwrap_or(&"GET"),
            _ => *random.pick(endpoint.methods).unwrap_or(&"GET"),
        };
        let has_body = matches!(method, "POST" | "PUT") || random.percent(3);
        Request {
            method: method.to_owned(),
            target: target(endpoint, harvest, random),
            content_type: content_type(random),
            authorization: authorization(random),
            body: if has_body { body(endpoint, random) } else { Vec::new() },
        }
    }

    /// Whether a missing response is a fault. With a large refused body the connection may end while it is being sent.
    pub fn is_well_formed(&self) -> bool {
        self.body.len() < 16 * 1024
    }

    pub fn build(&self, client: &reqwest::Client, url: &str) -> Result<reqwest::Request> {
        let method = reqwest::Method::from_bytes(self.method.as_bytes())?;
        let mut request = client.request(method, format!("{url}{}", self.target)).body(self.body.clone());
        if let Some(content_type) = &self.content_type {
            request = request.header(CONTENT_TYPE, HeaderValue::from_bytes(content_type.as_bytes())?);
        }
        if let Some(authorization) = &self.authorization {
            request = request.header("authorization", HeaderValue::from_bytes(authorization.as_bytes())?);
        }
        Ok(request.build()?)
    }
}

/// The form in findings: enough to repeat the request.
impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN_BYTES: usize = 300;
        let body = String::from_utf8_lossy(&self.body[..self.body.len().min(SHOWN_BYTES)]);
        let type_shown = self.content_type.as_deref().unwrap_or("none");
        let key = if self.authorization.as_deref() == Some(&right_key()) { "the key" } else { "another key" };
        let target: String = self.target.chars().take(SHOWN_BYTES).collect();
        write!(f, "{} {target:?} with {key}, type {type_shown:?}, {} bytes ", self.method, self.body.len())?;
        write!(f, "{body:?}")
    }
}

fn right_key() -> String {
    format!("Bearer {KEY}")
}

fn target(endpoint: &Endpoint, harvest: &Harvest, random: &mut Random) -> String {
    let known = if random.percent(60) { harvest.id(random) } else { None };
    let id = percent_encoded(&known.unwrap_or_else(|| mutate::text(random)));
    let mut query = Vec::new();
    // With only one or two, a refused value seldom hides another.
    for _ in 0..random.below(3) {
        if let Some(name) = random.pick(endpoint.query) {
            let value: String = parameter(name, harvest, random).chars().take(3_000).collect();
            query.push(format!("{name}={}", percent_encoded(&value)));
        }
    }
    if random.percent(4) {
        query.push(percent_encoded(&mutate::text(random)));
    }
    let path = endpoint.path.replace("{}", &id);
    let target = if query.is_empty() { path } else { format!("{path}?{}", query.join("&")) };
    // Longer ones are refused by the HTTP library; `socket` tests that.
    if target.len() > 6_000 { endpoint.path.replace("{}", "fuzz-1") } else { target }
}

fn parameter(name: &str, harvest: &Harvest, random: &mut Random) -> String {
    match random.below(10) {
        0..3 => mutate::text(random),
        3..5 => random.below(2_000).to_string(),
        _ if name == "after" && random.percent(50) => harvest.cursor(random).unwrap_or_default(),
        // Cursors of tables are arrays of their keys.
        _ if name == "after" => {
            (0..random.between(1, 5)).map(|_| mutate::text(random)).collect::<Value>().to_string()
        }
        _ => harvest.id(random).unwrap_or_default(),
    }
}

fn percent_encoded(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        })
        .collect()
}

fn content_type(random: &mut Random) -> Option<String> {
    match random.below(12) {
        0 => None,
        1 => Some("application/x-ndjson".to_owned()),
        2 => Some("application/x-www-form-urlencoded".to_owned()),
        3 => Some("multipart/form-data; boundary=x".to_owned()),
        _ => Some("application/json".to_owned()),
    }
}

fn authorization(random: &mut Random) -> Option<String> {
    match random.below(40) {
        0 => None,
        1 => Some(format!("Bearer {KEY}x")),
        2 => Some(format!("Basic {}", mutate::text(random))),
        _ => Some(right_key()),
    }
}

fn body(endpoint: &Endpoint, random: &mut Random) -> Vec<u8> {
    let mut document = (endpoint.body)();
    // Keeping the first fields valid lets mutations of the others reach further.
    if let Some(id) = document.get_mut("event_id") {
        *id = Value::from(format!("fuzz-{}", random.below(1_000_000)));
    }
    let changes = random.below(4);
    for _ in 0..changes {
        mutate::document(&mut document, random);
    }
    if random.percent(20) {
        let count = usize::try_from(random.below(30)).unwrap_or(0);
        document = Value::Array(vec![document; count]);
    }
    let text = match document {
        Value::String(text) if random.percent(90) => text.into_bytes(),
        other => other.to_string().into_bytes(),
    };
    if random.percent(15) { mutate::bytes(text, random) } else { text }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_endpoint_of_the_server_is_tried() {
        let handlers = concat!(env!("CARGO_MANIFEST_DIR"), "/../server/src/http");
        let mut served = BTreeSet::new();
        for file in std::fs::read_dir(handlers).unwrap() {
            let Ok(source) = std::fs::read_to_string(file.unwrap().path()) else { continue };
            // A path stands in the description of its handler, or in a row of the table of row calls.
            for quoted in source.split("path = \"").skip(1).chain(source.split("::Table::").skip(1)) {
                let path = quoted.split('"').find(|part| part.starts_with('/')).unwrap_or_default();
                served.insert(path.replace("{id}", "{}"));
            }
        }
        served.remove("");
        let tried: BTreeSet<String> = ENDPOINTS.iter().map(|endpoint| endpoint.path.to_owned()).collect();
        assert!(served.len() > 10, "the routes are not where they were: {served:?}");
        assert!(served.is_subset(&tried), "not tried: {:?}", served.difference(&tried));
    }

    #[test]
    fn a_seed_draws_the_same_requests() {
        let draw = || {
            let (harvest, mut random) = (Harvest::default(), Random::new(3, "requests"));
            (0..50).map(|_| Request::draw(&harvest, &mut random).to_string()).collect::<Vec<_>>()
        };
        assert_eq!(draw(), draw());
    }
}
