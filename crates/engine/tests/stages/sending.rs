//! Tests attempts: retries, doubts, leases and fences.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use campanile_channels::Providers;
use campanile_domain::channel::{Channel, PerChannel};
use campanile_domain::send::{OnDoubt, Outcome};
use campanile_domain::status::{EventStatus, SendStatus};
use campanile_engine::pipeline::send::{self, InFlightQueue, Next};
use campanile_engine::pipeline::settle;
use campanile_engine::{Engine, EngineConfig};
use campanile_store::{Shown, Table, TracedSend};
use campanile_testkit::log::Log;
use campanile_testkit::{Backend, on_both, until};
use serde_json::json;

use crate::support::{ScriptedProvider, World, config, customer, event, sends, settled};

fn scripted(outcomes: Vec<Outcome>) -> Arc<ScriptedProvider> {
    Arc::new(ScriptedProvider { outcomes: Mutex::new(outcomes.into()), ..ScriptedProvider::default() })
}

fn busy() -> Outcome {
    Outcome::Retry { after: None, error: "421 busy".to_owned() }
}

fn unknown() -> Outcome {
    Outcome::Unknown { error: "the line went dead".to_owned() }
}

async fn world(backend: Backend, provider: Arc<ScriptedProvider>, config: EngineConfig) -> World {
    let world =
        World::with(backend, config, Providers::capture().with(Channel::Email, provider), 1_000).await;
    world.put(Table::Recipients, json!([customer(1)])).await;
    world
}

fn email(trace: &campanile_store::Trace) -> TracedSend {
    trace.sends.iter().find(|send| send.row.channel == Channel::Email).expect("an e-mail was decided").clone()
}

async fn a_transient_error_is_tried_again_and_every_try_is_kept(backend: Backend) {
    let provider = scripted(vec![busy(), busy()]);
    let world = world(backend, provider.clone(), config()).await;
    let running = world.start();
    world.emit(json!([event("e1", 1)])).await;
    let trace = world.until("e1", settled).await;
    let email = email(&trace);
    assert_eq!(email.row.status, SendStatus::Sent);
    assert_eq!(email.row.attempt_count, 3);
    assert_eq!(email.row.external_id.as_deref(), Some("x-1"));
    let outcomes: Vec<_> = email.attempts.iter().map(|attempt| attempt.row.outcome.as_str()).collect();
    assert_eq!(outcomes, ["RETRY", "RETRY", "SENT"]);
    assert_eq!(provider.asked.lock().unwrap().len(), 3);
    assert!(running.stop(Duration::from_secs(5)).await);
}

async fn attempts_end_with_a_dead_letter(backend: Backend) {
    let provider = scripted(vec![busy(), busy(), busy(), busy()]);
    let world = world(backend, provider.clone(), config()).await;
    let running = world.start();
    world.emit(json!([event("e1", 1)])).await;
    let trace = world.until("e1", settled).await;
    assert_eq!(sends(&trace), ["EMAIL FAILED", "SMS SENT", "WEBSOCKET SENT"]);
    assert_eq!(email(&trace).row.last_error.as_deref(), Some("EXHAUSTED: 421 busy"));
    assert_eq!(trace.dead_letters[0].reason, "EXHAUSTED");
    assert_eq!(provider.asked.lock().unwrap().len(), 3);
    assert!(running.stop(Duration::from_secs(5)).await);
}

async fn a_permanent_error_is_not_tried_again(backend: Backend) {
    let provider = scripted(vec![Outcome::Rejected { error: "550 no such user".to_owned() }]);
    let world = world(backend, provider.clone(), config()).await;
    let running = world.start();
    world.emit(json!([event("e1", 1)])).await;
    let trace = world.until("e1", settled).await;
    assert_eq!(email(&trace).row.last_error.as_deref(), Some("REJECTED: 550 no such user"));
    assert_eq!(provider.asked.lock().unwrap().len(), 1);
    assert!(running.stop(Duration::from_secs(5)).await);
}

async fn doubt_is_held_for_a_person_where_the_policy_says_so(backend: Backend) {
    let mut config = config();
    config.send = PerChannel::from_fn(|channel| {
        let mut send = config.send.get(channel).clone();
        send.policy.on_doubt = OnDoubt::Hold;
        send
    });
    let provider = scripted(vec![unknown()]);
    let world = world(backend, provider.clone(), config).await;
    let running = world.start();
    world.emit(json!([event("e1", 1)])).await;
    let trace = world.until("e1", settled).await;
    assert_eq!(email(&trace).row.status, SendStatus::InDoubt);
    assert_eq!(provider.asked.lock().unwrap().len(), 1);
    assert!(running.stop(Duration::from_secs(5)).await);
}

async fn doubt_is_resent_by_default_and_counts(backend: Backend) {
    let provider = scripted(vec![unknown()]);
    let world = world(backend, provider.clone(), config()).await;
    let running = world.start();
    world.emit(json!([event("e1", 1)])).await;
    let trace = world.until("e1", settled).await;
    assert_eq!(email(&trace).row.status, SendStatus::Sent);
    assert_eq!(email(&trace).row.attempt_count, 2);
    assert!(running.stop(Duration::from_secs(5)).await);
}

