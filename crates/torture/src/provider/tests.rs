//! Tests the provider as its clients see it.

use std::net::SocketAddr;

use campanile_testkit::provider::twilio::is_sid;
use reqwest::Client;
use serde_json::Value;

use super::*;

struct Provider {
    address: SocketAddr,
    http: Client,
    folder: tempfile::TempDir,
}

impl Provider {
    async fn start() -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let folder = tempfile::tempdir().unwrap();
        let file = File::create(folder.path().join("ledger")).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(serve(listener, Book::new(file, 1)));
        Provider { address, http: Client::new(), folder }
    }

    async fn post(&self, fields: &[(&str, &str)]) -> Result<(u16, Value), reqwest::Error> {
        let url = format!("http://{}/2010-04-01/Accounts/{ACCOUNT_SID}/Messages.json", self.address);
        let request = self.http.post(url).basic_auth(ACCOUNT_SID, Some(AUTH_TOKEN)).form(fields);
        let response = request.timeout(Duration::from_secs(2)).send().await?;
        Ok((response.status().as_u16(), response.json().await?))
    }

    async fn text(&self, body: &str) -> Result<(u16, Value), reqwest::Error> {
        self.post(&[("To", "+390551234567"), ("From", "+15005550006"), ("Body", body)]).await
    }

    async fn behave(&self, mode: Value) -> u16 {
        let url = format!("http://{}/mode", self.address);
        self.http.put(url).json(&mode).send().await.unwrap().status().as_u16()
    }

    async fn ledger(&self, after: usize) -> Vec<Value> {
        let url = format!("http://{}/messages?after={after}", self.address);
        self.http.get(url).send().await.unwrap().json().await.unwrap()
    }
}

#[tokio::test]
async fn what_is_accepted_stands_in_the_ledger_and_in_the_file() {
    let provider = Provider::start().await;
    assert!(provider.ledger(0).await.is_empty());
    let (status, first) = provider.text("one\n\"two\" è").await.unwrap();
    assert_eq!((status, first["status"].as_str()), (201, Some("queued")));
    provider.text("three").await.unwrap();
    let lines = provider.ledger(0).await;
    assert!(is_sid("SM", first["sid"].as_str().unwrap()));
    assert_eq!(
        lines[0],
        json!({"n": 1, "to": "+390551234567", "body": "one\n\"two\" è", "sid": first["sid"], "mode": "ok"})
    );
    assert_eq!(provider.ledger(1).await, lines[1..]);
    let file = std::fs::read_to_string(provider.folder.path().join("ledger")).unwrap();
    let written: Vec<Value> = file.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(written, lines);
}

#[tokio::test]
async fn each_rule_is_kept_and_breaking_one_is_noted() {
    let provider = Provider::start().await;
    let (to, from, body) = (("To", "+390551234567"), ("From", "+15005550006"), ("Body", "x"));
    let long = "x".repeat(1_601);
    for (fields, code) in [
        (&[from, body][..], 21604),
        (&[("To", "055 123"), from, body], 21211),
        (&[to, body], 21603),
        (&[to, ("From", "a name that is too long"), body], 21212),
        (&[to, ("MessagingServiceSid", "MG1"), body], 21701),
        (&[to, from], 21602),
        (&[to, from, ("Body", &long)], 21617),
        (&[to, to, from, body], 20001),
        (&[to, from, body, ("Title", "y")], 20001),
    ] {
        let (status, answer) = provider.post(fields).await.unwrap();
        assert_eq!((status, &answer["code"]), (400, &json!(code)), "{fields:?}");
        let noted = provider.ledger(0).await.pop().unwrap();
        assert!(noted["violation"].as_str().unwrap().starts_with(&format!("400 {code}")), "{noted}");
    }
    let root = format!("http://{}/2010-04-01/Accounts/{ACCOUNT_SID}", provider.address);
    let messages = format!("{root}/Messages.json");
    let known = |request: reqwest::RequestBuilder| request.basic_auth(ACCOUNT_SID, Some(AUTH_TOKEN));
    for (request, status) in [
        (provider.http.post(&messages).form(&[to, from, body]), 401),
        (known(provider.http.post(&messages).json(&json!({"To": "+39055"}))), 400),
        (known(provider.http.get(&messages)), 405),
        (known(provider.http.post(messages.replace("/AC", "/AD")).form(&[to, from, body])), 404),
    ] {
        let before = provider.ledger(0).await.len();
        assert_eq!(request.send().await.unwrap().status().as_u16(), status);
        assert_eq!(provider.ledger(before).await.len(), 1);
    }
    // Requesting the account, or a test number, breaks no rule.
    let before = provider.ledger(0).await.len();
    let account = known(provider.http.get(format!("{root}.json"))).send().await.unwrap();
    assert_eq!(account.status().as_u16(), 200);
    let (status, answer) = provider.post(&[("To", MAGIC[0].0), from, body]).await.unwrap();
    assert_eq!((status, &answer["code"]), (400, &json!(21211)));
    assert!(provider.ledger(before).await.is_empty());
}

#[tokio::test]
async fn half_a_request_is_nothing() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let provider = Provider::start().await;
    let head = format!(
        "POST /2010-04-01/Accounts/{ACCOUNT_SID}/Messages.json HTTP/1.1\r\nHost: x\r\nAuthorization: \
         {AUTHORIZATION}\r\n\
         Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 99\r\n\r\nTo=%2B39055"
    );
    let mut stream = tokio::net::TcpStream::connect(provider.address).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    assert!(provider.ledger(0).await.is_empty());
}

#[tokio::test]
async fn it_misbehaves_as_it_is_told() {
    let provider = Provider::start().await;
    assert_eq!(provider.behave(json!({"refuse_503": 500, "busy_429": 501})).await, 400);
    assert_eq!(provider.behave(json!({"refuse_503": 1000})).await, 204);
    assert_eq!(provider.text("a").await.unwrap().0, 503);
    provider.behave(json!({"busy_429": 1000})).await;
    assert_eq!(provider.text("b").await.unwrap().0, 429);
    assert!(provider.ledger(0).await.is_empty(), "what is refused is not accepted");

    provider.behave(json!({"accept_then_close": 1000})).await;
    let closed = provider.text("c").await.unwrap_err();
    assert!(!closed.is_timeout() && !closed.is_connect(), "{closed:?}");
    provider.behave(json!({"accept_then_silence": 1000})).await;
    assert!(provider.text("d").await.unwrap_err().is_timeout());
    provider.behave(json!({"slow_ms": 5_000})).await;
    assert!(provider.text("e").await.unwrap_err().is_timeout());
    let modes: Vec<Value> = provider.ledger(0).await.into_iter().map(|line| line["mode"].clone()).collect();
    assert_eq!(modes, ["accept_then_close", "accept_then_silence", "ok"]);

    provider.behave(json!({"refuse_503": 300})).await;
    let mut refused = 0;
    for _ in 0..300 {
        refused += u32::from(provider.text("f").await.unwrap().0 == 503);
    }
    assert!((50..150).contains(&refused), "{refused}");
}
