//! Checks the record of changes: it is written with each change of a row, and listed page by page.

use campanile_domain::access::api_key::ApiKeyId;
use campanile_domain::access::audit::{Actor, AuditAction};
use campanile_domain::time;
use serde_json::{Value, json};

use super::Fixture;
use super::setup::table_row;
use crate::{AuditOf, AuditRow, Shown, StoreError, Table};

async fn listed(fixture: &Fixture, of: AuditOf) -> Vec<AuditRow> {
    fixture.store.list_audit(of, None, 100).await.expect("the database is there")
}

fn shop() -> Actor {
    Actor::ApiKey { id: ApiKeyId::stored("0123456789abcdef"), name: "shop".to_owned() }
}

async fn put(fixture: &Fixture, table: Table, rows: &[Value], actor: &Actor) -> Result<u64, StoreError> {
    let rows = rows.iter().map(|row| table_row(table, row)).collect();
    fixture.store.put_rows(table, rows, Some(actor)).await
}

fn person(name: &str) -> Value {
    json!({ "user_type": "CUSTOMER", "user_id": "1", "name": name, "slack_webhook": "https://hooks.slack.com/secret" })
}

pub async fn each_change_of_a_row_is_recorded_with_before_and_after(fixture: &Fixture) {
    put(fixture, Table::Recipients, &[person("Anna")], &Actor::AdminKey).await.expect("the row is good");
    put(fixture, Table::Recipients, &[person("Anna B")], &shop()).await.expect("the row is good");
    let key = vec!["CUSTOMER".to_owned(), "1".to_owned()];
    assert!(fixture.store.delete_row(Table::Recipients, key, &shop()).await.expect("the key is good"));
    let changes = listed(fixture, AuditOf::Everything).await;
    let actions: Vec<_> = changes.iter().filter_map(|change| change.action.typed().copied()).collect();
    assert_eq!(actions, [AuditAction::Delete, AuditAction::Put, AuditAction::Put]);
    let [deleted, replaced, created] = &changes[..] else { panic!("{changes:?}") };
    assert_eq!(created.before, None);
    assert_eq!(replaced.before, created.after);
    assert_eq!(deleted.before, replaced.after);
    assert_eq!(deleted.after, None);
    let after = replaced.after.as_ref().expect("it is there");
    assert_eq!((&after["name"], &after["active"]), (&json!("Anna B"), &json!(true)));
    assert_eq!(
        (replaced.object_type.as_str(), replaced.object_id.as_str()),
        ("recipient", r#"["CUSTOMER","1"]"#)
    );
    assert_eq!((replaced.actor_id.as_str(), replaced.actor_name.as_str()), ("0123456789abcdef", "shop"));
    assert_eq!((created.actor_id.as_str(), created.actor_name.as_str()), ("", "admin key"));
    assert!(!json!(changes).to_string().contains("hooks.slack.com"), "secrets are left out");
}

pub async fn a_row_that_stays_as_it_was_is_not_recorded(fixture: &Fixture) {
    let rows = |table: Table| match table {
        Table::Recipients => json!({
            "user_type": "RESTAURANT_USER", "user_id": "50", "push_tokens": ["t1"], "time_zone": "Europe/Rome",
        }),
        Table::Entities => json!({ "entity_type": "RESTAURANT", "entity_id": "5" }),
        Table::Preferences => json!({
            "user_type": "CUSTOMER", "user_id": "1", "channel": "SMS", "quiet_hours_start": "22:00",
            "quiet_hours_end": "08:00",
        }),
        Table::Settings => {
            json!({ "entity_type": "RESTAURANT", "channel": "SMS", "roles": ["A", "B"], "max_recipients": 3 })
        }
        Table::Routing => json!({ "event_type": "NEWS", "channel": "SMS", "priority": "LOW" }),
        Table::Audiences => json!({ "event_type": "NEWS", "name": "all", "recipient_type": "ALL" }),
        Table::Templates => json!({ "event_type": "NEWS", "title": "News" }),
    };
    for table in Table::ALL {
        for _ in 0..2 {
            put(fixture, table, &[rows(table)], &Actor::AdminKey).await.expect("the row is good");
        }
    }
    assert_eq!(listed(fixture, AuditOf::Everything).await.len(), Table::ALL.len());
}

pub async fn a_refused_write_is_not_recorded(fixture: &Fixture) {
    fixture.execute("CREATE UNIQUE INDEX one_title ON template (title)").await;
    let rows = ["NEWS", "OTHER"].map(|event_type| json!({ "event_type": event_type, "title": "Same" }));
    put(fixture, Table::Templates, &rows, &Actor::AdminKey).await.expect_err("the index refuses the second");
    let unknown = vec!["CUSTOMER".to_owned(), "1".to_owned()];
    assert!(!fixture.store.delete_row(Table::Recipients, unknown, &shop()).await.expect("the key is good"));
    assert_eq!(listed(fixture, AuditOf::Everything).await, []);
}

pub async fn changes_are_listed_by_thing_and_by_actor(fixture: &Fixture) {
    let customer = |id: u32| json!({ "user_type": "CUSTOMER", "user_id": id });
    put(fixture, Table::Recipients, &[customer(1), customer(2)], &shop()).await.expect("the rows are good");
    put(fixture, Table::Templates, &[json!({ "title": "x" })], &Actor::AdminKey)
        .await
        .expect("the row is good");
    let objects =
        |changes: Vec<AuditRow>| changes.into_iter().map(|change| change.object_id).collect::<Vec<_>>();
    let people = r#"["CUSTOMER","2"] ["CUSTOMER","1"]"#;
    let of = |of: AuditOf| async { objects(listed(fixture, of).await).join(" ") };
    assert_eq!(of(AuditOf::Type("recipient".to_owned())).await, people);
    assert_eq!(of(AuditOf::Actor(shop().id().to_owned())).await, people);
    assert_eq!(of(AuditOf::Actor(String::new())).await, r#"["*","*","*"]"#);
    let one =
        AuditOf::Object { object_type: "recipient".to_owned(), object_id: r#"["CUSTOMER","1"]"#.to_owned() };
    assert_eq!(of(one).await, r#"["CUSTOMER","1"]"#);
    let first = fixture.store.list_audit(AuditOf::Everything, None, 1).await.expect("the database is there");
    let rest = fixture.store.list_audit(AuditOf::Everything, Some(first[0].id), 10).await;
    assert_eq!(objects(rest.expect("the database is there")).join(" "), people);
}

pub async fn the_oldest_changes_are_deleted(fixture: &Fixture) {
    for title in ["a", "b"] {
        put(fixture, Table::Templates, &[json!({ "title": title })], &shop()).await.expect("the row is good");
        fixture.advance(std::time::Duration::from_mins(1)).await;
    }
    let changes = listed(fixture, AuditOf::Everything).await;
    let Shown::Typed(newest) = &changes[0].at else { panic!("{changes:?}") };
    let between = time::earlier(newest.0, std::time::Duration::from_secs(30));
    let delete =
        async |limit| fixture.store.delete_old_audit(between, limit).await.expect("the database is there");
    assert_eq!((delete(10).await, delete(10).await), (1, 0));
    assert_eq!(listed(fixture, AuditOf::Everything).await, changes[..1]);
}
