//! Checks retention: what is deleted when it is old, and what is never deleted.

use std::time::Duration;

use campanile_domain::access::audit::Actor;
use campanile_domain::channel::Channel::{Email, Push, Sms, Websocket};
use campanile_domain::event::transition::Step;
use campanile_domain::event::{Failure, NewEvent};
use campanile_domain::fan_out::{Cursor, OutboxRow};
use campanile_domain::id::EventSeq;
use campanile_domain::send::{AddressOutcome, AddressResult, REJECTED, SendState};
use campanile_domain::status::{EventStatus, OutboxStatus, SendStatus};
use campanile_domain::time::{self, Timestamp, between};
use serde_json::json;

use super::Fixture;
use super::setup::{
    chunk_of, claimed, column, customer, entity, event, found, left_due, outcome, row, rows, step_of, summary,
};
use crate::{
    Acceptance, Capture, DeadLetterFilter, FanOutStep, Horizon, RerenderedTexts, Retained, SendJob,
    Settlement,
};

const AGE: Duration = Duration::from_hours(24);

/// Tables and views with rows of events, by their documented names.
const TABLES: [&str; 11] = [
    "event_outbox",
    "event_cancel",
    "notification_outbox",
    "event_notification",
    "notification",
    "notification_channel_send",
    "send_attempt",
    "send_address",
    "send_once",
    "captured_message",
    "dead_letter",
];

async fn retain(fixture: &Fixture, after: EventSeq, limit: usize) -> Retained {
    let now = fixture.store.now().await.expect("the database is there");
    fixture.store.retain(time::earlier(now, AGE), after, limit).await.expect("the database is there")
}

/// Runs one sweep. Returns the number of rows that each call deleted.
async fn sweep(fixture: &Fixture, limit: usize) -> Vec<u64> {
    let (mut rows, mut after) = (Vec::new(), Some(EventSeq::default()));
    while let Some(position) = after {
        let retained = retain(fixture, position, limit).await;
        rows.push(retained.rows);
        after = retained.next;
        assert!(rows.len() < 1_000, "a sweep ends");
    }
    rows
}

async fn sweep_all(fixture: &Fixture) -> u64 {
    sweep(fixture, 1_000).await.iter().sum()
}

async fn rows_in(fixture: &Fixture, table: &str) -> i64 {
    fixture.count(&format!("SELECT count(*) FROM {table}")).await
}

async fn rows_in_all(fixture: &Fixture) -> i64 {
    let mut rows = 0;
    for table in TABLES {
        rows += rows_in(fixture, table).await;
    }
    rows
}

async fn is_stored(fixture: &Fixture, id: &str) -> bool {
    fixture.count(&format!("SELECT count(*) FROM event_outbox WHERE event_id = '{id}'")).await == 1
}

async fn accept(fixture: &Fixture, event: NewEvent) -> Acceptance {
    fixture.store.accept(vec![event]).await.expect("the event is good")
}

fn sent(job: &SendJob) -> Settlement {
    let sent = outcome(job, SendState::Sent { external_id: None, at: Timestamp::UNIX_EPOCH });
    Settlement { capture: Capture::Keep { html: None }, ..sent }
}

fn in_doubt(job: &SendJob) -> Settlement {
    outcome(job, SendState::InDoubt { since: Timestamp::UNIX_EPOCH })
}

/// Creates a closed event whose e-mail to customer 42 was sent.
async fn done(fixture: &Fixture, id: &str) {
    let job = fixture.sending(id, Email).await;
    fixture.settle(vec![sent(&job)]).await;
    assert_eq!(fixture.close(&[id]).await, 1);
}

/// Creates a closed event whose rows were all received and claimed.
async fn received(fixture: &Fixture, id: &str, rows: &[OutboxRow]) -> Vec<SendJob> {
    fixture.published(&event(id), rows).await;
    let keys: Vec<_> = rows.iter().map(|row| claimed(row.key)).collect();
    let jobs = fixture.receive(&keys).await.jobs;
    assert_eq!(fixture.close(&[id]).await, 1);
    jobs
}

