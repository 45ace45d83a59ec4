//! Checks that a received message becomes a notification and a send.

use std::time::Duration;

use campanile_domain::channel::Channel::{Email, Push, Sms, Websocket};
use campanile_domain::event::{Failure, NewEvent};
use campanile_domain::fan_out::OutboxRow;
use campanile_domain::id::{EntityId, EntityType, NotificationId, SendKey, UserId};
use campanile_domain::priority::Priority;
use campanile_domain::priority::Priority::{High, Low};
use campanile_domain::status::{OutboxStatus, SendStatus};
use campanile_domain::template::Text;
use serde_json::json;

use super::Fixture;
use super::publish::republish;
use super::setup::{claimed, column, customer, entity, event, event_id, left_due, row, rows, urgent, user};
use crate::{FailedMessage, Shown};

pub async fn a_row_becomes_a_notification_and_a_send(fixture: &Fixture) {
    let row = OutboxRow {
        priority: High,
        entity: Some(entity("RESTAURANT", "5")),
        shared_read: true,
        ..row("a", &customer("42"), Email)
    };
    fixture.published(&urgent("a", Low), std::slice::from_ref(&row)).await;
    let received = fixture.receive(&[claimed(row.key)]).await;
    assert_eq!(received.new.iter().map(|new| &new.event_id).collect::<Vec<_>>(), [&event_id("a")]);
    assert!(received.unknown.is_empty());
    assert_eq!((received.redelivered, received.jobs.len()), (0, 1));
    let job = &received.jobs[0];
    assert_eq!((job.key, job.attempt, &job.event_id), (row.key, 1, &row.event_id));
    assert_eq!((&job.user, &job.address, job.priority), (&row.recipient, &row.address, High));
    assert_eq!((&job.title, &job.body), (&row.title, &row.body));
    assert_eq!(job.event_type, event("a").event_type);
    let trace = fixture.trace("a").await;
    assert_eq!(trace.notifications.len(), 1);
    let notification = &trace.notifications[0];
    assert_eq!(notification.id, row.key.notification_id);
    assert_eq!(notification.user.user_type.as_str(), "CUSTOMER");
    assert_eq!(notification.user.user_id.as_str(), "42");
    assert_eq!(notification.entity_type.as_ref().map(EntityType::as_str), Some("RESTAURANT"));
    assert_eq!(notification.entity_id.as_ref().map(EntityId::as_str), Some("5"));
    assert_eq!(notification.priority, Priority::Low);
    assert_eq!(notification.shared_read, true);
    assert_eq!(
        notification.properties,
        json!({ "audience": "customer", "aggregate_type": "ORDER", "aggregate_id": "7", "payload": { "total": 12 } })
    );
    let send = fixture.send("a", row.key).await;
    assert_eq!(send.row.status, SendStatus::Sending);
    assert_eq!(send.row.attempt_count, 0);
    assert!(send.row.lease_until.is_some() && send.row.next_attempt_at.is_none());
}

pub async fn a_redelivered_row_is_skipped(fixture: &Fixture) {
    let rows = rows("a", &customer("42"), &[Email, Sms, Websocket]);
    fixture.published(&event("a"), &rows).await;
    fixture.receive(&[claimed(rows[0].key), left_due(rows[1].key), claimed(rows[2].key)]).await;
    let all: Vec<_> = rows.iter().map(|row| claimed(row.key)).collect();
    let again = fixture.receive(&all).await;
    assert!(again.jobs.is_empty() && again.unknown.is_empty());
    assert_eq!(again.redelivered, 3);
    assert!(again.redelivered_events.contains(&event_id("a")), "the event may be complete");
    assert_eq!(fixture.count("SELECT count(*) FROM notification").await, 1);
    assert_eq!(fixture.count("SELECT count(*) FROM notification_channel_send").await, 3);
    let twice_in_one = row("b", &customer("42"), Email);
    fixture.published(&event("b"), std::slice::from_ref(&twice_in_one)).await;
    let received = fixture.receive(&[claimed(twice_in_one.key), claimed(twice_in_one.key)]).await;
    assert_eq!((received.jobs.len(), received.redelivered), (1, 1));
}

pub async fn an_unknown_key_does_not_stop_the_rest(fixture: &Fixture) {
    let row = row("a", &customer("42"), Email);
    fixture.published(&event("a"), std::slice::from_ref(&row)).await;
    let forged = SendKey { notification_id: NotificationId::generate(), channel: Email };
    let never_written = SendKey { channel: Sms, ..row.key };
    let received = fixture.receive(&[claimed(forged), claimed(row.key), claimed(never_written)]).await;
    assert_eq!(received.unknown, [forged, never_written]);
    assert_eq!(received.jobs.len(), 1);
    assert_eq!(fixture.trace("a").await.sends.len(), 1);
}

