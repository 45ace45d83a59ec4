//! Checks the data from which a message is rendered.

use serde_json::json;

use super::Fixture;
use super::setup::{customer, event, event_id};
use crate::Table;

pub async fn a_message_is_rendered_from_its_event_and_its_recipient(fixture: &Fixture) {
    fixture.accept(&[event("a"), event("b")]).await;
    let person = |user_id: &str, name: &str, active: bool| {
        json!({ "user_type": "CUSTOMER", "user_id": user_id,
        "name": name, "locale": "it", "active": active })
    };
    let people = vec![person("1", "Anna", true), person("2", "Bea", true), person("3", "Carla", false)];
    fixture.put(Table::Recipients, people).await;
    let events = vec![event_id("a"), event_id("gone")];
    let users = ["1", "3", "4"].map(customer).to_vec();
    let contexts = fixture.store.contexts(events, users).await.expect("the database is there");
    let [(id, found)] = &contexts.events.iter().collect::<Vec<_>>()[..] else { panic!("{contexts:?}") };
    assert_eq!((*id, &found.document()["payload"]), (&event_id("a"), &json!({ "total": 12 })));
    let [(user, anna)] = &contexts.recipients.iter().collect::<Vec<_>>()[..] else { panic!("{contexts:?}") };
    assert_eq!(**user, customer("1"), "who is inactive or gone is not there");
    assert_eq!((anna.name.as_deref(), anna.locale.as_deref()), (Some("Anna"), Some("it")));
    let nothing = fixture.store.contexts(Vec::new(), Vec::new()).await.expect("the database is there");
    assert!(nothing.events.is_empty() && nothing.recipients.is_empty());
}