pub async fn an_old_event_goes_with_all_that_belongs_to_it(fixture: &Fixture) {
    fixture.accept(&[event("a")]).await;
    let claim = fixture.claim_new().await;
    let rows = rows("a", &customer("42"), &[Email, Push, Sms, Websocket]);
    let step = FanOutStep {
        decisions: Some(json!([{ "user_type": "CUSTOMER", "user_id": "42" }]).to_string()),
        entities: vec![(entity("RESTAURANT", "5"), true), (entity("RESTAURANT", "6"), false)],
        ..step_of(&claim.events()[0], Step::Finished(summary(4)))
    };
    let chunk = chunk_of(&step.event, &rows, true);
    let chunk = fixture.commit(claim, vec![step], vec![chunk]).await.remove(0);
    fixture.store.chunks_published(&[chunk.id]).await.expect("the database is there");
    let keys: Vec<_> = rows.iter().map(|row| claimed(row.key)).collect();
    let jobs = fixture.receive(&keys).await.jobs;
    let failed = outcome(&jobs[2], SendState::Failed { code: REJECTED });
    let address = jobs[1].address.split(' ').next().expect("it has several").to_owned();
    let done = vec![AddressResult { address, end: AddressOutcome::Sent { external_id: None } }];
    fixture.settle(vec![sent(&jobs[0]), Settlement { done, ..sent(&jobs[1]) }, failed]).await;
    let id = jobs[0].key.notification_id;
    fixture
        .execute(&format!(
            "INSERT INTO send_once (event_id, channel, address_hash, notification_id, at)
             VALUES ('a', 'SLACK', 'a hash', '{id}', '2026-01-01T00:00:00Z')"
        ))
        .await;
    fixture.execute("INSERT INTO event_cancel (event_id, reason) VALUES ('a', 'too late')").await;
    assert_eq!(fixture.close(&["a"]).await, 1);
    for table in TABLES {
        assert!(rows_in(fixture, table).await > 0, "{table} has nothing to lose");
    }
    let before = rows_in_all(fixture).await;
    fixture.advance(AGE * 2).await;
    let gone = retain(fixture, EventSeq::default(), 1_000).await;
    assert_eq!((i64::try_from(gone.rows), gone.next), (Ok(before), None));
    assert_eq!(rows_in_all(fixture).await, 0);
    assert_eq!(rows_in(fixture, "processed_event").await, 1);
    let kept = "SELECT count(*) FROM processed_event WHERE decisions IS NULL AND status = 'SUCCESS' AND recipients = 4";
    assert_eq!(fixture.count(kept).await, 1);
    assert_eq!(sweep_all(fixture).await, 0, "once is enough");
}

pub async fn an_event_that_is_forgotten_is_still_known(fixture: &Fixture) {
    done(fixture, "a").await;
    fixture.advance(AGE * 2).await;
    sweep_all(fixture).await;
    assert!(!is_stored(fixture, "a").await);
    assert_eq!(accept(fixture, event("a")).await, Acceptance::Accepted(vec![false]));
    let payload = serde_json::from_value(json!({ "total": 13 })).expect("an object is a payload");
    assert_eq!(accept(fixture, NewEvent { payload, ..event("a") }).await, Acceptance::Conflicts(vec![0]));
    fixture.insert("a").await;
    let claim = fixture.claim_new().await;
    assert!(found(&*claim, "a").known, "nobody is told again");
    let step = step_of(found(&*claim, "a"), Step::Known);
    fixture.commit(claim, vec![step], vec![]).await;
    assert_eq!(fixture.event_status("a").await, EventStatus::Processed);
}

pub async fn an_event_that_nobody_remembers_is_remembered_before_it_goes(fixture: &Fixture) {
    for id in ["given up", "cancelled"] {
        fixture.accept(&[event(id)]).await;
    }
    let claim = fixture.claim_new().await;
    let seq = found(&*claim, "given up").seq;
    drop(claim);
    let failure = Failure::new("BROKEN", "it broke");
    assert!(fixture.store.count_failure(seq, failure, 1).await.expect("the database is there"));
    fixture.execute("UPDATE event_outbox SET status = 'CANCELLED' WHERE event_id = 'cancelled'").await;
    assert_eq!(rows_in(fixture, "processed_event").await, 0);
    fixture.advance(AGE * 2).await;
    assert_eq!(sweep_all(fixture).await, 3, "two events and a dead letter");
    for id in ["given up", "cancelled"] {
        assert_eq!(accept(fixture, event(id)).await, Acceptance::Accepted(vec![false]));
        let payload = serde_json::from_value(json!({ "total": 13 })).expect("an object is a payload");
        assert_eq!(accept(fixture, NewEvent { payload, ..event(id) }).await, Acceptance::Conflicts(vec![0]));
        fixture.insert(id).await;
    }
    let claim = fixture.claim_new().await;
    assert!(!found(&*claim, "given up").known, "nobody was told, so it may be tried again");
    assert!(found(&*claim, "cancelled").known);
}

