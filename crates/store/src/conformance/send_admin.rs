//! Checks how operators list sends, and how they resolve sends in doubt.

use std::sync::Arc;

use campanile_domain::access::audit::Actor;
use campanile_domain::channel::Channel::{self, Email, Push, Sms};
use campanile_domain::fan_out::OutboxRow;
use campanile_domain::id::{NotificationId, SendKey, UserId, UserTypeName};
use campanile_domain::priority::Priority;
use campanile_domain::send::{EXHAUSTED, SendState};
use campanile_domain::status::SendStatus;
use campanile_domain::time::Timestamp;

use super::Fixture;
use super::setup::{claimed, column, customer, event, event_id, outcome, row, rows, user};
use crate::{
    DeadLetterFilter, InstanceId, ListedSend, RerenderedTexts, Resolution, Resolved, SendFilter, SendJob,
    Shown,
};

const SENT: SendState = SendState::Sent { external_id: None, at: Timestamp::UNIX_EPOCH };
const IN_DOUBT: SendState = SendState::InDoubt { since: Timestamp::UNIX_EPOCH };

fn all() -> SendFilter {
    SendFilter { limit: 100, ..SendFilter::default() }
}

fn of_status(status: SendStatus) -> SendFilter {
    SendFilter { status: Some(status), ..all() }
}

async fn listed(fixture: &Fixture, filter: &SendFilter) -> Vec<ListedSend> {
    fixture.store.list_sends(filter.clone()).await.expect("the database is there").items
}

/// The ids of all matching sends, read page by page. Each cursor is converted to text and back.
async fn pages(fixture: &Fixture, filter: &SendFilter, limit: usize) -> Vec<SendKey> {
    let (mut ids, mut filter) = (Vec::new(), SendFilter { limit, ..filter.clone() });
    loop {
        let page = fixture.store.list_sends(filter.clone()).await.expect("the database is there");
        assert!(page.items.len() <= limit);
        ids.extend(page.items.iter().map(|send| *send.row.id.typed().expect("ids are known")));
        let Some(next) = page.next else { return ids };
        let after = filter.cursor(&next.to_text());
        assert_eq!(after, Some(next));
        assert_ne!(filter.after, after, "it moves on");
        filter.after = after;
    }
}

async fn in_doubt(fixture: &Fixture, id: &str, channel: Channel) -> SendJob {
    let job = fixture.sending(id, channel).await;
    assert!(fixture.settle(vec![outcome(&job, IN_DOUBT)]).await.is_empty());
    job
}

async fn resolve(fixture: &Fixture, key: SendKey, resolution: Resolution, note: Option<&str>) -> Resolved {
    fixture
        .store
        .resolve(key, resolution, note.map(str::to_owned), InstanceId(1), &Actor::AdminKey)
        .await
        .expect("the database is there")
}

async fn sends_in_doubt(fixture: &Fixture) -> i64 {
    fixture.count("SELECT count(*) FROM send_in_doubt").await
}

pub async fn sends_in_doubt_are_listed_the_oldest_first(fixture: &Fixture) {
    let mut keys = Vec::new();
    for (id, channel) in [("a", Sms), ("b", Email), ("c", Sms), ("d", Email), ("e", Sms)] {
        keys.push(in_doubt(fixture, id, channel).await.key);
    }
    fixture.sending("f", Sms).await;
    let doubtful = of_status(SendStatus::InDoubt);
    assert_eq!(pages(fixture, &doubtful, 2).await, keys);
    assert_eq!(pages(fixture, &doubtful, 100).await, keys);
    let texts_only = SendFilter { channel: Some(Sms), ..doubtful.clone() };
    assert_eq!(pages(fixture, &texts_only, 2).await, [keys[0], keys[2], keys[4]]);
    let send = listed(fixture, &doubtful).await.remove(0);
    assert_eq!(send.row.status, SendStatus::InDoubt);
    assert_eq!(send.event_id, Some(event_id("a")));
    assert_eq!(send.user_type.as_ref().map(UserTypeName::as_str), Some("CUSTOMER"));
    assert_eq!(send.user_id.as_ref().map(UserId::as_str), Some("42"));
    assert!(send.in_doubt_since.as_ref().and_then(Shown::at).is_some(), "{send:?}");
    assert_eq!(send.row.attempt_count, 1);
}