#[tokio::test]
#[should_panic(expected = "engine.lease")]
async fn a_lease_that_no_attempt_fits_into_is_refused_at_the_start() {
    let provider =
        Arc::new(ScriptedProvider { deadline: Some(Duration::from_mins(1)), ..ScriptedProvider::default() });
    world(Backend::Embedded, provider, config()).await;
}

async fn what_gets_no_permit_waits_in_the_database_and_not_for_the_next_tick(backend: Backend) {
    let mut config = config();
    config.send = PerChannel::from_fn(|channel| {
        let mut send = config.send.get(channel).clone();
        (send.concurrency, send.poll_interval) = (1, Duration::from_hours(1));
        send
    });
    let provider = scripted(Vec::new());
    let world = world(backend, provider.clone(), config).await;
    let running = world.start();
    world.emit(json!((1..=20).map(|n| event(&format!("e{n}"), 1)).collect::<Vec<_>>())).await;
    for n in 1..=20 {
        world.until(&format!("e{n}"), settled).await;
    }
    assert_eq!(provider.asked.lock().unwrap().len(), 20);
    assert!(running.stop(Duration::from_secs(5)).await);
}

async fn a_provider_that_panics_loses_nothing(backend: Backend) {
    let provider = Arc::new(ScriptedProvider { panics: true, ..ScriptedProvider::default() });
    let world = world(backend, provider.clone(), config()).await;
    let running = world.start();
    world.emit(json!([event("e1", 1)])).await;
    world.until("e1", |trace| !trace.sends.is_empty() && !provider.asked.lock().unwrap().is_empty()).await;
    // This process no longer holds the claim, so it takes it over itself once the lease has expired.
    world.test_database.advance(world.config.lease * 2).await;
    let trace = world.until("e1", settled).await;
    assert_eq!(email(&trace).row.status, SendStatus::Sent);
    assert_eq!(email(&trace).row.attempt_count, 2);
    assert!(running.stop(Duration::from_secs(5)).await);
}

async fn a_claim_that_was_taken_over_writes_nothing(backend: Backend) {
    // The first attempt hangs past its lease. Another one takes over and sends. The late outcome is refused because of
    // its token.
    let hanging = Arc::new(ScriptedProvider {
        hangs: true,
        deadline: Some(Duration::from_secs(2)),
        ..ScriptedProvider::default()
    });
    let mut config = config();
    config.lease = Duration::from_secs(3);
    let world = world(backend, hanging.clone(), config).await;
    let running = world.start();
    world.emit(json!([event("e1", 1)])).await;
    hanging.until_asked(1).await;
    // The SMS of the same event is settled, so there is only one claim to take over.
    let trace = world.until("e1", |trace| sends(trace).contains(&"SMS SENT".to_owned())).await;
    let first = email(&trace).row.lease;
    world.test_database.advance(Duration::from_secs(10)).await;
    // Another instance, which does not hold the claim itself.
    let (other, _) = InFlightQueue::new(&world.engine);
    assert_eq!(settle::take_over_expired(&world.engine, &other).await.unwrap(), 1);
    world.until("e1", |trace| email(trace).row.attempt_count == 1 && email(trace).row.lease != first).await;
    // The takeover counted once; the late outcome of the first claim does not count again.
    let trace = world.until("e1", |trace| !email(trace).attempts.is_empty()).await;
    assert_eq!(
        email(&trace).attempts[0].row.error.as_deref(),
        Some("the instance stopped, or its lease expired, during the attempt")
    );
    assert!(
        world
            .store
            .expired_claims(10)
            .await
            .unwrap()
            .iter()
            .all(|claim| Some(Shown::Typed(claim.claim.0)) != first)
    );
    drop(running);
}

/// Claims are taken over oldest first. Those that an instance holds itself must not hide the others.
async fn a_dead_instances_claim_is_taken_over_behind_many_that_are_held_here(backend: Backend) {
    let without_senders = EngineConfig { roles: "fan_out,publish,receive".parse().unwrap(), ..config() };
    let world = world(backend, scripted(Vec::new()), without_senders).await;
    let running = world.start();
    let mut many = config();
    many.send.get_mut(Channel::Email).concurrency = 40;
    let providers = Providers::capture().with(Channel::Email, scripted(Vec::new()));
    let here = Engine::new(Arc::clone(&world.store), Arc::clone(&world.broker) as _, providers, many);
    let here = here.await.unwrap();
    let ((in_flight, _outcomes), (dead, _)) = (InFlightQueue::new(&here), InFlightQueue::new(&here));
    for n in 0..=30 {
        let id = format!("e{n}");
        world.emit(json!([event(&id, 1)])).await;
        world.until(&id, |trace| sends(trace).contains(&"EMAIL DUE".to_owned())).await;
        let holder = if n == 30 { &dead } else { &in_flight };
        send::claim_due(&here, holder, Channel::Email, Next::Unknown).await.unwrap();
    }
    world.test_database.advance(world.config.lease * 2).await;
    assert_eq!(settle::take_over_expired(&here, &in_flight).await.unwrap(), 1);
    assert!(sends(&world.trace("e30").await).contains(&"EMAIL DUE".to_owned()));
    assert!(running.stop(Duration::from_secs(5)).await);
}

