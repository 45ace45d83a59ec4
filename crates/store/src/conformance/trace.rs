//! Checks how traces and captured messages are read.

use std::time::Duration;

use campanile_domain::channel::Channel::{Email, Sms, Websocket};
use campanile_domain::event::transition::Step;
use campanile_domain::id::UserRef;
use campanile_domain::send::SendState;
use campanile_domain::status::{ProcessedStatus, SendStatus};
use campanile_domain::time::{Timestamp, between};
use serde_json::json;

use super::Fixture;
use super::setup::{claimed, column, customer, event, event_id, outcome, rows, step_of, summary, user};
use crate::{Capture, FanOutStep, OutboxView, SendJob, Settlement, Table, Trace, TraceFilter};

async fn trace(fixture: &Fixture, filter: TraceFilter) -> Trace {
    fixture.store.trace(&event_id("a"), filter).await.expect("it is there").expect("the event is there")
}

/// The recipients in each part of the trace, without repetitions: outbox, notifications and sends.
fn recipients(trace: &Trace) -> [Vec<UserRef>; 3] {
    let of_outbox = |row: &OutboxView| UserRef {
        user_type: row.recipient_type.clone(),
        user_id: row.recipient_id.clone(),
    };
    let mut recipients = [
        column(&trace.outbox, of_outbox),
        column(&trace.notifications, |row| row.user.clone()),
        column(&trace.sends, |send| send.user.clone()),
    ];
    recipients.iter_mut().for_each(Vec::dedup);
    recipients
}

/// Creates event `a` for these users, received over two channels each.
async fn notified(fixture: &Fixture, users: &[UserRef]) -> Vec<SendJob> {
    let rows: Vec<_> = users.iter().flat_map(|user| rows("a", user, &[Email, Websocket])).collect();
    fixture.published(&event("a"), &rows).await;
    let keys: Vec<_> = rows.iter().map(|row| claimed(row.key)).collect();
    fixture.receive(&keys).await.jobs
}

pub async fn an_unknown_event_has_no_trace(fixture: &Fixture) {
    fixture.accept(&[event("a")]).await;
    let unknown =
        fixture.store.trace(&event_id("b"), TraceFilter { limit: 10, ..TraceFilter::default() }).await;
    assert!(unknown.expect("the database is there").is_none());
    let before_fan_out = fixture.trace("a").await;
    assert!(
        before_fan_out.processed.is_none()
            && before_fan_out.decisions.is_none()
            && before_fan_out.outbox.is_empty()
    );
    assert_eq!(before_fan_out.next, None);
}

pub async fn a_trace_tells_what_happened(fixture: &Fixture) {
    let jobs = notified(fixture, &[customer("42")]).await;
    let at = fixture.store.now().await.expect("the database is there");
    fixture.settle(vec![outcome(&jobs[0], SendState::Due { at })]).await;
    let trace = fixture.trace("a").await;
    assert_eq!(trace.event.row.event_id.as_str(), "a");
    assert_eq!(trace.event.row.event_type.as_str(), "ORDER_CREATED");
    assert_eq!(trace.event.row.aggregate_type, "ORDER");
    assert_eq!(trace.event.row.aggregate_id, "7");
    assert_eq!(trace.event.payload, json!({ "total": 12 }));
    let stored = trace.event.event.expect("it can be decided again");
    assert_eq!((stored.event_id, stored.payload), (event_id("a"), event("a").payload));
    assert_eq!(trace.processed.expect("the event was decided").status, ProcessedStatus::Success);
    assert_eq!(column(&trace.outbox, |row| row.channel.clone()), [Email, Websocket]);
    assert_eq!(trace.outbox[0].title, "EMAIL title");
    assert_eq!(trace.outbox[0].body, "EMAIL body");
    assert_eq!(trace.outbox[0].audience, "customer");
    let sends = &trace.sends;
    assert_eq!(column(sends, |send| send.row.channel.clone()), [Email, Websocket]);
    assert_eq!(column(sends, |send| send.row.status.clone()), [SendStatus::Due, SendStatus::Sent]);
    assert_eq!(column(sends, |send| send.attempts.len()), [1, 0]);
    let key = jobs[0].key;
    assert_eq!(trace.notifications[0].id, key.notification_id);
    assert_eq!(sends[0].row.notification_id, key.notification_id);
    assert_eq!(sends[0].row.id, key);
    assert_eq!(trace.outbox[0].id, key);
}