pub async fn due_sends_are_listed_as_they_are_taken(fixture: &Fixture) {
    let slow = fixture.waiting("a", Sms, Priority::Low).await;
    let urgent = fixture.waiting("b", Sms, Priority::High).await;
    let email = fixture.waiting("c", Email, Priority::Normal).await;
    let push = fixture.waiting("d", Push, Priority::Normal).await;
    fixture.sending("e", Sms).await;
    let due = of_status(SendStatus::Due);
    let expected = [email, push, urgent, slow];
    assert_eq!(pages(fixture, &due, 1).await, expected);
    assert_eq!(pages(fixture, &due, 100).await, expected);
    let texts_only = SendFilter { channel: Some(Sms), ..due.clone() };
    assert_eq!(pages(fixture, &texts_only, 1).await, [urgent, slow]);
    let pushes = SendFilter { channel: Some(Push), ..due };
    assert_eq!(pages(fixture, &pushes, 1).await, [push]);
    assert!(listed(fixture, &pushes).await[0].in_doubt_since.is_none());
}

pub async fn all_sends_are_listed_the_newest_first(fixture: &Fixture) {
    let mut keys = Vec::new();
    for id in ["a", "b", "c"] {
        let two = rows(id, &customer("42"), &[Email, Sms]);
        fixture.published(&event(id), &two).await;
        fixture.receive(&[claimed(two[0].key), claimed(two[1].key)]).await;
        keys.extend([two[0].key, two[1].key]);
    }
    keys.sort_unstable_by_key(|key| std::cmp::Reverse((key.notification_id, key.channel.as_str())));
    assert_eq!(pages(fixture, &all(), 1).await, keys);
    assert_eq!(pages(fixture, &all(), 4).await, keys);
    let emails: Vec<SendKey> = keys.iter().filter(|key| key.channel == Email).copied().collect();
    assert_eq!(pages(fixture, &SendFilter { channel: Some(Email), ..all() }, 2).await, emails);
}

pub async fn sends_are_filtered(fixture: &Fixture) {
    let sent = fixture.sending("a", Sms).await;
    fixture.settle(vec![outcome(&sent, SENT)]).await;
    let failed = fixture.failed_send("b", Email).await;
    let (somebody, nobody) = (user("ADMIN_USER", "42"), user("ADMIN_USER", "43"));
    let other = row("c", &somebody, Sms);
    fixture.published(&event("c"), std::slice::from_ref(&other)).await;
    fixture.receive(&[claimed(other.key)]).await;
    let of_user = |user: &campanile_domain::id::UserRef| SendFilter {
        user_type: Some(user.user_type.to_string()),
        user_id: Some(user.user_id.to_string()),
        ..all()
    };
    assert_eq!(pages(fixture, &of_status(SendStatus::Sent), 9).await, [sent.key]);
    assert_eq!(pages(fixture, &of_status(SendStatus::Failed), 9).await, [failed]);
    assert_eq!(pages(fixture, &of_status(SendStatus::Sending), 9).await, [other.key]);
    assert_eq!(pages(fixture, &of_user(&somebody), 9).await, [other.key]);
    assert!(pages(fixture, &of_user(&nobody), 9).await.is_empty());
    let asked = SendFilter { provider: Some("provider".to_owned()), ..all() };
    assert_eq!(pages(fixture, &asked, 9).await, [failed, sent.key]);
    assert!(pages(fixture, &SendFilter { provider: Some("other".to_owned()), ..all() }, 9).await.is_empty());
}

