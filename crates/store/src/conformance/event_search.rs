//! Checks how events are searched: each filter, both orders, and pages.

use std::time::Duration;

use campanile_domain::channel::Channel::Email;
use campanile_domain::event::NewEvent;
use campanile_domain::event::transition::Step;
use campanile_domain::status::EventStatus;
use campanile_domain::time;

use super::Fixture;
use super::setup::{claimed, column, customer, event, found, of_type, row, rows, step_of, summary, user};
use crate::{EventFilter, EventPage};

/// All events of a search in pages of two, by their ids.
async fn found_by(fixture: &Fixture, filter: EventFilter) -> Vec<String> {
    let (mut found, mut after) = (Vec::new(), None);
    for _ in 0..10 {
        let page = EventFilter { after, limit: 2, ..filter.clone() };
        let EventPage { items, next } =
            fixture.store.search_events(page).await.expect("the database is there");
        assert!(items.len() <= 2, "{items:?}");
        found.extend(column(&items, |event| event.row.event_id.to_string()));
        let Some(next) = next else { return found };
        after = Some(next);
    }
    panic!("the search does not end: {found:?}");
}

pub async fn events_are_listed_from_both_ends(fixture: &Fixture) {
    assert!(found_by(fixture, EventFilter::default()).await.is_empty());
    fixture.accept(&["c", "a", "b", "e", "d"].map(event)).await;
    for (newest_first, expected) in [(false, ["c", "a", "b", "e", "d"]), (true, ["d", "e", "b", "a", "c"])] {
        assert_eq!(found_by(fixture, EventFilter { newest_first, ..EventFilter::default() }).await, expected);
    }
}

pub async fn events_are_filtered_by_status_and_type(fixture: &Fixture) {
    fixture.published(&event("published"), &[row("published", &customer("42"), Email)]).await;
    fixture.accept(&[event("pending"), of_type("news", "NEWS"), of_type("processed", "NEWS")]).await;
    let claim = fixture.claim_new().await;
    let step = step_of(found(&*claim, "processed"), Step::Finished(summary(0)));
    fixture.commit(claim, vec![step], vec![]).await;
    let ids = async |status: Option<EventStatus>, event_type: Option<&str>| {
        let event_type = event_type.map(str::to_owned);
        found_by(fixture, EventFilter { status, event_type, ..EventFilter::default() }).await
    };
    assert_eq!(ids(None, None).await, ["published", "pending", "news", "processed"]);
    assert_eq!(ids(Some(EventStatus::Pending), None).await, ["pending", "news"]);
    assert_eq!(ids(None, Some("NEWS")).await, ["news", "processed"]);
    assert_eq!(ids(Some(EventStatus::Processed), Some("NEWS")).await, ["processed"]);
    assert!(ids(Some(EventStatus::Failed), None).await.is_empty());
    for (id, event_type, status) in [
        ("failed", "NEWS", "FAILED"),
        ("failed order", "ORDER_CREATED", "FAILED"),
        ("off", "NEWS", "CANCELLED"),
    ] {
        fixture.accept(&[of_type(id, event_type)]).await;
        fixture
            .execute(&format!("UPDATE event_outbox SET status = '{status}' WHERE event_id = '{id}'"))
            .await;
    }
    assert_eq!(ids(Some(EventStatus::Failed), None).await, ["failed", "failed order"]);
    assert_eq!(ids(Some(EventStatus::Failed), Some("NEWS")).await, ["failed"]);
    assert_eq!(ids(Some(EventStatus::Cancelled), Some("NEWS")).await, ["off"]);
    assert_eq!(ids(Some(EventStatus::Published), None).await, ["published"]);
}

pub async fn events_of_an_aggregate_are_found(fixture: &Fixture) {
    let of = |id: &str, aggregate_type: &str, aggregate_id: &str| NewEvent {
        aggregate_type: aggregate_type.to_owned(),
        aggregate_id: aggregate_id.to_owned(),
        ..event(id)
    };
    fixture
        .accept(&[
            of("a", "ORDER", "8"),
            of("b", "ORDER", "80"),
            of("c", "TABLE", "8"),
            of("d", "ORDER", "8"),
        ])
        .await;
    let aggregate = Some(("ORDER".to_owned(), "8".to_owned()));
    let filter = EventFilter { aggregate, ..EventFilter::default() };
    assert_eq!(found_by(fixture, filter.clone()).await, ["a", "d"]);
    let newest_first = EventFilter { newest_first: true, ..filter.clone() };
    assert_eq!(found_by(fixture, newest_first).await, ["d", "a"]);
    let failed = EventFilter { status: Some(EventStatus::Failed), ..filter };
    assert!(found_by(fixture, failed).await.is_empty());
}

