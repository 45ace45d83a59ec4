//! The real binary as a child process, in a folder of its own, and an HTTP client for it.

pub mod home;
pub mod ledger;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use campanile_testkit::provider::slack;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

pub use campanile_testkit::{Backend, until};
pub use home::Home;

pub const KEY: &str = "test-admin-key-of-at-least-32-bytes";

/// A running `campanile serve`. Dropping it kills the process.
#[derive(Debug)]
pub struct Server {
    child: Child,
    pub url: String,
    http: reqwest::Client,
    log: Arc<Mutex<Vec<String>>>,
}

impl Server {
    pub fn start(home: &Home) -> Self {
        Self::start_with(home, &[])
    }

    pub fn start_with(home: &Home, variables: &[(&str, &str)]) -> Self {
        let mut command = home.campanile();
        Self::spawn(command.args(["serve", "--listen", "127.0.0.1:0"]).envs(variables.iter().copied()))
    }

    pub fn spawn(command: &mut Command) -> Self {
        // Created before the child, so that no failure leaves it behind.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::new();
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary was built");
        let (log, kept) = (Arc::<Mutex<Vec<String>>>::default(), child.stderr.take());
        let keep = Arc::clone(&log);
        std::thread::spawn(move || {
            for line in BufReader::new(kept.expect("stderr is piped")).lines().map_while(Result::ok) {
                // For examining a failed test.
                eprintln!("{line}");
                keep.lock().unwrap_or_else(PoisonError::into_inner).push(line);
            }
        });
        let mut lines = BufReader::new(child.stdout.take().expect("stdout is piped")).lines();
        let first = lines.next().expect("a server says where it listens").expect("what it says is text");
        let url = first.rsplit(' ').next().expect("the line ends with the address").to_owned();
        // Drained, so that the server never blocks.
        std::thread::spawn(move || lines.for_each(drop));
        Server { child, url, http, log }
    }

    /// The log lines so far that contain all of these.
    pub fn logged(&self, parts: &[&str]) -> Vec<String> {
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        log.iter().filter(|line| parts.iter().all(|part| line.contains(part))).cloned().collect()
    }

    /// Waits for the first such line.
    pub async fn log_line(&self, parts: &[&str]) -> String {
        until(&format!("{parts:?} is logged"), async || self.logged(parts).into_iter().next()).await
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn kill(&mut self) {
        self.child.kill().expect("the server is our child");
        self.child.wait().expect("the server is our child");
    }

    /// Sends SIGTERM, and returns how the process ended.
    pub fn terminate(&mut self) -> ExitStatus {
        let told =
            Command::new("kill").args(["-TERM", &self.pid().to_string()]).status().expect("kill is there");
        assert!(told.success());
        self.child.wait().expect("the server is our child")
    }

    /// Waits until the process has killed itself at its failpoint.
    pub async fn died_by_sigkill(&mut self) {
        let status =
            until("the process reaches its failpoint", async || self.child.try_wait().ok().flatten()).await;
        assert_eq!(status.signal(), Some(9), "it ended by itself: {status}");
    }

    /// Waits until the event has ended, or the process has.
    pub async fn settled_or_dead(&mut self, event_id: &str) {
        until(&format!("{event_id} is processed, or the server dead"), async || {
            if self.child.try_wait().ok().flatten().is_some() {
                return Some(());
            }
            let (_, trace) = self.try_call(Method::GET, &format!("/v1/events/{event_id}"), None).await?;
            (trace["event"]["status"] == "PROCESSED").then_some(())
        })
        .await;
    }

    /// The response; `None` if the server died meanwhile.
    pub async fn try_call(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Option<(StatusCode, Value)> {
        let mut request = self.http.request(method, format!("{}{path}", self.url)).bearer_auth(KEY);
        if let Some(body) = body {
            request = request.json(body);
        }
        let response = request.send().await.ok()?;
        let status = response.status();
        let text = response.text().await.ok()?;
        Some((status, serde_json::from_str(&text).unwrap_or(Value::String(text))))
    }

    pub async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> (StatusCode, Value) {
        self.try_call(method, path, body).await.expect("the server answers")
    }

    pub async fn get(&self, path: &str) -> Value {
        let (status, answer) = self.call(Method::GET, path, None).await;
        assert_eq!(status, StatusCode::OK, "GET {path}: {answer}");
        answer
    }

    pub async fn put(&self, path: &str, rows: Value) {
        let (status, answer) = self.call(Method::PUT, path, Some(&rows)).await;
        assert_eq!(status, StatusCode::OK, "PUT {path}: {answer}");
    }

    pub async fn emit(&self, events: &Value) -> Value {
        let (status, answer) = self.call(Method::POST, "/v1/events", Some(events)).await;
        assert_eq!(status, StatusCode::ACCEPTED, "{answer}");
        answer
    }

    /// The trace once the event has ended and nothing of it is in progress.
    pub async fn settled(&self, event_id: &str) -> Value {
        until(&format!("{event_id} is settled"), async || {
            let trace = self.get(&format!("/v1/events/{event_id}")).await;
            let ended = !["PENDING", "PUBLISHED"].contains(&trace["event"]["status"].as_str()?);
            let sends = trace["sends"].as_array()?;
            let under_way =
                sends.iter().any(|s| ["DUE", "SENDING"].contains(&s["status"].as_str().unwrap_or("")));
            (ended && !under_way).then_some(trace)
        })
        .await
    }

    /// How often each (event, user, channel) was captured.
    pub async fn captured(&self) -> BTreeMap<String, u32> {
        let mut counts = BTreeMap::new();
        let mut next = Some("0".to_owned());
        while let Some(cursor) = next {
            let page = self.get(&format!("/v1/captured?limit=1000&cursor={cursor}")).await;
            for message in page["items"].as_array().expect("a list") {
                *counts.entry(key(message, "user_type", "user_id")).or_default() += 1;
            }
            next = page["next"].as_str().map(str::to_owned);
        }
        counts
    }
}

/// `event/TYPE 1/EMAIL`.
pub fn key(row: &Value, user_type: &str, user_id: &str) -> String {
    let text = |field: &str| row[field].as_str().unwrap_or_default();
    format!("{}/{} {}/{}", text("event_id"), text(user_type), text(user_id), text("channel"))
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may be dead already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Three people of restaurant 5 with every address.
pub fn staff() -> Value {
    let person = |id: u32, role: &str| {
        json!({
            "user_type": "RESTAURANT_USER", "user_id": id, "entity_type": "RESTAURANT", "entity_id": 5, "role": role,
            "name": format!("Person {id}"), "email": format!("p{id}@example.com"), "phone": format!("+390550{id:03}"),
            "push_tokens": [format!("token-{id}")],
        })
    };
    json!([person(1, "MANAGER"), person(2, "WAITER"), person(3, "CHEF")])
}

/// Staff with the same webhook.
pub fn sharers(slack: &str) -> Value {
    let mut people = staff();
    for person in people.as_array_mut().expect("staff are several") {
        person["slack_webhook"] = format!("http://{slack}{}", slack::PATH).into();
    }
    people
}

pub fn reservation(event_id: &str) -> Value {
    json!({
        "event_id": event_id, "event_type": "RESERVATION_REQUESTED", "aggregate_type": "RESTAURANT",
        "aggregate_id": "5",
        "payload": {"guest": "John Doe", "party": 4},
    })
}
