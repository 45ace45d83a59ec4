//! Tests the fan-out of large audiences and of events for full queues: which events overtake others, and what is
//! repeated.

use std::sync::Arc;
use std::time::{Duration, Instant};

use campanile_broker::{Broker, Message};
use campanile_channels::Providers;
use campanile_domain::access::audit::Actor;
use campanile_domain::status::{EventStatus, OutboxStatus, ProcessedStatus};
use campanile_engine::EngineConfig;
use campanile_engine::config::FanOutConfig;
use campanile_engine::pipeline::fan_out::{FanOutWorkers, Report};
use campanile_engine::pipeline::publish;
use campanile_store::{Table, Trace};
use campanile_testkit::{Backend, on_both, until};
use serde_json::{Value, json};

use crate::support::{World, config, customer, event, settled, status};

/// A round of a single worker: new events, then a chunk of a large audience.
async fn round(workers: &FanOutWorkers) -> Report {
    let (new, chunk) = (workers.run_once().await.unwrap(), workers.run_once().await.unwrap());
    Report { events: new.events + chunk.events, rows: new.rows + chunk.rows, ..Report::default() }
}

fn waiter() -> Value {
    json!({"user_type": "RESTAURANT_USER", "user_id": "1", "entity_type": "RESTAURANT", "entity_id": "5",
           "email": "a@example.com", "push_tokens": [], "active": true})
}

async fn a_large_audience_passes_a_narrow_queue_and_others_pass_it(backend: Backend) {
    let world = World::with(backend, config(), Providers::capture(), 50).await;
    let people: Vec<Value> = (1..=3_000).map(customer).collect();
    world.put(Table::Recipients, json!(people)).await;
    world.put(Table::Recipients, json!([waiter()])).await;
    world
        .emit(json!([{"event_id": "big", "event_type": "NEWS", "aggregate_type": "BROADCAST",
        "aggregate_id": "1"}]))
        .await;
    let running = world.start();
    world.until("big", |trace| trace.processed.is_some()).await;
    world.emit(json!([{"event_id": "small", "event_type": "X", "aggregate_type": "RESTAURANT", "aggregate_id": "5"},
                      {"event_id": "urgent", "event_type": "X", "aggregate_type": "RESTAURANT", "aggregate_id": "5",
                          "priority": "HIGH"}])).await;
    world.until("urgent", settled).await;
    world.until("small", settled).await;
    assert_ne!(
        status(&world.trace("big").await),
        EventStatus::Processed,
        "the large one was done before the small ones"
    );
    let big = world.until("big", |trace| status(trace) == EventStatus::Processed).await;
    assert_eq!(big.processed.unwrap().recipients, 3_001);
    until("everybody is told", async || (world.captured().await == 3_000 * 2 + 3).then_some(())).await;
    assert!(running.stop(Duration::from_secs(5)).await);
}

async fn middling_events_do_not_wait_for_a_large_one(backend: Backend) {
    let world = World::with(backend, config(), Providers::capture(), 50).await;
    let people: Vec<Value> = (1..=3_000).map(customer).collect();
    world.put(Table::Recipients, json!(people)).await;
    let staff = |id: u32| {
        json!({"user_type": "RESTAURANT_USER", "user_id": id.to_string(), "entity_type": "RESTAURANT", "entity_id": "5",
               "push_tokens": [], "active": true})
    };
    world.put(Table::Recipients, json!((1..=30).map(staff).collect::<Vec<_>>())).await;
    world
        .emit(json!([{"event_id": "big", "event_type": "NEWS", "aggregate_type": "BROADCAST",
        "aggregate_id": "1"}]))
        .await;
    // Other instances publish.
    let (handover, _chunks) = publish::handover(Vec::new());
    let workers = FanOutWorkers::new(world.engine.clone(), handover);
    round(&workers).await;
    let order = |n: u32| {
        json!({"event_id": format!("m{n}"), "event_type": "X", "aggregate_type": "RESTAURANT",
        "aggregate_id": "5"})
    };
    world.emit(json!((1..=100).map(order).collect::<Vec<_>>())).await;
    for _ in 0..4 {
        round(&workers).await;
    }
    assert_eq!(status(&world.trace("big").await), EventStatus::Pending);
    for n in 1..=100 {
        let trace = world.trace(&format!("m{n}")).await;
        let decided = trace.decisions.as_ref().map(Vec::len);
        assert_eq!((status(&trace), decided), (EventStatus::Published, Some(30)));
    }
}

