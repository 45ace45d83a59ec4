//! Checks that a trace contains the instance and the time of every stage.

use std::time::Duration;

use campanile_domain::access::audit::Actor;
use campanile_domain::channel::Channel::{self, Email, Websocket};
use campanile_domain::event::Failure;
use campanile_domain::event::transition::Step;
use campanile_domain::fan_out::OutboxRow;
use campanile_domain::send::{OutcomeKind, SendState};
use campanile_domain::time::{Moment, Timestamp, from_text, later, to_text};

use super::Fixture;
use super::setup::{
    LEASE, claimed, column, commit_of, customer, event, left_due, outcome, rows, step_of, summary,
};
use crate::{
    FanOutCommit, Instance, PublishStamp, ReceivedKey, Resolution, SendJob, SendStages, Settlement, Shown,
    StageStamp, TracedSend,
};

const SENT: SendState = SendState::Sent { external_id: None, at: Timestamp::UNIX_EPOCH };
const SECOND: Duration = Duration::from_secs(1);

async fn instance(fixture: &Fixture, name: &str) -> Instance {
    fixture.store.register_instance(name).await.expect("the database is there")
}

async fn now(fixture: &Fixture) -> Timestamp {
    fixture.store.now().await.expect("the database is there")
}

/// Event `a` for customer 42 over e-mail and web socket, published.
async fn notified(fixture: &Fixture) -> Vec<OutboxRow> {
    let rows = rows("a", &customer("42"), &[Email, Websocket]);
    fixture.published(&event("a"), &rows).await;
    rows
}

async fn receive(fixture: &Fixture, keys: Vec<ReceivedKey>, by: &Instance) -> Vec<SendJob> {
    fixture.store.receive(keys, by, LEASE).await.expect("the database is there").jobs
}

async fn settle(fixture: &Fixture, settlement: Settlement, by: &Instance) {
    let finished = vec![settlement.job.claim];
    fixture.store.settle(vec![settlement], finished, by.id).await.expect("the database is there");
}

/// The stages of a send of event `a`.
async fn stages(fixture: &Fixture, channel: Channel) -> SendStages {
    let mut sends = fixture.trace("a").await.sends.into_iter();
    sends.find(|send| send.row.channel == channel).expect("it was received").stages
}

fn stamp(at: Option<Timestamp>, instance: &str) -> StageStamp {
    let at = at.map(|at| Shown::Typed(Moment(from_text(&to_text(at)).expect("a time"))));
    StageStamp { at, instance: Some(instance.to_owned()) }
}

fn at(stage: Option<&StageStamp>) -> Timestamp {
    let at = stage.and_then(|stage| stage.at.as_ref()?.at());
    at.unwrap_or_else(|| panic!("{stage:?} has no time"))
}

fn by(stage: Option<&StageStamp>) -> Option<&str> {
    stage?.instance.as_deref()
}

pub async fn an_instance_tries_to_write_in_its_own_row(fixture: &Fixture) {
    let (first, second) = (instance(fixture, "first").await, instance(fixture, "second").await);
    let written = "SELECT count(*) FROM instance WHERE written_at IS NOT NULL";
    assert_eq!(fixture.test_database.count(written).await, 0);
    for _ in 0..2 {
        fixture.store.write_probe(first.id).await.expect("it can write");
    }
    assert_eq!(fixture.test_database.count(written).await, 1);
    fixture.test_database.execute("DELETE FROM instance WHERE name = 'second'").await;
    let error = fixture.store.write_probe(second.id).await.expect_err("there is nothing to write to");
    assert!(error.to_string().contains("restart"), "{error}");
}

pub async fn a_database_is_told_from_others(fixture: &Fixture) {
    let identity = async || fixture.store.identity().await.expect("the database is there");
    let ours = identity().await;
    assert!(ours.len() == 16 && ours == identity().await, "{ours}");
}

pub async fn a_name_keeps_its_number(fixture: &Fixture) {
    let (first, second) = (instance(fixture, "first").await, instance(fixture, "second").await);
    assert_ne!(first.id, second.id);
    assert_eq!(instance(fixture, "first").await, first);
    assert_eq!(instance(fixture, "third").await.name, "third");
    assert_eq!(fixture.test_database.count("SELECT count(*) FROM instance").await, 3);
}

