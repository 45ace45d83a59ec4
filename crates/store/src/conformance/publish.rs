//! Checks how outbox rows are published to the broker.

use std::time::Duration;

use campanile_domain::channel::Channel::{Email, Push, Sms};
use campanile_domain::event::Failure;
use campanile_domain::event::transition::Step;
use campanile_domain::fan_out::{Cursor, OutboxRow};
use campanile_domain::id::{SendKey, UserId};
use campanile_domain::priority::Priority::{self, High, Low, Normal};
use campanile_domain::queue::Queue;
use campanile_domain::status::OutboxStatus;
use campanile_domain::template::Text;

use super::Fixture;
use super::setup::{
    HALF_A_LEASE, LEASE, QUEUE, chunk_of, claimed, customer, entity, event, row, rows, step_of, urgent,
};
use crate::outbox::REPUBLISH_PAGE_EVENTS;
use crate::{Chunk, ChunkId, FailedMessage, RepublishCursor, Shown};

const OTHER_QUEUE: &str = "notification.restaurant";
const DELAY: Duration = Duration::from_secs(10);

async fn claim_from(fixture: &Fixture, queue: &str) -> Option<Chunk> {
    fixture.store.claim_chunk(&Queue::named(queue), LEASE).await.expect("the database is there")
}

async fn claim(fixture: &Fixture) -> Option<Chunk> {
    claim_from(fixture, QUEUE).await
}

/// Creates an event with one row in one chunk that is not leased.
async fn unleased_chunk(fixture: &Fixture, id: &str, queue: &str, priority: Priority) -> SendKey {
    let row = OutboxRow { queue: Queue::named(queue), priority, ..row(id, &customer("42"), Email) };
    fixture.fan_out(&event(id), std::slice::from_ref(&row), false).await;
    row.key
}

fn keys(chunk: &Chunk) -> Vec<SendKey> {
    let mut keys: Vec<_> = chunk.rows.iter().map(|send| send.row.key).collect();
    keys.sort_unstable();
    keys
}

fn event_of(chunk: &Chunk) -> &str {
    chunk.rows[0].event.event_id.as_str()
}

/// Records refusals. Returns the number of rows that became dead letters.
async fn refuse(fixture: &Fixture, chunk: ChunkId, keys: &[SendKey], max: u32) -> u64 {
    let refused = keys.iter().map(|key| (*key, "no route".to_owned())).collect();
    fixture.store.rows_refused(chunk, refused, max, DELAY).await.expect("the database is there")
}

pub(super) async fn republish(fixture: &Fixture, queues: &[&str], limit: usize) -> u64 {
    republish_older(fixture, queues, Duration::ZERO, limit).await
}

async fn republish_older(fixture: &Fixture, queues: &[&str], older_than: Duration, limit: usize) -> u64 {
    let queues = queues.iter().map(|queue| Queue::named(*queue)).collect();
    let page = fixture.store.republish(queues, older_than, RepublishCursor::default(), limit).await;
    page.expect("the database is there").rows
}

pub async fn a_chunk_born_leased_is_handed_over_and_held_until_its_lease_passes(fixture: &Fixture) {
    let rows = rows("a", &customer("42"), &[Email, Sms]);
    let handed_over = fixture.fan_out(&event("a"), &rows, true).await;
    assert_eq!(handed_over.len(), 1);
    assert_eq!((handed_over[0].queue.as_str(), handed_over[0].lane), (QUEUE, Normal.lane()));
    assert_eq!(keys(&handed_over[0]), [rows[0].key, rows[1].key]);
    assert!(claim(fixture).await.is_none());
    fixture.advance(HALF_A_LEASE).await;
    assert!(claim(fixture).await.is_none());
    fixture.advance(LEASE).await;
    let taken_over = claim(fixture).await.expect("its lease has passed");
    assert_eq!(taken_over.id, handed_over[0].id);
    assert_eq!(keys(&taken_over), keys(&handed_over[0]));
}

