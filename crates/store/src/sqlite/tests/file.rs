//! Tests that one engine owns one file: its lock, its migrations, and what it takes over from the previous process.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use campanile_domain::channel::Channel;
use campanile_domain::queue::Queue;

use super::{Folder, count, event};
use crate::sqlite::Sqlite;
use crate::sqlite::examine::examine;
use crate::{
    Acceptance, Acquisition, EventStore, LeaseStore, OutboxStore, RowStore, SendStore, Store, StoreError,
};

const LEASE: Duration = Duration::from_mins(10);

#[test]
fn a_second_engine_on_one_file_is_refused() {
    let folder = Folder::new();
    let _store = folder.open();
    let refused = Sqlite::open(&folder.database());
    let Err(StoreError::Unusable(message)) = refused else { panic!("{refused:?}") };
    let message = message.to_string();
    for part in
        [folder.database().to_str().unwrap(), "campanile.lock", "stop it first", "--data-dir", "PostgreSQL"]
    {
        assert!(message.contains(part), "{message} does not say {part}");
    }
}

#[test]
fn deleting_the_lock_admits_no_second_engine() {
    let folder = Folder::new();
    let _store = folder.open();
    std::fs::remove_file(folder.path().join("campanile.lock")).unwrap();
    for _ in 0..2 {
        let refused = Sqlite::open(&folder.database());
        let Err(StoreError::Unusable(message)) = refused else { panic!("{refused:?}") };
        let message = message.to_string();
        assert!(message.contains("another Campanile is already running"), "{message}");
    }
    let findings = examine(&folder.database()).findings;
    let held = format!("process {} is using this file", std::process::id());
    assert!(findings.iter().any(|finding| finding.what == held), "{findings:?}");
}

