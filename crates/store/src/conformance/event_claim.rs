//! Checks which events are claimed, and in which order.

use campanile_domain::channel::Channel;
use campanile_domain::event::NewEvent;
use campanile_domain::event::payload::Payload;
use campanile_domain::event::transition::Step;
use campanile_domain::fan_out::Cursor;
use campanile_domain::id::EventSeq;
use campanile_domain::priority::Priority::{High, Low, Normal};
use campanile_domain::status::EventStatus;
use serde_json::json;

use super::Fixture;
use super::setup::{customer, event, found, ids, of_type, row, step_of, urgent};
use crate::{Acceptance, Claim, EventFilter, FanOutClaim, Table};

pub async fn nothing_waits_in_an_empty_database(fixture: &Fixture) {
    for claim in [
        Claim::New { limit: 10 },
        Claim::Continuing { after: EventSeq::default() },
        Claim::ByIds(vec![EventSeq(1), EventSeq(2)]),
    ] {
        assert!(fixture.try_claim(claim).await.is_none());
    }
}

pub async fn high_goes_before_normal_before_low(fixture: &Fixture) {
    fixture
        .accept(&[urgent("low", Low), urgent("normal", Normal), event("none"), urgent("high", High)])
        .await;
    assert_eq!(ids(&*fixture.claim_new().await), ["high", "normal", "none", "low"]);
}

pub async fn an_urgent_claim_takes_what_is_high_and_nothing_else(fixture: &Fixture) {
    fixture.accept(&[urgent("low", Low), event("none"), urgent("high", High), urgent("higher", High)]).await;
    let claim = fixture.try_claim(Claim::Urgent { limit: 10 }).await.expect("two are urgent");
    assert_eq!(ids(&*claim), ["high", "higher"]);
    drop(claim);
    let claim = fixture.try_claim(Claim::Urgent { limit: 1 }).await.expect("two are urgent");
    assert_eq!(ids(&*claim), ["high"]);
}

pub async fn claims_at_the_same_time_have_nothing_in_common(fixture: &Fixture) {
    fixture.accept(&["a", "b", "c", "d", "e"].map(event)).await;
    fixture.accept(&[urgent("urgent", High)]).await;
    let claim = async || fixture.try_claim(Claim::New { limit: 3 }).await;
    let (one, other) = (claim().await.expect("six wait"), claim().await.expect("three wait"));
    assert_eq!(ids(&*one), ["urgent", "a", "b"]);
    assert_eq!(ids(&*other), ["c", "d", "e"]);
    assert!(claim().await.is_none());
    assert!(fixture.try_claim(Claim::Urgent { limit: 3 }).await.is_none());
    drop(one);
    let again = loop {
        // A database server releases the claim only when it has processed the rollback.
        if let Some(claim) = claim().await {
            break claim;
        }
    };
    assert_eq!(ids(&*again), ["urgent", "a", "b"]);
}

pub async fn the_oldest_goes_first_in_its_lane(fixture: &Fixture) {
    for id in ["z", "y", "x"] {
        fixture.accept(&[urgent(id, Low), event(&format!("{id}{id}"))]).await;
    }
    assert_eq!(ids(&*fixture.claim_new().await), ["zz", "yy", "xx", "z", "y", "x"]);
}

pub async fn the_route_says_how_urgent_an_event_is_that_does_not(fixture: &Fixture) {
    let route = |event_type: &str, channel: &str, priority: Option<&str>| {
        json!({ "event_type": event_type,
        "channel": channel, "priority": priority })
    };
    let routes = vec![
        route("ALARM", "SMS", Some("HIGH")),
        route("ALARM", "EMAIL", Some("LOW")),
        route("NEWS", "EMAIL", Some("LOW")),
        route("MIXED", "EMAIL", Some("LOW")),
        route("MIXED", "WEBSOCKET", None),
    ];
    fixture.put(Table::Routing, routes).await;
    let low_priority_alarm = NewEvent { priority: Some(Low), ..of_type("calm alarm", "ALARM") };
    let events = [
        of_type("news", "NEWS"),
        low_priority_alarm,
        of_type("mixed", "MIXED"),
        event("other"),
        of_type("alarm", "ALARM"),
    ];
    fixture.accept(&events).await;
    assert_eq!(ids(&*fixture.claim_new().await), ["alarm", "mixed", "other", "news", "calm alarm"]);
}