async fn what_is_due_while_no_permit_is_free_is_not_put_off_until_the_next_poll(backend: Backend) {
    let without_senders = EngineConfig { roles: "fan_out,publish,receive".parse().unwrap(), ..config() };
    let world = world(backend, scripted(Vec::new()), without_senders).await;
    let running = world.start();
    let mut one = config();
    let email = one.send.get_mut(Channel::Email);
    (email.concurrency, email.policy.on_doubt) = (1, OnDoubt::Hold);
    let providers = Providers::capture().with(Channel::Email, scripted(Vec::new()));
    let here = Engine::new(Arc::clone(&world.store), Arc::clone(&world.broker) as _, providers, one);
    let here = here.await.unwrap();
    let (in_flight, _outcomes) = InFlightQueue::new(&here);
    for id in ["e1", "e2"] {
        world.emit(json!([event(id, 1)])).await;
        world.until(id, |trace| sends(trace).contains(&"EMAIL DUE".to_owned())).await;
    }
    let hour = Next::After(Duration::from_hours(1));
    assert_eq!(send::claim_due(&here, &in_flight, Channel::Email, hour).await.unwrap(), Next::More);
    // The first one holds the only permit.
    assert_eq!(send::claim_due(&here, &in_flight, Channel::Email, hour).await.unwrap(), Next::More);
    assert!(running.stop(Duration::from_secs(5)).await);
}

/// Everything that a dead instance had claimed is in doubt, even what it had not begun.
async fn no_more_is_claimed_of_what_goes_to_a_provider_than_may_be_in_doubt(backend: Backend) {
    for (on_doubt, expected) in [(OnDoubt::Hold, 4), (OnDoubt::Resend, 32)] {
        let hanging = Arc::new(ScriptedProvider { hangs: true, ..ScriptedProvider::default() });
        let mut config = config();
        config.send.get_mut(Channel::Email).policy.on_doubt = on_doubt;
        let world = world(backend, hanging.clone(), config).await;
        let running = world.start();
        world.emit(json!((0..60).map(|n| event(&format!("e{n}"), 1)).collect::<Vec<_>>())).await;
        let mut sending = 0;
        for n in 0..60 {
            let of_email =
                |trace: &campanile_store::Trace| sends(trace).iter().any(|s| s.starts_with("EMAIL"));
            let trace = world.until(&format!("e{n}"), of_email).await;
            sending += usize::from(email(&trace).row.status == SendStatus::Sending);
        }
        assert_eq!(sending, expected, "{on_doubt:?}");
        drop(running);
    }
}

/// Recovery does several things; a failure of one must not prevent the others.
async fn what_a_dead_instance_held_is_taken_over_although_no_event_can_be_closed(backend: Backend) {
    let log = Log::listen();
    let provider = Arc::new(ScriptedProvider { panics: true, ..ScriptedProvider::default() });
    let world = world(backend, provider.clone(), config()).await;
    world.poison("BEFORE UPDATE ON event_outbox", "NEW.status = 'PROCESSED'").await;
    let running = world.start();
    world.emit(json!([event("e1", 1)])).await;
    world.until("e1", |trace| !trace.sends.is_empty() && !provider.asked.lock().unwrap().is_empty()).await;
    until("recovery has failed once", async || {
        log.take().iter().any(|line| line.contains(r#"stage="recover""#)).then_some(())
    })
    .await;
    world.test_database.advance(world.config.lease * 2).await;
    let trace = world.until("e1", |trace| email(trace).row.status == SendStatus::Sent).await;
    assert_eq!(trace.event.row.status, EventStatus::Published);
    assert!(running.stop(Duration::from_secs(5)).await);
}

on_both! {
    current_thread:
    a_transient_error_is_tried_again_and_every_try_is_kept;
    attempts_end_with_a_dead_letter;
    a_permanent_error_is_not_tried_again;
    doubt_is_held_for_a_person_where_the_policy_says_so;
    doubt_is_resent_by_default_and_counts;
    what_gets_no_permit_waits_in_the_database_and_not_for_the_next_tick;
    a_provider_that_panics_loses_nothing;
    a_claim_that_was_taken_over_writes_nothing;
    a_dead_instances_claim_is_taken_over_behind_many_that_are_held_here;
    what_is_due_while_no_permit_is_free_is_not_put_off_until_the_next_poll;
    no_more_is_claimed_of_what_goes_to_a_provider_than_may_be_in_doubt;
    what_a_dead_instance_held_is_taken_over_although_no_event_can_be_closed;
}
