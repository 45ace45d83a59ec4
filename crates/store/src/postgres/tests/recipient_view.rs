//! Tests recipients that are a view over the business's own tables, created as in the guide.

use campanile_domain::access::audit::Actor;
use campanile_domain::channel::PerChannel;
use campanile_domain::fan_out::Page;
use campanile_domain::id::{EntityId, EntityRef, EntityType, UserId, UserRef, UserTypeName};
use campanile_domain::people::recipient::Recipient;
use campanile_domain::rules::Reach;
use serde_json::json;

use super::event;
use super::guide::{POSTGRESQL, block};
use crate::conformance::TestDatabase;
use crate::postgres::test_database::Database;
use crate::postgres::{Postgres, connect, statement};
use crate::{EventStore, FanOutStore, RowFilter, RowStore, StoreError, Table, TableRow};

const RECIPIENTS: &str = "
    INSERT INTO shop.users (id, name, email, push_tokens, locale)
    VALUES (9, 'Gina', 'gina@example.org', '{one,two}', 'it'), (10, 'Ugo', NULL, '{}', NULL), (50, 'Ada', NULL,
        '{}', NULL);
    INSERT INTO shop.users (id, deleted) VALUES (11, true);
    INSERT INTO shop.staff (id, restaurant_id, position, name, time_zone)
    VALUES (50, 5, 'waiter', 'Bruno', 'Europe/Rome'), (51, 5, 'manager', 'Anna', NULL), (9, 5, 'chef', 'Carla', NULL),
           (52, 6, 'manager', 'Dario', NULL);
    INSERT INTO shop.staff (id, restaurant_id, position, deleted) VALUES (53, 5, 'manager', true)";

async fn with_view() -> Database {
    let database = Database::new().await;
    let client = super::connect(&database.url).await;
    client.batch_execute(block(POSTGRESQL, "Tables of the business")).await.unwrap();
    let view = block(POSTGRESQL, "Recipients as a view");
    let (grants, view): (Vec<&str>, Vec<&str>) =
        view.split_inclusive('\n').partition(|line| line.starts_with("GRANT"));
    assert_eq!(grants.len(), 1, "what the engine may do is tested with its role");
    client.batch_execute(&view.concat()).await.unwrap();
    client.batch_execute(RECIPIENTS).await.unwrap();
    database
}

fn user_type(name: &str) -> UserTypeName {
    UserTypeName::stored(name)
}

fn restaurant(id: &str) -> Reach {
    let entity = EntityRef { entity_type: EntityType::stored("RESTAURANT"), entity_id: EntityId::stored(id) };
    Reach::Entity { user_type: user_type("RESTAURANT_USER"), entity }
}

fn user(of_type: &str, id: &str) -> Reach {
    Reach::User(UserRef { user_type: user_type(of_type), user_id: UserId::stored(id) })
}

async fn found(store: &Postgres, reaches: Vec<Reach>) -> Vec<Vec<Recipient>> {
    store.accept(vec![event("a")]).await.unwrap();
    let mut claim = store.claim_events(crate::Claim::New { limit: 1 }).await.unwrap().unwrap();
    let page = |reach| Page {
        reach,
        roles: None,
        after: None,
        limit: 10,
        channels: PerChannel::default(),
        default_webhook: None,
    };
    let pages = claim.candidates(reaches.into_iter().map(page).collect()).await.unwrap();
    pages.into_iter().map(|page| page.into_iter().map(|candidate| candidate.recipient).collect()).collect()
}

fn ids(recipients: &[Recipient]) -> Vec<&str> {
    recipients.iter().map(|recipient| recipient.user_id.as_str()).collect()
}

#[tokio::test]
async fn recipients_are_found_in_their_order() {
    let database = with_view().await;
    let store = database.open().await;
    let reaches = vec![
        restaurant("5"),
        Reach::Everybody(user_type("CUSTOMER")),
        Reach::Everybody(user_type("RESTAURANT_USER")),
        user("CUSTOMER", "50"),
        user("RESTAURANT_USER", "50"),
        user("CUSTOMER", "11"),
    ];
    let found = found(&store, reaches).await;
    assert_eq!(ids(&found[0]), ["51", "50", "9"], "the manager, then by the bytes of the id");
    assert_eq!(ids(&found[1]), ["10", "50", "9"]);
    assert_eq!(ids(&found[2]), ["51", "50", "9", "52"]);
    assert_eq!(found[3][0].name.as_deref(), Some("Ada"));
    assert_eq!(found[4][0].name.as_deref(), Some("Bruno"));
    assert!(found[5].is_empty(), "who was deleted is not told");
    let gina = &found[1][2];
    assert_eq!(gina.push_tokens, ["one", "two"]);
    assert_eq!((gina.email.as_deref(), gina.locale.as_deref()), (Some("gina@example.org"), Some("it")));
    assert!(found[4][0].time_zone.is_some());
}

#[tokio::test]
async fn recipients_are_listed_and_not_written() {
    let database = with_view().await;
    let store = database.open().await;
    let filter = RowFilter { limit: 100, ..RowFilter::default() };
    let listed = store.list_rows(Table::Recipients, filter).await.unwrap().items;
    assert_eq!(listed.len(), 9);
    let Some(TableRow::Recipient(gina)) = listed[3].typed() else { panic!("{:?}", listed[3]) };
    assert_eq!(gina.push_tokens, ["one", "two"]);
    let row = json!({ "user_type": "CUSTOMER", "user_id": "1" });
    let row = TableRow::parse(Table::Recipients, &row).unwrap();
    let put = store.put_rows(Table::Recipients, vec![row], Some(&Actor::AdminKey)).await;
    assert!(matches!(put, Err(StoreError::ReadOnly(_))), "{put:?}");
    let key = vec!["CUSTOMER".to_owned(), "9".to_owned()];
    let deleted = store.delete_row(Table::Recipients, key, &Actor::AdminKey).await;
    assert!(matches!(deleted, Err(StoreError::ReadOnly(_))), "{deleted:?}");
}

#[tokio::test]
async fn the_documented_indexes_are_used() {
    let database = with_view().await;
    let client = super::connect(&database.url).await;
    client.batch_execute(connect::SESSION).await.unwrap();
    for (name, sql) in [("page_user", statement::PAGE_USER), ("page_entity", statement::PAGE_ENTITY)] {
        client.batch_execute(&format!("PREPARE {name} AS {sql}")).await.unwrap();
        let explain = format!("EXPLAIN EXECUTE {name} (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)");
        let plan = client.query(&explain, &[]).await.unwrap();
        let plan: Vec<String> = plan.iter().map(|line| line.get(0)).collect();
        assert!(!plan.iter().any(|line| line.contains("Seq Scan")), "{name}: {plan:#?}");
    }
}

#[tokio::test]
async fn a_view_that_lacks_a_column_is_refused_by_name() {
    let database = Database::new().await;
    database
        .execute(
            "DROP TABLE recipient;
             CREATE VIEW recipient AS SELECT 'CUSTOMER' AS user_type, '1' AS user_id, true AS active",
        )
        .await;
    let error = Postgres::open(&database.config()).await.unwrap_err().to_string();
    assert!(error.contains("the view campanile.recipient can't be used"), "{error}");
    assert!(error.contains("column \"entity_type\" does not exist"), "{error}");
    assert!(error.contains("it needs the columns user_type, user_id, entity_type"), "{error}");
}
