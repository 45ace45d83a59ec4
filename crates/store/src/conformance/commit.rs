//! Checks the state of events after a fan-out commits.

use campanile_domain::channel::Channel::{Email, Push, Sms};
use campanile_domain::event::Failure;
use campanile_domain::event::transition::Step;
use campanile_domain::fan_out::{Cursor, OutboxRow};
use campanile_domain::id::{EventSeq, UserId, UserTypeName};
use campanile_domain::status::{EventStatus, OutboxStatus, ProcessedStatus};
use serde_json::json;

use super::Fixture;
use super::publish::republish;
use super::setup::{
    chunk_of, claimed, column, commit_of, customer, entity, event, event_id, found, ids, row, rows, step_of,
    summary,
};
use crate::{Claim, FanOutCommit, FanOutStep, Shown, StoreError};

/// The number of rows in each table that a commit may write.
async fn written(fixture: &Fixture) -> Vec<i64> {
    let mut counts = Vec::new();
    for table in ["processed_event", "notification_outbox", "event_notification", "dead_letter"] {
        counts.push(fixture.count(&format!("SELECT count(*) FROM {table}")).await);
    }
    counts
}

fn cursor(recipients: u64) -> Cursor {
    let mut cursor = Cursor::default();
    cursor.summary = summary(usize::try_from(recipients).expect("a small number"));
    cursor
}

pub async fn an_event_with_rows_is_published(fixture: &Fixture) {
    fixture.accept(&[event("a")]).await;
    let claim = fixture.claim_new().await;
    let claimed = &claim.events()[0];
    let decisions = json!([{ "user_id": "42" }]);
    let step =
        FanOutStep { decisions: Some(decisions.to_string()), ..step_of(claimed, Step::Finished(summary(2))) };
    let chunk = chunk_of(&claimed.event, &rows("a", &customer("42"), &[Email, Sms]), true);
    let chunks = fixture.commit(claim, vec![step], vec![chunk]).await;
    assert_eq!(chunks[0].rows.len(), 2);
    let trace = fixture.trace("a").await;
    assert_eq!(trace.event.row.status, EventStatus::Published);
    assert!(trace.event.row.published_at.is_some() && trace.event.row.processed_at.is_none());
    let processed = trace.processed.expect("the event was decided");
    assert_eq!(processed.status, ProcessedStatus::Success);
    assert_eq!(processed.instance, "test");
    assert_eq!(processed.recipients, 2);
    assert_eq!(processed.sends, 2);
    assert_eq!(json!(trace.decisions), decisions);
    assert_eq!(column(&trace.outbox, |row| row.channel.clone()), [Email, Sms]);
    assert_eq!(trace.outbox[0].recipient_address, "EMAIL of 42");
    assert!(fixture.try_claim(Claim::New { limit: 1 }).await.is_none());
}

pub async fn an_event_without_rows_is_processed(fixture: &Fixture) {
    fixture.accept(&[event("a")]).await;
    let claim = fixture.claim_new().await;
    let step = step_of(&claim.events()[0], Step::Finished(summary(0)));
    fixture.commit(claim, vec![step], vec![]).await;
    let trace = fixture.trace("a").await;
    assert_eq!(trace.event.row.status, EventStatus::Processed);
    assert!(trace.event.row.processed_at.is_some());
    assert_eq!(trace.processed.expect("the event was decided").status, ProcessedStatus::Success);
}