pub async fn the_routes_of_any_type_count_for_a_type_without_its_own(fixture: &Fixture) {
    let routes = vec![
        json!({ "event_type": "*", "channel": "SMS", "priority": "HIGH" }),
        json!({ "event_type": "ROUTED", "channel": "SMS" }),
    ];
    fixture.put(Table::Routing, routes).await;
    fixture.accept(&[of_type("routed", "ROUTED"), event("by default"), urgent("calm", Normal)]).await;
    assert_eq!(ids(&*fixture.claim_new().await), ["by default", "routed", "calm"]);
}

pub async fn a_claim_takes_no_more_than_its_limit(fixture: &Fixture) {
    fixture.accept(&[event("a"), event("b"), event("c")]).await;
    let claim = fixture.try_claim(Claim::New { limit: 2 }).await.expect("three wait");
    assert_eq!(ids(&*claim), ["a", "b"]);
}

pub async fn an_event_comes_back_as_it_was_accepted(fixture: &Fixture) {
    let payload = json!({ "name": "Übung \u{1F514}", "nested": [1, 2.5, null, { "a": "\\\"" }] });
    let given = NewEvent {
        payload: serde_json::from_value(payload.clone()).expect("an object is a payload"),
        occurred_at: Some("2026-01-21T10:15:30.123Z".parse().expect("a time")),
        ..urgent("ä 1", High)
    };
    fixture.accept(std::slice::from_ref(&given)).await;
    let before = fixture.store.now().await.expect("the database is there");
    let claim = fixture.claim_new().await;
    let claimed = &claim.events()[0];
    assert_eq!(claimed.event.event_id, given.event_id);
    assert_eq!(claimed.event.event_type, given.event_type);
    assert_eq!(claimed.event.aggregate_type, given.aggregate_type);
    assert_eq!(claimed.event.aggregate_id, given.aggregate_id);
    assert_eq!(claimed.event.priority, Some(High));
    assert_eq!(claimed.event.occurred_at, given.occurred_at);
    assert_eq!(claimed.event.payload.value(), payload);
    assert_eq!(claimed.event.body_hash(), given.body_hash());
    assert!(claimed.event.created_at <= claim.now() && before <= claim.now());
    assert!(!claimed.known && claimed.cursor.is_none() && claimed.cancelled.is_none());
}

pub async fn an_event_that_a_producer_inserts_is_claimed(fixture: &Fixture) {
    fixture
        .execute(
            "INSERT INTO event_outbox (event_id, event_type, aggregate_type, aggregate_id, payload)
             VALUES ('a', 'ORDER_CREATED', 'ORDER', '7', '{ \"total\": 12 }')",
        )
        .await;
    fixture
        .execute(
            "INSERT INTO event_outbox
                 (event_id, event_type, aggregate_type, aggregate_id, payload, priority, occurred_at)
             VALUES ('b', 'ORDER_CREATED', 'ORDER', '7', '{}', 'HIGH', '2026-01-21T10:15:30Z')",
        )
        .await;
    let claim = fixture.claim_new().await;
    assert_eq!(ids(&*claim), ["b", "a"]);
    assert_eq!(claim.events()[0].event.occurred_at, Some("2026-01-21T10:15:30Z".parse().expect("a time")));
    assert_eq!(claim.events()[1].event.body_hash(), event("a").body_hash());
}

pub async fn a_claim_that_is_dropped_leaves_everything_as_it_was(fixture: &Fixture) {
    fixture.accept(&[event("a"), event("b")]).await;
    drop(fixture.claim_new().await);
    assert_eq!(ids(&*fixture.claim_new().await), ["a", "b"]);
    let pending = EventFilter { status: Some(EventStatus::Pending), limit: 10, ..EventFilter::default() };
    assert_eq!(fixture.store.search_events(pending).await.expect("the database is there").items.len(), 2);
}

pub async fn new_and_continuing_events_are_claimed_apart(fixture: &Fixture) {
    fixture.accept(&[event("large"), event("small")]).await;
    continue_event(fixture, "large", 400).await;
    assert_eq!(ids(&*fixture.claim_new().await), ["small"]);
    let continuing =
        fixture.try_claim(Claim::Continuing { after: EventSeq::default() }).await.expect("one has begun");
    assert_eq!(ids(&*continuing), ["large"]);
    assert_eq!(continuing.events()[0].cursor, Some(cursor(400)));
    assert!(!continuing.events()[0].known);
}