pub async fn a_chunk_born_free_waits_for_whoever_claims_it(fixture: &Fixture) {
    let row = row("a", &customer("42"), Email);
    assert!(fixture.fan_out(&event("a"), std::slice::from_ref(&row), false).await.is_empty());
    assert_eq!(keys(&claim(fixture).await.expect("the chunk waits")), [row.key]);
}

pub async fn chunks_are_claimed_by_lane_then_by_age(fixture: &Fixture) {
    unleased_chunk(fixture, "low", QUEUE, Low).await;
    unleased_chunk(fixture, "old", QUEUE, Normal).await;
    unleased_chunk(fixture, "other high", OTHER_QUEUE, High).await;
    unleased_chunk(fixture, "high", QUEUE, High).await;
    unleased_chunk(fixture, "new", QUEUE, Normal).await;
    let mut claimed = Vec::new();
    while let Some(chunk) = claim(fixture).await {
        claimed.push(event_of(&chunk).to_owned());
        assert!(claimed.len() <= 4, "{claimed:?}");
    }
    assert_eq!(claimed, ["high", "old", "new", "low"]);
}

pub async fn only_chunks_of_the_given_queue_are_claimed(fixture: &Fixture) {
    unleased_chunk(fixture, "a", QUEUE, High).await;
    unleased_chunk(fixture, "b", OTHER_QUEUE, Low).await;
    assert!(claim_from(fixture, "notification.admin").await.is_none());
    let chunk = claim_from(fixture, OTHER_QUEUE).await.expect("one waits");
    assert_eq!((event_of(&chunk), chunk.queue.as_str(), chunk.lane), ("b", OTHER_QUEUE, Low.lane()));
    assert!(claim_from(fixture, OTHER_QUEUE).await.is_none());
}

pub async fn a_claimed_chunk_has_what_was_committed(fixture: &Fixture) {
    let given = OutboxRow {
        inbox: Some(Text { title: "Inbox".to_owned(), body: String::new() }),
        entity: Some(entity("RESTAURANT", "5")),
        shared_read: true,
        priority: High,
        ..row("a", &customer("42"), Push)
    };
    fixture.fan_out(&urgent("a", Low), std::slice::from_ref(&given), false).await;
    let chunk = claim(fixture).await.expect("the chunk waits");
    // A message does not contain the text of the inbox.
    assert_eq!(chunk.rows[0].row, OutboxRow { inbox: None, ..given });
    let event = &chunk.rows[0].event;
    assert_eq!(event.body_hash(), urgent("a", Low).body_hash());
    assert_eq!((event.event_id.as_str(), event.priority), ("a", Some(Low)));
}

pub async fn a_claimed_chunk_has_every_row_in_whatever_order_they_came(fixture: &Fixture) {
    let mut rows: Vec<_> = (0..9).map(|n| row("a", &customer(&(9 - n).to_string()), Email)).collect();
    let all: Vec<_> = rows.iter().map(|row| row.key).collect();
    rows.rotate_left(4);
    fixture.fan_out(&event("a"), &rows, false).await;
    let chunk = claim(fixture).await.expect("the chunk waits");
    assert_eq!(keys(&chunk), all);
    fixture.store.chunks_published(&[chunk.id]).await.expect("the database is there");
    assert_eq!(republish(fixture, &[QUEUE], 100).await, 9);
    assert_eq!(keys(&claim(fixture).await.expect("the chunk waits")), all);
}

pub async fn a_claimed_chunk_is_held_until_its_lease_passes(fixture: &Fixture) {
    unleased_chunk(fixture, "a", QUEUE, Normal).await;
    let first = claim(fixture).await.expect("the chunk waits");
    assert!(claim(fixture).await.is_none());
    fixture.advance(HALF_A_LEASE).await;
    assert!(claim(fixture).await.is_none());
    fixture.advance(LEASE).await;
    assert_eq!(claim(fixture).await.expect("its lease has passed").id, first.id);
    assert!(claim(fixture).await.is_none());
}

