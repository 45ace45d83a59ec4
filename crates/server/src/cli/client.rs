//! The HTTP client of the commands. It alone knows the key, and turns problem responses into messages for people.

use std::error::Error;
use std::time::Duration;

use anyhow::{Context, anyhow};
use reqwest::{Certificate, Method, StatusCode};
use serde_json::Value;

use super::CommandError;
use super::invocation::Invocation;
use crate::config::Config;
use crate::data_folder::read_key;
use crate::escape;

#[derive(Debug)]
pub struct Client {
    http: reqwest::Client,
    url: String,
    key: String,
    /// Whether responses are printed unchanged for a program, not escaped for a terminal.
    as_json: bool,
    /// The flags with which a person reaches the same server.
    pub invocation: Invocation,
}

impl Client {
    /// Takes the key from the flag, the configuration, its key file, or the data folder, in this order.
    pub fn new(
        url: &str,
        key: Option<String>,
        as_json: bool,
        config: &Config,
        invocation: Invocation,
        trusted: Vec<Certificate>,
    ) -> anyhow::Result<Self> {
        let configured = (!config.auth.admin_key.is_empty()).then(|| config.auth.admin_key.clone());
        let key = key.or(configured).map_or_else(|| kept_key(config), Ok)?;
        let http = reqwest::Client::builder().timeout(Duration::from_mins(1));
        let http = if trusted.is_empty() { http } else { http.tls_certs_merge(trusted) }.build()?;
        Ok(Client { http, url: url.trim_end_matches('/').to_owned(), key, as_json, invocation })
    }

    pub async fn get(&self, path: &str) -> Result<Value, CommandError> {
        self.call(Method::GET, path, None).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Result<Value, CommandError> {
        self.call(Method::POST, path, Some(body)).await
    }

    pub async fn put(&self, path: &str, body: &Value) -> Result<Value, CommandError> {
        self.call(Method::PUT, path, Some(body)).await
    }

    pub async fn delete(&self, path: &str) -> Result<Value, CommandError> {
        self.call(Method::DELETE, path, None).await
    }

    fn unreached(&self, error: &reqwest::Error) -> anyhow::Error {
        let (url, why) = (&self.url, root_cause(error));
        if why.contains("certificate") {
            anyhow!(
                "{url} has a certificate that is not trusted ({why}); name its authority with \
                 --ca-file, or its host name with --url"
            )
        } else if error.is_connect() && why.contains("refused") {
            anyhow!("cannot reach {url} ({why}); start a server with `{}`", self.invocation.serve())
        } else {
            anyhow!(
                "no answer from {url} ({why}); check --url, and whether the server speaks http or https there"
            )
        }
    }

    async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, CommandError> {
        let mut request = self.http.request(method, format!("{}{path}", self.url)).bearer_auth(&self.key);
        if let Some(body) = body {
            request = request.json(body);
        }
        let response = request.send().await.map_err(|error| self.unreached(&error))?;
        let status = response.status();
        let text = response.text().await?;
        let mut answer: Value = serde_json::from_str(&text).unwrap_or(Value::String(text));
        // Problems are always shown to a person.
        if !self.as_json || !status.is_success() {
            escape::for_people(&mut answer);
        }
        if status.is_success() {
            return Ok(answer);
        }
        let message = describe(status, &answer);
        if status == StatusCode::NOT_FOUND {
            Err(CommandError::NotFound(message))
        } else {
            Err(anyhow!(message).into())
        }
    }
}

/// The innermost cause of an error, which says most.
pub fn root_cause(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

fn kept_key(config: &Config) -> anyhow::Result<String> {
    let path = match &config.auth.admin_key_file {
        given if !given.as_os_str().is_empty() => given.clone(),
        _ => config.data_dir.join("admin.key"),
    };
    read_key(&path).with_context(|| {
        format!(
            "no API key: use --key, or --data-dir of a server on this machine (cannot read {})",
            path.display()
        )
    })
}

/// Percent-encodes a path segment or query value.
pub fn encoded(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                char::from(byte).to_string()
            }
            other => format!("%{other:02X}"),
        })
        .collect()
}

fn describe(status: StatusCode, problem: &Value) -> String {
    let Some(detail) = problem.get("detail").and_then(Value::as_str) else {
        return format!("the server returned {status}");
    };
    let mut lines = vec![detail.to_owned()];
    for error in problem.get("errors").and_then(Value::as_array).into_iter().flatten() {
        let text = |field: &str| error.get(field).and_then(Value::as_str).unwrap_or_default();
        let line = format!("  [{}] {}: {}", error["index"], text("pointer"), text("detail"));
        if !detail.contains(text("detail")) {
            lines.push(line);
        }
    }
    lines.join("\n")
}