pub async fn the_sends_of_an_event_come_by_recipient(fixture: &Fixture) {
    let of = |id: &str, channel| row("a", &customer(id), channel);
    let three: Vec<OutboxRow> = vec![of("1", Sms), of("2", Sms), of("3", Sms)];
    fixture.published(&event("a"), &three).await;
    fixture.sending("b", Sms).await;
    // The second send has not been received yet.
    fixture.receive(&[claimed(three[0].key), claimed(three[2].key)]).await;
    let of_event = SendFilter { event_id: Some("a".to_owned()), ..all() };
    assert_eq!(pages(fixture, &of_event, 1).await, [three[0].key, three[2].key]);
    let last = SendFilter {
        user_type: Some("CUSTOMER".to_owned()),
        user_id: Some("3".to_owned()),
        ..of_event.clone()
    };
    let page = fixture.store.list_sends(last).await.expect("the database is there");
    assert_eq!(column(&page.items, |send| send.user_id.as_ref().map(UserId::as_str)), [Some("3")]);
    assert_eq!(page.next, None);
    let due = SendFilter { status: Some(SendStatus::Due), ..of_event };
    assert!(pages(fixture, &due, 1).await.is_empty());
    let unknown = SendFilter { event_id: Some("nothing".to_owned()), ..all() };
    assert!(pages(fixture, &unknown, 1).await.is_empty());
}

pub async fn a_page_scans_a_bounded_number_of_sends(fixture: &Fixture) {
    let many: Vec<OutboxRow> = (0..1_100).map(|n| row("a", &customer(&format!("{n:04}")), Sms)).collect();
    fixture.published(&event("a"), &many).await;
    let keys: Vec<_> = many.iter().map(|row| claimed(row.key)).collect();
    let job =
        fixture.receive(&keys).await.jobs.into_iter().min_by_key(|job| job.key).expect("all were claimed");
    fixture.settle(vec![outcome(&job, SENT)]).await;
    // The oldest send, so the first page does not reach it.
    let sent = of_status(SendStatus::Sent);
    let page = fixture.store.list_sends(sent.clone()).await.expect("the database is there");
    assert!(page.items.is_empty() && page.next.is_some());
    assert_eq!(pages(fixture, &sent, 10).await, [job.key]);
}

pub async fn what_is_resent_is_due_at_once_and_keeps_its_count(fixture: &Fixture) {
    let job = in_doubt(fixture, "a", Sms).await;
    assert_eq!(sends_in_doubt(fixture).await, 1);
    assert_eq!(resolve(fixture, job.key, Resolution::Resend, Some("asked them")).await, Resolved::Done);
    let send = fixture.send("a", job.key).await;
    assert_eq!(send.row.status, SendStatus::Due);
    assert_eq!(send.row.last_error.as_deref(), Some("busy"));
    assert_eq!(sends_in_doubt(fixture).await, 0);
    let attempts =
        column(&send.attempts, |attempt| (attempt.row.outcome.as_str(), attempt.row.error.as_deref()));
    assert_eq!(attempts, [("UNKNOWN", Some("busy")), ("RESENT", Some("asked them"))]);
    let again = fixture.claim_due(Sms, 10).await.pop().expect("it is due");
    assert_eq!((again.key, again.attempt), (job.key, 2));
    // The outcome of the first attempt may still arrive, but it is too late.
    assert_eq!(fixture.settle(vec![outcome(&job, SENT)]).await, [job.key]);
    fixture.settle(vec![outcome(&again, IN_DOUBT)]).await;
    assert_eq!(sends_in_doubt(fixture).await, 1, "it may be in doubt again");
    assert_eq!(fixture.trace("a").await.dead_letters.len(), 0);
}

pub async fn what_is_settled_as_sent_stays_so(fixture: &Fixture) {
    let job = in_doubt(fixture, "a", Sms).await;
    assert_eq!(resolve(fixture, job.key, Resolution::Sent, None).await, Resolved::Done);
    let send = fixture.send("a", job.key).await;
    assert_eq!(send.row.status, SendStatus::Sent);
    assert_eq!(send.row.provider.as_deref(), Some("provider"));
    assert!(send.row.sent_at.is_some() && send.row.last_error.is_none(), "{send:?}");
    assert_eq!(send.attempts[1].row.outcome, "SETTLED_SENT");
    assert_eq!(sends_in_doubt(fixture).await, 0);
    assert!(fixture.claim_due(Sms, 10).await.is_empty());
    assert!(fixture.trace("a").await.dead_letters.is_empty());
}

