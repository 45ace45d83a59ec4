//! The conformance suite, for PostgreSQL.

use std::sync::Arc;

use campanile_store::conformance::{self, Fixture};
use campanile_store::for_each_check;
use campanile_store::postgres::test_database::Database;

async fn postgres() -> Fixture {
    let database = Database::new().await;
    let store = database.open().await;
    Fixture { store: Arc::new(store), test_database: Box::new(database) }
}

macro_rules! tests {
    ($($group:ident :: $check:ident)+) => { $(
        #[tokio::test]
        async fn $check() {
            conformance::$check(&postgres().await).await;
        }
    )+ };
}
for_each_check!(tests);