pub async fn events_of_which_a_user_was_notified_are_found(fixture: &Fixture) {
    let (mine, other) = (customer("50"), user("RESTAURANT_USER", "50"));
    for (id, users) in
        [("a", vec![&mine]), ("b", vec![&other]), ("c", vec![&mine, &other]), ("d", vec![&mine])]
    {
        let rows: Vec<_> = users.into_iter().flat_map(|user| rows(id, user, &[Email])).collect();
        fixture.published(&event(id), &rows).await;
        fixture.receive(&rows.iter().map(|row| claimed(row.key)).collect::<Vec<_>>()).await;
    }
    let of = |user| EventFilter { user: Some(user), ..EventFilter::default() };
    assert_eq!(found_by(fixture, of(mine.clone())).await, ["a", "c", "d"]);
    assert_eq!(
        found_by(fixture, EventFilter { newest_first: true, ..of(mine.clone()) }).await,
        ["d", "c", "a"]
    );
    assert_eq!(found_by(fixture, of(other)).await, ["b", "c"]);
    assert!(found_by(fixture, of(customer("5"))).await.is_empty());
    let pending = EventFilter { status: Some(EventStatus::Pending), ..of(mine) };
    assert!(found_by(fixture, pending).await.is_empty());
}

pub async fn events_of_a_time_are_found(fixture: &Fixture) {
    let hour = Duration::from_hours(1);
    let begin = fixture.store.now().await.expect("the database is there");
    for id in ["a", "b", "c", "d"] {
        fixture.accept(&[event(id)]).await;
        fixture.advance(hour).await;
    }
    let at = |hours: u32| Some(time::earlier(time::later(begin, hour * hours), hour / 2));
    let between = |since, until| EventFilter { since, until, ..EventFilter::default() };
    assert_eq!(found_by(fixture, between(at(1), at(3))).await, ["b", "c"]);
    assert_eq!(found_by(fixture, between(at(3), None)).await, ["d"]);
    assert_eq!(found_by(fixture, between(None, at(1))).await, ["a"]);
    assert!(found_by(fixture, between(at(9), None)).await.is_empty());
    assert!(found_by(fixture, between(at(3), at(1))).await.is_empty());
    let newest_first = EventFilter { newest_first: true, ..between(at(1), None) };
    assert_eq!(found_by(fixture, newest_first).await, ["d", "c", "b"]);
    let of_type = EventFilter { event_type: Some("ORDER_CREATED".to_owned()), ..between(at(2), None) };
    assert_eq!(found_by(fixture, of_type).await, ["c", "d"]);
}

pub async fn failed_events_are_found_by_their_code(fixture: &Fixture) {
    fixture.accept(&["a", "b", "c", "d"].map(event)).await;
    for (id, error) in
        [("a", "NO_AUDIENCE: no row"), ("b", "NO_RECIPIENTS: nobody"), ("d", "NO_AUDIENCE: none")]
    {
        let sql = format!(
            "UPDATE event_outbox SET status = 'FAILED', last_error = '{error}' WHERE event_id = '{id}'"
        );
        fixture.execute(&sql).await;
    }
    let with = |code: &str| EventFilter { error_code: Some(code.to_owned()), ..EventFilter::default() };
    assert_eq!(found_by(fixture, with("NO_AUDIENCE")).await, ["a", "d"]);
    assert_eq!(found_by(fixture, with("NO_RECIPIENTS")).await, ["b"]);
    assert!(found_by(fixture, with("NO_")).await.is_empty());
}

pub async fn a_page_that_skips_much_says_where_to_go_on(fixture: &Fixture) {
    let common: Vec<_> = (0..1_000).map(|n| event(&format!("common {n}"))).collect();
    fixture.accept(&[event("first")]).await;
    fixture.accept(&common).await;
    fixture.accept(&[event("last")]).await;
    let sql = "UPDATE event_outbox SET status = 'PROCESSED' WHERE event_id IN ('first', 'last')";
    fixture.execute(sql).await;
    let filter = EventFilter {
        status: Some(EventStatus::Processed),
        newest_first: true,
        limit: 2,
        ..EventFilter::default()
    };
    let page = fixture.store.search_events(filter.clone()).await.expect("the database is there");
    assert_eq!((page.items.len(), page.next.is_some()), (1, true), "it read a thousand events");
    assert_eq!(found_by(fixture, filter).await, ["last", "first"]);
}