pub async fn what_is_settled_as_failed_has_a_dead_letter_and_may_be_replayed(fixture: &Fixture) {
    let job = in_doubt(fixture, "a", Sms).await;
    assert_eq!(resolve(fixture, job.key, Resolution::Failed, Some("no such phone")).await, Resolved::Done);
    let send = fixture.send("a", job.key).await;
    assert_eq!(send.row.status, SendStatus::Failed);
    assert_eq!(send.row.last_error.as_deref(), Some("SETTLED: no such phone"));
    assert!(send.row.sent_at.is_none());
    let dead_letter = fixture.trace("a").await.dead_letters.remove(0);
    assert_eq!(dead_letter.stage, "send");
    assert_eq!(dead_letter.reason, "SETTLED");
    assert_eq!(dead_letter.provider.as_deref(), Some("provider"));
    assert_eq!(dead_letter.error, "SETTLED: no such phone");
    assert_eq!(dead_letter.recipient_id.as_ref().map(UserId::as_str), Some("42"));
    assert_eq!(dead_letter.channel, Some(Shown::Typed(Sms)));
    let dead_letters = DeadLetterFilter { limit: 10, ..DeadLetterFilter::default() };
    assert_eq!(
        fixture
            .store
            .replay(dead_letters, RerenderedTexts::new(), &Actor::AdminKey)
            .await
            .expect("the database is there")
            .replayed,
        1
    );
    assert_eq!(fixture.claim_due(Sms, 10).await.len(), 1);
}

pub async fn only_what_is_in_doubt_is_resolved(fixture: &Fixture) {
    let nobody = SendKey { notification_id: NotificationId::generate(), channel: Sms };
    let failed = fixture.failed_send("a", Sms).await;
    let sent = fixture.sending("b", Sms).await;
    let sending = fixture.sending("c", Sms).await.key;
    fixture.settle(vec![outcome(&sent, SENT)]).await;
    let due = fixture.waiting("d", Sms, Priority::Normal).await;
    let expected = [
        (nobody, Resolved::Unknown),
        (failed, Resolved::NotInDoubt(SendStatus::Failed)),
        (sent.key, Resolved::NotInDoubt(SendStatus::Sent)),
        (sending, Resolved::NotInDoubt(SendStatus::Sending)),
        (due, Resolved::NotInDoubt(SendStatus::Due)),
    ];
    for (key, expected) in expected {
        for resolution in [Resolution::Resend, Resolution::Sent, Resolution::Failed] {
            assert_eq!(resolve(fixture, key, resolution, None).await, expected);
        }
    }
    assert_eq!(fixture.send("a", failed).await.row.last_error, Some(format!("{EXHAUSTED}: busy")));
}

pub async fn of_several_persons_at_once_one_decides(fixture: &Fixture) {
    let key = in_doubt(fixture, "a", Sms).await.key;
    let mut deciding = tokio::task::JoinSet::new();
    for resolution in [Resolution::Resend, Resolution::Sent, Resolution::Failed].repeat(4) {
        let store = Arc::clone(&fixture.store);
        deciding.spawn(async move {
            (
                resolution,
                store
                    .resolve(key, resolution, None, InstanceId(1), &Actor::AdminKey)
                    .await
                    .expect("the database is there"),
            )
        });
    }
    let decided = deciding.join_all().await;
    let done: Vec<Resolution> = decided
        .iter()
        .filter(|(_, resolved)| *resolved == Resolved::Done)
        .map(|(resolution, _)| *resolution)
        .collect();
    assert_eq!(done.len(), 1, "{decided:?}");
    let became = Resolved::NotInDoubt(done[0].status());
    assert_eq!(decided.iter().filter(|(_, resolved)| *resolved == became).count(), 11, "{decided:?}");
    let send = fixture.send("a", key).await;
    assert_eq!(send.attempts.len(), 2, "{send:?}");
}
