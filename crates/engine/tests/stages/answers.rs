//! Tests deferred messages, and answers of providers that take long or never arrive.

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use campanile_channels::Providers;
use campanile_domain::channel::Channel;
use campanile_domain::send::Outcome;
use campanile_domain::status::SendStatus;
use campanile_engine::EngineConfig;
use campanile_engine::pipeline::send::InFlightQueue;
use campanile_engine::pipeline::settle;
use campanile_store::{Table, Trace, TracedSend};
use campanile_testkit::{Backend, on_both};
use serde_json::json;

use crate::support::{ScriptedProvider, World, config, customer, event, sends, settled};

async fn world(backend: Backend, provider: &Arc<ScriptedProvider>, config: EngineConfig) -> World {
    let providers = Providers::capture().with(Channel::Email, Arc::clone(provider) as _);
    let world = World::with(backend, config, providers, 1_000).await;
    world.put(Table::Recipients, json!([customer(1)])).await;
    world
}

fn email(trace: &Trace) -> TracedSend {
    trace.sends.iter().find(|send| send.row.channel == Channel::Email).expect("an e-mail was decided").clone()
}

fn silent(times: usize, answer_timeout: Duration) -> Arc<ScriptedProvider> {
    Arc::new(ScriptedProvider {
        silent: AtomicUsize::new(times),
        answer_timeout,
        ..ScriptedProvider::default()
    })
}

async fn a_deferred_message_is_tried_again_for_a_day_and_never_counts_as_an_attempt(backend: Backend) {
    let greylisted = || Outcome::Deferred { error: "451 4.7.1 greylisted".to_owned() };
    let outcomes = Mutex::new((0..5).map(|_| greylisted()).collect());
    let provider = Arc::new(ScriptedProvider { outcomes, ..ScriptedProvider::default() });
    let world = world(backend, &provider, config()).await;
    let running = world.start();
    world.emit(json!([event("e1", 1)])).await;
    for (deferrals, minutes) in [(1, 1), (2, 5), (3, 15), (4, 30), (5, 60)] {
        let is_put_off = |trace: &Trace| {
            sends(trace).contains(&"EMAIL DUE".to_owned()) && email(trace).row.deferrals == deferrals
        };
        let send = email(&world.until("e1", is_put_off).await);
        assert_eq!(send.row.attempt_count, 0);
        assert_eq!(send.row.last_error.as_deref(), Some("451 4.7.1 greylisted"));
        assert!(send.row.deferred_since.is_some(), "{send:?}");
        // Shortly before the time nothing happens; then the message goes out.
        world.test_database.advance(Duration::from_secs(minutes * 60 - 20)).await;
        assert_eq!(provider.asked.lock().unwrap().len(), deferrals as usize);
        world.test_database.advance(Duration::from_secs(21)).await;
    }
    let send = email(&world.until("e1", settled).await);
    assert_eq!(send.row.status, SendStatus::Sent);
    assert_eq!(send.row.attempt_count, 1);
    assert!(running.stop(Duration::from_secs(5)).await);
}

async fn what_is_deferred_for_too_long_is_a_dead_letter(backend: Backend) {
    let outcomes = (0..9).map(|_| Outcome::Deferred { error: "451 greylisted".to_owned() }).collect();
    let provider =
        Arc::new(ScriptedProvider { outcomes: Mutex::new(outcomes), ..ScriptedProvider::default() });
    let mut config = config();
    config.send.get_mut(Channel::Email).policy.defer_for = Duration::from_millis(200);
    let world = world(backend, &provider, config).await;
    let running = world.start();
    world.emit(json!([event("e1", 1)])).await;
    let trace = world.until("e1", settled).await;
    assert_eq!(email(&trace).row.last_error.as_deref(), Some("DEFERRED_TOO_LONG: 451 greylisted"));
    assert_eq!(email(&trace).row.attempt_count, 0);
    assert_eq!(email(&trace).row.deferrals, 2);
    assert_eq!(trace.dead_letters[0].reason, "DEFERRED_TOO_LONG");
    assert!(running.stop(Duration::from_secs(5)).await);
}