pub async fn a_trace_names_who_was_considered(fixture: &Fixture) {
    let person = |user_id: &str, name: &str| {
        json!({ "user_type": "CUSTOMER", "user_id": user_id, "name": name,
        "role": "CHEF" })
    };
    fixture.put(Table::Recipients, vec![person("1", "Ada"), person("2", "Bob"), person("3", "Eve")]).await;
    fixture
        .put(Table::Recipients, vec![json!({ "user_type": "ADMIN_USER", "user_id": "1", "name": "Root" })])
        .await;
    fixture.accept(&[event("a")]).await;
    let claim = fixture.claim_new().await;
    let considered = ["1", "3", "gone"].map(|id| json!({ "user_type": "CUSTOMER", "user_id": id }));
    let decisions = Some(json!(considered).to_string());
    let step = FanOutStep { decisions, ..step_of(&claim.events()[0], Step::Finished(summary(0))) };
    fixture.commit(claim, vec![step], vec![]).await;
    let mut recipients = fixture.trace("a").await.recipients;
    recipients.sort_by(|a, b| a.user.cmp(&b.user));
    let named = column(&recipients, |person| (person.name.as_deref(), person.role.as_deref()));
    assert_eq!(named, [(Some("Ada"), Some("CHEF")), (Some("Eve"), Some("CHEF"))]);
}

