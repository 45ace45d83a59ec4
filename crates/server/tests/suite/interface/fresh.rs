//! A server for one test, and responses with all of their details.

use std::ops::Deref;
use std::path::Path;

use reqwest::header::{CONTENT_TYPE, HeaderMap};
use reqwest::{Body, Method, RequestBuilder};
use serde_json::{Value, json};

use crate::support::{Backend, Home, KEY, Server};

/// A server with a new folder, which is removed with it.
#[derive(Debug)]
pub struct Fresh {
    server: Server,
    home: Home,
}

impl Deref for Fresh {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

impl Fresh {
    pub fn start(backend: Backend) -> Self {
        Self::start_with(backend, &[])
    }

    pub fn start_with(backend: Backend, variables: &[(&str, &str)]) -> Self {
        let home = Home::new(backend);
        Fresh { server: Server::start_with(&home, variables), home }
    }

    pub fn folder(&self) -> &Path {
        self.home.path()
    }

    /// Runs a statement in the database, as a producer or an operator would.
    pub async fn execute(&self, sql: &str) {
        self.home.execute(sql).await;
    }

    /// The number that a query answers.
    pub async fn count(&self, sql: &str) -> i64 {
        self.home.count(sql).await
    }

    /// A request without a key.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        client().request(method, format!("{}{path}", self.url))
    }

    /// Sends these bytes unchanged, as JSON and with the key.
    pub async fn send(&self, method: Method, path: &str, body: impl Into<Body>) -> Answer {
        let request = self.request(method, path).bearer_auth(KEY).header(CONTENT_TYPE, "application/json");
        Answer::to(request.body(body)).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send(Method::POST, path, body.to_string()).await
    }

    pub async fn try_put(&self, path: &str, rows: &Value) -> Answer {
        self.send(Method::PUT, path, rows.to_string()).await
    }

    pub async fn try_get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, "").await
    }

    pub async fn delete(&self, path: &str) -> Answer {
        self.send(Method::DELETE, path, "").await
    }

    /// Every item of a list, page by page; each page but the last has `limit` items.
    pub async fn pages(&self, path: &str, limit: usize) -> Vec<Value> {
        let mut items = Vec::new();
        let mut next = Value::Null;
        loop {
            let cursor = match &next {
                Value::Null => String::new(),
                Value::String(text) => format!("&cursor={}", encoded(text)),
                other => format!("&cursor={other}"),
            };
            let separator = if path.contains('?') { '&' } else { '?' };
            let page = self.get(&format!("{path}{separator}limit={limit}{cursor}")).await;
            let found = page["items"].as_array().expect("a list has items");
            items.extend(found.iter().cloned());
            next = page["next"].clone();
            assert!(found.len() <= limit);
            assert!(next.is_null() || found.len() == limit, "a page in the middle is full: {page}");
            if next.is_null() {
                return items;
            }
        }
    }

    pub async fn items(&self, path: &str) -> Vec<Value> {
        self.pages(path, 1_000).await
    }
}

/// A response with its headers.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Value,
}

impl Answer {
    pub async fn to(request: RequestBuilder) -> Self {
        let response = request.send().await.expect("the server answers");
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let text = response.text().await.expect("an answer is text");
        Answer { status, headers, body: serde_json::from_str(&text).unwrap_or(Value::String(text)) }
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// Asserts problem details with this status and type, and texts for people.
    #[track_caller]
    pub fn assert_problem(&self, status: u16, kind: &str) -> &Self {
        let body = &self.body;
        assert_eq!(self.status, status, "{body}");
        assert_eq!(self.header("content-type"), "application/problem+json", "{body}");
        assert_eq!(body["type"], format!("urn:campanile:{kind}"), "{body}");
        assert_eq!(body["status"], status, "{body}");
        for words in ["title", "detail"] {
            assert!(body[words].as_str().is_some_and(|text| text.len() > 5), "{words}: {body}");
        }
        self
    }

    /// Asserts that exactly one field is wrong, at this position.
    #[track_caller]
    pub fn assert_names(&self, index: usize, pointer: &str) -> &Self {
        let errors = self.body["errors"].as_array().expect("what is wrong is listed");
        assert_eq!(errors.len(), 1, "{}", self.body);
        assert_eq!((&errors[0]["index"], &errors[0]["pointer"]), (&json!(index), &json!(pointer)));
        assert!(errors[0]["detail"].as_str().is_some_and(|detail| detail.len() > 5), "{}", self.body);
        self
    }

    /// Asserts that the detail contains each of these.
    #[track_caller]
    pub fn assert_says(&self, words: &[&str]) -> &Self {
        let detail = self.body["detail"].as_str().unwrap_or_default();
        for word in words {
            assert!(detail.contains(word), "`{word}` is not in: {detail}");
        }
        self
    }
}

/// A client. It needs the crypto provider even for plain HTTP.
pub fn client() -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::new()
}

/// An event without a payload.
pub fn event(event_id: &str, event_type: &str, aggregate_type: &str, aggregate_id: u32) -> Value {
    json!({
        "event_id": event_id, "event_type": event_type, "aggregate_type": aggregate_type, "aggregate_id": aggregate_id,
    })
}

/// Percent-encodes everything but letters and digits, for a query.
pub fn encoded(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            byte if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
            other => format!("%{other:02X}"),
        })
        .collect()
}

/// The object with some fields changed; a null removes one.
pub fn with(object: &Value, fields: &Value) -> Value {
    let mut changed = object.as_object().cloned().unwrap_or_default();
    for (name, value) in fields.as_object().into_iter().flatten() {
        if value.is_null() {
            changed.remove(name);
        } else {
            changed.insert(name.clone(), value.clone());
        }
    }
    Value::Object(changed)
}