pub async fn a_web_socket_send_is_sent_at_once(fixture: &Fixture) {
    let row = row("a", &customer("42"), Websocket);
    fixture.published(&event("a"), std::slice::from_ref(&row)).await;
    let received = fixture.receive(&[claimed(row.key)]).await;
    assert_eq!((received.jobs.len(), received.new.len()), (0, 1));
    assert!(fixture.receive(&[claimed(row.key)]).await.new.is_empty(), "once is enough");
    let send = fixture.send("a", row.key).await;
    assert_eq!(send.row.status, SendStatus::Sent);
    assert_eq!(send.row.attempt_count, 1);
    assert!(send.row.sent_at.is_some());
    fixture.advance(super::setup::LEASE * 2).await;
    assert!(fixture.store.expired_claims(10).await.expect("the database is there").is_empty());
}

pub async fn what_is_not_claimed_is_due_at_once(fixture: &Fixture) {
    let row = row("a", &customer("42"), Email);
    fixture.published(&event("a"), std::slice::from_ref(&row)).await;
    let received = fixture.receive(&[left_due(row.key)]).await;
    assert_eq!((received.jobs.len(), received.new.len()), (0, 1));
    let send = fixture.send("a", row.key).await;
    assert_eq!(send.row.status, SendStatus::Due);
    assert!(send.row.next_attempt_at.is_some());
    let jobs = fixture.claim_due(Email, 10).await;
    assert_eq!(jobs.len(), 1);
    assert_eq!((jobs[0].key, jobs[0].attempt, &jobs[0].address), (row.key, 1, &row.address));
    assert_eq!(fixture.send("a", row.key).await.row.status, SendStatus::Sending);
}

pub async fn the_channels_of_a_user_share_a_notification(fixture: &Fixture) {
    let rows = rows("a", &customer("42"), &[Email, Push, Websocket]);
    fixture.published(&event("a"), &rows).await;
    for row in &rows {
        fixture.receive(&[claimed(row.key)]).await;
    }
    let trace = fixture.trace("a").await;
    assert_eq!(trace.notifications.len(), 1);
    assert_eq!(column(&trace.sends, |send| send.row.channel.clone()), [Email, Push, Websocket]);
    assert_eq!(
        column(&trace.outbox, |row| row.status.clone()),
        [OutboxStatus::Delivered, OutboxStatus::Delivered, OutboxStatus::Delivered]
    );
}

pub async fn users_of_two_types_with_one_id_are_two(fixture: &Fixture) {
    let rows = [customer("50"), user("RESTAURANT_USER", "50")].map(|user| row("a", &user, Email));
    fixture.published(&event("a"), &rows).await;
    fixture.receive(&rows.clone().map(|row| claimed(row.key))).await;
    let trace = fixture.trace("a").await;
    assert_eq!(
        column(&trace.notifications, |row| row.user.user_type.as_str()),
        ["CUSTOMER", "RESTAURANT_USER"]
    );
    assert_eq!(trace.sends.len(), 2);
}

pub async fn every_channel_of_a_second_notification_is_cancelled(fixture: &Fixture) {
    let first = row("a", &customer("42"), Email);
    let second = rows("a", &customer("42"), &[Push, Sms]);
    fixture.published(&event("a"), &[vec![first.clone()], second.clone()].concat()).await;
    fixture.receive(&[claimed(first.key)]).await;
    let received = fixture.receive(&second.iter().map(|row| claimed(row.key)).collect::<Vec<_>>()).await;
    assert!(received.jobs.is_empty() && received.unknown.is_empty() && received.new.is_empty());
    assert_eq!(
        fixture.outbox_statuses("a").await,
        [OutboxStatus::Delivered, OutboxStatus::Cancelled, OutboxStatus::Cancelled]
    );
    assert_eq!(fixture.trace("a").await.notifications.len(), 1);
    assert_eq!(fixture.close(&["a"]).await, 1);
}

pub async fn a_second_notification_of_an_event_is_cancelled(fixture: &Fixture) {
    let rows = [Email, Sms].map(|channel| row("a", &customer("42"), channel));
    fixture.published(&event("a"), &rows).await;
    fixture.receive(&[claimed(rows[0].key)]).await;
    let second = fixture.receive(&[claimed(rows[1].key)]).await;
    assert!(second.jobs.is_empty() && second.unknown.is_empty());
    assert_eq!(second.redelivered_events, [event_id("a")]);
    let trace = fixture.trace("a").await;
    assert_eq!(trace.notifications.len(), 1);
    assert_eq!(
        column(&trace.outbox, |row| row.status.clone()),
        [OutboxStatus::Delivered, OutboxStatus::Cancelled]
    );
    assert!(trace.outbox[1].last_error.as_deref().is_some_and(|error| error.starts_with("DUPLICATE: ")));
    let again = fixture.receive(&[claimed(rows[1].key)]).await;
    assert_eq!((again.jobs.len(), again.redelivered), (0, 1));
}

