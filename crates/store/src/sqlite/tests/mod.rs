//! Tests of what only SQLite has: its file, its plans, and its single writing thread. The conformance suite tests what
//! all databases share.

mod damage;
mod file;
mod group;
mod plan;
mod producer;
mod retain;
mod seed;

use std::path::{Path, PathBuf};

use campanile_domain::event::NewEvent;
use rusqlite::Connection;
use serde_json::json;
use tempfile::TempDir;

use super::Sqlite;

/// A folder for one test. It is deleted together with this value.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Folder(TempDir::new().unwrap())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn database(&self) -> PathBuf {
        self.path().join("campanile.db")
    }

    fn open(&self) -> Sqlite {
        Sqlite::open(&self.database()).unwrap()
    }

    /// Opens the file as another process would.
    fn connect(&self) -> Connection {
        Connection::open(self.database()).unwrap()
    }
}

fn event(id: &str) -> NewEvent {
    serde_json::from_value(json!({
        "event_id": id, "event_type": "ORDER_CREATED", "aggregate_type": "ORDER", "aggregate_id": "7",
    }))
    .unwrap()
}

fn count(connection: &Connection, sql: &str) -> i64 {
    connection.query_row(sql, [], |row| row.get(0)).unwrap()
}
