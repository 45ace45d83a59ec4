//! Emits over each driver into real databases, and reads the events as the engine does.

mod rusqlite;
mod sqlx;
mod tokio_postgres;

use std::time::{Duration, SystemTime};

use campanile_client::{Event, Priority};
use campanile_store::{Claim, FanOutStore};
use serde_json::json;

fn event(id: &str) -> Event {
    Event::new(id, "ORDER_CREATED", "ORDER", "7").unwrap()
}

/// An event with every optional field.
fn full_event(id: &str) -> Event {
    let at = SystemTime::UNIX_EPOCH + Duration::from_millis(1_768_990_530_250);
    let event = event(id).payload(&json!({ "restaurantId": 5, "naïve": ["'", "\"", null] })).unwrap();
    event.priority(Priority::High).occurred_at(at).unwrap()
}

/// The events that wait to be fanned out, in order.
async fn waiting(store: &impl FanOutStore) -> Vec<String> {
    let claim = store.claim_events(Claim::New { limit: 100 }).await.unwrap();
    let ids = |claim: Box<dyn campanile_store::FanOutClaim>| {
        claim.events().iter().map(|claimed| claimed.event.event_id.to_string()).collect()
    };
    claim.map(ids).unwrap_or_default()
}

/// Asserts that the only waiting event is `full_event`.
async fn assert_full(store: &impl FanOutStore) {
    let claim = store.claim_events(Claim::New { limit: 100 }).await.unwrap().unwrap();
    let event = &claim.events()[0].event;
    let document = event.document();
    assert_eq!(document["event_type"], "ORDER_CREATED");
    assert_eq!(document["aggregate_type"], "ORDER");
    assert_eq!(document["aggregate_id"], "7");
    assert_eq!(document["payload"], json!({ "restaurantId": 5, "naïve": ["'", "\"", null] }));
    assert_eq!(document["priority"], "HIGH");
    assert_eq!(document["occurred_at"], "2026-01-21T10:15:30.25Z");
}