pub async fn a_published_chunk_is_no_more(fixture: &Fixture) {
    unleased_chunk(fixture, "a", QUEUE, Normal).await;
    let chunk = claim(fixture).await.expect("the chunk waits");
    assert_eq!(fixture.store.chunks_published(&[chunk.id]).await.expect("the database is there"), 1);
    fixture.advance(LEASE * 2).await;
    assert!(claim(fixture).await.is_none());
    assert_eq!(fixture.outbox_statuses("a").await, [OutboxStatus::Published]);
    let again = fixture.store.chunks_published(&[chunk.id]).await.expect("once more does no harm");
    assert_eq!(again, 0, "somebody else was faster");
}

pub async fn a_released_chunk_can_be_claimed_at_once(fixture: &Fixture) {
    let key = unleased_chunk(fixture, "a", QUEUE, Normal).await;
    let chunk = claim(fixture).await.expect("the chunk waits");
    fixture.store.release_chunks(&[chunk.id]).await.expect("the database is there");
    assert_eq!(fixture.outbox_statuses("a").await, [OutboxStatus::Pending]);
    assert_eq!(keys(&claim(fixture).await.expect("it waits again")), [key]);
}

pub async fn rows_that_were_received_meanwhile_are_not_published_again(fixture: &Fixture) {
    let rows = rows("a", &customer("42"), &[Email, Sms]);
    fixture.fan_out(&event("a"), &rows, true).await;
    fixture.receive(&[claimed(rows[0].key)]).await;
    fixture.advance(LEASE * 2).await;
    assert_eq!(keys(&claim(fixture).await.expect("its lease has passed")), [rows[1].key]);
}

pub async fn rows_that_failed_meanwhile_are_not_published_again(fixture: &Fixture) {
    let rows = rows("a", &customer("42"), &[Email, Sms]);
    fixture.fan_out(&event("a"), &rows, true).await;
    let poison = FailedMessage {
        key: Some(rows[0].key),
        failure: Failure::new("POISON", "it came too often"),
        message: None,
    };
    fixture.store.fail_messages(vec![poison]).await.expect("the database is there");
    fixture.advance(LEASE * 2).await;
    assert_eq!(keys(&claim(fixture).await.expect("its lease has passed")), [rows[1].key]);
}

pub async fn a_refused_row_waits_while_the_others_are_published(fixture: &Fixture) {
    let rows = rows("a", &customer("42"), &[Email, Push, Sms]);
    let chunk = fixture.fan_out(&event("a"), &rows, true).await.remove(0);
    refuse(fixture, chunk.id, &[rows[1].key], 10).await;
    assert_eq!(
        fixture.outbox_statuses("a").await,
        [OutboxStatus::Published, OutboxStatus::Pending, OutboxStatus::Published]
    );
    let refused = fixture.outbox_row("a", rows[1].key).await;
    assert_eq!(refused.last_error.as_deref(), Some("REFUSED: no route"));
    assert_eq!(refused.retry_count, 1);
    assert!(claim(fixture).await.is_none());
    fixture.advance(DELAY * 2).await;
    assert_eq!(keys(&claim(fixture).await.expect("its delay has passed")), [rows[1].key]);
    assert!(fixture.trace("a").await.dead_letters.is_empty());
}

pub async fn a_row_that_is_refused_too_often_fails_with_a_dead_letter(fixture: &Fixture) {
    let rows = rows("a", &customer("42"), &[Email, Sms]);
    let mut chunk = fixture.fan_out(&event("a"), &rows, true).await.remove(0);
    for _ in 1..3 {
        assert_eq!(refuse(fixture, chunk.id, &[rows[1].key], 3).await, 0);
        assert_eq!(fixture.outbox_statuses("a").await, [OutboxStatus::Published, OutboxStatus::Pending]);
        fixture.advance(DELAY * 2).await;
        chunk = claim(fixture).await.expect("its delay has passed");
    }
    for dead_letters in [1, 0] {
        assert_eq!(refuse(fixture, chunk.id, &[rows[1].key], 3).await, dead_letters);
        assert_eq!(fixture.outbox_statuses("a").await, [OutboxStatus::Published, OutboxStatus::Failed]);
    }
    fixture.advance(LEASE * 2).await;
    assert!(claim(fixture).await.is_none());
    let dead_letters = fixture.trace("a").await.dead_letters;
    assert_eq!(dead_letters.len(), 1);
    assert_eq!(dead_letters[0].stage, "publish");
    assert_eq!(dead_letters[0].reason, "REFUSED");
    assert_eq!(dead_letters[0].error, "REFUSED: no route");
    assert_eq!(dead_letters[0].recipient_id.as_ref().map(UserId::as_str), Some("42"));
    assert_eq!(dead_letters[0].channel, Some(Shown::Typed(Sms)));
}

