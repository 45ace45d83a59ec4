//! Tests concurrent claims: their locks, what happens to them when a connection ends, and that they never deadlock.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use campanile_domain::channel::Channel;
use campanile_domain::event::transition::Step;
use campanile_domain::id::EventSeq;
use campanile_domain::priority::Priority;
use campanile_domain::queue::Queue;
use campanile_domain::send::SendState;
use campanile_testkit::until;

use super::{LEASE, QUEUE, event, fixture, ids, nothing, received, rows};
use crate::conformance::Fixture;
use crate::conformance::setup::{chunk_of, commit_of, customer, instance, outcome, row, step_of, summary};
use crate::postgres::test_database::Database;
use crate::{
    Acceptance, Claim, ClaimedEvent, FanOutClaim, FanOutCommit, ReceivedKey, RepublishCursor, Store,
    StoreError,
};

const NEW_EVENTS: Claim = Claim::New { limit: 3 };

#[tokio::test]
async fn a_claim_whose_connection_ends_leaves_its_events_to_others() {
    let fixture = fixture().await;
    fixture.accept(&[event("a"), event("b")]).await;
    let claim = fixture.try_claim(NEW_EVENTS).await.unwrap();
    fixture
        .execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
             WHERE datname = current_database() AND state = 'idle in transaction'",
        )
        .await;
    let taken_over = until("the events are free", async || fixture.try_claim(NEW_EVENTS).await).await;
    assert_eq!(ids(&*taken_over), ["a", "b"]);
    let late = claim.commit(nothing()).await;
    assert!(matches!(late, Err(StoreError::Unavailable(_))), "{late:?}");
}

/// An e-mail to customer 42 for each event of the claim.
fn one_email_each(claim: &dyn FanOutClaim) -> FanOutCommit {
    let steps = claim.events().iter().map(|event| step_of(event, Step::Finished(summary(1)))).collect();
    let mail = |claimed: &ClaimedEvent| {
        let row = row(claimed.event.event_id.as_str(), &customer("42"), Channel::Email);
        chunk_of(&claimed.event, &[row], true)
    };
    commit_of(steps, claim.events().iter().map(mail).collect())
}

#[tokio::test]
async fn an_event_that_was_thought_to_be_new_and_is_not_goes_through_alone() {
    let fixture = fixture().await;
    fixture.accept(&[event("a"), event("b"), event("c")]).await;
    let claim = fixture.try_claim(NEW_EVENTS).await.unwrap();
    let seqs: Vec<EventSeq> = claim.events().iter().map(|claimed| claimed.seq).collect();
    // The first event is not remembered, but its row exists. The second event is remembered as failed.
    fixture
        .execute(
            "INSERT INTO outbox (notification_id, channel, event_id, recipient_type, recipient_id,
            recipient_address, title, body,
                                 priority, audience, shared_read, queue, created_at)
             VALUES ('00000000-0000-7000-8000-000000000001', 'EMAIL', 'a', 'CUSTOMER', '42', '', '', '',
                 'NORMAL', '', false, '', now());
             INSERT INTO processed_event (event_id, body_hash, status, instance, created_at)
             VALUES ('b', 'x', 'FAILED', 'another', now())",
        )
        .await;
    let commit_of_all = one_email_each(&*claim);
    let refused = claim.commit(commit_of_all).await;
    assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
    assert_eq!(fixture.count("SELECT count(*) FROM outbox").await, 1);

    for (seq, notified) in seqs.into_iter().zip([0, 1, 1]) {
        let claim = fixture.try_claim(Claim::ByIds(vec![seq])).await.unwrap();
        let commit_of_one = one_email_each(&*claim);
        let chunks = claim.commit(commit_of_one).await.unwrap();
        assert_eq!(chunks.iter().map(|chunk| chunk.rows.len()).sum::<usize>(), notified, "event {seq}");
    }
    assert_eq!(fixture.count("SELECT count(*) FROM event_outbox WHERE status = 'PUBLISHED'").await, 3);
    assert_eq!(fixture.count("SELECT count(*) FROM outbox").await, 3);
}