pub async fn an_event_that_continues_keeps_its_cursor_and_waits(fixture: &Fixture) {
    fixture.accept(&[event("a")]).await;
    let mut claim = fixture.claim_new().await;
    for done in 1..=3 {
        let claimed = &claim.events()[0];
        let step = step_of(claimed, Step::Continues(cursor(done)));
        let chunk = chunk_of(&claimed.event, &[row("a", &customer(&done.to_string()), Email)], true);
        fixture.commit(claim, vec![step], vec![chunk]).await;
        let trace = fixture.trace("a").await;
        assert_eq!(trace.event.row.status, EventStatus::Pending);
        let processed = trace.processed.expect("some was decided");
        assert_eq!(processed.status, ProcessedStatus::Processing);
        assert_eq!(processed.sends, done);
        claim = fixture
            .try_claim(Claim::Continuing { after: EventSeq::default() })
            .await
            .expect("the event waits");
        assert_eq!(claim.events()[0].cursor, Some(cursor(done)));
    }
    let step = step_of(&claim.events()[0], Step::Finished(summary(3)));
    fixture.commit(claim, vec![step], vec![]).await;
    assert_eq!(fixture.event_status("a").await, EventStatus::Published);
    assert_eq!(fixture.trace("a").await.outbox.len(), 3);
    assert!(fixture.try_claim(Claim::Continuing { after: EventSeq::default() }).await.is_none());
}

pub async fn a_cursor_that_was_passed_is_lost_and_nothing_is_written(fixture: &Fixture) {
    fixture.accept(&[event("a")]).await;
    let claim = fixture.claim_new().await;
    let step = step_of(&claim.events()[0], Step::Continues(cursor(2)));
    fixture.commit(claim, vec![step], vec![]).await;
    let before = written(fixture).await;
    for stale in [None, Some(cursor(1))] {
        let claim = fixture
            .try_claim(Claim::Continuing { after: EventSeq::default() })
            .await
            .expect("the event waits");
        let claimed = &claim.events()[0];
        let step = FanOutStep {
            cursor_before: stale,
            entities: vec![(entity("RESTAURANT", "5"), true)],
            ..step_of(claimed, Step::Continues(cursor(3)))
        };
        let chunk = chunk_of(&claimed.event, &[row("a", &customer("42"), Email)], true);
        let lost = claim.commit(commit_of(vec![step], vec![chunk])).await;
        assert!(matches!(lost, Err(StoreError::Lost(_))), "{lost:?}");
    }
    assert_eq!(written(fixture).await, before);
    let claim =
        fixture.try_claim(Claim::Continuing { after: EventSeq::default() }).await.expect("the event waits");
    assert_eq!(claim.events()[0].cursor, Some(cursor(2)));
}

pub async fn an_event_that_was_finished_is_lost(fixture: &Fixture) {
    fixture.published(&event("a"), &[row("a", &customer("42"), Email)]).await;
    let (seq, _) =
        fixture.store.open_events(EventSeq::default(), 1).await.expect("the database is there").remove(0);
    fixture.accept(&[event("b")]).await;
    let before = written(fixture).await;
    let claim = fixture.claim_new().await;
    let late = step_of(&claim.events()[0], Step::Failed(Failure::new("LATE", "too late")));
    let already_done = FanOutStep { seq, ..late };
    let lost = claim.commit(commit_of(vec![already_done], vec![])).await;
    assert!(matches!(lost, Err(StoreError::Lost(_))), "{lost:?}");
    assert_eq!(written(fixture).await, before);
    assert_eq!(fixture.event_status("a").await, EventStatus::Published);
}

pub async fn one_lost_event_undoes_the_whole_commit(fixture: &Fixture) {
    fixture.accept(&[event("a"), event("b")]).await;
    let claim = fixture.claim_new().await;
    let a = step_of(found(&*claim, "a"), Step::Finished(summary(1)));
    let b = step_of(found(&*claim, "b"), Step::Finished(summary(0)));
    let stale = FanOutStep { cursor_before: Some(cursor(1)), ..b };
    let chunk = chunk_of(&a.event, &[row("a", &customer("42"), Email)], true);
    let lost = claim.commit(commit_of(vec![a, stale], vec![chunk])).await;
    assert!(matches!(lost, Err(StoreError::Lost(_))), "{lost:?}");
    assert_eq!(written(fixture).await, [0, 0, 0, 0]);
    assert_eq!(ids(&*fixture.claim_new().await), ["a", "b"]);
}