#[test]
fn files_are_their_owners_in_a_folder_that_is_open_to_all() {
    let folder = Folder::new();
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let _store = folder.open();
    for name in ["campanile.db", "campanile.db-wal", "campanile.db-shm", "campanile.lock"] {
        let mode = folder.path().join(name).metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

/// `.cargo/config.toml` sets these options. Connections that share a page cache wait for each other.
#[test]
fn sqlite_is_compiled_without_what_all_connections_share() {
    let folder = Folder::new();
    let _store = folder.open();
    let options = |name: &str| {
        let asked = format!("SELECT count(*) FROM pragma_compile_options WHERE compile_options = '{name}'");
        count(&folder.connect(), &asked)
    };
    assert_eq!((options("DEFAULT_MEMSTATUS=0"), options("ENABLE_MEMORY_MANAGEMENT")), (1, 0));
}

#[tokio::test]
async fn the_lock_is_free_when_the_last_handle_is_gone() {
    let folder = Folder::new();
    let store = folder.open();
    let another_handle = store.clone();
    drop(store);
    assert!(Sqlite::open(&folder.database()).is_err());
    another_handle.accept(vec![event("a")]).await.unwrap();
    drop(another_handle);
    folder.open();
}

#[test]
fn a_file_that_is_no_database_is_named() {
    let folder = Folder::new();
    std::fs::write(folder.database(), "This is not a database, but it is long enough to be one. ".repeat(20))
        .unwrap();
    let refused = Sqlite::open(&folder.database());
    let Err(StoreError::Unusable(message)) = refused else { panic!("{refused:?}") };
    let message = message.to_string();
    assert!(message.contains(folder.database().to_str().unwrap()), "{message}");
}

#[test]
fn a_folder_that_can_not_be_made_is_named() {
    let folder = Folder::new();
    std::fs::write(folder.path().join("file"), "").unwrap();
    let below_a_file = folder.path().join("file/data/campanile.db");
    let refused = Sqlite::open(&below_a_file);
    let Err(StoreError::Unusable(message)) = refused else { panic!("{refused:?}") };
    let message = message.to_string();
    assert!(message.contains("file/data") && message.contains("--data-dir"), "{message}");
}

#[tokio::test]
async fn the_folder_is_made() {
    let folder = Folder::new();
    let store = Sqlite::open(&folder.path().join(Path::new("a/b/campanile.db"))).unwrap();
    assert_eq!(store.name(), "sqlite");
    assert!(folder.path().join("a/b/campanile.lock").exists());
}

#[tokio::test]
async fn a_file_that_is_opened_again_has_what_was_written() {
    let folder = Folder::new();
    let version = {
        let store = folder.open();
        store.accept(vec![event("a")]).await.unwrap();
        store.rule_version().await.unwrap()
    };
    let applied = || count(&folder.connect(), "SELECT count(*) FROM refinery_schema_history");
    let applied_at_first = applied();
    for _ in 0..3 {
        let store = folder.open();
        assert_eq!(store.accept(vec![event("a")]).await.unwrap(), Acceptance::Accepted(vec![false]));
        assert_eq!(store.rule_version().await.unwrap(), version, "default routes are written once");
        assert_eq!(store.rule_rows().await.unwrap().routing.len(), 4);
    }
    assert_eq!(applied(), applied_at_first);
}

#[tokio::test]
async fn a_file_that_a_later_release_upgraded_can_still_be_used() {
    let folder = Folder::new();
    drop(folder.open());
    folder
        .connect()
        .execute_batch(
            "ALTER TABLE event_outbox ADD COLUMN later TEXT;
             INSERT INTO refinery_schema_history (version, name, applied_on, checksum)
             VALUES (9999, 'later', '2026-01-21T10:15:30Z', '7')",
        )
        .unwrap();
    let store = folder.open();
    assert_eq!(store.accept(vec![event("a")]).await.unwrap(), Acceptance::Accepted(vec![true]));
}

#[tokio::test]
async fn leases_of_the_process_before_are_over() {
    let folder = Folder::new();
    assert_eq!(
        folder.open().acquire("broker", "the one before", LEASE).await.unwrap(),
        Acquisition::Acquired
    );
    let connection = folder.connect();
    connection
        .execute_batch(
            "INSERT INTO event_outbox (event_id, event_type, aggregate_type, aggregate_id, status)
             VALUES ('a', 'ORDER_CREATED', 'ORDER', '7', 'PUBLISHED');
             INSERT INTO outbox (notification_id, channel, event_id, recipient_type, recipient_id,
                 recipient_address, title, body,
                                 priority, audience, shared_read, queue, chunk_id, created_at)
             VALUES ('01970000-0000-7000-8000-000000000001', 'EMAIL', 'a', 'CUSTOMER', '42', 'a@b', 'title',
                 'body', 'NORMAL',
                     'customer', 0, 'q', 1, '2026-01-21T10:15:30.000Z'),
                    ('01970000-0000-7000-8000-000000000001', 'SMS', 'a', 'CUSTOMER', '42', '+39', 'title',
                        'body', 'NORMAL',
                     'customer', 0, 'q', 1, '2026-01-21T10:15:30.000Z');
             INSERT INTO publish_chunk (id, queue, lane, first_id, last_id, lease_until)
             VALUES (1, 'q', 1, '01970000-0000-7000-8000-000000000001', '01970000-0000-7000-8000-000000000001',
                     '9000-01-01T00:00:00.000Z');
             INSERT INTO send (notification_id, channel, recipient_address, status, lease, created_at)
             VALUES ('01970000-0000-7000-8000-000000000001', 'EMAIL', 'a@b', 'SENDING', 7, '2026-01-21T10:15:30.000Z');
             INSERT INTO send_claim (id, instance, lease_until, notifications)
             VALUES (7, 'before', '9000-01-01T00:00:00.000Z', '[\"01970000-0000-7000-8000-000000000001\"]');",
        )
        .unwrap();
    let store = folder.open();
    assert_eq!(store.acquire("broker", "the next one", LEASE).await.unwrap(), Acquisition::Acquired);
    let chunk = store.claim_chunk(&Queue::named("q"), LEASE).await.unwrap().unwrap();
    assert_eq!(chunk.rows.len(), 1);
    assert_eq!(chunk.rows[0].row.key.channel, Channel::Sms);
    let expired = store.expired_claims(10).await.unwrap();
    assert_eq!((expired.len(), expired[0].claim.0, expired[0].jobs.len()), (1, 7, 1));
}

#[tokio::test]
async fn times_that_were_stored_can_be_compared_as_text() {
    let folder = Folder::new();
    let store = folder.open();
    store.accept(vec![event("a")]).await.unwrap();
    let connection = folder.connect();
    connection
        .execute_batch(
            "INSERT INTO event_outbox (event_id, event_type, aggregate_type, aggregate_id)
             VALUES ('b', 'ORDER_CREATED', 'ORDER', '7')",
        )
        .unwrap();
    let form = "[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]T[0-9][0-9]:[0-9][0-9]:[0-9][0-9].[0-9][0-9][0-9]Z";
    let alike = format!("SELECT count(*) FROM event_outbox WHERE created_at GLOB '{form}'");
    assert_eq!(count(&connection, &alike), 2);
}