/// An event that waits can still be overtaken, and costs less than waiting rows.
async fn while_a_queue_has_no_room_only_what_is_urgent_is_fanned_out(backend: Backend) {
    let world = World::with(
        backend,
        EngineConfig { fan_out: FanOutConfig { batch: 1, ..config().fan_out }, ..config() },
        Providers::capture(),
        5,
    )
    .await;
    world.put(Table::Recipients, json!([customer(1)])).await;
    let calm = |n: usize| event(&format!("calm-{n}"), 1);
    world.emit(json!((0..300).map(calm).collect::<Vec<_>>())).await;
    let (handover, _chunks) = publish::handover(world.config.user_types.queues());
    let workers = FanOutWorkers::new(world.engine.clone(), handover);
    // The handover fills up, because nothing is published.
    while round(&workers).await.events > 0 {}
    let waits = async || {
        world.test_database.count("SELECT count(*) FROM event_outbox WHERE status = 'PENDING'").await
    };
    let waiting = waits().await;
    assert!(waiting > 0);
    let mut urgent = event("urgent", 1);
    urgent["priority"] = json!("HIGH");
    world.emit(json!([urgent])).await;
    round(&workers).await;
    assert_eq!((status(&world.trace("urgent").await), waits().await), (EventStatus::Published, waiting));
    // The fan-out continues slowly, for the sake of events for other queues.
    while waits().await == waiting {
        round(&workers).await;
    }
}

async fn what_is_for_another_queue_passes_one_that_has_no_room(backend: Backend) {
    let world = World::with(backend, config(), Providers::capture(), 5).await;
    let people: Vec<Value> = (1..=20_000).map(customer).collect();
    world.put(Table::Recipients, json!(people)).await;
    world.put(Table::Recipients, json!([waiter()])).await;
    world
        .put(
            Table::Audiences,
            json!([{"event_type": "NEWS", "name": "all", "recipient_type": "CUSTOMER",
        "scope": "PERSONAL", "shared_read": false}]),
        )
        .await;
    world
        .emit(json!([{"event_id": "big", "event_type": "NEWS", "aggregate_type": "MAGAZINE",
        "aggregate_id": "1"}]))
        .await;
    let (handover, _chunks) = publish::handover(world.config.user_types.queues());
    let workers = FanOutWorkers::new(world.engine.clone(), handover);
    // The handover fills up, because nothing is published.
    while round(&workers).await.events > 0 {}
    assert_eq!(status(&world.trace("big").await), EventStatus::Pending);
    world
        .emit(json!([{"event_id": "small", "event_type": "X", "aggregate_type": "RESTAURANT",
        "aggregate_id": "5"}]))
        .await;
    round(&workers).await;
    assert_eq!(status(&world.trace("small").await), EventStatus::Published);
}

async fn large_events_alternate(backend: Backend) {
    let world = World::new(backend).await;
    let people: Vec<Value> = (1..=5_000).map(customer).collect();
    world.put(Table::Recipients, json!(people)).await;
    let broadcast = |id: &str| {
        json!({"event_id": id, "event_type": "NEWS", "aggregate_type": "BROADCAST",
        "aggregate_id": "1"})
    };
    world.emit(json!([broadcast("first"), broadcast("second")])).await;
    // Other instances publish.
    let (handover, _chunks) = publish::handover(Vec::new());
    let workers = FanOutWorkers::new(world.engine.clone(), handover);
    for _ in 0..5 {
        round(&workers).await;
    }
    for event_id in ["first", "second"] {
        let processed = world.trace(event_id).await.processed.unwrap();
        assert_eq!(processed.status, ProcessedStatus::Processing);
        assert!(processed.recipients.typed() > Some(&1_000), "{event_id}: {processed:?}");
    }
}

