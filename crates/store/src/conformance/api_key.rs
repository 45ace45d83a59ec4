//! Checks API keys: how they are created, listed, revoked and looked up, and when their use is recorded.

use std::time::Duration;

use campanile_domain::access::api_key::{ApiKey, ApiKeyId, ApiKeyToken, NewApiKey};
use campanile_domain::access::audit::{Actor, AuditAction};
use campanile_domain::access::scope::Scope;
use campanile_domain::time::{self, Moment};
use serde_json::json;

use super::Fixture;
use crate::{AuditOf, Shown};

fn token(number: u8) -> ApiKeyToken {
    ApiKeyToken::new([number; 8], [number; 32])
}

fn new_key(name: &str) -> NewApiKey {
    NewApiKey {
        name: name.to_owned(),
        scopes: [Scope::Emit, Scope::Read].into_iter().collect(),
        expires_at: None,
    }
}

async fn create(fixture: &Fixture, number: u8, key: NewApiKey) -> ApiKey {
    let token = token(number);
    let created = fixture.store.create_api_key(&token.id, &token.hash(), key, &Actor::AdminKey).await;
    created.expect("the key is good")
}

async fn found(fixture: &Fixture, id: &ApiKeyId) -> ApiKey {
    let found = fixture.store.find_api_key(id).await.expect("the database is there");
    ApiKey::clone(&found.expect("the key exists").key)
}

pub async fn a_key_comes_back_as_it_was_created(fixture: &Fixture) {
    let now = fixture.store.now().await.expect("the database is there");
    let expires_at = Some(Moment(time::from_text("2099-01-01T00:00:00Z").expect("it is a time")));
    let created = create(fixture, 7, NewApiKey { expires_at, ..new_key("shop") }).await;
    assert!(created.created_at.0 >= time::earlier(now, Duration::from_secs(1)));
    let stored = fixture.store.find_api_key(&token(7).id).await.expect("the database is there");
    let stored = stored.expect("the key exists");
    assert_eq!(stored.hash, token(7).hash());
    // A database may keep more digits than an answer shows.
    assert_eq!(json!(*stored.key), json!(created));
    assert_eq!(stored.key.prefix, format!("cpk_{}", token(7).id));
    assert_eq!(fixture.count("SELECT count(*) FROM api_key WHERE prefix = 'cpk_0707070707070707'").await, 1);
    let other = fixture.store.find_api_key(&token(8).id).await.expect("the database is there");
    assert_eq!(other, None);
}

pub async fn keys_are_listed_the_newest_first(fixture: &Fixture) {
    for number in 1..=5 {
        create(fixture, number, new_key(&number.to_string())).await;
    }
    let (mut names, mut before) = (Vec::new(), None);
    loop {
        let page = fixture.store.list_api_keys(before, 2).await.expect("the database is there");
        names.extend(page.items.into_iter().map(|key| key.name));
        before = page.next;
        if before.is_none() {
            break;
        }
    }
    assert_eq!(names, ["5", "4", "3", "2", "1"]);
}

pub async fn a_revoked_key_stays_revoked(fixture: &Fixture) {
    let key = create(fixture, 7, new_key("shop")).await;
    let revoke = async || fixture.store.revoke_api_key(&key.id, &Actor::AdminKey).await.expect("it is there");
    assert!(revoke().await);
    let revoked_at = found(fixture, &key.id).await.revoked_at;
    assert!(revoked_at.is_some());
    fixture.advance(Duration::from_mins(1)).await;
    assert!(revoke().await, "it exists");
    assert_eq!(found(fixture, &key.id).await.revoked_at, revoked_at);
    let unknown = fixture.store.revoke_api_key(&token(8).id, &Actor::AdminKey).await;
    assert!(!unknown.expect("the database is there"));
}

pub async fn the_use_of_a_key_is_recorded_once_a_minute(fixture: &Fixture) {
    let key = create(fixture, 7, new_key("shop")).await;
    let used = async || {
        fixture.store.record_api_key_use(&key.id).await.expect("the database is there");
        found(fixture, &key.id).await.last_used_at.expect("it was used")
    };
    let first = used().await;
    fixture.advance(Duration::from_secs(30)).await;
    assert_eq!(used().await, first);
    fixture.advance(Duration::from_secs(31)).await;
    assert!(used().await > first);
}

pub async fn the_making_and_the_end_of_a_key_are_recorded_without_its_secret(fixture: &Fixture) {
    let key = create(fixture, 7, new_key("shop")).await;
    let actor = Actor::ApiKey { id: key.id.clone(), name: "shop".to_owned() };
    for _ in 0..2 {
        fixture.store.revoke_api_key(&key.id, &actor).await.expect("the database is there");
    }
    let of = AuditOf::Object { object_type: "api_key".to_owned(), object_id: key.id.to_string() };
    let changes = fixture.store.list_audit(of, None, 10).await.expect("the database is there");
    let actions: Vec<_> = changes.iter().map(|change| &change.action).collect();
    assert_eq!(actions, [&Shown::Typed(AuditAction::Revoke), &Shown::Typed(AuditAction::Create)]);
    assert_eq!((changes[0].actor_id.as_str(), changes[1].actor_id.as_str()), (key.id.as_str(), ""));
    let shown = json!(changes).to_string();
    assert!(shown.contains("emit") && !shown.contains(token(7).hash().as_str()), "{shown}");
}