pub async fn a_failed_event_has_a_dead_letter_and_may_be_redone(fixture: &Fixture) {
    fixture.accept(&[event("a")]).await;
    let claim = fixture.claim_new().await;
    let failure = Failure::new("NO_RECIPIENTS", "nobody is there");
    let step = step_of(&claim.events()[0], Step::Failed(failure));
    fixture.commit(claim, vec![step], vec![]).await;
    let trace = fixture.trace("a").await;
    assert_eq!(trace.event.row.status, EventStatus::Failed);
    assert_eq!(trace.event.row.last_error.as_deref(), Some("NO_RECIPIENTS: nobody is there"));
    assert_eq!(trace.processed.expect("the event was decided").status, ProcessedStatus::Failed);
    assert_eq!(trace.dead_letters.len(), 1);
    assert_eq!(trace.dead_letters[0].stage, "fan_out");
    assert_eq!(trace.dead_letters[0].reason, "NO_RECIPIENTS");
    assert_eq!(trace.dead_letters[0].error, "NO_RECIPIENTS: nobody is there");
    fixture.execute("UPDATE event_outbox SET status = 'PENDING' WHERE event_id = 'a'").await;
    let claim = fixture.claim_new().await;
    assert!(!found(&*claim, "a").known);
    let step = step_of(&claim.events()[0], Step::Finished(summary(1)));
    let chunk = chunk_of(&step.event, &[row("a", &customer("42"), Email)], true);
    fixture.commit(claim, vec![step], vec![chunk]).await;
    let trace = fixture.trace("a").await;
    assert_eq!(trace.event.row.status, EventStatus::Published);
    assert!(trace.event.row.last_error.is_none());
    assert_eq!(trace.processed.expect("the event was decided").status, ProcessedStatus::Success);
}

pub async fn an_event_that_stops_half_way_keeps_what_was_written(fixture: &Fixture) {
    fixture.accept(&[event("a")]).await;
    let claim = fixture.claim_new().await;
    let step = step_of(&claim.events()[0], Step::Continues(cursor(1)));
    let notified = row("a", &customer("42"), Email);
    let chunk = chunk_of(&step.event, std::slice::from_ref(&notified), true);
    fixture.commit(claim, vec![step], vec![chunk]).await;
    let claim =
        fixture.try_claim(Claim::Continuing { after: EventSeq::default() }).await.expect("the event waits");
    let failure = Failure::new("NO_AUDIENCE", "the rule is gone");
    let stopped = step_of(&claim.events()[0], Step::Stopped { summary: summary(1), failure });
    fixture.commit(claim, vec![stopped], vec![]).await;
    let trace = fixture.trace("a").await;
    assert_eq!(trace.event.row.status, EventStatus::Published);
    assert_eq!(trace.event.row.last_error.as_deref(), Some("NO_AUDIENCE: the rule is gone"));
    let processed = trace.processed.expect("some was decided");
    assert_eq!(processed.status, ProcessedStatus::Success);
    assert_eq!(processed.sends, 1);
    assert_eq!(column(&trace.dead_letters, |row| row.reason.as_str()), ["NO_AUDIENCE"]);
    assert!(fixture.try_claim(Claim::Continuing { after: EventSeq::default() }).await.is_none());
    fixture.receive(&[claimed(notified.key)]).await;
    assert_eq!(fixture.store.close_events(vec![event_id("a")]).await.expect("the database is there"), 1);
}

pub async fn a_known_event_is_processed_and_nobody_is_told(fixture: &Fixture) {
    fixture.accept(&[event("a")]).await;
    let claim = fixture.claim_new().await;
    let step = step_of(&claim.events()[0], Step::Known);
    fixture.commit(claim, vec![step], vec![]).await;
    assert_eq!(fixture.event_status("a").await, EventStatus::Processed);
    assert_eq!(written(fixture).await, [0, 0, 0, 0]);
}

