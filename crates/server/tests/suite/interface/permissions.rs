//! The permission matrix: every call of the API and every kind of caller, and whether the one may do the other.

use std::collections::BTreeSet;
use std::path::Path;

use campanile_testkit::token::{self, Algorithm, Issuer};
use campanile_testkit::{Backend, on_both};
use reqwest::Method;
use serde_json::{Value, json};

use crate::interface::fresh::{Answer, Fresh, with};
use crate::support::KEY;

pub const AUDIENCE: &str = "campanile-tests";
pub const ISSUER: &str = "https://login.example.com";
/// Seconds since 1970, far away in both directions.
const PAST: u64 = 1_000_000_000;
const FUTURE: u64 = 2_000_000_000;

/// What a call asks of its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Needs {
    Nothing,
    /// The signature of a provider.
    Signature,
    Scope(&'static str),
    ScopeOrUser(&'static str),
    User,
}

use Needs::{Nothing, Scope, ScopeOrUser, Signature, User};

/// Every call. A new one without a line here fails the test.
const CALLS: [(&str, &str, Needs); 47] = [
    ("POST", "/v1/events", Scope("emit")),
    ("GET", "/v1/events", Scope("read")),
    ("GET", "/v1/events/{id}", Scope("read")),
    ("POST", "/v1/explain", Scope("read")),
    ("GET", "/v1/sends", Scope("read")),
    ("GET", "/v1/dead-letters", Scope("read")),
    ("GET", "/v1/captured", Scope("payload")),
    ("POST", "/v1/dead-letters/replay", Scope("operate")),
    ("POST", "/v1/sends/{id}/resend", Scope("operate")),
    ("POST", "/v1/sends/{id}/settle", Scope("operate")),
    ("POST", "/v1/templates/preview", Scope("rules")),
    ("PUT", "/v1/recipients", Scope("rules")),
    ("GET", "/v1/recipients", Scope("rules")),
    ("DELETE", "/v1/recipients", Scope("rules")),
    ("PUT", "/v1/entities", Scope("rules")),
    ("GET", "/v1/entities", Scope("rules")),
    ("DELETE", "/v1/entities", Scope("rules")),
    ("PUT", "/v1/preferences", Scope("rules")),
    ("GET", "/v1/preferences", Scope("rules")),
    ("DELETE", "/v1/preferences", Scope("rules")),
    ("PUT", "/v1/settings", Scope("rules")),
    ("GET", "/v1/settings", Scope("rules")),
    ("DELETE", "/v1/settings", Scope("rules")),
    ("PUT", "/v1/routing", Scope("rules")),
    ("GET", "/v1/routing", Scope("rules")),
    ("DELETE", "/v1/routing", Scope("rules")),
    ("PUT", "/v1/audiences", Scope("rules")),
    ("GET", "/v1/audiences", Scope("rules")),
    ("DELETE", "/v1/audiences", Scope("rules")),
    ("PUT", "/v1/templates", Scope("rules")),
    ("GET", "/v1/templates", Scope("rules")),
    ("DELETE", "/v1/templates", Scope("rules")),
    ("POST", "/v1/tickets", ScopeOrUser("tickets")),
    ("GET", "/v1/inbox/preferences", User),
    ("PUT", "/v1/inbox/preferences", User),
    ("POST", "/v1/api-keys", Scope("admin")),
    ("GET", "/v1/api-keys", Scope("admin")),
    ("DELETE", "/v1/api-keys/{id}", Scope("admin")),
    ("POST", "/v1/signing-key/rotate", Scope("admin")),
    ("GET", "/v1/audit", Scope("admin")),
    ("POST", "/v1/callbacks/twilio", Signature),
    ("GET", "/healthz", Nothing),
    ("GET", "/readyz", Nothing),
    ("GET", "/metrics", Nothing),
    ("GET", "/openapi.json", Nothing),
    ("GET", "/docs", Nothing),
    ("GET", "/docs/scalar.js", Nothing),
];

const SCOPES: [&str; 8] = ["emit", "read", "payload", "rules", "operate", "mailings", "tickets", "admin"];
const USER_TYPES: [&str; 5] = ["RESTAURANT_USER", "CUSTOMER", "AGENCY_USER", "ADMIN_USER", "GUEST"];

/// What a caller presents, and what follows from it.
struct Caller {
    name: String,
    credential: Option<String>,
    /// In the query.
    ticket: Option<String>,
    is: Is,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Is {
    Nobody,
    Service(&'static str),
    Admin,
    User,
}

/// The variables of a server that trusts this issuer.
pub fn trusting(issuer: &Issuer, folder: &Path) -> Vec<(&'static str, String)> {
    let file = folder.join("jwks.json");
    std::fs::write(&file, issuer.jwks().to_string()).expect("there is room");
    vec![
        ("CAMPANILE_AUTH__JWT__SECRET", issuer.secret.clone()),
        ("CAMPANILE_AUTH__JWT__JWKS_FILE", file.display().to_string()),
        ("CAMPANILE_AUTH__JWT__AUDIENCE", AUDIENCE.to_owned()),
        ("CAMPANILE_AUTH__JWT__ISSUER", ISSUER.to_owned()),
    ]
}

pub fn start(backend: Backend, variables: &[(&'static str, String)]) -> Fresh {
    let variables: Vec<(&str, &str)> =
        variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
    Fresh::start_with(backend, &variables)
}

/// The claims of a good token for this user.
pub fn claims(user_type: &str, user_id: &str) -> Value {
    json!({ "sub": user_id, "user_type": user_type, "exp": FUTURE, "aud": AUDIENCE, "iss": ISSUER })
}

async fn create_key(server: &Fresh, body: &Value) -> (String, String) {
    let created = server.post("/v1/api-keys", body).await;
    assert_eq!(created.status, 201, "{}", created.body);
    let text = |field: &str| created.body[field].as_str().expect("it is text").to_owned();
    (text("id"), text("key"))
}

async fn callers(server: &Fresh, issuer: &Issuer) -> Vec<Caller> {
    let mut callers = Vec::new();
    let mut add = |name: &str, credential: Option<String>, is| {
        callers.push(Caller { name: name.to_owned(), credential, ticket: None, is });
    };
    add("no key", None, Is::Nobody);
    for scope in SCOPES {
        let (_, key) = create_key(server, &json!({ "name": scope, "scopes": [scope] })).await;
        add(&format!("scope {scope}"), Some(key), Is::Service(scope));
    }
    let (id, revoked) = create_key(server, &json!({ "name": "revoked", "scopes": ["admin"] })).await;
    assert_eq!(server.delete(&format!("/v1/api-keys/{id}")).await.status, 204);
    add("revoked key", Some(revoked), Is::Nobody);
    let (id, expired) = create_key(server, &json!({ "name": "expired", "scopes": ["admin"] })).await;
    server
        .execute(&format!("UPDATE api_key SET expires_at = '2020-01-01T00:00:00.000Z' WHERE id = '{id}'"))
        .await;
    add("expired key", Some(expired), Is::Nobody);
    let (_, good) = create_key(server, &json!({ "name": "good", "scopes": ["admin"] })).await;
    let other_secret = format!("{}{}", &good[..good.len() - 1], if good.ends_with('0') { '1' } else { '0' });
    add("wrong secret", Some(other_secret), Is::Nobody);
    add("unknown key", Some(format!("cpk_{}_{}", "0".repeat(16), "0".repeat(64))), Is::Nobody);
    add("half a key", Some("cpk_0123".to_owned()), Is::Nobody);
    add("nonsense", Some("nonsense".to_owned()), Is::Nobody);
    add("admin key", Some(KEY.to_owned()), Is::Admin);
    for user_type in USER_TYPES {
        let token = issuer.token(Algorithm::Rs256, &claims(user_type, "50"));
        add(&format!("token of {user_type}"), Some(token), Is::User);
    }
    for algorithm in Algorithm::ALL {
        let token = issuer.token(algorithm, &claims("CUSTOMER", "50"));
        add(&format!("token by {algorithm:?}"), Some(token), Is::User);
    }
    for (name, token) in bad_tokens(issuer) {
        add(name, Some(token), Is::Nobody);
    }
    let ticket = server.post("/v1/tickets", &json!({ "user_type": "CUSTOMER", "user_id": "50" })).await;
    let ticket = ticket.body["ticket"].as_str().expect("there is a ticket").to_owned();
    add("ticket as a token", Some(ticket.clone()), Is::Nobody);
    callers.push(Caller {
        name: "ticket in the query".to_owned(),
        credential: None,
        ticket: Some(ticket),
        is: Is::Nobody,
    });
    callers
}

/// Tokens that must not be accepted, by what is wrong with them.
fn bad_tokens(issuer: &Issuer) -> Vec<(&'static str, String)> {
    let mut tokens = Vec::new();
    let mut add = |name, token: String| tokens.push((name, token));
    let user = claims("CUSTOMER", "50");
    let changed = |fields: Value| with(&user, &fields);
    let signed = |claims: &Value| issuer.token(Algorithm::Es256, claims);
    add("expired token", signed(&changed(json!({ "exp": PAST }))));
    add("token without an end", signed(&changed(json!({ "exp": null }))));
    add("token not yet valid", signed(&changed(json!({ "nbf": FUTURE }))));
    add("token for others", signed(&changed(json!({ "aud": "other" }))));
    add("token for nobody", signed(&changed(json!({ "aud": null }))));
    add("token from others", signed(&changed(json!({ "iss": "https://evil.example" }))));
    add("token of an unknown type", signed(&changed(json!({ "user_type": "ADMIN" }))));
    add("token of no type", signed(&changed(json!({ "user_type": null }))));
    add("token with claims of wrong types", signed(&changed(json!({ "sub": {}, "exp": "soon" }))));
    let forged = issuer.token(Algorithm::EdDsa, &user);
    let other_signature = Issuer::new().token(Algorithm::EdDsa, &user);
    add("forged signature", other_signature);
    add("other claims under a signature", with_claims(&forged, &changed(json!({ "sub": "51" }))));
    add("alg none", token::without_signature(&user));
    add("HS256 with the public key", token::signed_with_public_key(&user));
    let header = json!({ "alg": "RS256", "kid": "ec" });
    add("key of another algorithm", issuer.with_header(Algorithm::Es256, &header, &user));
    let header = json!({ "alg": "HS256", "crit": ["b64"], "b64": false });
    add("a critical header", issuer.with_header(Algorithm::Hs256, &header, &user));
    add("an end in milliseconds", signed(&changed(json!({ "exp": FUTURE * 1_000 }))));
    let of_agency = json!({ "user_type": "RESTAURANT_USER", "entity_type": "AGENCY", "entity_id": "5" });
    add("token of a foreign kind of group", signed(&changed(of_agency)));
    let header = json!({ "alg": "RS256", "kid": "../../etc/passwd" });
    add("a path as key id", issuer.with_header(Algorithm::Rs256, &header, &user));
    add("ten dots", "a.b.c.d.e.f.g.h.i.j.k".to_owned());
    add("a long token", format!("{}.b.c", "a".repeat(9_000)));
    tokens
}

/// A token with other claims and the old signature.
fn with_claims(token: &str, claims: &Value) -> String {
    use base64::Engine;
    let mut parts: Vec<String> = token.split('.').map(str::to_owned).collect();
    parts[1] = base64::prelude::BASE64_URL_SAFE_NO_PAD.encode(claims.to_string());
    parts.join(".")
}

/// The status that refuses this caller, if any does.
fn refusal(needs: Needs, is: Is) -> Option<u16> {
    match (needs, is) {
        (Nothing | Signature, _)
        | (ScopeOrUser(_) | User, Is::User)
        | (Scope(_) | ScopeOrUser(_), Is::Admin | Is::Service("admin")) => None,
        (_, Is::Nobody) => Some(401),
        (Scope(needed) | ScopeOrUser(needed), Is::Service(scope)) if needed == scope => None,
        (_, Is::Service(_) | Is::User | Is::Admin) => Some(403),
    }
}

async fn ask(server: &Fresh, method: &str, path: &str, caller: &Caller) -> Answer {
    let path = path.replace("{id}", "0123456789abcdef");
    let path = match &caller.ticket {
        Some(ticket) => format!("{path}?ticket={ticket}"),
        None => path,
    };
    let mut request = server.request(Method::from_bytes(method.as_bytes()).expect("it is a method"), &path);
    if let Some(credential) = &caller.credential {
        request = request.bearer_auth(credential);
    }
    Answer::to(request).await
}

async fn every_caller_may_do_exactly_what_the_matrix_says(backend: Backend) {
    let folder = tempfile::tempdir().expect("there is room");
    let issuer = Issuer::new();
    let server = start(backend, &trusting(&issuer, folder.path()));
    let callers = callers(&server, &issuer).await;
    for (method, path, needs) in CALLS {
        for caller in &callers {
            let answer = ask(&server, method, path, caller).await;
            let cell = format!("{method} {path} by {}: {} {}", caller.name, answer.status, answer.body);
            match refusal(needs, caller.is) {
                Some(status) => {
                    assert_eq!(answer.status, status, "{cell}");
                    assert_eq!(answer.header("www-authenticate").is_empty(), status != 401, "{cell}");
                }
                None if needs == Signature => assert_eq!(answer.status, 404, "callbacks are off: {cell}"),
                None => {
                    assert!(![401, 403, 429, 501].contains(&answer.status) && answer.status < 500, "{cell}");
                }
            }
        }
    }
}

on_both! {
    every_caller_may_do_exactly_what_the_matrix_says;
}

#[tokio::test]
async fn every_call_of_the_document_is_in_the_matrix() {
    let server = Fresh::start(Backend::Embedded);
    let document = server.get("/openapi.json").await;
    let mut described = BTreeSet::new();
    for (path, item) in document["paths"].as_object().expect("there are paths") {
        for method in item.as_object().expect("a path has calls").keys() {
            described.insert((method.to_uppercase(), path.clone()));
        }
    }
    let listed: BTreeSet<_> =
        CALLS.iter().map(|(method, path, _)| ((*method).to_owned(), (*path).to_owned())).collect();
    assert_eq!(described, listed);
    for (method, path, needs) in CALLS {
        let security = &document["paths"][path][method.to_lowercase()]["security"];
        let expected = match needs {
            Nothing | Signature => json!([]),
            Scope(scope) => json!([{ "apiKey": [scope] }]),
            ScopeOrUser(scope) => json!([{ "apiKey": [scope] }, { "userToken": [] }]),
            User => json!([{ "userToken": [] }]),
        };
        assert_eq!(*security, expected, "{method} {path}");
    }
}

#[tokio::test]
async fn without_a_configured_issuer_tokens_get_501_with_what_to_configure() {
    let server = Fresh::start(Backend::Embedded);
    let token = Issuer::new().token(Algorithm::Rs256, &claims("CUSTOMER", "50"));
    let ask = async |path: &str| {
        Answer::to(server.request(Method::POST, path).bearer_auth(&token).body("{}")).await
    };
    let of_users = ask("/v1/tickets").await;
    of_users.assert_problem(501, "not-configured").assert_says(&["auth.jwt.secret", "auth.jwt.jwks_file"]);
    ask("/v1/events").await.assert_problem(401, "unauthorized").assert_says(&["needs an API key"]);
}

#[tokio::test]
async fn a_key_that_is_given_twice_or_spelled_strangely_is_refused() {
    let server = Fresh::start(Backend::Embedded);
    let events = || server.request(Method::GET, "/v1/events");
    let twice = events().header("authorization", format!("Bearer {KEY}")).bearer_auth(KEY);
    Answer::to(twice).await.assert_problem(401, "unauthorized").assert_says(&["at most one"]);
    for spelled in ["Bearer cpk_ 0 1", "Bearer  ", "Token x", "Bearer cpk_\u{e9}"] {
        let answer = Answer::to(events().header("authorization", spelled)).await;
        answer.assert_problem(401, "unauthorized");
    }
    // It does not fit into the headers that the server reads.
    let long = events().bearer_auth("x".repeat(10_000_000)).send().await;
    assert!(long.map_or(true, |response| response.status() == 431), "it is refused");
    assert_eq!(server.try_get("/v1/events").await.status, 200);
}
