//! Being the only one: leases by name.

use std::time::Duration;

use super::Fixture;
use super::given::{HALF_A_LEASE, LEASE};
use crate::Held;

const NAME: &str = "in-process broker";

async fn hold(fixture: &Fixture, holder: &str) -> Held {
    fixture.store.hold(NAME, holder, LEASE).await.expect("the database is there")
}

async fn let_go(fixture: &Fixture, holder: &str) {
    fixture.store.let_go(NAME, holder).await.expect("the database is there");
}

/// Whose it is if it is not ours, and about how long still.
fn assert_held(held: &Held, by: &str, about: Duration) {
    let Held::By { holder, rest } = held else { panic!("{by} should hold it") };
    assert_eq!(holder, by);
    assert!(*rest <= about && *rest + Duration::from_secs(10) > about, "{rest:?} is not about {about:?}");
}

pub async fn a_lease_that_nobody_holds_is_taken(fixture: &Fixture) {
    assert_eq!(hold(fixture, "a").await, Held::Ours);
}

pub async fn a_lease_that_is_held_says_by_whom_and_for_how_long(fixture: &Fixture) {
    hold(fixture, "a").await;
    assert_held(&hold(fixture, "b").await, "a", LEASE);
    fixture.advance(HALF_A_LEASE).await;
    assert_held(&hold(fixture, "b").await, "a", HALF_A_LEASE);
}

pub async fn a_holder_renews_its_lease(fixture: &Fixture) {
    hold(fixture, "a").await;
    for _ in 0..3 {
        fixture.advance(HALF_A_LEASE).await;
        assert_eq!(hold(fixture, "a").await, Held::Ours);
        assert_held(&hold(fixture, "b").await, "a", LEASE);
    }
}

pub async fn a_lease_that_has_passed_is_taken_over(fixture: &Fixture) {
    hold(fixture, "a").await;
    fixture.advance(LEASE * 2).await;
    assert_eq!(hold(fixture, "b").await, Held::Ours);
    assert_held(&hold(fixture, "a").await, "b", LEASE);
}

pub async fn a_lease_that_was_given_back_is_free(fixture: &Fixture) {
    hold(fixture, "a").await;
    let_go(fixture, "a").await;
    assert_eq!(hold(fixture, "b").await, Held::Ours);
    let_go(fixture, "a").await;
    assert_held(&hold(fixture, "a").await, "b", LEASE);
    fixture.store.let_go("never held", "a").await.expect("nothing happens");
}

pub async fn leases_of_other_names_are_others(fixture: &Fixture) {
    hold(fixture, "a").await;
    let other = fixture.store.hold("another name", "b", LEASE).await.expect("the database is there");
    assert_eq!(other, Held::Ours);
    fixture.store.let_go("another name", "a").await.expect("the database is there");
    assert_held(&hold(fixture, "b").await, "a", LEASE);
}

pub async fn of_two_at_once_one_gets_the_lease(fixture: &Fixture) {
    let (left, right) = tokio::join!(hold(fixture, "left"), hold(fixture, "right"));
    let ours = [&left, &right].into_iter().filter(|held| **held == Held::Ours).count();
    assert_eq!(ours, 1, "{left:?}, {right:?}");
}