pub async fn the_most_urgent_continuing_event_goes_first(fixture: &Fixture) {
    let events = [urgent("fresh", High), urgent("low", Low), urgent("high", High), urgent("higher", High)];
    fixture.accept(&events).await;
    for id in ["higher", "low", "high"] {
        continue_event(fixture, id, 1).await;
    }
    let claim =
        fixture.try_claim(Claim::Continuing { after: EventSeq::default() }).await.expect("three have begun");
    assert_eq!(ids(&*claim), ["high"]);
}

pub async fn only_urgent_events_go_on_where_only_those_are_asked_for(fixture: &Fixture) {
    fixture.accept(&[urgent("low", Low), urgent("normal", Normal), urgent("high", High)]).await;
    for id in ["low", "normal"] {
        continue_event(fixture, id, 1).await;
    }
    assert!(fixture.try_claim(Claim::UrgentContinuing { after: EventSeq::default() }).await.is_none());
    continue_event(fixture, "high", 1).await;
    let claim = fixture
        .try_claim(Claim::UrgentContinuing { after: EventSeq::default() })
        .await
        .expect("it has begun");
    assert_eq!(ids(&*claim), ["high"]);
}

pub async fn continuing_events_of_a_lane_take_turns(fixture: &Fixture) {
    fixture.accept(&[event("a"), event("b"), event("c")]).await;
    for id in ["a", "b", "c"] {
        continue_event(fixture, id, 1).await;
    }
    let mut after = EventSeq::default();
    for id in ["a", "b", "c", "a"] {
        let claim = fixture.try_claim(Claim::Continuing { after }).await.expect("three have begun");
        assert_eq!(ids(&*claim), [id]);
        after = claim.events()[0].seq;
    }
}

pub async fn these_events_are_claimed_again_where_they_still_wait(fixture: &Fixture) {
    fixture.accept(&[event("done"), event("large"), event("a"), urgent("b", High)]).await;
    let claim = fixture.claim_new().await;
    let all: Vec<EventSeq> = claim.events().iter().rev().map(|claimed| claimed.seq).collect();
    let row = row("done", &customer("42"), Channel::Email);
    let done = step_of(found(&*claim, "done"), Step::Finished(super::setup::summary(1)));
    let chunk = super::setup::chunk_of(&done.event, &[row], true);
    fixture.commit(claim, vec![done], vec![chunk]).await;
    continue_event(fixture, "large", 3).await;
    let claim = fixture.try_claim(Claim::ByIds(all)).await.expect("three wait");
    assert_eq!(ids(&*claim), ["b", "large", "a"]);
    assert_eq!(found(&*claim, "large").cursor, Some(cursor(3)));
}

pub async fn a_cancelled_event_says_why(fixture: &Fixture) {
    fixture.accept(&[event("a"), event("b"), event("c")]).await;
    fixture
        .execute("INSERT INTO event_cancel (event_id, reason) VALUES ('a', 'closed today'), ('b', NULL)")
        .await;
    let says_why = |claim: &dyn FanOutClaim| {
        assert_eq!(found(claim, "a").cancelled.as_deref(), Some("closed today"));
        assert_eq!(found(claim, "b").cancelled.as_deref(), Some(""));
        assert_eq!(found(claim, "c").cancelled, None);
        claim.events().iter().map(|claimed| claimed.seq).collect::<Vec<_>>()
    };
    let all = says_why(&*fixture.claim_new().await);
    says_why(&*fixture.try_claim(Claim::ByIds(all)).await.expect("they wait"));
    for (id, why) in [("a", Some("closed today")), ("b", Some("")), ("c", None)] {
        continue_event(fixture, id, 1).await;
        let claim =
            fixture.try_claim(Claim::Continuing { after: EventSeq::default() }).await.expect("one has begun");
        assert_eq!(found(&*claim, id).cancelled.as_deref(), why);
        let step = step_of(found(&*claim, id), Step::Cancelled(String::new()));
        fixture.commit(claim, vec![step], vec![]).await;
    }
}

fn cursor(recipients: u64) -> Cursor {
    let mut cursor = Cursor::default();
    cursor.summary.recipients = recipients;
    cursor
}

async fn continue_event(fixture: &Fixture, id: &str, recipients: u64) {
    let claim = fixture.claim_new().await;
    let step = step_of(found(&*claim, id), Step::Continues(cursor(recipients)));
    fixture.commit(claim, vec![step], vec![]).await;
}

