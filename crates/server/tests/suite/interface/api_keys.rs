//! API keys over HTTP and on the command line: created, listed, used and revoked.

use std::time::{Duration, Instant};

use campanile_testkit::{Backend, until};
use reqwest::Method;
use serde_json::{Value, json};

use crate::interface::fresh::{Answer, Fresh};
use crate::support::{Home, Server, reservation};

fn key_of(created: &Value) -> (String, String) {
    let text = |field: &str| created[field].as_str().expect("it is text").to_owned();
    (text("id"), text("key"))
}

async fn status(server: &Fresh, key: &str, method: Method, path: &str) -> u16 {
    let request = server.request(method, path).bearer_auth(key).body(reservation("evt-1").to_string());
    Answer::to(request).await.status
}

#[tokio::test]
async fn a_key_is_shown_once_and_works_until_it_is_revoked() {
    for backend in [Backend::Embedded, Backend::Servers] {
        let server = Fresh::start(backend);
        let created =
            server.post("/v1/api-keys", &json!({ "name": "shop", "scopes": ["emit", "emit"] })).await;
        assert_eq!(created.status, 201, "{}", created.body);
        let (id, key) = key_of(&created.body);
        assert_eq!(key.len(), "cpk_".len() + 16 + 1 + 64);
        assert!(key.starts_with(&format!("cpk_{id}_")), "{key}");
        assert_eq!(status(&server, &key, Method::POST, "/v1/events").await, 202);
        assert_eq!(status(&server, &key, Method::GET, "/v1/events").await, 403);
        let listed = server.items("/v1/api-keys").await;
        assert_eq!(listed.len(), 1);
        assert_eq!((&listed[0]["name"], &listed[0]["scopes"]), (&json!("shop"), &json!(["emit"])));
        assert_eq!(listed[0]["prefix"], format!("cpk_{id}"));
        assert!(!listed[0]["last_used_at"].is_null() && listed[0]["revoked_at"].is_null(), "{listed:?}");
        let secret = key.rsplit('_').next().expect("a key has a secret");
        assert!(!json!(listed).to_string().contains(secret));
        assert_eq!(server.logged(&[secret]), [""; 0]);
        assert_eq!(server.delete(&format!("/v1/api-keys/{id}")).await.status, 204);
        assert_eq!(status(&server, &key, Method::POST, "/v1/events").await, 401);
        assert_eq!(server.delete(&format!("/v1/api-keys/{id}")).await.status, 204, "it is revoked already");
        for unknown in ["0123456789abcdef", "nonsense", "..%2f"] {
            let answer = server.delete(&format!("/v1/api-keys/{unknown}")).await;
            answer.assert_problem(404, "not-found");
        }
    }
}

#[tokio::test]
async fn a_key_that_cannot_be_right_is_refused_and_names_the_field() {
    let server = Fresh::start(Backend::Embedded);
    for (body, pointer) in [
        (json!({ "name": "", "scopes": ["emit"] }), "/name"),
        (json!({ "name": "a\u{7}", "scopes": ["emit"] }), "/name"),
        (json!({ "name": "x".repeat(201), "scopes": ["emit"] }), "/name"),
        (json!({ "scopes": ["emit"] }), "/name"),
        (json!({ "name": "shop" }), "/scopes"),
        (json!({ "name": "shop", "scopes": [] }), "/scopes"),
        (json!({ "name": "shop", "scopes": ["emit", "everything"] }), "/scopes/1"),
        (json!({ "name": "shop", "scopes": ["emit"], "expires_at": "2020-01-01T00:00:00Z" }), "/expires_at"),
        (json!({ "name": "shop", "scopes": ["emit"], "expires_at": "soon" }), "/expires_at"),
        (json!({ "name": "shop", "scopes": ["emit"], "secret": "x" }), "/secret"),
    ] {
        let answer = server.post("/v1/api-keys", &body).await;
        answer.assert_problem(422, "invalid").assert_names(0, pointer);
    }
    assert_eq!(server.items("/v1/api-keys").await.len(), 0);
}

#[tokio::test]
async fn a_key_that_one_instance_revokes_is_refused_by_the_others() {
    let home = Home::new(Backend::Servers);
    let (first, second) = (Server::start(&home), Server::start(&home));
    let body = json!({ "name": "shop", "scopes": ["read"] });
    let (_, created) = first.call(Method::POST, "/v1/api-keys", Some(&body)).await;
    let (id, key) = key_of(&created);
    let refused_by_second = async || {
        let client = crate::interface::fresh::client();
        let request = client.get(format!("{}/v1/events", second.url)).bearer_auth(&key);
        Answer::to(request).await.status == 401
    };
    assert!(!refused_by_second().await);
    let revoked_at = Instant::now();
    first.call(Method::DELETE, &format!("/v1/api-keys/{id}"), None).await;
    until("the second instance refuses the key", async || refused_by_second().await.then_some(())).await;
    // Five seconds are promised, on a machine that has time for it.
    assert!(revoked_at.elapsed() < Duration::from_secs(15), "{:?}", revoked_at.elapsed());
}

#[tokio::test]
async fn keys_are_managed_on_the_command_line() {
    let home = Home::new(Backend::Embedded);
    let server = Server::start(&home);
    let run = |arguments: &[&str]| {
        let done = home.campanile().args(["--url", &server.url]).args(arguments).output().expect("it runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (done.status.code(), text(&done.stdout), text(&done.stderr))
    };
    let (code, shown, _) =
        run(&["api-key", "create", "--name", "booking service", "--scope", "emit,read", "--expires", "720h"]);
    assert_eq!(code, Some(0));
    let key = shown.split_whitespace().find(|word| word.starts_with("cpk_")).expect("the key is shown");
    assert!(shown.contains("shown once"), "{shown}");
    let with_key = |arguments: &[&str]| {
        let done = home.campanile().args(["--url", &server.url, "--key", key]).args(arguments).output();
        done.expect("it runs").status.code()
    };
    assert_eq!(with_key(&["emit", "--type", "T", "--aggregate", "RESTAURANT:5"]), Some(0));
    assert_eq!(with_key(&["preset", "load", "restaurant"]), Some(1));
    let (code, listed, _) = run(&["api-key", "list"]);
    assert!(
        code == Some(0) && listed.contains("booking service") && listed.contains("emit,read"),
        "{listed}"
    );
    let id = key.split('_').nth(1).expect("a key has an id");
    let (code, _, _) = run(&["api-key", "revoke", &format!("cpk_{id}")]);
    assert_eq!(code, Some(0));
    assert_eq!(with_key(&["emit", "--type", "T", "--aggregate", "RESTAURANT:5"]), Some(1));
    assert!(run(&["api-key", "list"]).1.contains("revoked"));
    let (code, _, said) = run(&["api-key", "revoke", "0123456789abcdef"]);
    assert!(code == Some(3) && said.contains("not found"), "{said}");
    let (code, _, said) = run(&["api-key", "create", "--name", "x", "--scope", "all"]);
    assert!(code == Some(1) && said.contains("unknown scope `all`"), "{said}");
    let (code, _, said) = run(&["api-key", "create", "--name", "x", "--scope", "emit", "--expires", "soon"]);
    assert!(code == Some(2) && said.contains("--expires"), "{said}");
    let (code, shown, _) = run(&["signing-key", "rotate"]);
    assert!(code == Some(0) && shown.contains("key 2 signs"), "{shown}");
}