async fn a_step_over_one_channel_has_more_people_while_nobody_else_waits(backend: Backend) {
    let world = World::new(backend).await;
    let people: Vec<Value> = (1..=8_000).map(customer).collect();
    world.put(Table::Recipients, json!(people)).await;
    let news = |id: &str| {
        json!([{"event_id": id, "event_type": "NEWS", "aggregate_type": "BROADCAST",
        "aggregate_id": "1"}])
    };
    let route = |channel: &str| json!({"event_type": "NEWS", "channel": channel});
    // Other instances publish.
    let (handover, _chunks) = publish::handover(Vec::new());
    for (id, routes, of_a_step) in
        [("one", vec![route("EMAIL")], 2_000), ("two", vec![route("EMAIL"), route("SMS")], 1_000)]
    {
        world.put(Table::Routing, json!(routes)).await;
        world.emit(news(id)).await;
        let workers = FanOutWorkers::new(world.engine.clone(), handover.clone());
        let mut recipients = Vec::new();
        while recipients.len() < 4 {
            round(&workers).await;
            recipients.extend(
                world.trace(id).await.processed.and_then(|processed| processed.recipients.typed().copied()),
            );
        }
        // The first step is short, because this event was claimed together with other new ones.
        assert_eq!(
            (recipients[2] - recipients[1], recipients[3] - recipients[2]),
            (of_a_step, of_a_step),
            "{id}"
        );
        while status(&world.trace(id).await) == EventStatus::Pending {
            round(&workers).await;
        }
    }
}

async fn a_rule_added_in_the_middle_takes_nobody_from_the_one_that_is_walked(backend: Backend) {
    let world = World::new(backend).await;
    let people: Vec<Value> = (1..=2_500).map(customer).collect();
    world.put(Table::Recipients, json!(people)).await;
    let audience = |name: &str| {
        json!([{"event_type": "NEWS", "name": name, "recipient_type": "CUSTOMER",
        "scope": "PERSONAL", "shared_read": false}])
    };
    world.put(Table::Audiences, audience("customers")).await;
    world
        .emit(json!([{"event_id": "news", "event_type": "NEWS", "aggregate_type": "MAGAZINE",
        "aggregate_id": "1"}]))
        .await;
    // Other instances publish.
    let (handover, _chunks) = publish::handover(Vec::new());
    let workers = FanOutWorkers::new(world.engine.clone(), handover);
    round(&workers).await;
    world.put(Table::Audiences, audience("a-new-one")).await;
    while status(&world.trace("news").await) == EventStatus::Pending {
        round(&workers).await;
    }
    assert_eq!(world.trace("news").await.processed.unwrap().recipients, 2_500);
}

/// The next step is decided while the last one is written, so another instance may have made a step in between.
async fn what_was_decided_ahead_is_forgotten_where_somebody_else_went_on(backend: Backend) {
    let world = World::new(backend).await;
    let people: Vec<Value> = (1..=6_000).map(customer).collect();
    world.put(Table::Recipients, json!(people)).await;
    world
        .emit(json!([{"event_id": "news", "event_type": "NEWS", "aggregate_type": "BROADCAST",
        "aggregate_id": "1"}]))
        .await;
    // Other instances publish.
    let (handover, _chunks) = publish::handover(Vec::new());
    let instances = [(); 2].map(|()| FanOutWorkers::new(world.engine.clone(), handover.clone()));
    // As many steps as are needed, and one more: none is spent on what is written already.
    for instance in (0..2).cycle().take(7) {
        round(&instances[instance]).await;
    }
    let trace = world.trace("news").await;
    assert_eq!(status(&trace), EventStatus::Published);
    assert_eq!(trace.processed.unwrap().recipients, 6_000);
    let recipients = "SELECT count(DISTINCT recipient_id) FROM outbox WHERE channel = 'EMAIL'";
    assert_eq!(world.test_database.count(recipients).await, 6_000);
}