pub async fn a_young_event_stays(fixture: &Fixture) {
    done(fixture, "old").await;
    fixture.advance(AGE / 2).await;
    assert_eq!(retain(fixture, EventSeq::default(), 100).await, Retained::default());
    fixture.advance(AGE).await;
    done(fixture, "young").await;
    let young = "SELECT count(*) FROM notification_outbox WHERE event_id = 'young'";
    sweep_all(fixture).await;
    assert!(!is_stored(fixture, "old").await && is_stored(fixture, "young").await);
    assert_eq!((fixture.count(young).await, rows_in(fixture, "notification_outbox").await), (1, 1));
    assert_eq!(rows_in(fixture, "captured_message").await, 1);
    assert_eq!(fixture.trace("young").await.sends.len(), 1);
}

pub async fn an_event_that_is_not_closed_stays(fixture: &Fixture) {
    fixture.accept(&[event("begun")]).await;
    let claim = fixture.claim_new().await;
    let step = step_of(&claim.events()[0], Step::Continues(Cursor::default()));
    fixture.commit(claim, vec![step], vec![]).await;
    fixture.published(&event("published"), &[row("published", &customer("42"), Email)]).await;
    fixture.accept(&[event("fresh")]).await;
    fixture.advance(AGE * 2).await;
    assert_eq!(sweep_all(fixture).await, 0);
    assert_eq!(rows_in(fixture, "event_outbox").await, 3);
    assert_eq!(fixture.outbox_statuses("published").await, [OutboxStatus::Published]);
}

pub async fn failed_and_cancelled_events_go_too(fixture: &Fixture) {
    fixture.failed("failed").await;
    fixture.accept(&[event("cancelled")]).await;
    let claim = fixture.claim_new().await;
    let step = step_of(&claim.events()[0], Step::Cancelled("why not".to_owned()));
    fixture.commit(claim, vec![step], vec![]).await;
    fixture.refused("refused", &[row("refused", &customer("42"), Email)]).await;
    assert_eq!(fixture.close(&["refused"]).await, 1);
    fixture.advance(AGE * 2).await;
    sweep_all(fixture).await;
    assert_eq!(rows_in_all(fixture).await, 0);
    assert_eq!(rows_in(fixture, "processed_event").await, 3);
    fixture.insert("failed").await;
    assert!(!found(&*fixture.claim_new().await, "failed").known, "it may be tried again");
}

pub async fn a_send_that_is_not_settled_keeps_its_row_and_its_event(fixture: &Fixture) {
    for id in ["sending", "in doubt"] {
        let rows = rows(id, &customer("42"), &[Email, Sms]);
        let jobs = received(fixture, id, &rows).await;
        fixture.settle(vec![sent(&jobs[0])]).await;
        if id == "in doubt" {
            fixture.settle(vec![in_doubt(&jobs[1])]).await;
        }
    }
    let due = [row("due", &customer("41"), Email), row("due", &customer("42"), Sms)];
    fixture.published(&event("due"), &due).await;
    let jobs = fixture.receive(&[claimed(due[0].key), left_due(due[1].key)]).await.jobs;
    fixture.settle(vec![sent(&jobs[0])]).await;
    assert_eq!(fixture.close(&["due"]).await, 1);
    fixture.advance(AGE * 2).await;
    sweep_all(fixture).await;
    for (id, status) in
        [("sending", SendStatus::Sending), ("in doubt", SendStatus::InDoubt), ("due", SendStatus::Due)]
    {
        let trace = fixture.trace(id).await;
        assert_eq!(column(&trace.sends, |send| send.row.channel.clone()), [Sms]);
        assert_eq!(column(&trace.sends, |send| send.row.status.clone()), [status]);
        assert_eq!(
            column(&trace.outbox, |row| row.channel.clone()),
            [Sms],
            "what is settled is not needed any more"
        );
        assert_eq!(column(&trace.notifications, |row| row.user.user_id.as_str()), ["42"]);
        assert!(trace.processed.is_some());
    }
    let late = fixture.claim_due(Sms, 10).await.remove(0);
    assert_eq!(late.key, due[1].key);
    assert_eq!(fixture.send("due", late.key).await.row.status, SendStatus::Sending);
    fixture.settle(vec![sent(&late)]).await;
    sweep_all(fixture).await;
    assert!(!is_stored(fixture, "due").await && is_stored(fixture, "in doubt").await);
    assert_eq!(rows_in(fixture, "captured_message").await, 0, "it went with its event");
}

