//! Checks sends with several addresses: the outcome of each address, which addresses are left, and which are dead.

use campanile_domain::access::audit::Actor;
use campanile_domain::channel::Channel::{Email, Push};
use campanile_domain::fan_out::OutboxRow;
use campanile_domain::id::SendKey;
use campanile_domain::send::{AddressOutcome, AddressResult, EXHAUSTED, REJECTED, SendState};
use campanile_domain::status::SendStatus;
use campanile_domain::time::Timestamp;

use super::Fixture;
use super::setup::{LEASE, claimed, column, customer, event, outcome, row};
use crate::{DeadLetterFilter, Devices, RerenderedTexts, SendAddressRow, SendJob, Settlement};

const SENT: SendState = SendState::Sent { external_id: None, at: Timestamp::UNIX_EPOCH };
const DUE: SendState = SendState::Due { at: Timestamp::UNIX_EPOCH };

fn sent(address: &str) -> AddressResult {
    let external_id = Some(format!("id of {address}"));
    AddressResult { address: address.to_owned(), end: AddressOutcome::Sent { external_id } }
}

fn rejected(address: &str) -> AddressResult {
    AddressResult {
        address: address.to_owned(),
        end: AddressOutcome::Rejected { error: "too large".to_owned() },
    }
}

fn dead(address: &str) -> AddressResult {
    AddressResult {
        address: address.to_owned(),
        end: AddressOutcome::Dead { reason: "UNREGISTERED".to_owned() },
    }
}

fn done(job: &SendJob, state: SendState, done: Vec<AddressResult>) -> Settlement {
    Settlement { done, ..outcome(job, state) }
}

/// Claims a push to these tokens.
async fn pushing(fixture: &Fixture, id: &str, tokens: &str) -> SendJob {
    let row = OutboxRow { address: tokens.to_owned(), ..row(id, &customer("42"), Push) };
    fixture.published(&event(id), std::slice::from_ref(&row)).await;
    fixture.receive(&[claimed(row.key)]).await.jobs.pop().expect("the send was claimed")
}

async fn due_again(fixture: &Fixture) -> SendJob {
    fixture.claim_due(Push, 1).await.pop().expect("it is due")
}

async fn addresses(fixture: &Fixture, id: &str, key: SendKey) -> Vec<SendAddressRow> {
    fixture.send(id, key).await.addresses
}

/// Address, outcome, provider's id and error.
fn parts(of: &SendAddressRow) -> (&str, &str, Option<&str>, Option<&str>) {
    (&of.address, &of.outcome, of.external_id.as_deref(), of.error.as_deref())
}

pub async fn what_became_of_each_address_is_kept(fixture: &Fixture) {
    let job = pushing(fixture, "a", "t1 t2 t3").await;
    let all = vec![sent("t1"), dead("t2"), rejected("t3")];
    assert!(fixture.settle(vec![done(&job, SENT, all)]).await.is_empty());
    let kept = addresses(fixture, "a", job.key).await;
    let expected = [
        ("t1", "SENT", Some("id of t1"), None),
        ("t2", "DEAD", None, Some("UNREGISTERED")),
        ("t3", "REJECTED", None, Some("too large")),
    ];
    assert_eq!(column(&kept, parts), expected);
    let send = fixture.send("a", job.key).await;
    assert_eq!(send.row.status, SendStatus::Sent);
    assert_eq!(send.row.recipient_address, "t1 t2 t3");
    assert!(kept[0].at.typed().is_some(), "{kept:?}");
}

pub async fn a_retry_goes_to_the_addresses_that_are_left(fixture: &Fixture) {
    let job = pushing(fixture, "a", "t1 t2 t3").await;
    fixture.settle(vec![done(&job, DUE, vec![sent("t2")])]).await;
    let job = due_again(fixture).await;
    assert_eq!(job.address, "t1 t3");
    fixture.settle(vec![done(&job, DUE, vec![dead("t1")])]).await;
    let job = due_again(fixture).await;
    assert_eq!(job.address, "t3");
    // This outcome finishes no address, so the address stays.
    fixture.settle(vec![outcome(&job, DUE)]).await;
    let job = due_again(fixture).await;
    assert_eq!(job.address, "t3");
    fixture.settle(vec![done(&job, SENT, vec![sent("t3")])]).await;
    let kept = addresses(fixture, "a", job.key).await;
    let outcomes = column(&kept, |of| (of.address.as_str(), of.outcome.as_str()));
    assert_eq!(outcomes, [("t1", "DEAD"), ("t2", "SENT"), ("t3", "SENT")]);
    assert_eq!(fixture.outbox_row("a", job.key).await.recipient_address, "t1 t2 t3");
}

