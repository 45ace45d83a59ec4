//! Tests the writing thread: it writes for many callers, and an error of one caller does not affect the others. It also
//! tests that readers share few connections, and that no connection is lost.

use std::sync::mpsc::{self, Sender};
use std::time::Duration;

use rusqlite::Connection;
use tokio::task::{JoinHandle, JoinSet, yield_now};

use super::{Folder, count, event};
use crate::sqlite::session::Session;
use crate::sqlite::{READERS, Sqlite};
use crate::{Acceptance, EventFilter, EventStore, StoreError, TraceStore};

/// Keeps the writing thread busy until the sender is dropped. Writes that are requested meanwhile become one group.
async fn block_writer(store: &Sqlite) -> (Sender<()>, JoinHandle<Result<(), StoreError>>) {
    let (release, unblock) = mpsc::channel::<()>();
    let store = store.clone();
    let held = tokio::spawn(async move {
        store
            .write(move |_, _| {
                let _ = unblock.recv();
                Ok(())
            })
            .await
    });
    yield_now().await;
    (release, held)
}

fn cancel(connection: &Connection, id: &str, reason: &str) -> Result<(), StoreError> {
    connection.execute("INSERT INTO event_cancel (event_id, reason) VALUES (?, ?)", [id, reason])?;
    Ok(())
}

/// Writes one row per caller. Returns the result of each write.
async fn write_together(
    store: &Sqlite,
    reasons: Vec<String>,
    then: fn(usize, &Connection) -> Result<(), StoreError>,
) -> Vec<(usize, Result<(), StoreError>)> {
    let (release, held) = block_writer(store).await;
    let mut writes = JoinSet::new();
    for (n, reason) in reasons.into_iter().enumerate() {
        let store = store.clone();
        writes.spawn(async move {
            let work = move |connection: &Session, _: &str| {
                cancel(connection, &n.to_string(), &reason)?;
                then(n, connection)
            };
            (n, store.write(work).await)
        });
    }
    yield_now().await;
    drop(release);
    let _ = held.await.unwrap();
    let mut results = writes.join_all().await;
    results.sort_by_key(|(n, _)| *n);
    results
}

fn is_written(folder: &Folder, n: usize) -> bool {
    count(&folder.connect(), &format!("SELECT count(*) FROM event_cancel WHERE event_id = '{n}'")) == 1
}

#[tokio::test]
async fn an_error_of_one_caller_does_not_touch_its_neighbours() {
    let folder = Folder::new();
    let store = folder.open();
    let some_fail = |n: usize, connection: &Connection| match n % 5 {
        1 => Err(StoreError::Lost("taken over".into())),
        3 => cancel(connection, &n.to_string(), "there already"),
        _ => Ok(()),
    };
    let results = write_together(&store, vec![String::new(); 200], some_fail).await;
    for (n, result) in results {
        match n % 5 {
            1 => assert!(matches!(result, Err(StoreError::Lost(_))), "{n}: {result:?}"),
            3 => assert!(matches!(result, Err(StoreError::Refused(_))), "{n}: {result:?}"),
            _ => assert!(result.is_ok(), "{n}: {result:?}"),
        }
        assert_eq!(is_written(&folder, n), result.is_ok(), "{n}");
    }
}

#[tokio::test]
async fn many_callers_accept_at_once() {
    let folder = Folder::new();
    let store = folder.open();
    let mut accepts = JoinSet::new();
    for n in 0..150 {
        let store = store.clone();
        accepts.spawn(async move { store.accept(vec![event(&(n % 100).to_string())]).await.unwrap() });
    }
    let created = accepts.join_all().await.into_iter().filter(|a| *a == Acceptance::Accepted(vec![true]));
    assert_eq!(created.count(), 100);
    assert_eq!(count(&folder.connect(), "SELECT count(*) FROM event_outbox"), 100);
}

#[tokio::test]
async fn who_was_told_that_it_is_written_has_it_even_when_the_disk_fills_up() {
    let folder = Folder::new();
    let store = folder.open();
    let limit = |pages: &'static str| {
        store.write(move |connection, _| {
            let pages: i64 = connection.query_row(&format!("PRAGMA {pages}"), [], |row| row.get(0))?;
            connection.query_row(&format!("PRAGMA max_page_count = {pages}"), [], |_| Ok(()))?;
            Ok(())
        })
    };
    limit("page_count").await.unwrap();
    let small = || "small".to_owned();
    let reasons = vec![small(), "large".repeat(1_000_000), small(), small()];
    let results = write_together(&store, reasons, |_, _| Ok(())).await;
    for (n, result) in &results {
        assert_eq!(is_written(&folder, *n), result.is_ok(), "{n}: {result:?}");
        assert!(!matches!(result, Err(StoreError::Refused(_))), "a full disk is nobody's fault: {result:?}");
    }
    assert!(results[1].1.is_err());
    store.write(|connection, _| cancel(connection, "later", "there is room for this")).await.unwrap();
}

