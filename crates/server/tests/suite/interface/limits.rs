//! Rate limits, proxies that tell the client's address, and web pages of other origins.

use std::io::Write;
use std::net::TcpStream;

use campanile_testkit::Backend;
use campanile_testkit::token::{Algorithm, Issuer};
use reqwest::Method;
use serde_json::json;

use crate::interface::fresh::{Answer, Fresh};
use crate::interface::permissions::{claims, start, trusting};
use crate::support::{KEY, reservation};

const PER_KEY: (&str, &str) = ("CAMPANILE_SERVER__RATE_LIMITS__PER_KEY", "3");
const PER_USER: (&str, &str) = ("CAMPANILE_SERVER__RATE_LIMITS__PER_USER", "2");
const PER_ADDRESS: (&str, &str) = ("CAMPANILE_SERVER__RATE_LIMITS__PER_ADDRESS", "2");
const WRONG_KEYS: (&str, &str) = ("CAMPANILE_SERVER__RATE_LIMITS__WRONG_KEYS", "2");

#[track_caller]
fn assert_limited(answer: &Answer, limit: &str) {
    answer.assert_problem(429, "rate-limit");
    assert!(answer.header("retry-after").parse::<u32>().is_ok_and(|seconds| (1..=60).contains(&seconds)));
    assert_eq!((answer.header("ratelimit-limit"), answer.header("ratelimit-remaining")), (limit, "0"));
    assert!(answer.header("ratelimit-reset").parse::<u32>().is_ok_and(|seconds| seconds <= 60));
}

#[tokio::test]
async fn each_key_has_a_limit_and_is_told_what_remains() {
    let server = Fresh::start_with(Backend::Embedded, &[PER_KEY]);
    let created = server.post("/v1/api-keys", &json!({ "name": "x", "scopes": ["read"] })).await;
    assert_eq!((created.header("ratelimit-limit"), created.header("ratelimit-remaining")), ("3", "2"));
    let key = created.body["key"].as_str().expect("there is a key").to_owned();
    let ask = async || Answer::to(server.request(Method::GET, "/v1/events").bearer_auth(&key)).await;
    for remaining in ["2", "1", "0"] {
        let answer = ask().await;
        assert_eq!((answer.status, answer.header("ratelimit-remaining")), (200, remaining));
    }
    assert_limited(&ask().await, "3");
    assert_eq!(server.try_get("/v1/events").await.status, 200, "the admin key has a limit of its own");
    assert_eq!(Answer::to(server.request(Method::GET, "/healthz")).await.status, 200);
}

#[tokio::test]
async fn each_user_has_a_limit() {
    let folder = tempfile::tempdir().expect("there is room");
    let issuer = Issuer::new();
    let mut variables = trusting(&issuer, folder.path());
    variables.push((PER_USER.0, PER_USER.1.to_owned()));
    let server = start(Backend::Embedded, &variables);
    let ask = async |user_type: &str| {
        let token = issuer.token(Algorithm::Hs256, &claims(user_type, "50"));
        Answer::to(server.request(Method::POST, "/v1/tickets").bearer_auth(token).body("{}")).await
    };
    assert_eq!((ask("CUSTOMER").await.status, ask("CUSTOMER").await.status), (201, 201));
    assert_limited(&ask("CUSTOMER").await, "2");
    assert_eq!(ask("AGENCY_USER").await.status, 201, "user 50 of another type is somebody else");
}

#[tokio::test]
async fn wrong_keys_are_limited_by_address_and_good_ones_at_the_same_address_are_not() {
    for backend in [Backend::Embedded, Backend::Servers] {
        let server = Fresh::start_with(backend, &[WRONG_KEYS]);
        let ask =
            async |key: &str| Answer::to(server.request(Method::GET, "/v1/events").bearer_auth(key)).await;
        let created = server.post("/v1/api-keys", &json!({ "name": "x", "scopes": ["read"] })).await;
        let good = created.body["key"].as_str().expect("there is a key").to_owned();
        let other = format!("{}{}", &good[..good.len() - 1], if good.ends_with('0') { '1' } else { '0' });
        let unknown = format!("cpk_{}_{}", "0".repeat(16), "0".repeat(64));
        assert_eq!((ask("wrong").await.status, ask(&unknown).await.status), (401, 401));
        for wrong in ["wrong", "cpk_wrong", &unknown, &other] {
            assert_limited(&ask(wrong).await, "2");
        }
        assert_eq!((ask(KEY).await.status, ask(&good).await.status), (200, 200));
    }
}

#[tokio::test]
async fn who_has_no_key_is_limited_by_address_and_takes_nothing_from_wrong_keys() {
    let server = Fresh::start_with(Backend::Embedded, &[PER_ADDRESS, WRONG_KEYS]);
    let ask = async || Answer::to(server.request(Method::GET, "/v1/events")).await;
    assert_eq!((ask().await.status, ask().await.status), (401, 401));
    assert_limited(&ask().await, "2");
    let wrong = server.request(Method::GET, "/v1/events").bearer_auth("wrong");
    assert_eq!(Answer::to(wrong).await.status, 401);
    assert_eq!(server.try_get("/v1/events").await.status, 200);
}

