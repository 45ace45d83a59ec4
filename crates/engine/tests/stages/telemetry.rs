//! Tests that everything an operator must notice is counted when it happens, by a counter that starts at zero.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use campanile_broker::{Broker, InProcess, Message};
use campanile_channels::Providers;
use campanile_domain::channel::{Channel, PerChannel};
use campanile_domain::queue::Queue;
use campanile_domain::send::{OnDoubt, Outcome};
use campanile_domain::status::{EventStatus, OutboxStatus};
use campanile_engine::pipeline::fan_out::FanOutWorkers;
use campanile_engine::pipeline::send::InFlightQueue;
use campanile_engine::pipeline::{publish, settle};
use campanile_engine::{Engine, EngineConfig};
use campanile_store::{OutboxView, Table};
use campanile_testkit::{Backend, on_both, until_ok};
use metrics::LocalRecorderGuard;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::support::{ScriptedProvider, World, config, customer, event, settled, status};

const QUEUE: &str = "notification.customer";

/// The metrics of one test, which runs on one thread.
struct Metrics {
    handle: PrometheusHandle,
    _here: LocalRecorderGuard<'static>,
}

impl Metrics {
    fn new() -> Self {
        let recorder = Box::leak(Box::new(PrometheusBuilder::new().build_recorder()));
        Metrics { handle: recorder.handle(), _here: metrics::set_default_local_recorder(recorder) }
    }

    /// The value of one series, if it exists.
    fn get(&self, series: &str) -> Option<f64> {
        let text = self.handle.render();
        let value = |line: &str| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok();
        text.lines().find_map(value)
    }

    #[track_caller]
    fn assert(&self, series: &str, expected: f64) {
        assert_eq!(self.get(series), Some(expected), "{series}");
    }

    async fn until_count(&self, series: &str, expected: u32) {
        self.until(series, |count| count >= f64::from(expected)).await;
        self.assert(series, f64::from(expected));
    }

    async fn until(&self, series: &str, what: impl Fn(f64) -> bool) -> f64 {
        until_ok(&format!("{series} is as it should be"), async || {
            let value = self.get(series);
            value.filter(|value| what(*value)).ok_or(value)
        })
        .await
    }
}

async fn world(backend: Backend, config: EngineConfig) -> World {
    world_with(backend, Providers::capture(), config).await
}

async fn world_with(backend: Backend, providers: Providers, config: EngineConfig) -> World {
    let world = World::with(backend, config, providers, 1_000).await;
    world.put(Table::Recipients, json!([customer(1)])).await;
    world
}

fn with_roles(roles: &str) -> EngineConfig {
    EngineConfig { roles: roles.parse().unwrap(), ..config() }
}

/// One customer with an event that was fanned out into three waiting rows.
async fn rows_that_wait(backend: Backend, config: EngineConfig) -> World {
    let world = world(backend, config).await;
    world.emit(json!([event("e1", 1)])).await;
    let (handover, _) = publish::handover(Vec::new());
    FanOutWorkers::new(world.engine.clone(), handover).run_once().await.unwrap();
    world
}

fn unknown() -> Arc<ScriptedProvider> {
    let outcomes = vec![Outcome::Unknown { error: "the line went dead".to_owned() }];
    Arc::new(ScriptedProvider { outcomes: Mutex::new(outcomes.into()), ..ScriptedProvider::default() })
}