pub async fn a_cancelled_event_ends_so(fixture: &Fixture) {
    fixture.accept(&[event("a")]).await;
    let claim = fixture.claim_new().await;
    let step = step_of(&claim.events()[0], Step::Cancelled("closed today".to_owned()));
    fixture.commit(claim, vec![step], vec![]).await;
    let trace = fixture.trace("a").await;
    assert_eq!(trace.event.row.status, EventStatus::Cancelled);
    assert_eq!(trace.event.row.last_error.as_deref(), Some("CANCELLED: closed today"));
    assert_eq!(trace.processed.expect("the id is remembered").status, ProcessedStatus::Success);
    assert!(trace.dead_letters.is_empty() && trace.outbox.is_empty());
}

pub async fn an_event_that_is_cancelled_half_way_keeps_what_was_written(fixture: &Fixture) {
    fixture.accept(&[event("a"), event("put off")]).await;
    let claim = fixture.claim_new().await;
    let begun = step_of(found(&*claim, "a"), Step::Continues(cursor(1)));
    let put_off = step_of(found(&*claim, "put off"), Step::Continues(Cursor::default()));
    let notified = row("a", &customer("42"), Email);
    let chunk = chunk_of(&begun.event, std::slice::from_ref(&notified), true);
    let seqs = [begun.seq, put_off.seq];
    let chunk = fixture.commit(claim, vec![begun, put_off], vec![chunk]).await.remove(0);
    fixture.store.chunks_published(&[chunk.id]).await.expect("the database is there");
    let claim = fixture.try_claim(Claim::ByIds(seqs.to_vec())).await.expect("both wait");
    let cancelled = || Step::Cancelled("closed today".to_owned());
    let steps = claim.events().iter().map(|event| step_of(event, cancelled())).collect();
    fixture.commit(claim, steps, vec![]).await;
    let trace = fixture.trace("a").await;
    assert_eq!(trace.event.row.status, EventStatus::Published);
    assert_eq!(trace.event.row.last_error.as_deref(), Some("CANCELLED: closed today"));
    assert!(trace.event.row.published_at.is_some() && trace.dead_letters.is_empty());
    let processed = trace.processed.expect("some was decided");
    assert_eq!(processed.status, ProcessedStatus::Success);
    assert_eq!(processed.sends, 1);
    assert_eq!(fixture.event_status("put off").await, EventStatus::Cancelled, "nobody was told");
    let lost = republish(fixture, &[notified.queue.as_str()], 10).await;
    assert_eq!(lost, 1, "what the broker loses is published again");
    fixture.receive(&[claimed(notified.key)]).await;
    assert_eq!(fixture.store.close_events(vec![event_id("a")]).await.expect("the database is there"), 1);
}

pub async fn rows_that_can_not_be_sent_fail_with_dead_letters(fixture: &Fixture) {
    fixture.accept(&[event("a")]).await;
    let claim = fixture.claim_new().await;
    let this = &claim.events()[0];
    let [good, bad] = [Email, Sms].map(|channel| row("a", &customer("42"), channel));
    let bad = OutboxRow { failure: Some(Failure::new("TEMPLATE_ERROR", "line 1")), ..bad };
    let commit = FanOutCommit {
        failed_rows: vec![bad],
        ..commit_of(
            vec![step_of(this, Step::Finished(summary(2)))],
            vec![chunk_of(&this.event, &[good], true)],
        )
    };
    let chunks = claim.commit(commit).await.expect("nobody was faster");
    assert_eq!(chunks[0].rows.len(), 1);
    let trace = fixture.trace("a").await;
    assert_eq!(
        column(&trace.outbox, |row| row.status.clone()),
        [OutboxStatus::Pending, OutboxStatus::Failed]
    );
    assert_eq!(trace.outbox[1].last_error.as_deref(), Some("TEMPLATE_ERROR: line 1"));
    assert_eq!(trace.dead_letters.len(), 1);
    let dead_letter = &trace.dead_letters[0];
    assert_eq!(dead_letter.stage, "fan_out");
    assert_eq!(dead_letter.reason, "TEMPLATE_ERROR");
    assert_eq!(dead_letter.recipient_type.as_ref().map(UserTypeName::as_str), Some("CUSTOMER"));
    assert_eq!(dead_letter.recipient_id.as_ref().map(UserId::as_str), Some("42"));
    assert_eq!(dead_letter.channel, Some(Shown::Typed(Sms)));
}

