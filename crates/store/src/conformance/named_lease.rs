//! Checks named leases: a lease has at most one holder at a time.

use std::time::Duration;

use super::Fixture;
use super::setup::{HALF_A_LEASE, LEASE};
use crate::Acquisition;

const NAME: &str = "in-process broker";

async fn acquire(fixture: &Fixture, holder: &str) -> Acquisition {
    fixture.store.acquire(NAME, holder, LEASE).await.expect("the database is there")
}

async fn release(fixture: &Fixture, holder: &str) {
    fixture.store.release(NAME, holder).await.expect("the database is there");
}

/// Checks that `by` holds the lease for about this much longer.
fn assert_held(held: &Acquisition, by: &str, about: Duration) {
    let Acquisition::HeldBy { holder, remaining } = held else { panic!("{by} should hold it") };
    assert_eq!(holder, by);
    assert!(
        *remaining <= about && *remaining + Duration::from_secs(10) > about,
        "{remaining:?} is not about {about:?}"
    );
}

pub async fn a_lease_that_nobody_holds_is_taken(fixture: &Fixture) {
    assert_eq!(acquire(fixture, "a").await, Acquisition::Acquired);
}

pub async fn a_lease_that_is_held_says_by_whom_and_for_how_long(fixture: &Fixture) {
    acquire(fixture, "a").await;
    assert_held(&acquire(fixture, "b").await, "a", LEASE);
    fixture.advance(HALF_A_LEASE).await;
    assert_held(&acquire(fixture, "b").await, "a", HALF_A_LEASE);
}

pub async fn a_holder_renews_its_lease(fixture: &Fixture) {
    acquire(fixture, "a").await;
    for _ in 0..3 {
        fixture.advance(HALF_A_LEASE).await;
        assert_eq!(acquire(fixture, "a").await, Acquisition::Acquired);
        assert_held(&acquire(fixture, "b").await, "a", LEASE);
    }
}

pub async fn a_lease_that_has_passed_is_taken_over(fixture: &Fixture) {
    acquire(fixture, "a").await;
    fixture.advance(LEASE * 2).await;
    assert_eq!(acquire(fixture, "b").await, Acquisition::Acquired);
    assert_held(&acquire(fixture, "a").await, "b", LEASE);
}

pub async fn a_lease_that_was_given_back_is_free(fixture: &Fixture) {
    acquire(fixture, "a").await;
    release(fixture, "a").await;
    assert_eq!(acquire(fixture, "b").await, Acquisition::Acquired);
    release(fixture, "a").await;
    assert_held(&acquire(fixture, "a").await, "b", LEASE);
    fixture.store.release("never held", "a").await.expect("nothing happens");
}

pub async fn leases_of_other_names_are_others(fixture: &Fixture) {
    acquire(fixture, "a").await;
    let other = fixture.store.acquire("another name", "b", LEASE).await.expect("the database is there");
    assert_eq!(other, Acquisition::Acquired);
    fixture.store.release("another name", "a").await.expect("the database is there");
    assert_held(&acquire(fixture, "b").await, "a", LEASE);
}

pub async fn of_two_at_once_one_gets_the_lease(fixture: &Fixture) {
    let (left, right) = tokio::join!(acquire(fixture, "left"), acquire(fixture, "right"));
    let ours = [&left, &right].into_iter().filter(|held| **held == Acquisition::Acquired).count();
    assert_eq!(ours, 1, "{left:?}, {right:?}");
}
