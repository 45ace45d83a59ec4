//! Checks that dead letters are listed, and that a replay moves the failed event, row or send back to the stage where
//! it failed.

use std::time::Duration;

use campanile_domain::access::audit::Actor;
use campanile_domain::channel::Channel::{Email, Push, Sms};
use campanile_domain::event::Failure;
use campanile_domain::event::transition::Step;
use campanile_domain::fan_out::{Cursor, OutboxRow};
use campanile_domain::id::{EventId, EventSeq, NotificationId, SendKey, UserId, UserTypeName};
use campanile_domain::priority::Priority::{High, Normal};
use campanile_domain::queue::Queue;
use campanile_domain::replay::RowText;
use campanile_domain::send::{EXHAUSTED, REJECTED, SendState};
use campanile_domain::status::{EventStatus, OutboxStatus, ProcessedStatus, SendStatus};
use campanile_domain::template::Text;
use campanile_domain::time::Timestamp;

use super::Fixture;
use super::setup::{
    LEASE, QUEUE, chunk_of, claimed, column, commit_of, customer, event, event_id, found, outcome, row, rows,
    step_of, summary,
};
use crate::{
    Chunk, Claim, DeadLetterFilter, DeadLetterRow, FanOutCommit, ListedDeadLetter, Replayed, RerenderedTexts,
    Shown,
};

const ALL: DeadLetterFilter = DeadLetterFilter {
    id: None,
    event_id: None,
    stage: None,
    channel: None,
    provider: None,
    reason: None,
    error: None,
    replayed: false,
    until: None,
    after: 0,
    limit: 100,
};

fn of_event(id: &str) -> DeadLetterFilter {
    DeadLetterFilter { event_id: Some(id.to_owned()), ..ALL }
}

async fn list(fixture: &Fixture, filter: DeadLetterFilter) -> Vec<ListedDeadLetter> {
    fixture.store.list_dead_letters(filter).await.expect("the database is there")
}

async fn replay(fixture: &Fixture, filter: DeadLetterFilter) -> Replayed {
    fixture
        .store
        .replay(filter, RerenderedTexts::new(), &Actor::AdminKey)
        .await
        .expect("the database is there")
}

/// Replays all dead letters and checks that there were `count`.
async fn replay_all(fixture: &Fixture, count: u64) {
    assert_eq!(replay(fixture, ALL).await, Replayed { replayed: count, skipped: vec![], next: None });
}

/// Checks that nothing is replayed. Returns the reasons.
async fn skipped(fixture: &Fixture, filter: DeadLetterFilter) -> Vec<String> {
    let replayed = replay(fixture, filter).await;
    assert_eq!(replayed.replayed, 0);
    replayed.skipped.into_iter().map(|(_, why)| why).collect()
}

/// Marks all dead letters as not replayed.
async fn reset_replays(fixture: &Fixture) {
    fixture.execute("UPDATE dead_letter SET replayed_at = NULL").await;
}

async fn claim(fixture: &Fixture, queue: &str) -> Option<Chunk> {
    fixture.store.claim_chunk(&Queue::named(queue), LEASE).await.expect("the database is there")
}

fn keys(chunk: &Chunk) -> Vec<SendKey> {
    chunk.rows.iter().map(|send| send.row.key).collect()
}

fn id(dead_letter: &ListedDeadLetter) -> i64 {
    dead_letter.row.id
}

fn events(dead_letters: &[ListedDeadLetter]) -> Vec<&str> {
    column(dead_letters, |dead_letter| dead_letter.row.event_id.as_ref().map_or("", EventId::as_str))
}

pub async fn dead_letters_are_listed_in_pages_by_age(fixture: &Fixture) {
    for id in ["c", "a", "e", "b", "d"] {
        fixture.failed(id).await;
    }
    let (mut listed, mut after) = (Vec::new(), 0);
    loop {
        let page = list(fixture, DeadLetterFilter { after, limit: 2, ..ALL }).await;
        let Some(last) = page.last() else { break };
        assert!(page.len() <= 2);
        after = id(last);
        listed.extend(page);
    }
    assert_eq!(events(&listed), ["c", "a", "e", "b", "d"]);
    assert!(list(fixture, DeadLetterFilter { after, ..of_event("d") }).await.is_empty());
}