pub async fn a_trace_has_instance_and_time_of_every_stage(fixture: &Fixture) {
    let before = now(fixture).await;
    let rows = notified(fixture).await;
    let names = ["publisher", "receiver", "settler"];
    let [sender, receiver, settler] = [
        instance(fixture, names[0]).await,
        instance(fixture, names[1]).await,
        instance(fixture, names[2]).await,
    ];
    let published_at = now(fixture).await;
    let published = Some(PublishStamp { at: published_at, by: sender.id });
    let keys = rows.iter().map(|row| ReceivedKey { key: row.key, claim: true, published }).collect();
    fixture.test_database.advance(SECOND).await;
    let job = receive(fixture, keys, &receiver).await.pop().expect("the e-mail was claimed");
    let sending = stages(fixture, Email).await;
    assert_eq!((sending.send, sending.settle), (Some(stamp(None, "receiver")), None));
    let attempted_at = now(fixture).await;
    fixture.test_database.advance(SECOND).await;
    let sent = Settlement { attempted_at: Some(attempted_at), ..outcome(&job, SENT) };
    settle(fixture, sent, &settler).await;

    let trace = fixture.trace("a").await;
    let fan_out = &trace.event.stages.fan_out;
    assert_eq!(by(fan_out.as_ref()), Some("test"));
    assert_eq!(fan_out.as_ref().and_then(|stage| stage.at.clone()), trace.event.row.published_at);
    assert!(to_text(at(fan_out.as_ref())) >= to_text(before));
    let email = stages(fixture, Email).await;
    let row = &trace.sends[0].row;
    assert_eq!(email.publish, Some(stamp(Some(published_at), "publisher")));
    assert_eq!(email.receive, Some(stamp(row.created_at.at(), "receiver")));
    assert_eq!(email.send, Some(stamp(Some(attempted_at), "receiver")));
    assert_eq!(email.settle, Some(stamp(row.sent_at.as_ref().and_then(Shown::at), "settler")));
    let times = [&email.publish, &email.receive, &email.send, &email.settle].map(|stage| at(stage.as_ref()));
    assert!(at(fan_out.as_ref()) <= times[0] && times.is_sorted(), "{email:?}");
    assert!(times[0] < times[1] && times[2] < times[3], "{email:?}");

    // A web socket message counts as sent when it is received.
    let socket = stages(fixture, Websocket).await;
    assert_eq!(socket.publish, email.publish);
    assert_eq!(socket.send, socket.receive);
    assert_eq!(socket.settle, socket.receive);
}

pub async fn a_retry_has_instance_and_time_of_each_attempt(fixture: &Fixture) {
    let rows = notified(fixture).await;
    let [first, second] = [instance(fixture, "first").await, instance(fixture, "second").await];
    let job = receive(fixture, vec![claimed(rows[0].key)], &first).await.remove(0);
    let attempted_at = now(fixture).await;
    let due = SendState::Due { at: Timestamp::UNIX_EPOCH };
    settle(fixture, Settlement { attempted_at: Some(attempted_at), ..outcome(&job, due) }, &first).await;
    let email = stages(fixture, Email).await;
    assert_eq!((by(email.send.as_ref()), by(email.settle.as_ref())), (Some("first"), Some("first")));

    fixture.test_database.advance(SECOND).await;
    let mut jobs = fixture.store.claim_due(Email, 1, &second, LEASE).await.expect("the database is there");
    let between = stages(fixture, Email).await;
    assert_eq!((by(between.send.as_ref()), &between.settle), (Some("second"), &email.settle));
    let attempted_at = now(fixture).await;
    let sent = Settlement { attempted_at: Some(attempted_at), ..outcome(&jobs.remove(0), SENT) };
    settle(fixture, sent, &second).await;
    let trace = fixture.trace("a").await;
    let TracedSend { row, attempts, .. } = &trace.sends[0];
    assert_eq!(column(attempts, |attempt| attempt.instance.as_deref()), [Some("first"), Some("second")]);
    assert_eq!(attempts[0].row.at.at(), Some(at(email.settle.as_ref())));
    let email = stages(fixture, Email).await;
    assert_eq!(by(email.receive.as_ref()), Some("first"));
    assert_eq!(email.send, Some(stamp(Some(attempted_at), "second")));
    assert_eq!(email.settle, Some(stamp(row.sent_at.as_ref().and_then(Shown::at), "second")));
}

pub async fn what_a_dead_instance_left_is_traced_to_it(fixture: &Fixture) {
    let rows = notified(fixture).await;
    let [dead, alive, api] =
        [instance(fixture, "dead").await, instance(fixture, "alive").await, instance(fixture, "api").await];
    let job = receive(fixture, vec![claimed(rows[0].key)], &dead).await.remove(0);
    settle(fixture, outcome(&job, SendState::InDoubt { since: Timestamp::UNIX_EPOCH }), &alive).await;
    let email = stages(fixture, Email).await;
    assert_eq!(email.send, Some(stamp(None, "dead")), "nobody knows when");
    assert_eq!(by(email.settle.as_ref()), Some("alive"));
    fixture
        .store
        .resolve(job.key, Resolution::Sent, None, api.id, &Actor::AdminKey)
        .await
        .expect("the database is there");
    let trace = fixture.trace("a").await;
    let TracedSend { row, attempts, .. } = &trace.sends[0];
    assert_eq!(column(attempts, |attempt| attempt.instance.as_deref()), [Some("dead"), Some("api")]);
    let email = stages(fixture, Email).await;
    assert_eq!(email.settle, Some(stamp(row.sent_at.as_ref().and_then(Shown::at), "api")));
}