pub async fn a_late_refusal_does_not_touch_what_was_received(fixture: &Fixture) {
    let row = row("a", &customer("42"), Email);
    let chunk = fixture.fan_out(&event("a"), std::slice::from_ref(&row), true).await.remove(0);
    fixture.receive(&[claimed(row.key)]).await;
    refuse(fixture, chunk.id, &[row.key], 1).await;
    assert_eq!(fixture.outbox_statuses("a").await, [OutboxStatus::Delivered]);
    assert!(fixture.trace("a").await.dead_letters.is_empty());
}

pub async fn what_the_broker_lost_of_a_large_event_is_published_again(fixture: &Fixture) {
    fixture.accept(&[event("a")]).await;
    let claimed = fixture.claim_new().await;
    let row = row("a", &customer("42"), Email);
    let step = step_of(&claimed.events()[0], Step::Continues(Cursor::default()));
    let chunk = chunk_of(&step.event, std::slice::from_ref(&row), true);
    let chunk = fixture.commit(claimed, vec![step], vec![chunk]).await.remove(0);
    fixture.store.chunks_published(&[chunk.id]).await.expect("the database is there");
    assert_eq!(republish(fixture, &[QUEUE], 100).await, 1, "while the rest waits to be fanned out");
    assert_eq!(keys(&claim(fixture).await.expect("the chunk waits")), [row.key]);
}

pub async fn what_the_broker_lost_is_published_again(fixture: &Fixture) {
    let lost = rows("a", &customer("42"), &[Email, Push, Sms]);
    fixture.published(&event("a"), &lost).await;
    fixture.receive(&[claimed(lost[0].key)]).await;
    let urgent = OutboxRow { priority: High, ..row("b", &customer("42"), Email) };
    fixture.published(&event("b"), std::slice::from_ref(&urgent)).await;
    let elsewhere = OutboxRow { queue: Queue::named(OTHER_QUEUE), ..row("c", &customer("42"), Email) };
    fixture.published(&event("c"), &[elsewhere]).await;
    fixture.fan_out(&event("d"), &[row("d", &customer("42"), Email)], true).await;
    assert_eq!(republish(fixture, &[QUEUE], 100).await, 3);
    assert_eq!(
        fixture.outbox_statuses("a").await,
        [OutboxStatus::Delivered, OutboxStatus::Pending, OutboxStatus::Pending]
    );
    assert_eq!(fixture.outbox_statuses("c").await, [OutboxStatus::Published]);
    assert_eq!(republish(fixture, &[QUEUE], 100).await, 0, "what waits is not lost");
    let first = claim(fixture).await.expect("two chunks wait");
    assert_eq!((keys(&first), first.lane), (vec![urgent.key], High.lane()));
    assert_eq!(keys(&claim(fixture).await.expect("one more waits")), [lost[1].key, lost[2].key]);
    assert!(claim(fixture).await.is_none());
}