pub async fn a_large_event_goes_over_several_calls_and_last_itself(fixture: &Fixture) {
    let people: Vec<_> = (0..20).map(|n| customer(&n.to_string())).collect();
    let rows: Vec<_> = people.iter().flat_map(|user| rows("a", user, &[Email, Websocket])).collect();
    let jobs = received(fixture, "a", &rows).await;
    fixture.settle(jobs.iter().map(sent).collect()).await;
    let before = rows_in_all(fixture).await;
    fixture.advance(AGE * 2).await;
    let first = retain(fixture, EventSeq::default(), 5).await;
    assert!(first.next.is_some());
    assert!(is_stored(fixture, "a").await, "as long as something of it is there");
    let limit = 5;
    let calls = sweep(fixture, limit).await;
    assert!(calls.iter().all(|rows| *rows <= 4 * limit as u64), "{calls:?}");
    assert_eq!(i64::try_from(first.rows + calls.iter().sum::<u64>()), Ok(before));
    assert_eq!(rows_in_all(fixture).await, 0);
}

pub async fn a_sweep_passes_over_what_stays(fixture: &Fixture) {
    for id in ["a", "b", "c", "d", "e"] {
        done(fixture, id).await;
        fixture.accept(&[event(&format!("{id} waits"))]).await;
        let claim = fixture.claim_new().await;
        let steps = claim.events().iter().map(|claimed| {
            let mut cursor = Cursor::default();
            cursor.summary = summary(1);
            step_of(claimed, Step::Continues(cursor))
        });
        let steps = steps.collect();
        fixture.commit(claim, steps, vec![]).await;
    }
    fixture.advance(AGE * 2).await;
    for limit in [1, 3] {
        sweep(fixture, limit).await;
        assert_eq!(rows_in(fixture, "event_outbox").await, 5, "by {limit}");
    }
    assert_eq!(rows_in(fixture, "notification_outbox").await, 0);
}

pub async fn only_events_behind_the_cursor_go(fixture: &Fixture) {
    fixture.failed("a").await;
    fixture.accept(&[event("b")]).await;
    let claim = fixture.claim_new().await;
    let seq = found(&*claim, "b").seq;
    let step = step_of(found(&*claim, "b"), Step::Finished(summary(0)));
    fixture.commit(claim, vec![step], vec![]).await;
    fixture.failed("c").await;
    fixture.advance(AGE * 2).await;
    retain(fixture, seq, 100).await;
    assert!(is_stored(fixture, "a").await && is_stored(fixture, "b").await);
    assert!(!is_stored(fixture, "c").await);
}

pub async fn old_dead_letters_of_no_event_go(fixture: &Fixture) {
    fixture.fail_messages(&[None; 5]).await;
    fixture.advance(AGE * 2).await;
    fixture.fail_messages(&[None]).await;
    let calls = sweep(fixture, 2).await;
    assert!(calls.len() >= 3 && calls.iter().all(|rows| *rows <= 2), "{calls:?}");
    assert_eq!(calls.iter().sum::<u64>(), 5);
    assert_eq!(rows_in(fixture, "dead_letter").await, 1, "it is young");
}

pub async fn dead_letters_of_an_event_stay_as_long_as_it(fixture: &Fixture) {
    let rows = [row("a", &customer("41"), Sms), row("a", &customer("42"), Email)];
    let jobs = received(fixture, "a", &rows).await;
    fixture.settle(vec![outcome(&jobs[0], SendState::Failed { code: REJECTED }), in_doubt(&jobs[1])]).await;
    fixture.advance(AGE * 2).await;
    sweep_all(fixture).await;
    assert_eq!(rows_in(fixture, "dead_letter").await, 1);
}