#[tokio::test]
async fn refused_requests_count_too() {
    let folder = tempfile::tempdir().expect("there is room");
    let issuer = Issuer::new();
    let mut variables = trusting(&issuer, folder.path());
    variables.push((PER_USER.0, PER_USER.1.to_owned()));
    let server = start(Backend::Embedded, &variables);
    let token = issuer.token(Algorithm::Es256, &claims("CUSTOMER", "1"));
    let ask = async || Answer::to(server.request(Method::GET, "/v1/events").bearer_auth(&token)).await;
    let first = ask().await;
    assert_eq!((first.status, first.header("ratelimit-remaining")), (403, "1"));
    assert_eq!(ask().await.status, 403);
    assert_limited(&ask().await, "2");
}

/// An end user sends bodies slowly, over more connections than requests may be served at once.
#[tokio::test]
async fn slow_bodies_of_users_and_callbacks_keep_no_service_out() {
    let folder = tempfile::tempdir().expect("there is room");
    let issuer = Issuer::new();
    let server = start(Backend::Embedded, &trusting(&issuer, folder.path()));
    let token = issuer.token(Algorithm::Es256, &claims("GUEST", "1"));
    let address = server.url.trim_start_matches("http://").to_owned();
    let slow: Vec<TcpStream> = (0..300)
        .map(|number| {
            let path = if number % 5 == 0 { "/v1/callbacks/twilio" } else { "/v1/tickets" };
            let mut stream = TcpStream::connect(&address).expect("the server listens");
            let head = format!(
                "POST {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n\
                 Content-Type: application/json\r\nContent-Length: 16000\r\n\r\n{{"
            );
            stream.write_all(head.as_bytes()).expect("the server reads");
            stream
        })
        .collect();
    assert_eq!(server.post("/v1/events", &reservation("evt-1")).await.status, 202);
    let receipt = server.request(Method::POST, "/v1/callbacks/twilio").body("MessageStatus=sent");
    Answer::to(receipt).await.assert_problem(404, "not-found");
    let large = server.request(Method::POST, "/v1/tickets").bearer_auth(&token).body(" ".repeat(17 * 1024));
    Answer::to(large).await.assert_problem(413, "too-large");
    drop(slow);
}

#[tokio::test]
async fn an_address_without_a_key_has_a_limit() {
    let server = Fresh::start_with(Backend::Embedded, &[PER_ADDRESS]);
    let ask = async || Answer::to(server.request(Method::GET, "/openapi.json")).await;
    assert_eq!((ask().await.status, ask().await.status), (200, 200));
    assert_limited(&ask().await, "2");
    assert_eq!(server.try_get("/v1/events").await.status, 200);
}

#[tokio::test]
async fn only_a_trusted_proxy_tells_the_address_of_a_client() {
    let ask = async |server: &Fresh, client: &str| {
        let request = server.request(Method::GET, "/v1/events").bearer_auth("wrong");
        Answer::to(request.header("x-forwarded-for", client)).await.status
    };
    let trusting = Fresh::start_with(
        Backend::Embedded,
        &[WRONG_KEYS, ("CAMPANILE_SERVER__TRUSTED_PROXIES", "127.0.0.0/8 ::1")],
    );
    for client in ["203.0.113.1", "203.0.113.2, 127.0.0.2", "203.0.113.3"] {
        assert_eq!((ask(&trusting, client).await, ask(&trusting, client).await), (401, 401), "{client}");
        assert_eq!(ask(&trusting, client).await, 429, "{client}");
    }
    let direct = Fresh::start_with(Backend::Embedded, &[WRONG_KEYS]);
    let statuses = [ask(&direct, "203.0.113.1").await, ask(&direct, "203.0.113.2").await];
    assert_eq!((statuses, ask(&direct, "203.0.113.3").await), ([401, 401], 429));
}

#[tokio::test]
async fn pages_of_other_origins_may_call_only_if_they_are_configured() {
    let preflight = async |server: &Fresh, origin: &str| {
        let request = server.request(Method::OPTIONS, "/v1/events").header("origin", origin);
        let request = request.header("access-control-request-method", "POST");
        Answer::to(request.header("access-control-request-headers", "authorization,content-type")).await
    };
    let closed = Fresh::start(Backend::Embedded);
    let answer = preflight(&closed, "https://app.example.com").await;
    assert_eq!((answer.status, answer.header("access-control-allow-origin")), (405, ""));
    let origins = "https://app.example.com https://other.example.com:8443";
    let open = Fresh::start_with(Backend::Embedded, &[("CAMPANILE_SERVER__CORS_ORIGINS", origins)]);
    let allowed = preflight(&open, "https://app.example.com").await;
    assert_eq!(
        (allowed.status, allowed.header("access-control-allow-origin")),
        (200, "https://app.example.com")
    );
    assert!(allowed.header("access-control-allow-headers").contains("authorization"));
    assert_eq!(allowed.header("access-control-allow-credentials"), "");
    assert_eq!(preflight(&open, "https://evil.example.com").await.header("access-control-allow-origin"), "");
    let request = open.request(Method::GET, "/v1/events").bearer_auth(KEY);
    let answer = Answer::to(request.header("origin", "https://app.example.com")).await;
    assert_eq!(
        (answer.status, answer.header("access-control-allow-origin")),
        (200, "https://app.example.com")
    );
}