#[tokio::test]
async fn a_file_that_somebody_else_holds_is_unavailable_and_then_there_again() {
    let folder = Folder::new();
    let store = folder.open();
    store.write(|connection, _| Ok(connection.busy_timeout(Duration::ZERO)?)).await.unwrap();
    let other = folder.connect();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    for _ in 0..2 {
        let refused = store.accept(vec![event("a")]).await;
        assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
    }
    let listed = store.search_events(EventFilter { limit: 1, ..EventFilter::default() }).await;
    assert!(listed.unwrap().items.is_empty(), "readers do not wait for writers");
    other.execute_batch("ROLLBACK").unwrap();
    assert_eq!(store.accept(vec![event("a")]).await.unwrap(), Acceptance::Accepted(vec![true]));
}

#[tokio::test]
async fn a_caller_that_goes_away_leaves_its_work_whole() {
    let folder = Folder::new();
    let store = folder.open();
    let (release, held) = block_writer(&store).await;
    let gone = tokio::spawn({
        let store = store.clone();
        async move { store.accept(vec![event("a"), event("b")]).await }
    });
    yield_now().await;
    gone.abort();
    assert!(gone.await.is_err());
    drop(release);
    held.await.unwrap().unwrap();
    let accepted = store.accept(vec![event("a"), event("b"), event("c")]).await.unwrap();
    assert_eq!(accepted, Acceptance::Accepted(vec![false, false, true]));
}

#[tokio::test]
async fn readers_that_go_away_do_not_take_their_connections_along() {
    let folder = Folder::new();
    let store = folder.open();
    let (started, mut starts) = tokio::sync::mpsc::unbounded_channel();
    let mut releases = Vec::new();
    for _ in 0..READERS {
        let (release, unblock) = mpsc::channel::<()>();
        releases.push(release);
        let (store, started) = (store.clone(), started.clone());
        let reader = tokio::spawn(async move {
            let work = move |_: &Session| {
                started.send(()).unwrap();
                let _ = unblock.recv();
                Ok(())
            };
            store.read(work).await
        });
        starts.recv().await.unwrap();
        reader.abort();
        assert!(reader.await.is_err());
    }
    assert_eq!(store.shared.permits.available_permits(), 0, "who has no connection to offer lets nobody in");
    let next =
        tokio::spawn(
            async move { store.search_events(EventFilter { limit: 1, ..EventFilter::default() }).await },
        );
    yield_now().await;
    drop(releases);
    assert!(next.await.unwrap().unwrap().items.is_empty());
}

#[tokio::test]
async fn a_panic_is_an_error_of_its_caller_alone() {
    let folder = Folder::new();
    let store = folder.open();
    for _ in 0..=READERS {
        let read: Result<(), _> = store.read(|_| panic!("this is meant")).await;
        assert!(matches!(read, Err(StoreError::Refused(_))), "{read:?}");
    }
    let panics = |n: usize, _: &Connection| if n == 1 { panic!("this is meant") } else { Ok(()) };
    for (n, result) in write_together(&store, vec![String::new(); 3], panics).await {
        assert_eq!((result.is_ok(), is_written(&folder, n)), (n != 1, n != 1), "{n}: {result:?}");
        assert!(n != 1 || matches!(result, Err(StoreError::Refused(_))), "it would come again: {result:?}");
    }
    assert_eq!(store.accept(vec![event("a")]).await.unwrap(), Acceptance::Accepted(vec![true]));
    let listed = store.search_events(EventFilter { limit: 2, ..EventFilter::default() }).await.unwrap();
    assert_eq!(listed.items.len(), 1);
}

#[tokio::test]
async fn a_reader_sees_one_state() {
    let folder = Folder::new();
    let store = folder.open();
    let (begun, mut beginning) = tokio::sync::mpsc::unbounded_channel();
    let (release, unblock) = mpsc::channel::<()>();
    let counts = tokio::spawn({
        let store = store.clone();
        async move {
            let work = move |connection: &Session| {
                let before = count(connection, "SELECT count(*) FROM event_outbox");
                begun.send(()).unwrap();
                let _ = unblock.recv();
                Ok((before, count(connection, "SELECT count(*) FROM event_outbox")))
            };
            store.read(work).await
        }
    });
    beginning.recv().await.unwrap();
    store.accept(vec![event("a")]).await.unwrap();
    drop(release);
    assert_eq!(counts.await.unwrap().unwrap(), (0, 0));
    assert_eq!(count(&folder.connect(), "SELECT count(*) FROM event_outbox"), 1);
}