pub async fn a_dead_letter_has_all_its_columns(fixture: &Fixture) {
    fixture.failed_send("a", Sms).await;
    fixture.fail_messages(&[None]).await;
    let dead_letters = list(fixture, ALL).await;
    let (send, message) = (&dead_letters[0], &dead_letters[1]);
    assert_eq!(send.row.stage, "send");
    assert_eq!(send.row.event_id, Some(event_id("a")));
    assert_eq!(send.row.recipient_type.as_ref().map(UserTypeName::as_str), Some("CUSTOMER"));
    assert_eq!(send.row.recipient_id.as_ref().map(UserId::as_str), Some("42"));
    assert_eq!(send.row.channel, Some(Shown::Typed(Sms)));
    assert_eq!(send.row.provider.as_deref(), Some("provider"));
    assert_eq!(send.row.reason, "EXHAUSTED");
    assert_eq!(send.row.error, "EXHAUSTED: busy");
    assert!(send.row.created_at.at().is_some() && send.row.replayed_at.is_none() && send.message.is_none());
    assert_eq!(column(&send.attempts, |attempt| attempt.outcome.as_str()), ["RETRY", "REJECTED"]);
    assert_eq!((message.row.stage.as_str(), message.message.as_deref()), ("receive", Some("{")));
    let DeadLetterRow { event_id, recipient_type, recipient_id, channel, provider, .. } = &message.row;
    assert!(event_id.is_none() && recipient_type.is_none() && recipient_id.is_none());
    assert!(channel.is_none() && provider.is_none() && message.attempts.is_empty());
}