async fn counters_are_there_before_anything_happens(backend: Backend) {
    let metrics = Metrics::new();
    let world = World::new(backend).await;
    let running = world.start();
    for series in [
        "campanile_events_accepted_total",
        "campanile_republished_total",
        "campanile_taken_over_total",
        r#"campanile_dead_letters_total{stage="publish"}"#,
        r#"campanile_duplicates_refused_total{stage="accept"}"#,
        r#"campanile_lease_losses_total{resource="chunk"}"#,
        r#"campanile_sends_total{channel="WEBSOCKET",status="SENT"}"#,
        r#"campanile_sends_total{channel="SMS",status="IN_DOUBT"}"#,
        r#"campanile_doubts_total{channel="SLACK",resolution="fail"}"#,
        r#"campanile_task_deaths_total{task="queue_age"}"#,
    ] {
        metrics.assert(series, 0.0);
    }
    assert_eq!(metrics.get(r#"campanile_sends_total{channel="WEBSOCKET",status="DUE"}"#), None);
    assert!(running.stop(Duration::from_secs(5)).await);
}

async fn ages_rise_at_the_stage_that_does_not_run(backend: Backend) {
    let metrics = Metrics::new();
    let world = world(backend, with_roles("recover")).await;
    world.emit(json!([event("e1", 1)])).await;
    let age = |stage: &str| format!("campanile_oldest_waiting_seconds{{stage=\"{stage}\"}}");
    // What each has done, and which stage does nothing next.
    for (roles, stage) in [
        ("recover", "fan_out"),
        ("fan_out,recover", "publish"),
        ("publish,recover", "receive"),
        ("receive,recover", "send"),
    ] {
        let config = EngineConfig { lease: Duration::from_mins(5), ..with_roles(roles) };
        let (store, broker) = (Arc::clone(&world.store), Arc::clone(&world.broker));
        let engine = Engine::new(store, broker, Providers::capture(), config).await.unwrap();
        let running = engine.start();
        let done = |trace: &campanile_store::Trace| match stage {
            "fan_out" => true,
            "publish" => status(trace) == EventStatus::Published,
            "receive" => trace.outbox.iter().all(|row| row.status == OutboxStatus::Published),
            _ => status(trace) == EventStatus::Processed,
        };
        world.until("e1", done).await;
        assert!(running.stop(Duration::from_secs(5)).await);
        world.test_database.advance(Duration::from_secs(100)).await;
        // It measures at once, and does nothing else here.
        let running = world.start();
        for before in ["fan_out", "publish", "receive", "send"].iter().take_while(|other| **other != stage) {
            metrics.until(&age(before), |seconds| seconds == 0.0).await;
        }
        let waited = metrics.until(&age(stage), |seconds| seconds >= 100.0).await;
        assert!(waited < 500.0, "{stage}: {waited}");
        assert!(running.stop(Duration::from_secs(5)).await);
    }
}

async fn ages_are_unknown_while_the_database_can_not_be_asked(backend: Backend) {
    let metrics = Metrics::new();
    let world = world(backend, with_roles("recover")).await;
    let series = r#"campanile_oldest_waiting_seconds{stage="send"}"#;
    let running = world.start();
    metrics.until(series, |age| age == 0.0).await;
    assert!(running.stop(Duration::from_secs(5)).await);
    world.test_database.execute("ALTER TABLE send_due RENAME TO send_later").await;
    let running = world.start();
    metrics.until(series, f64::is_nan).await;
    assert!(running.stop(Duration::from_secs(5)).await);
}

async fn an_instance_that_does_not_measure_says_nothing_of_ages(backend: Backend) {
    let metrics = Metrics::new();
    let world = world(backend, with_roles("api,fan_out,publish,receive,send")).await;
    let running = world.start();
    world.emit(json!([event("e1", 1)])).await;
    world.until("e1", settled).await;
    assert_eq!(metrics.get(r#"campanile_oldest_waiting_seconds{stage="send"}"#), None);
    assert!(running.stop(Duration::from_secs(5)).await);
}

async fn doubt_is_counted_with_its_resolution(backend: Backend) {
    for (on_doubt, resolution) in [(OnDoubt::Resend, "resend"), (OnDoubt::Hold, "hold")] {
        let metrics = Metrics::new();
        let mut config = config();
        config.send = PerChannel::from_fn(|channel| {
            let mut send = config.send.get(channel).clone();
            send.policy.on_doubt = on_doubt;
            send
        });
        let world = world_with(backend, Providers::capture().with(Channel::Email, unknown()), config).await;
        let running = world.start();
        world.emit(json!([event("e1", 1)])).await;
        world.until("e1", settled).await;
        let doubts = |resolution: &str| {
            format!(r#"campanile_doubts_total{{channel="EMAIL",resolution="{resolution}"}}"#)
        };
        for other in ["resend", "hold", "fail"] {
            metrics.assert(&doubts(other), if other == resolution { 1.0 } else { 0.0 });
        }
        assert!(running.stop(Duration::from_secs(5)).await);
    }
}

async fn doubt_that_ends_a_send_is_counted_as_a_failure(backend: Backend) {
    let metrics = Metrics::new();
    let mut config = config();
    config.send = PerChannel::from_fn(|channel| {
        let mut send = config.send.get(channel).clone();
        send.policy.max_attempts = 1;
        send
    });
    let world = world_with(backend, Providers::capture().with(Channel::Email, unknown()), config).await;
    let running = world.start();
    world.emit(json!([event("e1", 1)])).await;
    world.until("e1", settled).await;
    metrics.assert(r#"campanile_doubts_total{channel="EMAIL",resolution="fail"}"#, 1.0);
    metrics.assert(r#"campanile_dead_letters_total{stage="send"}"#, 1.0);
    metrics.assert(r#"campanile_sends_total{channel="EMAIL",status="FAILED"}"#, 1.0);
    metrics.assert(r#"campanile_sends_total{channel="WEBSOCKET",status="SENT"}"#, 1.0);
    assert!(running.stop(Duration::from_secs(5)).await);
}

async fn rows_that_the_broker_refuses_for_good_are_dead_letters(backend: Backend) {
    let metrics = Metrics::new();
    let mut config = config();
    (config.publish.max_refusals, config.publish.poll_interval) = (2, Duration::from_secs(1));
    let world = rows_that_wait(backend, config).await;
    world.test_database.execute("UPDATE publish_chunk SET queue = 'nowhere'").await;
    for (refused, dead_letters) in [(3.0, 0.0), (6.0, 3.0)] {
        publish::publish_pending_chunk(&world.engine, &Queue::named("nowhere"), &CancellationToken::new())
            .await
            .unwrap();
        metrics.assert("campanile_refused_total", refused);
        metrics.assert(r#"campanile_dead_letters_total{stage="publish"}"#, dead_letters);
        world.test_database.advance(Duration::from_secs(2)).await;
    }
}

async fn dead_letters_of_every_other_stage_are_counted(backend: Backend) {
    let metrics = Metrics::new();
    let world = world(backend, config()).await;
    let running = world.start();
    let nobody = json!({"event_id": "e0", "event_type": "T", "aggregate_type": "MOON", "aggregate_id": "1"});
    world.emit(json!([nobody])).await;
    metrics.until_count(r#"campanile_dead_letters_total{stage="fan_out"}"#, 1).await;
    let unreadable =
        "INSERT INTO event_outbox (event_id, event_type, aggregate_type, aggregate_id, fan_out_cursor)
                      VALUES ('e1', 'T', 'CUSTOMER', '1', 'nonsense')";
    world.test_database.execute(unreadable).await;
    metrics.until_count(r#"campanile_dead_letters_total{stage="fan_out"}"#, 2).await;
    let forged = Message { id: "nonsense".to_owned(), body: Arc::from(&b"{}"[..]), stamp: None };
    world.broker.publish(QUEUE, vec![forged.clone()]).await.unwrap();
    metrics.until_count(r#"campanile_dead_letters_total{stage="receive"}"#, 1).await;
    world.broker.publish("notification.dlq", vec![forged]).await.unwrap();
    metrics.until_count(r#"campanile_dead_letters_total{stage="receive"}"#, 2).await;
    assert_eq!(
        world.test_database.count("SELECT count(*) FROM dead_letter").await,
        4,
        "as many as were counted"
    );
    assert!(running.stop(Duration::from_secs(5)).await);
}

async fn what_comes_again_is_counted_where_it_is_refused(backend: Backend) {
    let metrics = Metrics::new();
    let duplicates = |stage: &str| format!("campanile_duplicates_refused_total{{stage=\"{stage}\"}}");
    let world = world(backend, config()).await;
    let running = world.start();
    world.emit(json!([event("e1", 1), event("e1", 1)])).await;
    world.emit(json!([event("e1", 1)])).await;
    metrics.assert(&duplicates("accept"), 2.0);
    metrics.assert("campanile_events_accepted_total", 1.0);
    let trace = world.until("e1", settled).await;

    // A producer that writes by SQL, long after.
    world.test_database.execute("DELETE FROM event_outbox").await;
    let again = "INSERT INTO event_outbox (event_id, event_type, aggregate_type, aggregate_id)
                 VALUES ('e1', 'ORDER_CREATED', 'CUSTOMER', '1')";
    world.test_database.execute(again).await;
    metrics.until_count(&duplicates("fan_out"), 1).await;

    let received = metrics.get("campanile_received_total");
    let message = |row: &OutboxView| Message {
        id: row.id.typed().unwrap().to_string(),
        body: Arc::from(&b"{}"[..]),
        stamp: None,
    };
    let messages: Vec<Message> = trace.outbox.iter().map(message).collect();
    world.broker.publish(QUEUE, [messages.clone(), messages].concat()).await.unwrap();
    metrics.until_count(&duplicates("receive"), 6).await;
    assert_eq!(metrics.get("campanile_received_total"), received);
    assert!(running.stop(Duration::from_secs(5)).await);
}

async fn a_claim_that_is_taken_over_is_counted_on_both_sides(backend: Backend) {
    let metrics = Metrics::new();
    let hanging = Arc::new(ScriptedProvider {
        hangs: true,
        deadline: Some(Duration::from_secs(2)),
        ..ScriptedProvider::default()
    });
    let config = EngineConfig { lease: Duration::from_secs(3), ..config() };
    let world = world_with(backend, Providers::capture().with(Channel::Email, hanging.clone()), config).await;
    let running = world.start();
    world.emit(json!([event("e1", 1)])).await;
    hanging.until_asked(1).await;
    world.test_database.advance(Duration::from_secs(10)).await;
    // Two other instances, of which one is first.
    for _ in 0..2 {
        let (other, _) = InFlightQueue::new(&world.engine);
        settle::take_over_expired(&world.engine, &other).await.unwrap();
        metrics.assert("campanile_taken_over_total", 1.0);
        metrics.assert(r#"campanile_doubts_total{channel="EMAIL",resolution="resend"}"#, 1.0);
        metrics.assert(r#"campanile_lease_losses_total{resource="send"}"#, 0.0);
    }
    metrics.until_count(r#"campanile_lease_losses_total{resource="send"}"#, 1).await;
    drop(running);
}

async fn a_chunk_that_somebody_else_published_is_a_lease_that_was_lost(backend: Backend) {
    let metrics = Metrics::new();
    let world = rows_that_wait(backend, config()).await;
    let claim =
        async || world.store.claim_chunk(&Queue::named(QUEUE), world.config.lease).await.unwrap().unwrap();
    let late = claim().await;
    world.test_database.advance(world.config.lease * 2).await;
    let in_time = claim().await;
    assert_eq!(late.id, in_time.id);
    world.broker.restore(&world.broker.losses()).await.unwrap();
    for (chunk, lost) in [(in_time, 0.0), (late, 1.0)] {
        publish::publish(&world.engine, vec![chunk], &CancellationToken::new()).await.unwrap();
        metrics.assert(r#"campanile_lease_losses_total{resource="chunk"}"#, lost);
    }
}

async fn what_the_broker_lost_is_counted_when_it_waits_again(backend: Backend) {
    let metrics = Metrics::new();
    let world = world(backend, with_roles("fan_out,publish")).await;
    let running = world.start();
    world.emit(json!([event("e1", 1)])).await;
    metrics.until_count("campanile_published_total", 3).await;
    metrics.assert("campanile_republished_total", 0.0);
    assert!(running.stop(Duration::from_secs(5)).await);
    // A restart: everything in memory is gone.
    let broker: Arc<dyn Broker> = Arc::new(InProcess::new(config().user_types.queues(), 1_000));
    let store = Arc::clone(&world.store);
    let running = Engine::new(store, broker, Providers::capture(), config()).await.unwrap().start();
    metrics.until_count("campanile_republished_total", 3).await;
    world.until("e1", settled).await;
    assert!(running.stop(Duration::from_secs(5)).await);
}

on_both! {
    current_thread:
    counters_are_there_before_anything_happens;
    ages_rise_at_the_stage_that_does_not_run;
    ages_are_unknown_while_the_database_can_not_be_asked;
    an_instance_that_does_not_measure_says_nothing_of_ages;
    doubt_is_counted_with_its_resolution;
    doubt_that_ends_a_send_is_counted_as_a_failure;
    rows_that_the_broker_refuses_for_good_are_dead_letters;
    dead_letters_of_every_other_stage_are_counted;
    what_comes_again_is_counted_where_it_is_refused;
    a_claim_that_is_taken_over_is_counted_on_both_sides;
    a_chunk_that_somebody_else_published_is_a_lease_that_was_lost;
    what_the_broker_lost_is_counted_when_it_waits_again;
}
