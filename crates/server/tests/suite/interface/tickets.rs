//! Tickets for browsers, and the keys of an issuer that change while the server runs.

use campanile_testkit::token::{Algorithm, Issuer};
use campanile_testkit::{Backend, until};
use reqwest::Method;
use serde_json::{Value, json};

use crate::interface::fresh::{Answer, Fresh, with};
use crate::interface::permissions::{claims, start, trusting};
use crate::support::{Home, KEY, Server};

async fn ticket(server: &Fresh, key: &str, body: &Value) -> Answer {
    Answer::to(server.request(Method::POST, "/v1/tickets").bearer_auth(key).body(body.to_string())).await
}

/// The claims of a ticket.
fn content(answer: &Answer) -> Value {
    use base64::Engine;
    assert_eq!(answer.status, 201, "{}", answer.body);
    let ticket = answer.body["ticket"].as_str().expect("there is a ticket");
    let claims = ticket.split('.').nth(1).expect("it is a JWT");
    let claims = base64::prelude::BASE64_URL_SAFE_NO_PAD.decode(claims).expect("it is base64");
    serde_json::from_slice(&claims).expect("it is JSON")
}

fn seconds_left(answer: &Answer) -> i64 {
    let claims = content(answer);
    claims["exp"].as_i64().expect("it ends") - claims["iat"].as_i64().expect("it begins")
}

#[tokio::test]
async fn a_service_gets_tickets_for_any_user_and_a_user_for_themselves() {
    let folder = tempfile::tempdir().expect("there is room");
    let issuer = Issuer::new();
    let server = start(Backend::Embedded, &trusting(&issuer, folder.path()));
    let anna = json!({
        "user_type": "RESTAURANT_USER", "user_id": 10, "entity_type": "RESTAURANT", "entity_id": 5, "name": "Anna",
    });
    let of_service = ticket(&server, KEY, &anna).await;
    let claims_of = content(&of_service);
    assert_eq!((&claims_of["sub"], &claims_of["user_type"]), (&json!("10"), &json!("RESTAURANT_USER")));
    assert_eq!((&claims_of["entity_id"], &claims_of["name"]), (&json!("5"), &json!("Anna")));
    assert_eq!(seconds_left(&of_service), 300);
    for (seconds, valid) in [(59, false), (60, true), (900, true), (901, false)] {
        let asked = with(&anna, &json!({ "valid_seconds": seconds }));
        let answer = ticket(&server, KEY, &asked).await;
        if valid {
            assert_eq!(seconds_left(&answer), seconds);
        } else {
            answer.assert_problem(422, "invalid").assert_names(0, "/valid_seconds");
        }
    }
    let token = issuer.token(Algorithm::Es256, &claims("RESTAURANT_USER", "10"));
    let own = ticket(&server, &token, &json!({})).await;
    assert_eq!(content(&own)["sub"], "10");
    let without_body = Answer::to(server.request(Method::POST, "/v1/tickets").bearer_auth(&token)).await;
    assert_eq!(content(&without_body)["sub"], "10");
    let others = ticket(&server, &token, &json!({ "user_id": "11" })).await;
    others.assert_problem(422, "invalid").assert_names(0, "/user_id");
    let named = ticket(&server, &token, &json!({ "name": "Bruno" })).await;
    named.assert_problem(422, "invalid").assert_names(0, "/name");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("it is late enough");
    let short = with(&claims("CUSTOMER", "1"), &json!({ "exp": now.as_secs() + 20 }));
    let of_short = ticket(&server, &issuer.token(Algorithm::Hs256, &short), &json!({})).await;
    assert!(seconds_left(&of_short) <= 21, "no ticket outlives the token that it comes from");
    let ended = with(&claims("CUSTOMER", "1"), &json!({ "exp": now.as_secs() - 30 }));
    let of_ended = ticket(&server, &issuer.token(Algorithm::Hs256, &ended), &json!({})).await;
    of_ended.assert_problem(401, "unauthorized").assert_says(&["expired"]);
}

#[tokio::test]
async fn a_ticket_for_nobody_is_refused_and_names_the_field() {
    let server = Fresh::start(Backend::Embedded);
    for (body, pointer) in [
        (json!({}), "/user_type"),
        (json!({ "user_type": "CUSTOMER" }), "/user_id"),
        (json!({ "user_type": "EMPEROR", "user_id": "1" }), "/user_type"),
        (json!({ "user_type": "CUSTOMER", "user_id": "1", "entity_id": "5" }), "/entity_type"),
        (
            json!({ "user_type": "RESTAURANT_USER", "user_id": "1", "entity_type": "AGENCY", "entity_id": "5" }),
            "/entity_type",
        ),
        (json!({ "user_type": "CUSTOMER", "user_id": "1", "name": "a\nb" }), "/name"),
        (json!({ "user_type": "CUSTOMER", "user_id": "1", "colour": "red" }), "/colour"),
    ] {
        let answer = ticket(&server, KEY, &body).await;
        answer.assert_problem(422, "invalid").assert_names(0, pointer);
    }
}