pub async fn what_is_lost_is_found_in_pages(fixture: &Fixture) {
    for (id, recipients) in [("large", 5), ("small", 1), ("last", 2)] {
        let rows: Vec<_> = (0..recipients).map(|n| row(id, &customer(&n.to_string()), Email)).collect();
        fixture.published(&event(id), &rows).await;
    }
    let mut pages = Vec::new();
    let mut from = Some(RepublishCursor::default());
    while let Some(here) = from {
        let page = fixture.store.republish(vec![Queue::named(QUEUE)], Duration::ZERO, here, 2).await;
        let page = page.expect("the database is there");
        pages.push(page.rows);
        from = page.next;
        // These rows are published and lost again. The search continues after them, because otherwise it would never
        // end.
        while let Some(chunk) = claim(fixture).await {
            fixture.store.chunks_published(&[chunk.id]).await.expect("the database is there");
        }
        assert!(pages.len() <= 6, "{pages:?}");
    }
    assert_eq!(pages, [2, 2, 2, 2, 0]);
    assert_eq!(republish(fixture, &[QUEUE], 100).await, 8);
}

pub async fn a_search_goes_on_although_its_event_is_closed(fixture: &Fixture) {
    let rows: Vec<_> = (0..3).map(|n| row("a", &customer(&n.to_string()), Email)).collect();
    fixture.published(&event("a"), &rows).await;
    let other = row("b", &customer("0"), Email);
    fixture.published(&event("b"), std::slice::from_ref(&other)).await;
    let republish = |from| fixture.store.republish(vec![Queue::named(QUEUE)], Duration::ZERO, from, 2);
    let page = republish(RepublishCursor::default()).await.expect("the database is there");
    fixture.receive(&rows.iter().map(|row| claimed(row.key)).collect::<Vec<_>>()).await;
    assert_eq!(fixture.close(&["a"]).await, 1);
    let page = republish(page.next.expect("there are more")).await.expect("the database is there");
    assert_eq!((page.rows, page.next), (1, None), "the other event's only row is not behind the first one's");
}

pub async fn more_events_than_a_page_has_are_looked_through(fixture: &Fixture) {
    let of = |n: usize| row(&format!("e{n}"), &customer("42"), Email);
    for n in 0..=REPUBLISH_PAGE_EVENTS {
        fixture.published(&event(&format!("e{n}")), &[of(n)]).await;
    }
    let republish = |from| fixture.store.republish(vec![Queue::named(QUEUE)], Duration::ZERO, from, 10_000);
    let first = republish(RepublishCursor::default()).await.expect("the database is there");
    assert_eq!(first.rows, REPUBLISH_PAGE_EVENTS as u64);
    let second = republish(first.next.expect("there are more")).await.expect("the database is there");
    assert_eq!((second.rows, second.next), (1, None));
}

pub async fn only_what_was_written_long_enough_ago_is_published_again(fixture: &Fixture) {
    let old = row("old", &customer("42"), Email);
    fixture.published(&event("old"), std::slice::from_ref(&old)).await;
    assert_eq!(republish_older(fixture, &[QUEUE], LEASE, 10).await, 0);
    fixture.advance(LEASE * 2).await;
    let young = row("young", &customer("42"), Email);
    fixture.published(&event("young"), std::slice::from_ref(&young)).await;
    assert_eq!(republish_older(fixture, &[QUEUE], LEASE, 10).await, 1);
    assert_eq!(keys(&claim(fixture).await.expect("the chunk waits")), [old.key]);
    assert_eq!(republish(fixture, &[QUEUE], 10).await, 1);
    assert_eq!(keys(&claim(fixture).await.expect("the chunk waits")), [young.key]);
}

pub async fn an_outbox_row_goes_from_pending_to_published_to_delivered(fixture: &Fixture) {
    let row = row("a", &customer("42"), Email);
    let chunk = fixture.fan_out(&event("a"), std::slice::from_ref(&row), true).await.remove(0);
    assert_eq!(fixture.outbox_statuses("a").await, [OutboxStatus::Pending]);
    fixture.store.chunks_published(&[chunk.id]).await.expect("the database is there");
    assert_eq!(fixture.outbox_statuses("a").await, [OutboxStatus::Published]);
    fixture.receive(&[claimed(row.key)]).await;
    assert_eq!(fixture.outbox_statuses("a").await, [OutboxStatus::Delivered]);
}