pub async fn what_a_dead_instance_left_goes_to_the_addresses_that_are_left(fixture: &Fixture) {
    let job = pushing(fixture, "a", "t1 t2").await;
    fixture.settle(vec![done(&job, DUE, vec![sent("t1")])]).await;
    due_again(fixture).await;
    fixture.advance(LEASE * 2).await;
    let expired = fixture.store.expired_claims(10).await.expect("the database is there");
    assert_eq!(expired[0].jobs[0].address, "t2");
}

pub async fn a_replay_goes_to_the_addresses_that_are_left(fixture: &Fixture) {
    let job = pushing(fixture, "a", "t1 t2").await;
    fixture.settle(vec![done(&job, SendState::Failed { code: EXHAUSTED }, vec![sent("t1")])]).await;
    let all = DeadLetterFilter { limit: 10, ..DeadLetterFilter::default() };
    assert_eq!(
        fixture
            .store
            .replay(all, RerenderedTexts::new(), &Actor::AdminKey)
            .await
            .expect("the database is there")
            .replayed,
        1
    );
    assert_eq!(due_again(fixture).await.address, "t2");
}

pub async fn a_send_whose_every_address_is_done_with_keeps_them(fixture: &Fixture) {
    let job = pushing(fixture, "a", "t1 t2").await;
    let both = vec![dead("t1"), rejected("t2")];
    fixture.settle(vec![done(&job, SendState::Failed { code: REJECTED }, both)]).await;
    assert_eq!(fixture.send("a", job.key).await.row.recipient_address, "t1 t2");
    assert_eq!(addresses(fixture, "a", job.key).await.len(), 2);
}

pub async fn one_address_is_not_kept_apart(fixture: &Fixture) {
    let push = pushing(fixture, "a", "t1").await;
    let email = fixture.sending("b", Email).await;
    let spaced = done(&email, SENT, vec![sent(&email.address)]);
    fixture.settle(vec![done(&push, SENT, vec![sent("t1")]), spaced]).await;
    assert!(email.address.contains(' '), "a space means nothing but in a push");
    assert!(addresses(fixture, "a", push.key).await.is_empty());
    assert!(addresses(fixture, "b", email.key).await.is_empty());
}

pub async fn an_address_that_is_done_with_twice_is_kept_once(fixture: &Fixture) {
    let job = pushing(fixture, "a", "t1 t1 t2").await;
    fixture.settle(vec![done(&job, DUE, vec![sent("t1"), sent("t1")])]).await;
    let job = due_again(fixture).await;
    assert_eq!(job.address, "t2");
    fixture.settle(vec![done(&job, DUE, vec![rejected("t1"), sent("t2")])]).await;
    let kept = addresses(fixture, "a", job.key).await;
    assert_eq!(parts(&kept[0]), ("t1", "REJECTED", None, Some("too large")), "the last word counts");
    assert_eq!(kept.len(), 2);
}

pub async fn a_dead_address_is_known_from_then_on(fixture: &Fixture) {
    let push = pushing(fixture, "a", "t1 t2").await;
    let email = fixture.sending("b", Email).await;
    let bounced = done(&email, SendState::Failed { code: REJECTED }, vec![dead(&email.address)]);
    fixture.settle(vec![done(&push, DUE, vec![dead("t1"), sent("t2")]), bounced]).await;
    let known = "SELECT count(*) FROM dead_address WHERE reason = 'UNREGISTERED'
                 AND (channel = 'PUSH' AND address = 't1' OR channel = 'EMAIL' AND address = 'EMAIL of 42')";
    assert_eq!(fixture.count(known).await, 2);
    assert_eq!(fixture.count("SELECT count(*) FROM dead_address").await, 2);
    // Two sends can report the same dead address without a conflict.
    let again = pushing(fixture, "c", "t1 t3").await;
    assert!(fixture.settle(vec![done(&again, SENT, vec![dead("t1"), sent("t3")])]).await.is_empty());
    assert_eq!(fixture.count("SELECT count(*) FROM dead_address").await, 2);
}

