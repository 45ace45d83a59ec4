//! Tests creating the tables, and who has the privilege to create them.

use super::guide::{POSTGRESQL, block};
use super::role::Role;
use super::{event, ids, received, rows, shared};
use crate::conformance::{Fixture, TestDatabase};
use crate::postgres::Postgres;
use crate::postgres::migrate;
use crate::postgres::test_database::Database;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instances_that_start_at_once_make_the_tables_once() {
    let database = Database::empty().await;
    let mut starting = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let config = database.config();
        starting.spawn(async move { Postgres::open(&config).await });
    }
    while let Some(opened) = starting.join_next().await {
        opened.unwrap().unwrap();
    }
    let made = database.count("SELECT count(*) FROM schema_history").await;
    assert_eq!(usize::try_from(made), Ok(migrate::MIGRATIONS.len()));
}

#[tokio::test]
async fn the_second_migration_has_nothing_to_do() {
    let database = Database::empty().await;
    let all: Vec<&str> = migrate::MIGRATIONS.iter().map(|(name, _)| *name).collect();
    assert_eq!(Postgres::migrate(&database.config()).await.unwrap(), all);
    assert!(Postgres::migrate(&database.config()).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_schema_of_a_newer_release_is_left_alone() {
    let database = Database::new().await;
    database
        .execute(
            "INSERT INTO schema_history SELECT 9999, 'later', applied_on, checksum FROM schema_history
            WHERE version = 1;
             ALTER TABLE event_outbox ADD COLUMN later text",
        )
        .await;
    assert!(Postgres::migrate(&database.config()).await.unwrap().is_empty());
    let store = database.open().await;
    let fixture = Fixture { store: shared(store), test_database: Box::new(database) };
    fixture.accept(&[event("a")]).await;
    assert_eq!(ids(&*fixture.claim_new().await), ["a"]);
}

#[tokio::test]
async fn the_documented_roles_are_enough_to_migrate_and_to_run() {
    let database = Database::empty().await;
    let owner = Role::new(&database, "owner").await;
    let engine = Role::new(&database, "engine").await;
    let of_test = |sql: &str| {
        let sql = sql.replace("campanile_owner", &owner.name).replace("campanile_engine", &engine.name);
        sql.replace("ON DATABASE shop", &format!("ON DATABASE {}", database.url.rsplit('/').next().unwrap()))
    };
    let roles = of_test(block(POSTGRESQL, "Roles"));
    let (made, grants): (Vec<&str>, Vec<&str>) =
        roles.split_inclusive('\n').partition(|line| line.starts_with("CREATE ROLE"));
    assert_eq!(made.len(), 2, "the roles of the guide are those that the test has made");
    super::connect(&database.url).await.batch_execute(&grants.concat()).await.unwrap();
    Postgres::migrate(&owner.config()).await.unwrap();
    owner.connect().await.batch_execute(&of_test(block(POSTGRESQL, "Grants of the engine"))).await.unwrap();
    assert!(Postgres::migrate(&engine.config()).await.unwrap().is_empty());
    let store = Postgres::open(&engine.config()).await.unwrap();
    let fixture = Fixture { store: shared(store), test_database: Box::new(database) };
    let rows = rows("a", 3);
    fixture.published(&event("a"), &rows).await;
    assert_eq!(fixture.receive(&received(&rows)).await.jobs.len(), 3);
    let route = vec![serde_json::json!({ "event_type": "A", "channel": "EMAIL" })];
    fixture.put(crate::Table::Routing, route).await;
    assert_eq!(fixture.store.close_events(vec![event("a").event_id]).await.unwrap(), 1);
    drop(fixture.store);
    drop((owner, engine));
}

#[tokio::test]
async fn who_may_not_make_tables_is_told_what_to_do() {
    let database = Database::empty().await;
    let role = Role::new(&database, "nobody").await;
    let error = Postgres::open(&role.config()).await.unwrap_err().to_string();
    assert!(error.contains("permission denied for database"), "{error}");
    assert!(error.contains("run `campanile migrate` once as such a user"), "{error}");
    assert!(!error.contains("secret"), "{error}");
}

#[tokio::test]
async fn who_may_not_use_the_tables_is_told_so() {
    let database = Database::new().await;
    let role = Role::new(&database, "nobody").await;
    let error = Postgres::open(&role.config()).await.unwrap_err().to_string();
    assert!(error.contains("permission denied"), "{error}");
}
