//! The servers of the channels' own tests, which check each request by the provider's published rules, for tests that
//! start with the event.

#[path = "../../../channels/tests/channels/support/fcm.rs"]
#[expect(dead_code, reason = "what only the channels' own tests need is there too")]
pub mod fcm;
#[path = "providers/google.rs"]
pub mod google;
#[path = "../../../channels/tests/channels/support/http.rs"]
#[expect(dead_code, reason = "what only the channels' own tests need is there too")]
pub mod http;
#[path = "../../../channels/tests/channels/support/slack.rs"]
pub mod slack;

/// Staff with the same webhook.
pub fn sharers(slack: &str) -> serde_json::Value {
    let mut people = crate::support::staff();
    for person in people.as_array_mut().unwrap() {
        person["slack_webhook"] = format!("http://{slack}{}", slack::PATH).into();
    }
    people
}