async fn what_was_decided_ahead_by_older_rules_is_decided_again(backend: Backend) {
    let world = World::new(backend).await;
    let people: Vec<Value> = (1..=2_500).map(customer).collect();
    world.put(Table::Recipients, json!(people)).await;
    let template = |title: &str| json!([{"event_type": "NEWS", "title": title}]);
    world.put(Table::Templates, template("before")).await;
    world
        .emit(json!([{"event_id": "news", "event_type": "NEWS", "aggregate_type": "BROADCAST",
        "aggregate_id": "1"}]))
        .await;
    // Other instances publish.
    let (handover, _chunks) = publish::handover(Vec::new());
    let workers = FanOutWorkers::new(world.engine.clone(), handover);
    round(&workers).await;
    let titled = async |title: &str| {
        let sql = format!("SELECT count(DISTINCT recipient_id) FROM outbox WHERE title = '{title}'");
        world.test_database.count(&sql).await
    };
    let before = titled("before").await;
    world.put(Table::Templates, template("after")).await;
    while status(&world.trace("news").await) == EventStatus::Pending {
        round(&workers).await;
    }
    assert!((1..2_500).contains(&before), "{before}");
    assert_eq!((titled("before").await, titled("after").await), (before, 2_500 - before));
}

async fn a_rule_deleted_in_the_middle_stops_the_event_and_keeps_what_was_written(backend: Backend) {
    let world = World::new(backend).await;
    let people: Vec<Value> = (1..=2_500).map(customer).collect();
    world.put(Table::Recipients, json!(people)).await;
    world
        .put(
            Table::Audiences,
            json!([{"event_type": "NEWS", "name": "all", "recipient_type": "CUSTOMER",
        "scope": "PERSONAL", "shared_read": false}]),
        )
        .await;
    world
        .emit(json!([{"event_id": "news", "event_type": "NEWS", "aggregate_type": "MAGAZINE",
        "aggregate_id": "1"}]))
        .await;
    let (handover, _chunks) = publish::handover(world.config.user_types.queues());
    let workers = FanOutWorkers::new(world.engine.clone(), handover);
    round(&workers).await;
    assert_eq!(status(&world.trace("news").await), EventStatus::Pending);
    // Nothing publishes the chunks of this handover until their lease expires.
    world.test_database.advance(world.config.lease * 2).await;
    let key = vec!["NEWS".to_owned(), "all".to_owned()];
    assert!(world.engine.delete_row(Table::Audiences, vec![key], &Actor::AdminKey).await.unwrap());
    let running = world.start();
    let trace = world.until("news", |trace| status(trace) == EventStatus::Processed).await;
    assert!(trace.event.row.last_error.unwrap().starts_with("NO_AUDIENCE: "));
    assert_eq!(trace.dead_letters.len(), 1);
    let recipients = *trace.processed.unwrap().recipients.typed().unwrap();
    assert!((1..2_500).contains(&recipients), "{recipients}");
    assert!(running.stop(Duration::from_secs(5)).await);
}

async fn many_events_are_a_burst_until_there_are_few(backend: Backend) {
    let world = World::new(backend).await;
    world.put(Table::Recipients, json!([customer(1)])).await;
    let running = world.start();
    let mut burst = world.engine.burst();
    let (begun, mut round) = (Instant::now(), 0);
    while !*burst.borrow_and_update() {
        assert!(begun.elapsed() < Duration::from_secs(30), "{round} times a hundred events make no burst");
        round += 1;
        let many = |n| event(&format!("many {round}-{n}"), 1);
        world.emit(json!((0..100).map(many).collect::<Vec<_>>())).await;
    }
    // Single events are found, too.
    world.emit(json!([event("late", 1)])).await;
    world.until("late", |trace| status(trace) == EventStatus::Processed).await;
    tokio::time::timeout(Duration::from_secs(30), burst.wait_for(|is_on| !is_on)).await.unwrap().unwrap();
    assert!(running.stop(Duration::from_secs(5)).await);
}

const CUSTOMERS: &str = "notification.customer";
const QUEUE_LIMIT: usize = 100;

/// An event for a full queue that only the test empties. A table records chunks that are released or claimed.
async fn with_a_full_queue(backend: Backend, lease: Duration) -> World {
    let roles = "fan_out,publish".parse().unwrap();
    let world =
        World::with(backend, EngineConfig { roles, lease, ..config() }, Providers::capture(), QUEUE_LIMIT)
            .await;
    world.put(Table::Recipients, json!([customer(1)])).await;
    world.test_database.execute("CREATE TABLE chunk_update (id BIGINT)").await;
    let record = "INSERT INTO chunk_update VALUES (NEW.id);";
    world.trigger("AFTER UPDATE ON publish_chunk FOR EACH ROW", record, record).await;
    let filling = |_| Message { id: "filling".to_owned(), body: Arc::from(&b"{}"[..]), stamp: None };
    world.broker.publish(CUSTOMERS, (0..QUEUE_LIMIT).map(filling).collect()).await.unwrap();
    world.emit(json!([event("e1", 1)])).await;
    world
}

