//! Slow clients, many clients, and invalid HTTP: they are limited, get a reason, and keep nobody else out.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use reqwest::Method;

use crate::interface::fresh::{Answer, Fresh};
use crate::support::{Backend, KEY, until};

const TIMEOUT: Duration = Duration::from_secs(30);

fn connect(server: &Fresh) -> TcpStream {
    let address = server.url.strip_prefix("http://").expect("an address");
    let stream = TcpStream::connect(address).expect("the server listens");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a stream has timeouts");
    stream
}

/// A connection on which these bytes were sent.
fn sent(server: &Fresh, bytes: &str) -> TcpStream {
    let mut stream = connect(server);
    stream.write_all(bytes.as_bytes()).expect("the server reads");
    stream
}

/// Reads until the server closes the connection, in lower case.
fn to_the_end(mut stream: TcpStream) -> String {
    let mut answer = Vec::new();
    // A connection with unread bytes ends with a reset.
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).to_lowercase()
}

fn answer_to(server: &Fresh, request: &str) -> String {
    to_the_end(sent(server, request))
}

fn stalled_body(server: &Fresh) -> TcpStream {
    sent(
        server,
        &format!(
            "POST /v1/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {KEY}\r\nContent-Length: 100\r\n\r\n["
        ),
    )
}

#[tokio::test]
async fn clients_that_send_half_a_request_keep_nobody_out() {
    let server = Fresh::start_with(Backend::Embedded, &[("CAMPANILE_SERVER__MAX_CONNECTIONS", "20")]);
    let clients: Vec<TcpStream> = (0..80).map(|_| sent(&server, "GET")).collect();
    assert_eq!(server.try_get("/v1/events").await.status, 200);
    assert_eq!(Answer::to(server.request(Method::GET, "/healthz")).await.status, 200);
    // The oldest connection was closed for them.
    let first = clients.into_iter().next().expect("there are clients");
    assert_eq!(to_the_end(first), "");
    let line =
        server.log_line(&["WARN", "new connections replaced the connection that was idle longest"]).await;
    assert!(line.contains("connections=1 ") && line.contains("server.max_connections reached"), "{line}");
    assert_eq!(server.logged(&["new connections"]).len(), 1, "and not one for each");
}

#[tokio::test]
async fn health_is_told_while_every_connection_serves_a_request() {
    let server = Fresh::start_with(Backend::Embedded, &[("CAMPANILE_SERVER__MAX_CONNECTIONS", "4")]);
    let clients: Vec<TcpStream> = (0..4).map(|_| stalled_body(&server)).collect();
    let refused = until("the clients are served", async || {
        let answer = server.try_get("/v1/events").await;
        (answer.status != 200).then_some(answer)
    })
    .await;
    refused.assert_problem(503, "unavailable").assert_says(&["try again"]);
    assert_eq!((refused.header("connection"), refused.header("retry-after")), ("close", "5"));
    for path in ["/healthz", "/readyz", "/metrics"] {
        assert_eq!(Answer::to(server.request(Method::GET, path)).await.status, 200, "{path}");
    }
    drop(clients);
    until("there is room", async || (server.try_get("/v1/events").await.status == 200).then_some(())).await;
}

#[tokio::test]
async fn what_does_not_arrive_is_not_waited_for() {
    let server = Fresh::start_with(
        Backend::Embedded,
        &[("CAMPANILE_SERVER__HEADER_TIMEOUT", "300ms"), ("CAMPANILE_SERVER__BODY_TIMEOUT", "300ms")],
    );
    assert_eq!(answer_to(&server, "GET /healthz HT"), "", "half a head");
    let idle = answer_to(&server, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(idle.starts_with("http/1.1 200 ") && !idle.contains("connection: close"), "{idle}");
    let body = to_the_end(stalled_body(&server));
    assert!(body.starts_with("http/1.1 408 ") && body.contains("urn:campanile:too-slow"), "{body}");
    assert!(body.contains("connection: close"), "{body}");
    // A client that reads no responses: at some point the server stops reading its requests.
    let mut deaf = connect(&server);
    deaf.set_write_timeout(Some(TIMEOUT)).expect("a stream has timeouts");
    let request = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(100);
    let ended = std::iter::repeat_with(|| deaf.write_all(&request)).find_map(Result::err);
    let kind = ended.expect("it ends").kind();
    assert!(!matches!(kind, std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut), "{kind}");
}

#[tokio::test]
async fn heads_are_bounded() {
    let server = Fresh::start(Backend::Embedded);
    let long = format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-A: {}\r\n\r\n", "a".repeat(17_000));
    let many = format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\n{}\r\n", "X-A: a\r\n".repeat(100));
    let path = format!("GET /healthz?{} HTTP/1.1\r\nHost: localhost\r\n\r\n", "a".repeat(17_000));
    for request in [long, many, path] {
        let answer = answer_to(&server, &request);
        assert!(answer.starts_with("http/1.1 431 "), "{answer}");
    }
}

#[tokio::test]
async fn an_answer_before_the_end_of_the_body_says_that_it_closes() {
    let server = Fresh::start(Backend::Embedded);
    let head = |extra: &str| format!("POST /v1/events HTTP/1.1\r\nHost: localhost\r\n{extra}\r\n");
    let too_large =
        head(&format!("Authorization: Bearer {KEY}\r\nContent-Length: 99000000\r\nExpect: 100-continue\r\n"));
    for (request, status) in [(head("Content-Length: 100\r\n"), "401"), (too_large, "413")] {
        let answer = answer_to(&server, &request);
        assert!(answer.starts_with(&format!("http/1.1 {status} ")), "{answer}");
        assert!(answer.contains("connection: close"), "{answer}");
    }
}

#[tokio::test]
async fn a_host_has_no_case_and_is_named_once() {
    let server = Fresh::start(Backend::Embedded);
    let ask = |target: &str, hosts: &str| {
        let answer =
            answer_to(&server, &format!("GET {target} HTTP/1.1\r\n{hosts}Connection: close\r\n\r\n"));
        answer.split(' ').nth(1).unwrap_or_default().to_owned()
    };
    assert_eq!(ask("/healthz", "Host: LOCALHOST\r\n"), "200");
    assert_eq!(ask("/healthz", "Host: localhost\r\nHost: localhost\r\n"), "400");
    assert_eq!(ask("/healthz", "Host: localhost\r\nHost: evil.example\r\n"), "400");
    assert_eq!(ask("/healthz", "Host: evil.example\r\n"), "421");
    assert_eq!(ask("http://evil.example/healthz", "Host: localhost\r\n"), "421");
}
