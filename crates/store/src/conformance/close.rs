//! Checks when an event is closed.

use campanile_domain::channel::Channel::{Email, Sms, Websocket};
use campanile_domain::event::Failure;
use campanile_domain::event::transition::Step;
use campanile_domain::fan_out::{Cursor, OutboxRow};
use campanile_domain::id::EventSeq;
use campanile_domain::status::EventStatus;

use super::Fixture;
use super::setup::{
    chunk_of, claimed, commit_of, customer, event, found, left_due, row, rows, step_of, summary,
};
use crate::FanOutCommit;

pub async fn an_event_is_closed_when_every_row_was_received_or_failed(fixture: &Fixture) {
    fixture.accept(&[event("a")]).await;
    let claim = fixture.claim_new().await;
    let failed = OutboxRow {
        failure: Some(Failure::new("TEMPLATE_ERROR", "line 1")),
        ..row("a", &customer("43"), Sms)
    };
    let rows = rows("a", &customer("42"), &[Email, Sms, Websocket]);
    let step = step_of(&claim.events()[0], Step::Finished(summary(4)));
    let chunk = chunk_of(&step.event, &rows, true);
    let commit = FanOutCommit { failed_rows: vec![failed], ..commit_of(vec![step], vec![chunk]) };
    claim.commit(commit).await.expect("nobody was faster");
    assert_eq!(fixture.close(&["a"]).await, 0);
    fixture.receive(&[claimed(rows[0].key), left_due(rows[1].key)]).await;
    assert_eq!(fixture.close(&["a"]).await, 0);
    fixture.receive(&[claimed(rows[2].key)]).await;
    assert_eq!(fixture.close(&["a", "a"]).await, 1);
    assert_eq!(fixture.event_status("a").await, EventStatus::Processed);
    assert!(fixture.trace("a").await.event.row.processed_at.is_some());
    assert_eq!(fixture.close(&["a"]).await, 0, "once is enough");
}

pub async fn an_event_with_a_row_on_its_way_stays_open(fixture: &Fixture) {
    for (id, missing) in [("a", 0), ("b", 1), ("c", 2)] {
        let rows: Vec<_> = ["41", "42", "43"].iter().map(|user| row(id, &customer(user), Email)).collect();
        fixture.published(&event(id), &rows).await;
        let others = rows.iter().enumerate().filter(|(index, _)| *index != missing);
        let keys: Vec<_> = others.map(|(_, row)| claimed(row.key)).collect();
        fixture.receive(&keys).await;
    }
    assert_eq!(fixture.close(&["a", "b", "c"]).await, 0);
    for id in ["a", "b", "c"] {
        assert_eq!(fixture.event_status(id).await, EventStatus::Published);
    }
}

pub async fn only_published_events_among_the_candidates_are_closed(fixture: &Fixture) {
    for id in ["received", "not asked"] {
        let row = row(id, &customer("42"), Email);
        fixture.published(&event(id), std::slice::from_ref(&row)).await;
        fixture.receive(&[claimed(row.key)]).await;
    }
    fixture.accept(&[event("fresh"), event("begun")]).await;
    let claim = fixture.claim_new().await;
    let step = step_of(found(&*claim, "begun"), Step::Continues(Cursor::default()));
    fixture.commit(claim, vec![step], vec![]).await;
    assert_eq!(fixture.close(&["fresh", "begun", "received", "never heard of"]).await, 1);
    assert_eq!(fixture.event_status("received").await, EventStatus::Processed);
    assert_eq!(fixture.event_status("not asked").await, EventStatus::Published);
    assert_eq!(fixture.event_status("fresh").await, EventStatus::Pending);
    assert_eq!(fixture.event_status("begun").await, EventStatus::Pending);
    assert_eq!(fixture.close(&[]).await, 0);
}

pub async fn open_events_come_in_pages_by_age(fixture: &Fixture) {
    for id in ["d", "c", "closed", "b", "a"] {
        let row = row(id, &customer("42"), Email);
        fixture.published(&event(id), std::slice::from_ref(&row)).await;
        if id == "closed" {
            fixture.receive(&[claimed(row.key)]).await;
        }
    }
    fixture.accept(&[event("fresh")]).await;
    assert_eq!(fixture.close(&["closed"]).await, 1);
    let mut open = Vec::new();
    let mut after = EventSeq::default();
    loop {
        let page = fixture.store.open_events(after, 3).await.expect("the database is there");
        let Some((last, _)) = page.last() else { break };
        after = *last;
        open.extend(page.into_iter().map(|(_, id)| id.to_string()));
        assert!(open.len() <= 4, "{open:?}");
    }
    assert_eq!(open, ["d", "c", "b", "a"]);
}

pub async fn what_somebody_counted_is_closed_without_a_query(fixture: &Fixture) {
    for id in ["a", "b", "closed", "fresh"] {
        fixture.accept(&[event(id)]).await;
        if id != "fresh" {
            let claim = fixture.claim_new().await;
            let rows = [row(id, &customer("42"), Email)];
            let step = step_of(&claim.events()[0], Step::Finished(summary(1)));
            let chunk = chunk_of(&step.event, &rows, true);
            fixture.commit(claim, vec![step], vec![chunk]).await;
        }
    }
    let open = fixture.store.open_events(EventSeq::default(), 10).await.expect("the database is there");
    let seq = |id: &str| open.iter().find(|(_, event)| event.as_str() == id).map(|(seq, _)| *seq);
    let newest = open.iter().map(|(seq, _)| seq.0).max().expect("three are open") + 1;
    let close = |seqs| fixture.store.close_complete(seqs);
    assert_eq!(close(vec![seq("closed").unwrap_or_default()]).await.expect("the database is there"), 1);
    let seqs = [
        EventSeq(newest),
        seq("closed").unwrap_or_default(),
        seq("a").unwrap_or_default(),
        EventSeq(newest + 100),
    ];
    assert_eq!(close(seqs.to_vec()).await.expect("the database is there"), 1);
    assert_eq!(fixture.event_status("a").await, EventStatus::Processed);
    assert!(fixture.trace("a").await.event.row.processed_at.is_some());
    assert_eq!(fixture.event_status("b").await, EventStatus::Published, "nobody counted it");
    assert_eq!(fixture.event_status("fresh").await, EventStatus::Pending);
}