/// Takes everything from the queue.
async fn empty_the_queue(world: &World) {
    let mut consumer = world.broker.consume(CUSTOMERS, QUEUE_LIMIT).await.unwrap();
    let taken = consumer.receive(QUEUE_LIMIT, Duration::ZERO).await.unwrap();
    consumer.ack(&taken.iter().map(|delivery| delivery.tag).collect::<Vec<_>>()).await.unwrap();
}

fn is_published(trace: &Trace) -> bool {
    !trace.outbox.is_empty() && trace.outbox.iter().all(|row| row.status == OutboxStatus::Published)
}

async fn what_was_handed_over_waits_in_memory_until_its_queue_has_room(backend: Backend) {
    let world = with_a_full_queue(backend, Duration::from_mins(10)).await;
    let running = world.start();
    let waiting = world.until("e1", |trace| !trace.outbox.is_empty()).await;
    assert!(!is_published(&waiting), "{:?}", waiting.outbox);
    empty_the_queue(&world).await;
    world.until("e1", is_published).await;
    let moved = world.test_database.count("SELECT count(*) FROM chunk_update").await;
    assert_eq!(moved, 0, "it was given back, and had to be claimed and read again");
    assert!(running.stop(Duration::from_secs(5)).await);
}

async fn what_waits_in_the_database_gets_room_although_more_is_handed_over_all_the_time(backend: Backend) {
    let world = with_a_full_queue(backend, Duration::from_mins(10)).await;
    // Fanned out by an instance that handed its chunks to no publisher.
    let (nobody, _) = publish::handover(Vec::new());
    round(&FanOutWorkers::new(world.engine.clone(), nobody)).await;
    let running = world.start();
    let begun = Instant::now();
    let mut round = 0;
    while !is_published(&world.trace("e1").await) {
        assert!(begun.elapsed() < Duration::from_secs(30), "what was handed over took all the room");
        round += 1;
        let more = |n| event(&format!("more {round}-{n}"), 1);
        world.emit(json!((0..QUEUE_LIMIT).map(more).collect::<Vec<_>>())).await;
        empty_the_queue(&world).await;
    }
    assert!(running.stop(Duration::from_secs(5)).await);
}

async fn what_waits_too_long_for_room_is_given_back_and_published_by_whoever_claims_it(backend: Backend) {
    let world = with_a_full_queue(backend, Duration::from_secs(2)).await;
    let running = world.start();
    let released = "SELECT count(*) FROM publish_chunk WHERE id IN (SELECT id FROM chunk_update)";
    until("it is given back", async || (world.test_database.count(released).await > 0).then_some(())).await;
    empty_the_queue(&world).await;
    world.until("e1", is_published).await;
    assert!(running.stop(Duration::from_secs(5)).await);
}

on_both! {
    current_thread:
    a_large_audience_passes_a_narrow_queue_and_others_pass_it;
    middling_events_do_not_wait_for_a_large_one;
    while_a_queue_has_no_room_only_what_is_urgent_is_fanned_out;
    what_is_for_another_queue_passes_one_that_has_no_room;
    large_events_alternate;
    a_step_over_one_channel_has_more_people_while_nobody_else_waits;
    a_rule_added_in_the_middle_takes_nobody_from_the_one_that_is_walked;
    what_was_decided_ahead_is_forgotten_where_somebody_else_went_on;
    what_was_decided_ahead_by_older_rules_is_decided_again;
    a_rule_deleted_in_the_middle_stops_the_event_and_keeps_what_was_written;
    many_events_are_a_burst_until_there_are_few;
    what_was_handed_over_waits_in_memory_until_its_queue_has_room;
    what_waits_in_the_database_gets_room_although_more_is_handed_over_all_the_time;
    what_waits_too_long_for_room_is_given_back_and_published_by_whoever_claims_it;
}
