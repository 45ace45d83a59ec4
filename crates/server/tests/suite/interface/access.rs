//! Which keys, host names, methods and paths are accepted.

use reqwest::Method;
use reqwest::header::{AUTHORIZATION, HOST};

use crate::interface::fresh::{Answer, Fresh};
use crate::support::{Backend, KEY, reservation};

const GUARDED: [(Method, &str); 10] = [
    (Method::POST, "/v1/events"),
    (Method::GET, "/v1/events"),
    (Method::GET, "/v1/events/evt-1"),
    (Method::POST, "/v1/explain"),
    (Method::GET, "/v1/captured"),
    (Method::PUT, "/v1/recipients"),
    (Method::GET, "/v1/recipients"),
    (Method::DELETE, "/v1/recipients?user_type=CUSTOMER&user_id=1"),
    (Method::PUT, "/v1/templates"),
    (Method::GET, "/v1/settings"),
];

#[tokio::test]
async fn without_the_key_nothing_is_answered_nor_done() {
    let server = Fresh::start(Backend::Embedded);
    for (method, path) in GUARDED {
        let (shorter, longer) = (format!("Bearer {}", &KEY[1..]), format!("Bearer {KEY}y"));
        for (authorization, says) in [
            ("", "admin.key"),
            ("Bearer", "`Bearer KEY`"),
            ("Bearer ", "`Bearer KEY`"),
            ("Bearer wrong", "neither the admin key"),
            (&shorter, "neither the admin key"),
            (&longer, "neither the admin key"),
            ("Basic dGVzdC1hZG1pbi1rZXk=", "`Bearer KEY`"),
            (KEY, "`Bearer KEY`"),
        ] {
            let mut request = server.request(method.clone(), path).body(reservation("evt-1").to_string());
            if !authorization.is_empty() {
                request = request.header(AUTHORIZATION, authorization);
            }
            let answer = Answer::to(request).await;
            answer.assert_problem(401, "unauthorized").assert_says(&[says]);
            assert_eq!(answer.header("www-authenticate"), "Bearer");
        }
    }
    assert_eq!(server.items("/v1/events").await.len(), 0);
    // The case of the scheme does not matter.
    let lower = server.request(Method::GET, "/v1/events").header(AUTHORIZATION, format!("bearer {KEY}"));
    assert_eq!(Answer::to(lower).await.status, 200);
}

#[tokio::test]
async fn on_loopback_only_names_of_this_machine_are_answered() {
    let server = Fresh::start(Backend::Embedded);
    let port = server.url.rsplit(':').next().unwrap();
    for path in ["/healthz", "/metrics", "/v1/events", "/nowhere"] {
        for host in [
            "evil.example".to_owned(),
            format!("evil.example:{port}"),
            format!("127.0.0.1.evil.example:{port}"),
        ] {
            let request = server.request(Method::GET, path).bearer_auth(KEY).header(HOST, &host);
            Answer::to(request).await.assert_problem(421, "host").assert_says(&[&host, "server.listen"]);
        }
    }
    for host in ["localhost".to_owned(), format!("localhost:{port}"), format!("[::1]:{port}")] {
        let request = server.request(Method::GET, "/v1/events").bearer_auth(KEY).header(HOST, &host);
        assert_eq!(Answer::to(request).await.status, 200, "{host}");
    }
}

#[tokio::test]
async fn wrong_methods_and_paths_are_problems_too() {
    let server = Fresh::start(Backend::Embedded);
    for (method, path, allowed) in [
        (Method::DELETE, "/v1/events", "POST"),
        (Method::PUT, "/v1/events", "POST"),
        (Method::POST, "/v1/events/evt-1", "GET"),
        (Method::GET, "/v1/explain", "POST"),
        (Method::POST, "/v1/recipients", "PUT"),
        (Method::PATCH, "/v1/routing", "DELETE"),
        (Method::POST, "/healthz", "GET"),
    ] {
        let answer = server.send(method, path, "").await;
        answer.assert_problem(405, "method");
        assert!(answer.header("allow").contains(allowed), "{path}: {}", answer.header("allow"));
    }
    for path in
        ["/v1", "/v1/", "/v1/events/", "/v1/events/a/b", "/v1/dogs", "/v2/events", "/V1/events", "/..%2f"]
    {
        server.try_get(path).await.assert_problem(404, "not-found");
    }
}
