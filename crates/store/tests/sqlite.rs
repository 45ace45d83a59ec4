//! The conformance suite, for SQLite.

use std::sync::Arc;

use campanile_store::conformance::{self, Fixture};
use campanile_store::for_each_check;
use campanile_store::sqlite::test_database::File;
use campanile_store::sqlite::{Clock, Sqlite};
use tempfile::TempDir;

/// The folder lives as long as the check.
fn sqlite() -> (Fixture, TempDir) {
    let (folder, clock) = (TempDir::new().expect("there is room"), Clock::default());
    let path = folder.path().join("campanile.db");
    let store = Sqlite::open_with_clock(&path, clock.clone()).expect("nobody else has the file");
    (Fixture { store: Arc::new(store), test_database: Box::new(File { path, clock }) }, folder)
}

macro_rules! tests {
    ($($group:ident :: $check:ident)+) => { $(
        #[tokio::test]
        async fn $check() {
            let (fixture, _folder) = sqlite();
            conformance::$check(&fixture).await;
        }
    )+ };
}
for_each_check!(tests);