pub async fn dead_letters_are_filtered(fixture: &Fixture) {
    fixture.failed("event").await;
    fixture.failed_send("sms", Sms).await;
    fixture.failed_send("email", Email).await;
    fixture.refused("refused", &[row("refused", &customer("42"), Email)]).await;
    let found = async |filter: DeadLetterFilter| {
        let dead_letters = list(fixture, filter).await;
        events(&dead_letters).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(found(of_event("sms")).await, ["sms"]);
    assert_eq!(found(DeadLetterFilter { stage: Some("send".to_owned()), ..ALL }).await, ["sms", "email"]);
    assert_eq!(
        found(DeadLetterFilter { channel: Some("EMAIL".to_owned()), ..ALL }).await,
        ["email", "refused"]
    );
    assert_eq!(
        found(DeadLetterFilter { provider: Some("provider".to_owned()), ..ALL }).await,
        ["sms", "email"]
    );
    assert_eq!(found(DeadLetterFilter { reason: Some("NO_RECIPIENTS".to_owned()), ..ALL }).await, ["event"]);
    assert_eq!(found(DeadLetterFilter { error: Some("o rou".to_owned()), ..ALL }).await, ["refused"]);
    assert!(
        found(DeadLetterFilter { error: Some("%".to_owned()), ..ALL }).await.is_empty(),
        "it is text, no pattern"
    );
    let both = DeadLetterFilter { channel: Some("EMAIL".to_owned()), stage: Some("send".to_owned()), ..ALL };
    assert_eq!(found(both.clone()).await, ["email"]);
    assert!(found(DeadLetterFilter { event_id: Some("sms".to_owned()), ..both }).await.is_empty());
}

pub async fn one_dead_letter_is_found_by_its_id(fixture: &Fixture) {
    for id in ["a", "b", "c"] {
        fixture.failed(id).await;
    }
    let ids: Vec<i64> = list(fixture, ALL).await.iter().map(id).collect();
    let second = DeadLetterFilter { id: Some(ids[1]), ..ALL };
    assert_eq!(events(&list(fixture, second.clone()).await), ["b"]);
    let nowhere = [
        DeadLetterFilter { id: Some(ids[2] + 1), ..ALL },
        DeadLetterFilter { id: Some(i64::MIN), ..ALL },
        DeadLetterFilter { after: ids[1], ..second.clone() },
        DeadLetterFilter { id: second.id, ..of_event("a") },
    ];
    for filter in nowhere {
        assert!(list(fixture, filter).await.is_empty());
    }
    assert_eq!(list(fixture, DeadLetterFilter { id: second.id, ..of_event("b") }).await.len(), 1);
    assert_eq!(replay(fixture, second.clone()).await.replayed, 1);
    assert_eq!(replay(fixture, second).await, Replayed::default());
    assert_eq!(events(&list(fixture, ALL).await), ["a", "c"], "the others are as they were");
}

pub async fn what_failed_after_a_moment_is_left_out(fixture: &Fixture) {
    fixture.failed("a").await;
    fixture.advance(Duration::from_secs(5)).await;
    let now = fixture.store.now().await.expect("the database is there");
    fixture.advance(Duration::from_secs(5)).await;
    fixture.failed("b").await;
    let until_now = DeadLetterFilter { until: Some(now), ..ALL };
    assert_eq!(events(&list(fixture, until_now.clone()).await), ["a"]);
    assert_eq!(list(fixture, DeadLetterFilter { until: Some(now), ..of_event("b") }).await.len(), 0);
    assert_eq!(replay(fixture, until_now).await, Replayed { replayed: 1, skipped: vec![], next: None });
    assert_eq!(events(&list(fixture, ALL).await), ["b"]);
}

pub async fn dead_letters_that_were_replayed_are_listed_where_they_are_asked_for(fixture: &Fixture) {
    fixture.failed("a").await;
    fixture.failed("b").await;
    assert_eq!(replay(fixture, of_event("a")).await.replayed, 1);
    assert_eq!(events(&list(fixture, ALL).await), ["b"]);
    assert!(list(fixture, of_event("a")).await.is_empty());
    let all = list(fixture, DeadLetterFilter { replayed: true, ..ALL }).await;
    assert_eq!(events(&all), ["a", "b"]);
    assert!(all[0].row.replayed_at.is_some() && all[1].row.replayed_at.is_none());
}

pub async fn a_failed_event_that_is_replayed_begins_again(fixture: &Fixture) {
    fixture.failed("a").await;
    replay_all(fixture, 1).await;
    let trace = fixture.trace("a").await;
    assert_eq!(trace.event.row.status, EventStatus::Pending);
    assert_eq!(trace.event.row.retry_count, 0);
    assert!(trace.event.row.last_error.is_none());
    let claim = fixture.claim_new().await;
    assert!(!found(&*claim, "a").known, "nobody was told");
    let row = row("a", &customer("42"), Email);
    let step = step_of(found(&*claim, "a"), Step::Finished(summary(1)));
    let chunk = chunk_of(&step.event, std::slice::from_ref(&row), true);
    fixture.commit(claim, vec![step], vec![chunk]).await;
    assert_eq!(fixture.event_status("a").await, EventStatus::Published);
    let processed = fixture.trace("a").await.processed.expect("it was decided");
    assert_eq!(processed.status, ProcessedStatus::Success);
}

pub async fn an_event_that_was_given_up_and_is_replayed_may_fail_as_often_again(fixture: &Fixture) {
    fixture.accept(&[event("a")]).await;
    let claim = fixture.claim_new().await;
    let seq = claim.events()[0].seq;
    let step = step_of(&claim.events()[0], Step::Continues(Cursor::default()));
    fixture.commit(claim, vec![step], vec![]).await;
    let fail = async || {
        let failure = Failure::new("BROKEN", "it broke");
        fixture.store.count_failure(seq, failure, 2).await.expect("the database is there")
    };
    assert!(!fail().await && fail().await);
    replay_all(fixture, 1).await;
    let claim = fixture.claim_new().await;
    assert!(!found(&*claim, "a").known && found(&*claim, "a").cursor.is_none());
    drop(claim);
    assert!(!fail().await && fail().await);
    assert_eq!(list(fixture, ALL).await.len(), 1, "of the second time");
    replay_all(fixture, 1).await;
}

pub async fn an_event_of_which_some_were_told_is_not_replayed(fixture: &Fixture) {
    fixture.accept(&[event("a")]).await;
    let claim = fixture.claim_new().await;
    let row = row("a", &customer("42"), Email);
    let stopped = Step::Stopped { summary: summary(1), failure: Failure::new("NO_AUDIENCE", "it is gone") };
    let step = step_of(&claim.events()[0], stopped);
    let chunk = chunk_of(&step.event, std::slice::from_ref(&row), true);
    let chunk = fixture.commit(claim, vec![step], vec![chunk]).await.remove(0);
    assert!(skipped(fixture, ALL).await[0].contains("PUBLISHED"));
    fixture.store.chunks_published(&[chunk.id]).await.expect("the database is there");
    fixture.receive(&[claimed(row.key)]).await;
    assert_eq!(fixture.close(&["a"]).await, 1);
    assert!(skipped(fixture, ALL).await[0].contains("PROCESSED"));
    assert_eq!(fixture.event_status("a").await, EventStatus::Processed);
    assert_eq!(list(fixture, ALL).await.len(), 1, "what was skipped was not replayed");
}

pub async fn a_row_without_its_text_is_replayed_once_it_has_one(fixture: &Fixture) {
    fixture.accept(&[event("a")]).await;
    let fan_out = fixture.claim_new().await;
    let failure = Some(Failure::new("TEMPLATE_ERROR", "line 1"));
    let row = OutboxRow { failure, ..row("a", &customer("42"), Email) };
    let step = step_of(&fan_out.events()[0], Step::Finished(summary(1)));
    let commit = FanOutCommit { failed_rows: vec![row], ..commit_of(vec![step], vec![]) };
    fan_out.commit(commit).await.expect("nobody was faster");
    assert_eq!(fixture.close(&["a"]).await, 1);
    assert_eq!(skipped(fixture, ALL).await, ["its text was not rendered again"]);
    let id = list(fixture, ALL).await[0].row.id;
    let replay = async |text: Result<RowText, String>| {
        let replayed = fixture.store.replay(ALL, RerenderedTexts::from([(id, text)]), &Actor::AdminKey).await;
        replayed.expect("the database is there")
    };
    let still = replay(Err("line 2".to_owned())).await;
    assert_eq!(still.skipped, [(id, "its text still can't be rendered: line 2".to_owned())]);
    assert_eq!(fixture.outbox_statuses("a").await, [OutboxStatus::Failed]);
    assert!(claim(fixture, QUEUE).await.is_none());

    let text = |word: &str| Text { title: format!("{word} title"), body: format!("{word} body") };
    let rerendered = RowText { text: text("new"), inbox: Some(text("inbox")) };
    assert_eq!(replay(Ok(rerendered)).await.replayed, 1);
    assert_eq!(fixture.event_status("a").await, EventStatus::Published);
    let chunk = claim(fixture, QUEUE).await.expect("it waits to be published");
    let row = &chunk.rows[0].row;
    assert_eq!((row.title.as_str(), row.body.as_str()), ("new title", "new body"));
    let received = fixture.receive(&[claimed(row.key)]).await;
    assert_eq!(received.jobs[0].title, "new title");
    assert_eq!(column(&fixture.trace("a").await.notifications, |row| row.title.as_str()), ["inbox title"]);
}

pub async fn a_refused_row_that_is_replayed_waits_in_a_chunk(fixture: &Fixture) {
    let other_queue = "notification.restaurant";
    let urgent =
        OutboxRow { priority: High, queue: Queue::named(other_queue), ..row("a", &customer("41"), Email) };
    fixture.refused("a", std::slice::from_ref(&urgent)).await;
    let plain = rows("b", &customer("42"), &[Email, Sms]);
    fixture.refused("b", &plain).await;
    replay_all(fixture, 3).await;
    assert_eq!(fixture.outbox_statuses("b").await, [OutboxStatus::Pending, OutboxStatus::Pending]);
    let row = fixture.outbox_row("a", urgent.key).await;
    assert!(row.last_error.is_none());
    assert_eq!(row.status, OutboxStatus::Pending);
    assert_eq!(row.retry_count, 0);
    let chunk = claim(fixture, other_queue).await.expect("it waits");
    assert_eq!((keys(&chunk), chunk.lane), (vec![urgent.key], High.lane()));
    let mut waiting = Vec::new();
    while let Some(chunk) = claim(fixture, QUEUE).await {
        assert_eq!(chunk.lane, Normal.lane());
        waiting.extend(keys(&chunk));
        fixture.store.chunks_published(&[chunk.id]).await.expect("the database is there");
    }
    waiting.sort_unstable();
    assert_eq!(waiting, [plain[0].key, plain[1].key]);
    fixture.receive(&[claimed(plain[0].key), claimed(plain[1].key)]).await;
    assert_eq!(fixture.outbox_statuses("b").await, [OutboxStatus::Delivered, OutboxStatus::Delivered]);
}

pub async fn a_row_that_was_not_received_and_is_replayed_waits_in_a_chunk(fixture: &Fixture) {
    let rows = rows("a", &customer("42"), &[Email, Sms]);
    fixture.published(&event("a"), &rows).await;
    fixture.receive(&[claimed(rows[0].key)]).await;
    fixture.fail_messages(&[Some(rows[1].key)]).await;
    replay_all(fixture, 1).await;
    assert_eq!(fixture.outbox_statuses("a").await, [OutboxStatus::Delivered, OutboxStatus::Pending]);
    assert_eq!(keys(&claim(fixture, QUEUE).await.expect("it waits")), [rows[1].key]);
    let received = fixture.receive(&[claimed(rows[1].key)]).await;
    assert_eq!((received.jobs.len(), received.redelivered), (1, 0));
    assert_eq!(fixture.count("SELECT count(*) FROM notification").await, 1);
}

pub async fn a_closed_event_is_open_until_its_replayed_row_arrives(fixture: &Fixture) {
    let refused = row("a", &customer("42"), Email);
    fixture.refused("a", std::slice::from_ref(&refused)).await;
    assert_eq!(fixture.close(&["a"]).await, 1);
    replay_all(fixture, 1).await;
    let event = fixture.trace("a").await.event;
    assert_eq!(event.row.status, EventStatus::Published);
    assert!(event.row.processed_at.is_none());
    assert_eq!(fixture.close(&["a"]).await, 0);
    let open = fixture.store.open_events(EventSeq::default(), 10).await.expect("the database is there");
    assert_eq!(open.len(), 1);
    fixture.receive(&[claimed(refused.key)]).await;
    assert_eq!(fixture.close(&["a"]).await, 1);
    assert!(fixture.trace("a").await.event.row.processed_at.is_some());
}

/// As when the broker refuses a message that another instance is just receiving.
pub async fn a_row_that_failed_and_was_received_all_the_same_is_repaired_by_a_replay(fixture: &Fixture) {
    let refused = row("a", &customer("42"), Email);
    fixture.refused("a", std::slice::from_ref(&refused)).await;
    replay_all(fixture, 1).await;
    reset_replays(fixture).await;
    fixture.receive(&[claimed(refused.key)]).await;
    fixture.execute("UPDATE outbox SET status = 'FAILED', last_error = 'REFUSED: no route'").await;
    assert_eq!(fixture.outbox_statuses("a").await, [OutboxStatus::Failed]);
    replay_all(fixture, 1).await;
    assert_eq!(fixture.outbox_statuses("a").await, [OutboxStatus::Delivered]);
    assert_eq!(fixture.receive(&[claimed(refused.key)]).await.redelivered, 1);
}

pub async fn an_event_that_is_not_closed_stays_so_when_its_row_is_replayed(fixture: &Fixture) {
    fixture.accept(&[event("a")]).await;
    let claimed = fixture.claim_new().await;
    let row = row("a", &customer("42"), Email);
    let step = step_of(&claimed.events()[0], Step::Continues(Cursor::default()));
    let chunk = chunk_of(&step.event, std::slice::from_ref(&row), true);
    let chunk = fixture.commit(claimed, vec![step], vec![chunk]).await.remove(0);
    let refused = vec![(row.key, "no route".to_owned())];
    fixture.store.rows_refused(chunk.id, refused, 1, LEASE).await.expect("the database is there");
    replay_all(fixture, 1).await;
    assert_eq!(fixture.event_status("a").await, EventStatus::Pending);
    assert!(
        fixture.try_claim(Claim::Continuing { after: EventSeq::default() }).await.is_some(),
        "its fan-out goes on"
    );
}

pub async fn a_failed_send_that_is_replayed_is_due_now_with_all_its_attempts(fixture: &Fixture) {
    let key = fixture.failed_send("a", Sms).await;
    fixture.advance(LEASE).await;
    replay_all(fixture, 1).await;
    let send = fixture.send("a", key).await;
    assert_eq!(send.row.status, SendStatus::Due);
    assert_eq!(send.row.attempt_count, 0);
    assert_eq!(send.row.last_error.as_deref(), Some("EXHAUSTED: busy"));
    let due: Timestamp = send.row.next_attempt_at.and_then(|at| at.at()).expect("it is due");
    let now = fixture.store.now().await.expect("the database is there");
    assert!(now.duration_since(due).as_secs().abs() < 10, "{due} is not now, {now}");
    let jobs = fixture.claim_due(Sms, 10).await;
    assert_eq!((jobs.len(), jobs[0].key, jobs[0].attempt), (1, key, 1));
    fixture.settle(vec![outcome(&jobs[0], SendState::Sent { external_id: None, at: now })]).await;
    let send = fixture.send("a", key).await;
    assert_eq!(send.row.status, SendStatus::Sent);
    assert_eq!(send.row.attempt_count, 1);
}

pub async fn a_replayed_send_has_its_lane(fixture: &Fixture) {
    let urgent = OutboxRow { priority: High, ..row("urgent", &customer("42"), Push) };
    fixture.published(&event("urgent"), std::slice::from_ref(&urgent)).await;
    let job = fixture.receive(&[claimed(urgent.key)]).await.jobs.remove(0);
    fixture.settle(vec![outcome(&job, SendState::Failed { code: REJECTED })]).await;
    let plain = fixture.waiting("plain", Push, Normal).await;
    replay_all(fixture, 1).await;
    let jobs = fixture.claim_due(Push, 10).await;
    assert_eq!(jobs.iter().map(|job| job.key).collect::<Vec<_>>(), [urgent.key, plain]);
}

pub async fn what_is_on_its_way_or_arrived_is_not_replayed(fixture: &Fixture) {
    fixture.failed("event").await;
    let refused = row("row", &customer("42"), Email);
    fixture.refused("row", std::slice::from_ref(&refused)).await;
    let failed = fixture.failed_send("send", Sms).await;
    replay_all(fixture, 3).await;
    reset_replays(fixture).await;
    assert_eq!(skipped(fixture, ALL).await.len(), 3, "on its way");
    fixture.receive(&[claimed(refused.key)]).await;
    let job = fixture.claim_due(Sms, 10).await.remove(0);
    fixture
        .settle(vec![outcome(&job, SendState::Sent { external_id: None, at: Timestamp::UNIX_EPOCH })])
        .await;
    let why = skipped(fixture, ALL).await;
    assert!(why[1].contains("received") && why[2].contains("SENT"), "{why:?}");
    assert_eq!(fixture.send("send", failed).await.row.status, SendStatus::Sent);
    assert!(fixture.claim_due(Sms, 10).await.is_empty());
    assert_eq!(fixture.outbox_statuses("row").await, [OutboxStatus::Delivered]);
}

pub async fn a_dead_letter_of_what_is_no_longer_stored_is_skipped(fixture: &Fixture) {
    let forged = SendKey { notification_id: NotificationId::generate(), channel: Email };
    fixture.fail_messages(&[None, Some(forged)]).await;
    for stage in ["fan_out", "publish", "receive", "send", "unheard of"] {
        let (recipient_type, recipient_id, channel) =
            if stage == "fan_out" { ("NULL", "NULL", "NULL") } else { ("'CUSTOMER'", "'42'", "'EMAIL'") };
        fixture
            .execute(&format!(
                "INSERT INTO dead_letter (stage, event_id, recipient_type, recipient_id, channel, reason, error,
                created_at)
                 VALUES ('{stage}', 'gone', {recipient_type}, {recipient_id}, {channel}, 'OLD', 'OLD: it is',
                     CURRENT_TIMESTAMP)"
            ))
            .await;
    }
    let why = skipped(fixture, ALL).await;
    assert_eq!(why.len(), 7);
    assert!(why.iter().all(|why| !why.is_empty()), "{why:?}");
    assert_eq!(fixture.count("SELECT count(*) FROM dead_letter WHERE replayed_at IS NOT NULL").await, 0);
}

