//! The conformance suite, for SQLite.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use campanile_store::conformance::{self, BackDoor, Fixture};
use campanile_store::for_each_check;
use campanile_store::sqlite::{Clock, Sqlite};
use rusqlite::Connection;
use tempfile::TempDir;

#[derive(Debug)]
struct File {
    folder: TempDir,
    clock: Clock,
}

impl File {
    fn connect(&self) -> Connection {
        Connection::open(self.folder.path().join("campanile.db")).expect("the file is there")
    }
}

#[async_trait]
impl BackDoor for File {
    async fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    async fn execute(&self, sql: &str) {
        self.connect().execute_batch(sql).expect("the statement is good");
    }

    async fn count(&self, sql: &str) -> i64 {
        self.connect().query_row(sql, [], |row| row.get(0)).expect("the query is good")
    }
}

fn sqlite() -> Fixture {
    let (folder, clock) = (TempDir::new().expect("there is room"), Clock::default());
    let path = folder.path().join("campanile.db");
    let store = Sqlite::open_with_clock(&path, clock.clone()).expect("nobody else has the file");
    Fixture { store: Arc::new(store), back_door: Box::new(File { folder, clock }) }
}

macro_rules! tests {
    ($($group:ident :: $check:ident)+) => { $(
        #[tokio::test]
        async fn $check() {
            conformance::$check(&sqlite()).await;
        }
    )+ };
}
for_each_check!(tests);