pub async fn the_inbox_has_the_text_of_the_inbox(fixture: &Fixture) {
    let inbox = Text { title: "Inbox title".to_owned(), body: String::new() };
    let with_inbox = OutboxRow { inbox: Some(inbox), ..row("a", &customer("1"), Email) };
    let without = row("a", &customer("2"), Email);
    fixture.published(&event("a"), &[with_inbox.clone(), without.clone()]).await;
    let jobs = fixture.receive(&[claimed(with_inbox.key), claimed(without.key)]).await.jobs;
    assert!(jobs.iter().all(|job| job.title == "EMAIL title" && job.body == "EMAIL body"));
    let notifications = fixture.trace("a").await.notifications;
    assert_eq!(column(&notifications, |row| row.title.as_str()), ["Inbox title", "EMAIL title"]);
    assert_eq!(column(&notifications, |row| row.body.as_str()), ["", "EMAIL body"]);
}

pub async fn a_large_payload_stays_out_of_the_inbox(fixture: &Fixture) {
    let payload = json!({ "text": "x".repeat(5_000) });
    let large =
        NewEvent { payload: serde_json::from_value(payload).expect("an object is a payload"), ..event("a") };
    let row = row("a", &customer("42"), Email);
    fixture.published(&large, std::slice::from_ref(&row)).await;
    fixture.receive(&[claimed(row.key)]).await;
    let properties = &fixture.trace("a").await.notifications[0].properties;
    assert!(properties["payload"].is_null());
    assert_eq!(properties["aggregate_id"], "7");
}

pub async fn a_row_that_failed_is_not_received(fixture: &Fixture) {
    let row = row("a", &customer("42"), Email);
    let chunk = fixture.fan_out(&event("a"), std::slice::from_ref(&row), true).await.remove(0);
    let refused = vec![(row.key, "no route".to_owned())];
    let delay = Duration::from_secs(1);
    fixture.store.rows_refused(chunk.id, refused, 1, delay).await.expect("the database is there");
    let received = fixture.receive(&[claimed(row.key)]).await;
    assert!(received.jobs.is_empty() && received.unknown.is_empty());
    assert_eq!(received.redelivered, 1);
    assert_eq!(fixture.outbox_statuses("a").await, [OutboxStatus::Failed]);
    assert!(fixture.trace("a").await.notifications.is_empty());
}

pub async fn a_message_that_can_not_be_received_fails_its_row(fixture: &Fixture) {
    let rows = rows("a", &customer("42"), &[Email, Sms]);
    fixture.published(&event("a"), &rows).await;
    fixture.receive(&[claimed(rows[0].key)]).await;
    let failed = |key: Option<SendKey>| FailedMessage {
        key,
        failure: Failure::new("POISON", "it came too often"),
        message: Some("{".to_owned()),
    };
    let forged = SendKey { notification_id: NotificationId::generate(), channel: Email };
    let messages =
        vec![failed(None), failed(Some(forged)), failed(Some(rows[0].key)), failed(Some(rows[1].key))];
    fixture.store.fail_messages(messages).await.expect("the database is there");
    let once_more = FailedMessage { failure: Failure::new("LATE", "once more"), ..failed(Some(rows[1].key)) };
    fixture.store.fail_messages(vec![once_more]).await.expect("the database is there");
    let trace = fixture.trace("a").await;
    assert_eq!(
        column(&trace.outbox, |row| row.status.clone()),
        [OutboxStatus::Delivered, OutboxStatus::Failed],
        "what was received is left alone"
    );
    assert_eq!(trace.outbox[1].last_error.as_deref(), Some("POISON: it came too often"));
    assert_eq!(fixture.count("SELECT count(*) FROM dead_letter").await, 5);
    let dead_letter = trace.dead_letters.last().expect("the row has one");
    assert_eq!(dead_letter.stage, "receive");
    assert_eq!(dead_letter.reason, "POISON");
    assert_eq!(dead_letter.recipient_id.as_ref().map(UserId::as_str), Some("42"));
    assert_eq!(dead_letter.channel, Some(Shown::Typed(Sms)));
    assert_eq!(republish(fixture, &[rows[1].queue.as_str()], 10).await, 0);
}