pub async fn a_second_replay_changes_nothing(fixture: &Fixture) {
    fixture.failed("event").await;
    fixture.refused("row", &[row("row", &customer("42"), Email)]).await;
    fixture.failed_send("send", Sms).await;
    replay_all(fixture, 3).await;
    let before = list(fixture, DeadLetterFilter { replayed: true, ..ALL }).await;
    fixture.advance(Duration::from_secs(5)).await;
    replay_all(fixture, 0).await;
    assert_eq!(replay(fixture, DeadLetterFilter { replayed: true, ..ALL }).await, Replayed::default());
    assert_eq!(list(fixture, DeadLetterFilter { replayed: true, ..ALL }).await, before);
    assert_eq!(claim(fixture, QUEUE).await.expect("it waits").rows.len(), 1);
    assert!(claim(fixture, QUEUE).await.is_none());
}

pub async fn dead_letters_are_replayed_in_pages_and_by_the_filter(fixture: &Fixture) {
    for id in ["a", "b", "c", "d", "e"] {
        fixture.failed(id).await;
    }
    let ids: Vec<i64> = list(fixture, ALL).await.iter().map(id).collect();
    fixture.failed_send("send", Sms).await;
    let page = |after| DeadLetterFilter { stage: Some("fan_out".to_owned()), limit: 2, after, ..ALL };
    let first = replay(fixture, page(ids[0])).await;
    assert_eq!((first.replayed, first.next), (2, Some(ids[2])));
    let second = replay(fixture, page(ids[2])).await;
    assert_eq!((second.replayed, second.next), (2, Some(ids[4])));
    assert_eq!(replay(fixture, page(ids[4])).await, Replayed::default());
    assert_eq!(fixture.event_status("a").await, EventStatus::Failed, "it was not behind the cursor");
    assert_eq!(events(&list(fixture, ALL).await), ["a", "send"]);
}

pub async fn what_is_skipped_does_not_stop_the_rest(fixture: &Fixture) {
    fixture.fail_messages(&[None]).await;
    fixture.failed("a").await;
    fixture.fail_messages(&[None]).await;
    fixture.failed_send("b", Sms).await;
    let ids: Vec<i64> = list(fixture, ALL).await.iter().map(id).collect();
    let replayed = replay(fixture, DeadLetterFilter { limit: 4, ..ALL }).await;
    assert_eq!((replayed.replayed, replayed.next), (2, Some(ids[3])));
    assert_eq!(replayed.skipped.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [ids[0], ids[2]]);
    let failed = outcome(&fixture.claim_due(Sms, 1).await[0], SendState::Failed { code: EXHAUSTED });
    fixture.settle(vec![failed]).await;
    assert_eq!(replay(fixture, of_event("b")).await.replayed, 1, "each time that it fails");
}
