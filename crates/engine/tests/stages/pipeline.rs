//! Tests all stages together: how one fault affects everything else, and what is repeated.

use std::sync::Arc;
use std::time::Duration;

use campanile_broker::{Broker, Message};
use campanile_channels::Providers;
use campanile_domain::channel::Channel;
use campanile_domain::id::{EventId, NotificationId};
use campanile_domain::status::{EventStatus, OutboxStatus};
use campanile_engine::EngineConfig;
use campanile_engine::config::{RecoverConfig, RetainConfig};
use campanile_store::{RepublishCursor, Table, TraceFilter};
use campanile_testkit::{Backend, on_both};
use serde_json::{Value, json};

use crate::support::{ScriptedProvider, World, config, customer, event, sends, settled, status};

/// Twenty customers with an event each, and a database that refuses one row.
async fn poisoned(backend: Backend, when: &str, condition: &str) -> World {
    let world = World::new(backend).await;
    world.put(Table::Recipients, json!((1..=20).map(customer).collect::<Vec<_>>())).await;
    world.emit(json!((1..=20).map(|n| event(&format!("e{n}"), n)).collect::<Vec<_>>())).await;
    world.poison(when, condition).await;
    world
}

async fn one_poisonous_event_fails_alone_and_the_rest_of_its_batch_is_delivered(backend: Backend) {
    let world = poisoned(backend, "BEFORE INSERT ON outbox", "NEW.event_id = 'e13'").await;
    let running = world.start();
    for n in (1..=20).filter(|n| *n != 13) {
        world.until(&format!("e{n}"), settled).await;
    }
    let failed = world.until("e13", |trace| status(trace) == EventStatus::Failed).await;
    assert!(
        failed.event.row.last_error.as_deref().unwrap().starts_with("FAN_OUT_ERROR: "),
        "{:?}",
        failed.event
    );
    assert_eq!(failed.event.row.retry_count, 5);
    assert_eq!(failed.dead_letters.len(), 1);
    assert_eq!(failed.dead_letters[0].stage, "fan_out");
    assert!(running.stop(Duration::from_secs(5)).await);
}

async fn one_poisonous_message_fails_alone_and_the_rest_of_its_batch_is_received(backend: Backend) {
    let world = poisoned(backend, "BEFORE INSERT ON notification", "NEW.user_id = '13'").await;
    let running = world.start();
    for n in (1..=20).filter(|n| *n != 13) {
        world.until(&format!("e{n}"), settled).await;
    }
    let failed = world.until("e13", |trace| trace.dead_letters.len() == 3).await;
    assert!(failed.outbox.iter().all(|row| row.status == OutboxStatus::Failed), "{:?}", failed.outbox);
    assert_eq!(failed.dead_letters[0].reason, "RECEIVE_ERROR");
    assert!(running.stop(Duration::from_secs(5)).await);
}

async fn one_poisonous_outcome_fails_alone_and_the_rest_of_its_batch_is_settled(backend: Backend) {
    let world = poisoned(backend, "BEFORE INSERT ON captured_message", "NEW.user_id = '13'").await;
    let running = world.start();
    for n in 1..=20 {
        world.until(&format!("e{n}"), settled).await;
    }
    assert_eq!(sends(&world.trace("e13").await), ["EMAIL FAILED", "SMS FAILED", "WEBSOCKET SENT"]);
    assert_eq!(world.captured().await, 19 * 2);
    assert!(running.stop(Duration::from_secs(5)).await);
}

