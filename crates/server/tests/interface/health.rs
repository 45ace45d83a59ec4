//! Liveness and readiness, which need no key.

use reqwest::Method;
use serde_json::json;

use crate::fresh::{Answer, Fresh};

#[tokio::test]
async fn a_server_says_that_it_lives_and_what_it_is_made_of() {
    let server = Fresh::start();
    let live = Answer::to(server.request(Method::GET, "/healthz")).await;
    assert_eq!((live.status, live.body), (200, json!("ok\n")));
    let ready = Answer::to(server.request(Method::GET, "/readyz")).await;
    assert_eq!(ready.status, 200);
    let components = &ready.body["components"];
    assert_eq!((&components["database"], &components["broker"]), (&json!("ok"), &json!("ok")));
    for channel in ["email", "push", "sms", "slack"] {
        assert!(
            components[channel].as_str().is_some_and(|state| state.starts_with("capture")),
            "{components}"
        );
    }
}