pub async fn what_was_released_has_no_attempt_and_no_outcome(fixture: &Fixture) {
    let rows = notified(fixture).await;
    let [first, second] = [instance(fixture, "first").await, instance(fixture, "second").await];
    assert!(receive(fixture, vec![left_due(rows[0].key)], &first).await.is_empty());
    assert_eq!(stages(fixture, Email).await.send, None);
    let mut jobs = fixture.store.claim_due(Email, 1, &second, LEASE).await.expect("the database is there");
    let due = outcome(&jobs.remove(0), SendState::Due { at: Timestamp::UNIX_EPOCH });
    settle(fixture, Settlement { outcome: OutcomeKind::NotAttempted, error: None, ..due }, &second).await;
    let email = stages(fixture, Email).await;
    assert_eq!((email.publish, email.settle), (None, None));
    assert_eq!(email.send, Some(stamp(None, "second")));
}

pub async fn a_stamp_of_the_future_is_cut_to_the_receipt(fixture: &Fixture) {
    let rows = notified(fixture).await;
    let by = instance(fixture, "ahead").await;
    let at = later(now(fixture).await, Duration::from_hours(1));
    let published = Some(PublishStamp { at, by: by.id });
    receive(fixture, vec![ReceivedKey { key: rows[0].key, claim: true, published }], &by).await;
    let email = stages(fixture, Email).await;
    assert_eq!(email.publish, email.receive);
}

pub async fn messages_without_a_stamp_are_received_all_the_same(fixture: &Fixture) {
    let rows = notified(fixture).await;
    let by = instance(fixture, "receiver").await;
    let forged = Some(PublishStamp { at: Timestamp::UNIX_EPOCH, by: crate::InstanceId(i32::MAX) });
    let keys = vec![claimed(rows[0].key), ReceivedKey { published: forged, ..claimed(rows[1].key) }];
    assert_eq!(receive(fixture, keys, &by).await.len(), 1);
    assert_eq!(stages(fixture, Email).await.publish, None);
    let socket = stages(fixture, Websocket).await;
    let at = Some(Shown::Typed(Moment(Timestamp::UNIX_EPOCH)));
    assert_eq!(socket.publish, Some(StageStamp { at, instance: None }));
}

pub async fn a_fan_out_is_traced_to_this_event_and_not_to_its_namesake(fixture: &Fixture) {
    fixture.accept(&[event("a")]).await;
    assert_eq!(fixture.trace("a").await.event.stages.fan_out, None);
    let claim = fixture.claim_new().await;
    let step = step_of(&claim.events()[0], Step::Finished(summary(0)));
    fixture.commit(claim, vec![step], vec![]).await;
    assert_eq!(by(fixture.trace("a").await.event.stages.fan_out.as_ref()), Some("test"));

    // The same id again, years later, inserted by SQL.
    fixture.test_database.execute("DELETE FROM event_outbox").await;
    fixture.test_database.advance(SECOND).await;
    let again = "INSERT INTO event_outbox (event_id, event_type, aggregate_type, aggregate_id, created_at)
                 VALUES ('a', 'ORDER_CREATED', 'ORDER', '7', '2100-01-01T00:00:00Z')";
    fixture.test_database.execute(again).await;
    let claim = fixture.claim_new().await;
    let step = step_of(&claim.events()[0], Step::Known);
    fixture.commit(claim, vec![step], vec![]).await;
    let event = fixture.trace("a").await.event;
    assert!(event.row.published_at.is_some());
    let expected = StageStamp { at: event.row.published_at, instance: None };
    assert_eq!(event.stages.fan_out, Some(expected));
}

pub async fn an_event_that_fails_again_is_traced_to_the_last_time(fixture: &Fixture) {
    fixture.accept(&[event("a")]).await;
    let mut times = Vec::new();
    for name in ["first", "second"] {
        let claim = fixture.claim_new().await;
        let step = step_of(&claim.events()[0], Step::Failed(Failure::new("NO_AUDIENCE", "nobody")));
        let commit = FanOutCommit { instance: name.to_owned(), ..commit_of(vec![step], vec![]) };
        claim.commit(commit).await.expect("the database is there");
        let fan_out = fixture.trace("a").await.event.stages.fan_out;
        assert_eq!(by(fan_out.as_ref()), Some(name));
        times.push(at(fan_out.as_ref()));
        fixture.test_database.execute("UPDATE event_outbox SET status = 'PENDING'").await;
        fixture.test_database.advance(SECOND).await;
    }
    assert!(times[0] < times[1], "{times:?}");
}