pub async fn what_is_shared_is_written_once_per_entity(fixture: &Fixture) {
    fixture.accept(&[event("a")]).await;
    let [five, six] = ["5", "6"].map(|id| entity("RESTAURANT", id));
    let admins = entity("ADMIN_USER", "*");
    let shared = [
        vec![(five.clone(), true), (six.clone(), false), (admins.clone(), true)],
        vec![(five.clone(), false), (six.clone(), false), (admins.clone(), true)],
    ];
    for (done, entities) in (1..).zip(shared) {
        let claim = if done == 1 {
            Claim::New { limit: 1 }
        } else {
            Claim::Continuing { after: EventSeq::default() }
        };
        let claim = fixture.try_claim(claim).await.expect("the event waits");
        let step = FanOutStep { entities, ..step_of(&claim.events()[0], Step::Continues(cursor(done))) };
        fixture.commit(claim, vec![step], vec![]).await;
    }
    assert_eq!(fixture.count("SELECT count(*) FROM event_notification").await, 3);
    for (entity_type, entity_id) in [("RESTAURANT", "5"), ("ADMIN_USER", "*")] {
        let shared_read = format!(
            "SELECT count(*) FROM event_notification
             WHERE entity_type = '{entity_type}' AND entity_id = '{entity_id}' AND shared_read"
        );
        assert_eq!(fixture.count(&shared_read).await, 1, "what was shared once stays so");
    }
}

pub async fn who_has_the_row_already_is_not_told_again(fixture: &Fixture) {
    fixture.accept(&[event("a")]).await;
    let claim = fixture.claim_new().await;
    let step = step_of(&claim.events()[0], Step::Continues(cursor(1)));
    let first = row("a", &customer("42"), Email);
    let chunk = chunk_of(&step.event, std::slice::from_ref(&first), true);
    fixture.commit(claim, vec![step], vec![chunk]).await;
    let claim =
        fixture.try_claim(Claim::Continuing { after: EventSeq::default() }).await.expect("the event waits");
    let step = step_of(&claim.events()[0], Step::Finished(summary(2)));
    let again = rows("a", &customer("42"), &[Email, Push]);
    let chunk = chunk_of(&step.event, &again, true);
    let chunks = fixture.commit(claim, vec![step], vec![chunk]).await;
    let handed_over: Vec<_> = chunks[0].rows.iter().map(|send| send.row.key).collect();
    assert_eq!(handed_over, [again[1].key], "only what was written may be published");
    let trace = fixture.trace("a").await;
    assert_eq!(column(&trace.outbox, |row| row.channel.clone()), [Email, Push]);
    assert_eq!(trace.outbox[0].notification_id, first.key.notification_id);
}

pub async fn of_many_only_who_has_the_row_already_is_left_out(fixture: &Fixture) {
    fixture.accept(&[event("a")]).await;
    let claim = fixture.claim_new().await;
    let step = step_of(&claim.events()[0], Step::Continues(cursor(1)));
    let chunk = chunk_of(&step.event, &[row("a", &customer("42"), Email)], true);
    fixture.commit(claim, vec![step], vec![chunk]).await;
    for (from, notified) in [(100, 300), (0, 99)] {
        let claim = fixture
            .try_claim(Claim::Continuing { after: EventSeq::default() })
            .await
            .expect("the event waits");
        let step = step_of(&claim.events()[0], Step::Continues(cursor(from + 2)));
        let page: Vec<OutboxRow> =
            (from..from + 300).map(|n| row("a", &customer(&n.to_string()), Email)).collect();
        let chunk = chunk_of(&step.event, &page, true);
        let chunks = fixture.commit(claim, vec![step], vec![chunk]).await;
        assert_eq!(chunks[0].rows.len(), notified, "from {from} on");
    }
    assert_eq!(fixture.count("SELECT count(*) FROM notification_outbox").await, 400);
}
