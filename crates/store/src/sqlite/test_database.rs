//! Gives tests direct access to a SQLite file: a connection like that of another process, and a clock that can be
//! moved.

use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use rusqlite::Connection;

use super::Clock;
use crate::conformance::TestDatabase;

#[derive(Debug)]
pub struct File {
    pub path: PathBuf,
    pub clock: Clock,
}

impl File {
    fn connect(&self) -> Connection {
        Connection::open(&self.path).expect("the file is there")
    }
}

#[async_trait]
impl TestDatabase for File {
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