pub async fn a_trace_comes_in_pages_of_users(fixture: &Fixture) {
    let mut users: Vec<_> = ["1", "10", "2", "a"].map(customer).to_vec();
    users.push(user("ADMIN_USER", "2"));
    users.push(user("RESTAURANT_USER", "1"));
    notified(fixture, &users).await;
    users.sort_unstable();
    for limit in [1, 2, 4, 6, 7] {
        let mut pages = Vec::new();
        let mut after = None;
        loop {
            let page = trace(fixture, TraceFilter { after, limit, ..TraceFilter::default() }).await;
            let [notified, of_notifications, of_sends] = recipients(&page);
            assert!(notified.len() <= limit);
            assert_eq!(of_notifications, notified);
            assert_eq!(of_sends, notified);
            assert_eq!((page.outbox.len(), page.sends.len()), (2 * notified.len(), 2 * notified.len()));
            pages.extend(notified);
            assert!(pages.len() <= users.len(), "{pages:?}");
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(pages, users, "in pages of {limit}");
    }
}

pub async fn a_trace_of_one_user_tells_of_nobody_else(fixture: &Fixture) {
    let users = [customer("50"), customer("500"), user("RESTAURANT_USER", "50")];
    notified(fixture, &users).await;
    let filter = |user: UserRef| TraceFilter { user: Some(user), after: None, limit: 10 };
    let one = trace(fixture, filter(customer("50"))).await;
    assert_eq!(recipients(&one), [(); 3].map(|()| vec![customer("50")]));
    assert_eq!((one.outbox.len(), one.sends.len(), one.next), (2, 2, None));
    let nobody = trace(fixture, filter(customer("51"))).await;
    assert!(nobody.outbox.is_empty() && nobody.sends.is_empty());
}

pub async fn a_trace_of_one_user_has_the_dead_letters_of_that_user_and_of_the_event(fixture: &Fixture) {
    notified(fixture, &[customer("50")]).await;
    let dead_letter = |recipient: &str, reason: &str| {
        format!(
            "INSERT INTO dead_letter (stage, event_id, recipient_type, recipient_id, reason, error, created_at)
             VALUES ('send', 'a', {recipient}, '{reason}', 'busy', '2026-01-21T10:15:30.000Z')"
        )
    };
    for (recipient, reason) in [
        ("'CUSTOMER', '50'", "MINE"),
        ("'CUSTOMER', '500'", "OTHER_ID"),
        ("'RESTAURANT_USER', '50'", "OTHER_TYPE"),
        ("NULL, NULL", "OF_THE_EVENT"),
    ] {
        fixture.execute(&dead_letter(recipient, reason)).await;
    }
    let one =
        trace(fixture, TraceFilter { user: Some(customer("50")), limit: 10, ..TraceFilter::default() }).await;
    assert_eq!(column(&one.dead_letters, |row| row.reason.as_str()), ["MINE", "OF_THE_EVENT"]);
    assert_eq!(fixture.trace("a").await.dead_letters.len(), 4);
}

pub async fn what_somebody_damaged_is_shown_as_it_is_stored(fixture: &Fixture) {
    let jobs = notified(fixture, &[customer("42")]).await;
    let sent = outcome(&jobs[0], SendState::Sent { external_id: None, at: Timestamp::UNIX_EPOCH });
    fixture.settle(vec![Settlement { capture: Capture::Keep { html: None }, ..sent }]).await;
    let (counts, decisions) =
        (json!({ "FAX": { "SEND": 1 } }), json!([{ "user_id": "42", "audience": 1 }, 7]));
    for damage in [
        "UPDATE outbox SET priority = 'URGENT'",
        "UPDATE notification SET priority = 'URGENT'",
        "UPDATE captured_message SET channel = 'FAX'",
        &format!("UPDATE processed_event SET counts = '{counts}', decisions = '{decisions}'"),
    ] {
        fixture.execute(damage).await;
    }
    let trace = fixture.trace("a").await;
    let shown = json!([trace.outbox[0].priority, trace.notifications[0].priority]);
    assert_eq!(shown, json!(["URGENT", "URGENT"]));
    assert_eq!(json!(trace.processed.expect("the event was decided").counts), counts);
    assert_eq!(json!(trace.decisions), decisions);
    let captured = fixture.store.list_captured(None, 0, 10).await.expect("the database is there");
    assert_eq!(json!(captured[0].channel), json!("FAX"));
}

pub async fn captured_messages_are_listed_in_pages(fixture: &Fixture) {
    for (id, channel) in [("a", Email), ("b", Sms), ("c", Email), ("d", Sms)] {
        let job = fixture.sending(id, channel).await;
        let sent = outcome(&job, SendState::Sent { external_id: None, at: Timestamp::UNIX_EPOCH });
        fixture.settle(vec![Settlement { capture: Capture::Keep { html: None }, ..sent }]).await;
    }
    let captured = async |event_id: Option<&str>, after: i64| {
        let event_id = event_id.map(str::to_owned);
        fixture.store.list_captured(event_id, after, 3).await.expect("the database is there")
    };
    let first = captured(None, 0).await;
    assert_eq!(column(&first, |row| row.event_id.as_str()), ["a", "b", "c"]);
    let last = first[2].id;
    assert_eq!(column(&captured(None, last).await, |row| row.event_id.as_str()), ["d"]);
    assert_eq!(column(&captured(Some("c"), 0).await, |row| row.channel.clone()), [Email]);
    assert!(captured(Some("c"), last).await.is_empty());
    assert!(captured(Some("e"), 0).await.is_empty());
}

pub async fn the_clock_moves_as_the_fixture_says(fixture: &Fixture) {
    let now = async || fixture.store.now().await.expect("the database is there");
    let before = now().await;
    fixture.advance(Duration::from_hours(1)).await;
    let passed = between(before, now().await);
    assert!((3_600..3_700).contains(&passed.as_secs()), "{passed:?}");
}