async fn a_forged_message_reaches_nobody_and_the_queue_flows_on(backend: Backend) {
    let world = World::new(backend).await;
    world.put(Table::Recipients, json!([customer(1)])).await;
    let forged = |id: String| Message {
        id,
        body: Arc::from(&br#"{"recipient_address":"evil@example.com"}"#[..]),
        stamp: None,
    };
    let messages =
        vec![forged(format!("{}:EMAIL", NotificationId::generate())), forged("nonsense".to_owned())];
    world.broker.publish("notification.customer", messages).await.unwrap();
    let running = world.start();
    world.emit(json!([event("e1", 1)])).await;
    let trace = world.until("e1", settled).await;
    assert_eq!(sends(&trace), ["EMAIL SENT", "SMS SENT", "WEBSOCKET SENT"]);
    assert_eq!(world.captured().await, 2);
    // Both are dead letters, and both are acknowledged.
    assert_eq!(world.broker.depths().iter().map(|(_, depth)| depth).sum::<usize>(), 0);
    assert!(running.stop(Duration::from_secs(5)).await);
}

async fn a_template_that_fails_fails_its_own_row_and_nothing_else(backend: Backend) {
    let world = World::new(backend).await;
    world.put(Table::Recipients, json!([customer(1)])).await;
    let bad = json!([{"event_type": "ORDER_CREATED", "channel": "SMS", "locale": "*", "title": "{{ payload.table }}",
        "body": ""}]);
    world.put(Table::Templates, bad).await;
    let running = world.start();
    world.emit(json!([event("e1", 1)])).await;
    let trace = world.until("e1", settled).await;
    assert_eq!(sends(&trace), ["EMAIL SENT", "WEBSOCKET SENT"]);
    let sms = trace.outbox.iter().find(|row| row.channel == Channel::Sms).unwrap();
    assert_eq!(sms.status, OutboxStatus::Failed);
    let error = sms.last_error.as_deref().unwrap();
    assert!(
        error.starts_with("TEMPLATE_ERROR: template ORDER_CREATED/SMS/*/title, line 1")
            && error.contains("payload.table"),
        "{error}"
    );
    assert_eq!(trace.dead_letters.len(), 1);
    assert!(running.stop(Duration::from_secs(5)).await);
}

async fn what_is_old_is_forgotten_but_for_its_id(backend: Backend) {
    const DAY: Duration = Duration::from_hours(24);
    let retain = RetainConfig { age: Some(30 * DAY), audit_age: None, interval: Duration::from_millis(20) };
    let world = World::with(backend, EngineConfig { retain, ..config() }, Providers::capture(), 1_000).await;
    world.put(Table::Recipients, json!([customer(1)])).await;
    let running = world.start();
    world.emit(json!([event("old", 1)])).await;
    world.until("old", settled).await;
    world.test_database.advance(20 * DAY).await;
    world.emit(json!([event("young", 1)])).await;
    world.until("young", settled).await;
    let captured = world.captured().await;
    world.test_database.advance(11 * DAY).await;
    // As if the engine had been up for all these days; a clock that jumps deletes nothing.
    let horizon =
        "INSERT INTO retain_horizon (id, horizon, version) VALUES (1, '9000-01-01T00:00:00.000Z', 0)
                   ON CONFLICT (id) DO UPDATE SET horizon = excluded.horizon";
    world.test_database.execute(horizon).await;
    let old = EventId::new("old").unwrap();
    while world.engine.trace(&old, TraceFilter::default()).await.unwrap().is_some() {
        tokio::task::yield_now().await;
    }
    assert!(settled(&world.trace("young").await));
    // The old event has no rows any more, but its id is still known.
    assert_eq!(world.captured().await, captured / 2);
    world.emit(json!([event("old", 1), event("new", 1)])).await;
    world.until("new", settled).await;
    assert_eq!(world.captured().await, captured);
    assert!(running.stop(Duration::from_secs(5)).await);
}

async fn what_the_broker_lost_is_published_again_and_received_once(backend: Backend) {
    let world = World::new(backend).await;
    world.put(Table::Recipients, json!([customer(1)])).await;
    world.emit(json!([event("e1", 1)])).await;
    let running = world.start();
    world.until("e1", settled).await;
    assert!(running.stop(Duration::from_secs(5)).await);
    // Everything that was received stays so; nothing is lost or republished.
    let page = world
        .store
        .republish(world.config.user_types.queues(), Duration::ZERO, RepublishCursor::default(), 100)
        .await
        .unwrap();
    assert_eq!(page.rows, 0);
    assert_eq!(world.captured().await, 2);
}

async fn what_somebody_purged_is_published_again_when_it_is_old_enough(backend: Backend) {
    let recover = RecoverConfig { republish_after: Duration::from_secs(1) };
    let roles = "fan_out, publish, recover".parse().unwrap();
    let world =
        World::with(backend, EngineConfig { recover, roles, ..config() }, Providers::capture(), 1_000).await;
    world.put(Table::Recipients, json!([customer(1)])).await;
    let running = world.start();
    world.emit(json!([event("e1", 1)])).await;
    world.until("e1", |trace| status(trace) == EventStatus::Published).await;
    let mut purged = world.broker.consume("notification.customer", 100).await.unwrap();
    let mut seen: Vec<Vec<String>> = Vec::new();
    for _ in 0..2 {
        let mut ids = Vec::new();
        // An e-mail, an SMS and a websocket message.
        while ids.len() < 3 {
            for delivery in purged.receive(100, Duration::ZERO).await.unwrap() {
                purged.ack(&[delivery.tag]).await.unwrap();
                ids.push(delivery.message.id);
            }
        }
        ids.sort_unstable();
        seen.push(ids);
    }
    assert_eq!(seen[0], seen[1]);
    assert!(running.stop(Duration::from_secs(5)).await);
}

async fn a_provider_that_hangs_does_not_slow_another_channel(backend: Backend) {
    let hanging = Arc::new(ScriptedProvider { hangs: true, ..ScriptedProvider::default() });
    let providers = Providers::capture().with(Channel::Email, hanging.clone());
    let world = World::with(backend, config(), providers, 1_000).await;
    let people: Vec<Value> = (1..=50).map(customer).collect();
    world.put(Table::Recipients, json!(people)).await;
    let running = world.start();
    world.emit(json!((1..=50).map(|n| event(&format!("e{n}"), n)).collect::<Vec<_>>())).await;
    for n in 1..=50 {
        world.until(&format!("e{n}"), |trace| sends(trace).contains(&"SMS SENT".to_owned())).await;
    }
    assert!(hanging.asked.lock().unwrap().len() <= 4, "no more attempts at once than the channel may have");
    // Attempts that never answer are abandoned at the deadline.
    assert!(!running.stop(Duration::from_millis(200)).await);
}

on_both! {
    current_thread:
    one_poisonous_event_fails_alone_and_the_rest_of_its_batch_is_delivered;
    one_poisonous_message_fails_alone_and_the_rest_of_its_batch_is_received;
    one_poisonous_outcome_fails_alone_and_the_rest_of_its_batch_is_settled;
    a_forged_message_reaches_nobody_and_the_queue_flows_on;
    a_template_that_fails_fails_its_own_row_and_nothing_else;
    what_is_old_is_forgotten_but_for_its_id;
    what_the_broker_lost_is_published_again_and_received_once;
    what_somebody_purged_is_published_again_when_it_is_old_enough;
    a_provider_that_hangs_does_not_slow_another_channel;
}