pub async fn who_lost_the_claim_declares_nobody_dead(fixture: &Fixture) {
    let job = pushing(fixture, "a", "t1 t2").await;
    fixture.settle(vec![outcome(&job, SENT)]).await;
    let late = done(&job, DUE, vec![dead("t1"), sent("t2")]);
    assert_eq!(fixture.settle(vec![late]).await, [job.key]);
    assert_eq!(fixture.count("SELECT count(*) FROM dead_address").await, 0);
    assert!(addresses(fixture, "a", job.key).await.is_empty());
    assert_eq!(fixture.send("a", job.key).await.row.recipient_address, "t1 t2");
}

pub async fn a_retry_knows_whether_another_device_was_sent_to(fixture: &Fixture) {
    let job = pushing(fixture, "a", "t1 t2 t3").await;
    assert_eq!(job.devices, Devices::All);
    fixture.settle(vec![outcome(&job, DUE)]).await;
    let job = due_again(fixture).await;
    assert_eq!(job.devices, Devices::All, "nothing is done with yet");
    fixture.settle(vec![done(&job, DUE, vec![rejected("t1")])]).await;
    let job = due_again(fixture).await;
    assert_eq!(job.devices, Devices::Remaining { any_sent: false });
    fixture.settle(vec![done(&job, SendState::Failed { code: EXHAUSTED }, vec![sent("t2")])]).await;
    let all = DeadLetterFilter { limit: 10, ..DeadLetterFilter::default() };
    fixture.store.replay(all, RerenderedTexts::new(), &Actor::AdminKey).await.expect("the database is there");
    let job = due_again(fixture).await;
    assert_eq!((job.attempt, job.devices), (1, Devices::Remaining { any_sent: true }));
    // The outcome of this address is kept too, although this is again a first attempt and for one device.
    fixture.settle(vec![done(&job, SENT, vec![sent("t3")])]).await;
    assert_eq!(addresses(fixture, "a", job.key).await.len(), 3);
}

pub async fn what_was_declared_dead_while_it_waited_is_left_out(fixture: &Fixture) {
    let job = pushing(fixture, "a", "t1 t2").await;
    fixture.settle(vec![outcome(&job, DUE)]).await;
    let email = fixture.sending("b", Email).await;
    fixture.settle(vec![outcome(&email, DUE)]).await;
    let declare = "INSERT INTO dead_address (channel, address, reason, at)
                   VALUES ('PUSH', 't1', 'gone', '2026-01-01T00:00:00Z'), ('EMAIL', 'EMAIL of 42', 'gone',
                       '2026-01-01T00:00:00Z')";
    fixture.execute(declare).await;
    assert_eq!(due_again(fixture).await.address, "t2");
    let waited = fixture.claim_due(Email, 1).await.pop().expect("it is due");
    assert_eq!(waited.address, "", "nobody is left");
    assert_eq!(fixture.send("b", email.key).await.row.recipient_address, "EMAIL of 42");
}

pub async fn an_address_that_no_index_takes_is_not_kept_and_nothing_is_lost_by_it(fixture: &Fixture) {
    // Text that can't be compressed.
    let long: String = (0..6_000_u32)
        .map(|n| char::from(b'!' + u8::try_from(n.wrapping_mul(2_654_435_761) >> 16 & 63).expect("small")))
        .collect();
    let job = pushing(fixture, "a", &format!("t1 {long}")).await;
    assert!(fixture.settle(vec![done(&job, SENT, vec![sent("t1"), dead(&long)])]).await.is_empty());
    assert_eq!(addresses(fixture, "a", job.key).await.len(), 1);
    assert_eq!(fixture.count("SELECT count(*) FROM dead_address").await, 0);
}
