//! SMS by a provider, with all other channels captured: from the event to the SID in the trace, and the output about
//! it.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use campanile_testkit::on_both;
use campanile_testkit::provider::http::{self, Replies, Reply};
use campanile_testkit::provider::twilio::{self, AUTH_TOKEN, Fields};
use reqwest::Method;
use ring::hmac;
use serde_json::{Value, json};

use crate::interface::command::Ran;
use crate::interface::fresh::{Answer, Fresh};
use crate::support::home::campanile;
use crate::support::{Backend, Home, reservation, staff};

/// Within the lease of these tests.
const DEADLINE: (&str, &str) = ("CAMPANILE_CHANNELS__SMS__DEADLINE", "2s");

const SENDER: &str = "%2B15005550006";

/// What Twilio is asked.
#[derive(Debug, Clone)]
enum Asked {
    Text(Fields),
    Account,
    /// Anything with a wrong token.
    ByStranger,
}

fn check(request: &http::Request) -> Result<Option<Asked>, String> {
    if !twilio::is_authenticated(request) {
        return Ok(Some(Asked::ByStranger));
    }
    Ok(Some(twilio::check(request)?.map_or(Asked::Account, Asked::Text)))
}

struct Twilio(http::Server<Asked>);

impl Twilio {
    async fn start(mut reply: impl FnMut(&Fields) -> Reply + Send + 'static) -> Self {
        let replies = Replies::ByRequest(Box::new(move |asked: &Asked| match asked {
            Asked::Text(fields) => reply(fields),
            Asked::Account => Reply::json(200, r#"{"status": "active"}"#),
            Asked::ByStranger => twilio::error(401, 20003, "Authenticate"),
        }));
        Twilio(http::Server::start_with(check, replies).await)
    }

    fn url(&self) -> String {
        twilio::url(&self.0.address, SENDER)
    }

    fn texts(&self) -> Vec<Fields> {
        let text = |asked| if let Asked::Text(fields) = asked { Some(fields) } else { None };
        self.0.requests().into_iter().filter_map(text).collect()
    }
}

/// Accepts everything, but one number has unsubscribed.
async fn provider() -> Twilio {
    let mut accepted = 0;
    Twilio::start(move |fields| {
        if fields[0].1.ends_with('3') {
            return twilio::error(400, 21610, &format!("{} said STOP", fields[0].1));
        }
        accepted += 1;
        twilio::created(accepted)
    })
    .await
}

async fn texts_go_out_by_the_provider_and_the_rest_is_captured(backend: Backend) {
    let twilio = provider().await;
    let server = Fresh::start_with(backend, &[("CAMPANILE_CHANNELS__SMS__URL", &twilio.url()), DEADLINE]);
    let components = Answer::to(server.request(Method::GET, "/readyz")).await.body["components"].clone();
    assert_eq!(components["sms"], "ok");
    assert!(components["email"].as_str().unwrap().starts_with("capture"), "{components}");

    server.put("/v1/recipients", staff()).await;
    server.emit(&reservation("evt-1")).await;
    let trace = server.settled("evt-1").await;
    let sends = trace["sends"].as_array().unwrap();
    let sms: Vec<&Value> = sends.iter().filter(|send| send["channel"] == "SMS").collect();
    assert_eq!(sms.len(), 3);
    let (failed, sent): (Vec<&Value>, Vec<&Value>) =
        sms.into_iter().partition(|send| send["status"] == "FAILED");
    for send in &sent {
        assert_eq!((&send["status"], &send["provider"]), (&json!("SENT"), &json!("twilio")), "{send}");
        assert!(send["external_id"].as_str().unwrap().starts_with("SM0000"), "{send}");
    }
    // There is no text for this channel, so its title is the event type in words.
    let mut asked = twilio.texts();
    asked.sort_unstable();
    let text = |to: &str| {
        [("To", to), ("From", "+15005550006"), ("Body", "Reservation requested")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .to_vec()
    };
    assert_eq!(asked, [text("+390550001"), text("+390550002"), text("+390550003")]);

    assert_eq!(failed.len(), 1);
    let error = failed[0]["last_error"].as_str().unwrap();
    assert!(error.starts_with("REJECTED: Twilio error 21610, the recipient has unsubscribed"), "{error}");
    let dead_letters = server.items("/v1/dead-letters?channel=SMS").await;
    assert_eq!((dead_letters.len(), &dead_letters[0]["provider"]), (1, &json!("twilio")), "{dead_letters:?}");
    let captured = server.captured().await;
    assert!(captured.keys().any(|key| key.ends_with("/EMAIL")), "{captured:?}");
    assert!(!captured.keys().any(|key| key.ends_with("/SMS")), "{captured:?}");
}

async fn a_provider_that_refuses_our_token_is_named_at_the_first_refusal(backend: Backend) {
    let twilio = provider().await;
    let url = twilio.url().replace(AUTH_TOKEN, "other-token");
    let server = Fresh::start_with(backend, &[("CAMPANILE_CHANNELS__SMS__URL", &url), DEADLINE]);
    server.put("/v1/recipients", json!([staff()[0]])).await;
    server.emit(&reservation("evt-1")).await;
    server.settled("evt-1").await;
    let components = Answer::to(server.request(Method::GET, "/readyz")).await.body["components"].clone();
    assert_eq!(
        components["sms"],
        "rejects our credentials or account, see `campanile doctor`: twilio (401 20003)"
    );
}

/// Twilio's signature: the URL, then each field's name and value in the order of the names.
fn signature(url: &str, fields: &[(&str, &str)]) -> String {
    let mut sorted = fields.to_vec();
    sorted.sort_unstable();
    let signed: String = std::iter::once(url.to_owned())
        .chain(sorted.iter().map(|(name, value)| format!("{name}{value}")))
        .collect();
    let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, AUTH_TOKEN.as_bytes());
    STANDARD.encode(hmac::sign(&key, signed.as_bytes()))
}

async fn what_twilio_tells_later_is_the_receipt_and_nobody_else_can_tell_it(backend: Backend) {
    let twilio = provider().await;
    let server = Fresh::start_with(
        backend,
        &[
            ("CAMPANILE_CHANNELS__SMS__URL", &twilio.url()),
            ("CAMPANILE_SERVER__PUBLIC_URL", "https://campanile.example.com/base"),
            DEADLINE,
        ],
    );
    server.put("/v1/recipients", json!([staff()[0]])).await;
    server.emit(&reservation("evt-1")).await;
    server.settled("evt-1").await;
    let asked = twilio.texts().remove(0);
    let (_, callback) =
        asked.iter().find(|(name, _)| name == "StatusCallback").expect("it is asked for receipts");
    let (base, query) = callback.split_once('?').unwrap();
    assert_eq!(base, "https://campanile.example.com/base/v1/callbacks/twilio");

    let sid = format!("SM{:032x}", 1);
    let report = async |status: &str, signed_as: &str| {
        let fields = |status| [("MessageSid", sid.as_str()), ("MessageStatus", status), ("To", "+390550001")];
        // A proxy in front has removed its own part of the path.
        let request = server.request(Method::POST, &format!("/v1/callbacks/twilio?{query}"));
        let request = request.form(&fields(status));
        Answer::to(request.header("X-Twilio-Signature", signature(callback, &fields(signed_as)))).await
    };
    let receipt = async || {
        let trace = server.get("/v1/events/evt-1").await;
        let sends = trace["sends"].as_array().unwrap();
        let sms = sends.iter().find(|send| send["channel"] == "SMS").unwrap().clone();
        assert_eq!(sms["status"], "SENT", "a receipt changes no status");
        (sms["receipt"].clone(), sms["receipt_at"].is_string())
    };
    assert_eq!(receipt().await, (Value::Null, false));
    assert_eq!(report("sent", "sent").await.status, 204);
    assert_eq!(receipt().await, (json!("sent"), true));
    report("delivered", "sent").await.assert_problem(403, "forbidden").assert_says(&["public_url"]);
    assert_eq!(receipt().await, (json!("sent"), true), "who can't sign changes nothing");
    assert_eq!(report("delivered", "delivered").await.status, 204);
    assert_eq!(report("sent", "sent").await.status, 204, "a late one is heard");
    assert_eq!(receipt().await, (json!("delivered"), true), "and takes nothing back");
}

async fn callbacks_that_can_not_be_read_are_refused_with_a_problem(backend: Backend) {
    let server = Fresh::start(backend);
    let call = async |query: &str, body: String| {
        let request = server.request(Method::POST, &format!("/v1/callbacks/twilio{query}"));
        Answer::to(request.header("content-type", "application/x-www-form-urlencoded").body(body)).await
    };
    call("?send=a", "x".repeat(65 * 1024)).await.assert_problem(413, "too-large").assert_says(&["65536"]);
    call("?send=a&send=b", String::new()).await.assert_problem(422, "invalid-query");
}

async fn a_provider_that_is_away_is_asked_again_and_again(backend: Backend) {
    // Nothing listens there.
    let url = twilio::url("127.0.0.1:1", SENDER);
    let server = Fresh::start_with(backend, &[("CAMPANILE_CHANNELS__SMS__URL", &url), DEADLINE]);
    // Only one, because a provider that fails five times in a row gets no messages for a while.
    server.put("/v1/recipients", json!([staff()[0]])).await;
    server.emit(&reservation("evt-1")).await;
    let trace = server.settled("evt-1").await;
    let sms = trace["sends"].as_array().unwrap().iter().find(|send| send["channel"] == "SMS").unwrap();
    assert_eq!(sms["last_error"], "EXHAUSTED: Twilio is unreachable");
    assert_eq!(sms["attempt_count"], 3);
}

async fn a_provider_that_is_busy_for_a_while_is_asked_when_it_said(backend: Backend) {
    let asked = Arc::<Mutex<Vec<Instant>>>::default();
    let asked_at = Arc::clone(&asked);
    let twilio = Twilio::start(move |_| {
        let mut asked = asked_at.lock().unwrap();
        asked.push(Instant::now());
        if asked.len() <= 2 {
            return twilio::error(429, 20429, "Too Many Requests").with("Retry-After", "1");
        }
        twilio::created(9)
    })
    .await;
    let server = Fresh::start_with(backend, &[("CAMPANILE_CHANNELS__SMS__URL", &twilio.url()), DEADLINE]);
    server.put("/v1/recipients", json!([staff()[0]])).await;
    server.emit(&reservation("evt-1")).await;
    let trace = server.settled("evt-1").await;
    let sms = trace["sends"].as_array().unwrap().iter().find(|send| send["channel"] == "SMS").unwrap();
    assert_eq!((&sms["status"], &sms["attempt_count"]), (&json!("SENT"), &json!(3)), "{sms}");
    let asked = asked.lock().unwrap();
    assert_eq!(asked.len(), 3, "and no more often than it had to be");
    assert!(asked.windows(2).all(|pair| pair[1] - pair[0] >= Duration::from_secs(1)), "{asked:?}");
}

async fn a_text_that_was_accepted_without_a_name_is_left_to_a_person(backend: Backend) {
    let twilio = Twilio::start(|_| Reply::json(201, "<html>")).await;
    let server = Fresh::start_with(backend, &[("CAMPANILE_CHANNELS__SMS__URL", &twilio.url()), DEADLINE]);
    server.put("/v1/recipients", json!([staff()[0]])).await;
    server.emit(&reservation("evt-1")).await;
    let trace = server.settled("evt-1").await;
    let sms = trace["sends"].as_array().unwrap().iter().find(|send| send["channel"] == "SMS").unwrap();
    assert_eq!((&sms["status"], &sms["attempt_count"]), (&json!("IN_DOUBT"), &json!(1)), "{sms}");
    assert_eq!(twilio.texts().len(), 1, "nobody is texted twice");
    let doubts = server.items("/v1/sends?status=IN_DOUBT").await;
    assert!(doubts[0]["last_error"].as_str().unwrap().contains("returned no SID"), "{doubts:?}");
}

#[tokio::test]
async fn an_attempt_must_fit_into_the_lease() {
    let twilio = provider().await;
    let folder = tempfile::tempdir().unwrap();
    let mut command = campanile(folder.path());
    command.env("CAMPANILE_CHANNELS__SMS__URL", twilio.url()).env("CAMPANILE_ENGINE__LEASE", "10s");
    let ran = Ran::of(command.args(["serve", "--listen", "127.0.0.1:0"]));
    ran.failed(1, &["engine.lease", "10s", "SMS", "twilio", "longer"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_looks_at_the_provider_and_sends_nothing() {
    let twilio = provider().await;
    let home = Home::new(Backend::Embedded);
    let channels = |url: &str| {
        let mut command = home.campanile();
        let ran = Ran::of(command.env("CAMPANILE_CHANNELS__SMS__URL", url).args(["doctor", "--json"]));
        assert!(!ran.out.contains(AUTH_TOKEN) && !ran.out.contains("other-token"), "{}", ran.out);
        let findings: Vec<Value> = serde_json::from_str(&ran.out).unwrap();
        findings.into_iter().filter(|finding| finding["subject"] == "channels").collect::<Vec<_>>()
    };
    let well = channels(&twilio.url());
    assert_eq!((well.len(), &well[0]["level"]), (2, &json!("ok")), "{well:?}");
    assert!(well[0]["what"].as_str().unwrap().starts_with("SMS is sent by twilio: 127.0.0.1:"), "{well:?}");
    assert_eq!(well[1]["what"], "EMAIL, PUSH, SLACK messages are captured, not sent; see GET /v1/captured");
    let stranger = channels(&twilio.url().replace(AUTH_TOKEN, "other-token"));
    assert_eq!(stranger[0]["level"], "wrong", "{stranger:?}");
    assert!(stranger[0]["remedy"].as_str().unwrap().contains("channels.sms.url"), "{stranger:?}");
    let nowhere = channels(&twilio::url("127.0.0.1:1", SENDER));
    assert_eq!(nowhere[0]["level"], "wrong", "{nowhere:?}");
    assert!(nowhere[0]["what"].as_str().unwrap().contains("is unreachable"), "{nowhere:?}");
    assert!(twilio.texts().is_empty());
}

on_both! {
    texts_go_out_by_the_provider_and_the_rest_is_captured;
    a_provider_that_refuses_our_token_is_named_at_the_first_refusal;
    what_twilio_tells_later_is_the_receipt_and_nobody_else_can_tell_it;
    callbacks_that_can_not_be_read_are_refused_with_a_problem;
    a_provider_that_is_away_is_asked_again_and_again;
    a_provider_that_is_busy_for_a_while_is_asked_when_it_said;
    a_text_that_was_accepted_without_a_name_is_left_to_a_person;
}