#[tokio::test]
async fn a_rotated_key_signs_from_then_on_on_every_instance() {
    let home = Home::new(Backend::Servers);
    let (first, second) = (Server::start(&home), Server::start(&home));
    let signed_by = async |server: &Server| {
        use base64::Engine;
        let anna = json!({ "user_type": "CUSTOMER", "user_id": "1" });
        let (_, answer) = server.call(Method::POST, "/v1/tickets", Some(&anna)).await;
        let ticket = answer["ticket"].as_str().expect("there is a ticket").to_owned();
        let header = ticket.split('.').next().expect("it is a JWT").to_owned();
        let header = base64::prelude::BASE64_URL_SAFE_NO_PAD.decode(header).expect("it is base64");
        serde_json::from_slice::<Value>(&header).expect("it is JSON")["kid"].clone()
    };
    assert_eq!((signed_by(&first).await, signed_by(&second).await), (json!("1"), json!("1")));
    let (_, rotated) =
        first.call(Method::POST, "/v1/signing-key/rotate", Some(&json!({ "revoke_old": true }))).await;
    assert_eq!(rotated, json!({ "id": 2 }));
    assert_eq!(signed_by(&first).await, "2");
    until("the other instance signs with the new key", async || {
        (signed_by(&second).await == "2").then_some(())
    })
    .await;
    assert_eq!(home.count("SELECT count(*) FROM campanile.signing_key").await, 1);
}

#[tokio::test]
async fn a_configured_key_signs_and_is_rotated_in_the_configuration() {
    let key = [("CAMPANILE_AUTH__SIGNING_KEY", "a-signing-key-of-at-least-32-bytes")];
    let server = Fresh::start_with(Backend::Embedded, &key);
    let rotated = server.post("/v1/signing-key/rotate", &json!({ "revoke_old": true })).await;
    rotated.assert_problem(409, "configured-key").assert_says(&["auth.signing_key"]);
    assert!(server.items("/v1/audit").await.is_empty());
}

#[tokio::test]
async fn a_ticket_is_no_token_even_if_both_have_the_same_secret() {
    let folder = tempfile::tempdir().expect("there is room");
    let secret = "the-same-secret-for-both-of-32-bytes";
    let file = folder.path().join("secret");
    std::fs::write(&file, secret).expect("there is room");
    let home = Home::new(Backend::Embedded);
    let mut command = home.campanile();
    command.env("CAMPANILE_AUTH__SIGNING_KEY", secret).env("CAMPANILE_AUTH__JWT__SECRET_FILE", &file);
    let refused = command.args(["config", "check"]).output().expect("it runs");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(1) && said.contains("are the same"), "{said}");
    // What another instance signed with that secret.
    let issuer = Issuer::new();
    let variables = [("CAMPANILE_AUTH__JWT__SECRET", issuer.secret.as_str())];
    let server = Fresh::start_with(Backend::Embedded, &variables);
    for audience in [json!("campanile:ticket"), json!(["x", "campanile:other"])] {
        let own = with(&claims("CUSTOMER", "1"), &json!({ "aud": audience }));
        let answer = ticket(&server, &issuer.token(Algorithm::Hs256, &own), &json!({})).await;
        answer.assert_problem(401, "unauthorized").assert_says(&["not a token"]);
    }
}

#[tokio::test]
async fn doctor_names_a_broken_file_of_keys() {
    let home = Home::new(Backend::Embedded);
    let file = home.path().join("jwks.json");
    for broken in ["", "{", "{\"keys\": []}"] {
        std::fs::write(&file, broken).expect("there is room");
        let mut command = home.campanile();
        let ran =
            command.env("CAMPANILE_AUTH__JWT__JWKS_FILE", &file).arg("doctor").output().expect("it runs");
        let said = String::from_utf8_lossy(&ran.stdout).into_owned();
        assert!(ran.status.code() == Some(1) && said.contains("jwks.json"), "{said}");
    }
}

#[tokio::test]
async fn tickets_and_tokens_are_not_logged() {
    let server = Fresh::start_with(Backend::Embedded, &[("CAMPANILE_LOG__FILTER", "trace")]);
    let answer = ticket(&server, KEY, &json!({ "user_type": "CUSTOMER", "user_id": "1" })).await;
    let secret = answer.body["ticket"].as_str().expect("there is a ticket").to_owned();
    let asked = server.request(Method::GET, &format!("/v1/events?ticket={secret}")).bearer_auth(KEY);
    assert_eq!(Answer::to(asked).await.status, 422);
    let mark = server.request(Method::GET, "/v1/events?limit=7").bearer_auth(KEY);
    assert_eq!(Answer::to(mark).await.status, 200);
    for part in secret.split('.').skip(1) {
        assert_eq!(server.logged(&[part]), [""; 0]);
    }
    assert_eq!(server.logged(&[KEY]), [""; 0]);
}

#[tokio::test]
async fn a_jwks_file_is_read_again_when_it_changes_and_a_broken_one_changes_nothing() {
    let folder = tempfile::tempdir().expect("there is room");
    let (old, new) = (Issuer::new(), Issuer::new());
    let server = start(Backend::Embedded, &trusting(&old, folder.path()));
    let file = folder.path().join("jwks.json");
    let accepts = async |issuer: &Issuer| {
        let token = issuer.token(Algorithm::EdDsa, &claims("CUSTOMER", "1"));
        ticket(&server, &token, &json!({})).await.status == 201
    };
    assert!(accepts(&old).await && !accepts(&new).await);
    for broken in ["", "{", "{\"keys\": []}", "{\"keys\": [{\"kty\": \"oct\", \"k\": \"AAAA\"}]}", "[]"] {
        std::fs::write(&file, broken).expect("there is room");
        let logged = server.logged(&["ERROR", "auth.jwt.jwks_file"]).len();
        until("the broken file is noticed", async || {
            assert!(accepts(&old).await, "{broken}");
            (server.logged(&["ERROR", "auth.jwt.jwks_file"]).len() > logged).then_some(())
        })
        .await;
    }
    std::fs::write(&file, new.jwks().to_string()).expect("there is room");
    until("the new keys are used", async || accepts(&new).await.then_some(())).await;
    assert!(!accepts(&old).await);
}