pub async fn old_captured_messages_go_before_their_event(fixture: &Fixture) {
    let rows: Vec<_> = ["1", "2", "3", "4"].map(|user| row("a", &customer(user), Email)).to_vec();
    let jobs = received(fixture, "a", &rows).await;
    fixture.settle(vec![sent(&jobs[0]), sent(&jobs[1]), in_doubt(&jobs[3])]).await;
    fixture.advance(AGE * 2).await;
    fixture.settle(vec![sent(&jobs[2])]).await;
    sweep(fixture, 1).await;
    assert!(is_stored(fixture, "a").await, "one send is in doubt");
    let captured = fixture.store.list_captured(None, 0, 10).await.expect("the database is there");
    assert_eq!(column(&captured, |row| row.user.user_id.as_str()), ["3"], "it is young");
}

pub async fn an_event_that_was_brought_back_stays(fixture: &Fixture) {
    fixture.failed("event").await;
    fixture.refused("row", &[row("row", &customer("42"), Email)]).await;
    assert_eq!(fixture.close(&["row"]).await, 1);
    fixture.advance(AGE * 2).await;
    let all = DeadLetterFilter { limit: 10, ..DeadLetterFilter::default() };
    assert_eq!(
        fixture
            .store
            .replay(all, RerenderedTexts::new(), &Actor::AdminKey)
            .await
            .expect("the database is there")
            .replayed,
        2
    );
    assert_eq!(sweep_all(fixture).await, 0);
    assert_eq!(fixture.event_status("event").await, EventStatus::Pending);
    assert_eq!(fixture.outbox_statuses("row").await, [OutboxStatus::Pending]);
}

const DAY: Duration = Duration::from_hours(24);

/// Moves the horizon as an instance that knows this version and was up for this time.
async fn move_horizon(fixture: &Fixture, known_version: Option<i64>, by: Duration) -> Option<Horizon> {
    fixture.store.move_horizon(30 * DAY, known_version, by).await.expect("the database is there")
}

pub async fn a_clock_that_jumps_ahead_deletes_nothing(fixture: &Fixture) {
    assert_eq!(move_horizon(fixture, None, DAY).await, None, "there is nothing to keep");
    done(fixture, "a").await;
    let arrived = fixture.store.now().await.expect("the database is there");
    fixture.advance(3_650 * DAY).await;
    let first = move_horizon(fixture, None, 100 * DAY).await.expect("there is a row");
    assert!(between(first.before, arrived) < DAY && first.before <= arrived, "by the row, not by the clock");
    let horizon = move_horizon(fixture, Some(first.version), 2 * DAY).await.expect("there is a row");
    assert_eq!(between(first.before, horizon.before), 2 * DAY);
    assert_eq!(horizon.version, first.version + 1);
    assert_eq!(
        move_horizon(fixture, None, 2 * DAY).await,
        Some(horizon),
        "who has not seen it moves nothing"
    );
    let late = move_horizon(fixture, Some(first.version), 2 * DAY).await;
    assert_eq!(late, Some(horizon), "nor does who comes behind another");
    assert_eq!(
        fixture.store.retain(first.before, EventSeq::default(), 1_000).await.expect("it is there").rows,
        0
    );
    assert!(is_stored(fixture, "a").await);
    assert!(
        fixture.store.retain(horizon.before, EventSeq::default(), 1_000).await.expect("it is there").rows > 0
    );
    assert!(!is_stored(fixture, "a").await);
}

pub async fn the_horizon_follows_a_clock_that_is_right(fixture: &Fixture) {
    done(fixture, "a").await;
    let mut horizon = move_horizon(fixture, None, DAY).await.expect("there is a row");
    for _ in 0..40 {
        fixture.advance(DAY).await;
        let moved = move_horizon(fixture, Some(horizon.version), 2 * DAY).await.expect("there is a row");
        assert!(moved.before >= horizon.before, "it never goes back");
        horizon = moved;
    }
    let now = fixture.store.now().await.expect("the database is there");
    let age = between(horizon.before, now);
    assert!(age >= 30 * DAY && age < 31 * DAY, "{age:?}");
}

pub async fn the_horizon_begins_at_the_oldest_event_that_may_go(fixture: &Fixture) {
    fixture.accept(&[event("waits")]).await;
    fixture.advance(100 * DAY).await;
    done(fixture, "a").await;
    let arrived = fixture.store.now().await.expect("the database is there");
    fixture.advance(40 * DAY).await;
    let horizon = move_horizon(fixture, None, DAY).await.expect("there is a row");
    assert!(horizon.before <= arrived && between(horizon.before, arrived) < DAY, "what waits is passed over");
}