#[tokio::test]
async fn the_store_works_again_after_the_server_ended_every_connection() {
    let fixture = fixture().await;
    fixture.accept(&[event("a")]).await;
    let open = [fixture.try_claim(NEW_EVENTS).await, fixture.try_claim(NEW_EVENTS).await];
    drop(open);
    fixture
        .execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
             WHERE datname = current_database() AND pid <> pg_backend_pid()",
        )
        .await;
    let claim = until("the store answers", async || match fixture.store.claim_events(NEW_EVENTS).await {
        Ok(claim) => claim,
        Err(StoreError::Unavailable(_)) => None,
        Err(other) => panic!("{other}"),
    });
    assert_eq!(ids(&*claim.await), ["a"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_events_in_opposite_orders_are_accepted_once_and_nobody_waits_in_a_circle() {
    let fixture = fixture().await;
    let up: Vec<_> = (0..200).map(|n| event(&n.to_string())).collect();
    let down: Vec<_> = up.iter().rev().cloned().collect();
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..8 {
        let (store, events) = (fixture.store.clone(), if n % 2 == 0 { up.clone() } else { down.clone() });
        tasks.spawn(async move { store.accept(events).await });
    }
    let mut created = 0;
    while let Some(accepted) = tasks.join_next().await {
        match accepted.unwrap().unwrap() {
            Acceptance::Accepted(new) => created += new.into_iter().filter(|new| *new).count(),
            Acceptance::Conflicts(conflicts) => panic!("{conflicts:?}"),
        }
    }
    assert_eq!(created, 200);
    assert_eq!(fixture.count("SELECT count(*) FROM event_outbox").await, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_who_receive_the_same_message_one_sends_it() {
    let fixture = fixture().await;
    let rows = rows("a", 300);
    fixture.published(&event("a"), &rows).await;
    let backwards: Vec<_> = received(&rows).into_iter().rev().collect();
    let (first, second) = (instance("one"), instance("other"));
    let (one, other) = tokio::join!(
        fixture.store.receive(received(&rows), &first, LEASE),
        fixture.store.receive(backwards, &second, LEASE),
    );
    let (one, other) = (one.unwrap(), other.unwrap());
    let keys: HashSet<_> = one.jobs.iter().chain(&other.jobs).map(|job| job.key).collect();
    assert_eq!((keys.len(), one.jobs.len() + other.jobs.len()), (300, 300));
    assert_eq!(one.redelivered + other.redelivered, 300);
    assert_eq!(fixture.count("SELECT count(*) FROM notification").await, 300);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_two_find_lost_at_once_is_published_again_once() {
    let fixture = fixture().await;
    let rows = rows("a", 300);
    fixture.published(&event("a"), &rows).await;
    let republish = || {
        fixture.store.republish(vec![Queue::named(QUEUE)], Duration::ZERO, RepublishCursor::default(), 1_000)
    };
    let (one, other) = tokio::join!(republish(), republish());
    assert_eq!(one.unwrap().rows + other.unwrap().rows, 300);
    let chunk = fixture.store.claim_chunk(&Queue::named(QUEUE), LEASE).await.unwrap().unwrap();
    assert_eq!(chunk.rows.len(), 300);
    assert!(fixture.store.claim_chunk(&Queue::named(QUEUE), LEASE).await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn due_sends_are_shared_by_those_who_claim_them() {
    let fixture = fixture().await;
    let rows = rows("a", 300);
    fixture.published(&event("a"), &rows).await;
    let mut waiting = received(&rows);
    for key in &mut waiting {
        key.claim = false;
    }
    fixture.receive(&waiting).await;
    let claim = || fixture.claim_due(Channel::Email, 100);
    let (one, two, three) = tokio::join!(claim(), claim(), claim());
    let keys: HashSet<_> = one.iter().chain(&two).chain(&three).map(|job| job.key).collect();
    assert_eq!(keys.len(), one.len() + two.len() + three.len());
    assert_eq!(keys.len(), 300);
}

#[tokio::test]
async fn statements_that_ddl_made_useless_are_made_anew() {
    let fixture = fixture().await;
    fixture.accept(&[event("a")]).await;
    let trace = async || fixture.store.list_captured(None, 0, 1).await;
    for _ in 0..3 {
        trace().await.unwrap();
    }
    fixture.execute("ALTER TABLE captured_message ALTER COLUMN title TYPE varchar(500)").await;
    // Each connection that had prepared the statement may fail once.
    let answers = [trace().await, trace().await, trace().await];
    assert!(answers.iter().any(Result::is_err), "the plan was not useless: {answers:?}");
    assert!(answers[2].is_ok(), "{answers:?}");
}

#[tokio::test]
async fn a_retry_takes_the_place_that_another_message_left_in_the_queue() {
    let fixture = fixture().await;
    let job = fixture.sending("a", Channel::Email).await;
    // Creates the state after two instances received the same message at once.
    fixture.execute("INSERT INTO send_due SELECT channel, 1, now(), notification_id FROM send").await;
    let at = fixture.store.now().await.unwrap();
    let lost = fixture.settle(vec![outcome(&job, SendState::Due { at })]).await;
    assert!(lost.is_empty());
    let again = fixture.claim_due(Channel::Email, 10).await;
    assert_eq!(again.iter().map(|job| job.attempt).collect::<Vec<_>>(), [2]);
}

/// Sends beyond the limit would have no permit, and would wait until their lease has expired.
#[tokio::test]
async fn no_more_due_sends_are_claimed_than_asked_for_whatever_the_planner_believes() {
    let fixture = fixture().await;
    fixture.waiting("first", Channel::Sms, Priority::Normal).await;
    // From now on the planner assumes that the table has one row.
    fixture.execute("ANALYZE campanile.send_due").await;
    for n in 0..40 {
        fixture.waiting(&format!("evt-{n}"), Channel::Sms, Priority::Normal).await;
    }
    assert_eq!(fixture.claim_due(Channel::Sms, 7).await.len(), 7);
    assert_eq!(fixture.claim_due(Channel::Sms, 100).await.len(), 34);
}

/// Two instances receive one notification at the same moment, for one channel each.
#[tokio::test]
async fn a_notification_that_somebody_else_is_just_writing_is_waited_for_and_found() {
    let database = Database::new().await;
    let store: Arc<dyn Store> = Arc::new(database.open().await);
    let mut other = database.connect().await;
    let fixture = Fixture { store: Arc::clone(&store), test_database: Box::new(database) };
    let row = rows("a", 1).remove(0);
    fixture.published(&event("a"), std::slice::from_ref(&row)).await;

    let transaction = other.transaction().await.unwrap();
    let write =
        "INSERT INTO campanile.notification (id, event_id, event_type, user_type, user_id, title, body,
        properties, priority,
                                                    shared_read, created_at)
                 VALUES ($1, 'a', 'ORDER_CREATED', 'CUSTOMER', $2, '', '', '{}', 'NORMAL', false, now())";
    let user = row.recipient.user_id.as_str();
    transaction.execute(write, &[&row.key.notification_id.0, &user]).await.unwrap();
    let key = ReceivedKey { key: row.key, claim: true, published: None };
    let receiving = tokio::spawn(async move { store.receive(vec![key], &instance("test"), LEASE).await });
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    until("somebody waits", async || (fixture.count(waits).await > 0).then_some(())).await;
    transaction.commit().await.unwrap();

    let received = receiving.await.unwrap().unwrap();
    assert_eq!((received.jobs.len(), received.redelivered), (1, 0), "{received:?}");
    assert_eq!(fixture.count("SELECT count(*) FROM send WHERE status = 'SENDING'").await, 1);
}

#[tokio::test]
async fn what_was_received_already_leaves_no_claim_behind() {
    let fixture = fixture().await;
    let row = rows("a", 1).remove(0);
    fixture.published(&event("a"), std::slice::from_ref(&row)).await;
    let key = ReceivedKey { key: row.key, claim: true, published: None };
    assert_eq!(fixture.receive(&[key]).await.jobs.len(), 1);
    assert_eq!(fixture.receive(&[key]).await.redelivered, 1);
    assert_eq!(fixture.count("SELECT count(*) FROM send_claim").await, 1);
}