async fn an_unanswered_message_is_repeated_once_and_then_in_doubt_whatever_the_policy(backend: Backend) {
    for (silences, status, asked) in
        [(1, SendStatus::Sent, 2), (2, SendStatus::InDoubt, 2), (9, SendStatus::InDoubt, 2)]
    {
        let provider = silent(silences, Duration::from_millis(50));
        let world = world(backend, &provider, config()).await;
        let running = world.start();
        world.emit(json!([event("e1", 1)])).await;
        let trace = world.until("e1", settled).await;
        assert_eq!(email(&trace).row.status, status);
        assert_eq!(email(&trace).row.attempt_count, 2);
        assert_eq!(email(&trace).attempts[0].row.outcome, "UNKNOWN", "it stays recognisable as a doubt");
        assert_eq!(provider.asked.lock().unwrap().len(), asked);
        assert!(running.stop(Duration::from_secs(5)).await);
    }
}

/// The answer takes three times as long as the lease, while another instance looks for claims to take over.
async fn a_claim_is_renewed_while_an_answer_is_awaited(backend: Backend) {
    let provider = Arc::new(ScriptedProvider {
        silent: AtomicUsize::new(1),
        answer_timeout: Duration::from_mins(5),
        deadline: Some(Duration::from_millis(500)),
        ..ScriptedProvider::default()
    });
    let lease = Duration::from_secs(2);
    let world = world(backend, &provider, EngineConfig { lease, ..config() }).await;
    let running = world.start();
    world.emit(json!([event("e1", 1)])).await;
    world.until("e1", |trace| sends(trace).contains(&"EMAIL SENDING".to_owned())).await;
    let (other, _) = InFlightQueue::new(&world.engine);
    let begun = Instant::now();
    while begun.elapsed() < lease * 3 {
        assert_eq!(settle::take_over_expired(&world.engine, &other).await.unwrap(), 0);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(sends(&world.trace("e1").await).contains(&"EMAIL SENDING".to_owned()));
    // Once its holder is dead, the claim is taken over after one lease.
    drop(running);
    world.test_database.advance(lease * 2).await;
    assert_eq!(settle::take_over_expired(&world.engine, &other).await.unwrap(), 1);
    assert_eq!(email(&world.trace("e1").await).row.attempt_count, 1, "that counts as an attempt");
}

async fn messages_that_await_an_answer_leave_their_permits_to_others(backend: Backend) {
    let provider = silent(4, Duration::from_mins(5));
    let world = world(backend, &provider, config()).await;
    assert_eq!(world.config.send.get(Channel::Email).concurrency, 4);
    let running = world.start();
    world.emit(json!((0..4).map(|n| event(&format!("silent{n}"), 1)).collect::<Vec<_>>())).await;
    provider.until_asked(4).await;
    world.emit(json!([event("e1", 1)])).await;
    assert_eq!(email(&world.until("e1", settled).await).row.status, SendStatus::Sent);
    drop(running);
}

async fn what_is_unanswered_at_a_stop_is_a_doubt(backend: Backend) {
    let provider = silent(1, Duration::from_mins(5));
    let world = world(backend, &provider, config()).await;
    let running = world.start();
    world.emit(json!([event("e1", 1)])).await;
    provider.until_asked(1).await;
    assert!(running.stop(Duration::from_secs(6)).await, "it ends in order");
    let send = email(&world.trace("e1").await);
    assert_eq!(send.row.status, SendStatus::Due);
    assert_eq!(send.attempts[0].row.outcome, "UNKNOWN");
}

on_both! {
    current_thread:
    a_deferred_message_is_tried_again_for_a_day_and_never_counts_as_an_attempt;
    what_is_deferred_for_too_long_is_a_dead_letter;
    an_unanswered_message_is_repeated_once_and_then_in_doubt_whatever_the_policy;
    a_claim_is_renewed_while_an_answer_is_awaited;
    messages_that_await_an_answer_leave_their_permits_to_others;
    what_is_unanswered_at_a_stop_is_a_doubt;
}