pub async fn an_event_that_can_not_be_read_fails_and_is_reported(fixture: &Fixture) {
    fixture.insert("broken").await;
    fixture.execute("UPDATE event_outbox SET fan_out_cursor = 'nonsense'").await;
    let claim =
        fixture.try_claim(Claim::Continuing { after: EventSeq::default() }).await.expect("an event waited");
    assert_eq!((ids(&*claim).len(), claim.unreadable()), (0, 1));
    drop(claim);
    assert_eq!(fixture.event_status("broken").await, EventStatus::Failed);
    assert_eq!(fixture.trace("broken").await.dead_letters.len(), 1);
    assert!(fixture.try_claim(Claim::Continuing { after: EventSeq::default() }).await.is_none());
}

/// Inserts an event with this payload, as another process would.
async fn insert_with(fixture: &Fixture, id: &str, event_type: &str, payload: &str) {
    fixture
        .execute(&format!(
            "INSERT INTO event_outbox (event_id, event_type, aggregate_type, aggregate_id, payload)
             VALUES ('{id}', '{event_type}', 'ORDER', '7', '{payload}')"
        ))
        .await;
}

pub async fn a_payload_that_readers_disagree_on_fails_its_event_and_is_shown_as_text(fixture: &Fixture) {
    let deep = format!("{{\"x\": {}{}}}", "[".repeat(900), "]".repeat(900));
    let payloads = [
        (r#"{"n": 1e400}"#, "numbers"),
        (r#"{"n": [18446744073709551616]}"#, "`/n/0`"),
        (r#"{"n": 1e-400}"#, "read as 0"),
        (r#"{"n": 1, "n": 2}"#, "the same key twice, at `/n`"),
        (r#"{"n": "\u0000"}"#, "\\u0000"),
        (r#"{"n": "\ud800"}"#, "surrogate"),
        (deep.as_str(), "64 levels"),
    ];
    for (n, (payload, _)) in payloads.iter().enumerate() {
        insert_with(fixture, &n.to_string(), "ORDER_CREATED", payload).await;
    }
    fixture.accept(&[event("good")]).await;
    let claim = fixture.claim_new().await;
    assert_eq!((ids(&*claim), claim.unreadable()), (vec!["good".to_owned()], payloads.len() as u64));
    drop(claim);
    for (n, (payload, words)) in payloads.iter().enumerate() {
        let id = n.to_string();
        let trace = fixture.trace(&id).await;
        let error = trace.event.row.last_error.as_deref().unwrap_or_default();
        assert!(error.starts_with("UNREADABLE: column payload ") && error.contains(words), "{error}");
        assert_eq!(trace.event.row.status, EventStatus::Failed);
        assert_eq!(trace.event.payload, *payload);
        assert_eq!(trace.dead_letters.len(), 1);
        let again = fixture.store.accept(vec![event(&id)]).await.expect("the database is there");
        assert_eq!(again, Acceptance::Conflicts(vec![0]), "{payload}");
    }
}

pub async fn a_payload_is_kept_unchanged(fixture: &Fixture) {
    let payload = r#"{"b": 1.50, "a": [0.12345678901234567890, 18446744073709551615, 1E2]}"#;
    insert_with(fixture, "by SQL", "ORDER_CREATED", payload).await;
    let payload = Payload::new(payload.to_owned()).expect("it is good");
    fixture.accept(&[NewEvent { payload: payload.clone(), ..event("by HTTP") }]).await;
    let claim = fixture.claim_new().await;
    assert_eq!(ids(&*claim), ["by SQL", "by HTTP"]);
    assert!(claim.events().iter().all(|claimed| claimed.event.payload == payload));
}

pub async fn names_that_http_refuses_fail_their_event(fixture: &Fixture) {
    for (id, event_type) in [("..", "T"), (".", "T"), ("red\u{1b}[31m", "T"), ("a", "T\n")] {
        insert_with(fixture, id, event_type, "{}").await;
    }
    let claim = fixture.claim_new().await;
    assert_eq!((ids(&*claim).len(), claim.unreadable()), (0, 4));
    drop(claim);
    for id in ["..", ".", "red\u{1b}[31m", "a"] {
        assert_eq!(fixture.event_status(id).await, EventStatus::Failed);
    }
}
