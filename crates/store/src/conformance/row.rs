//! The rows that operators write.

use serde_json::{Value, json};

use super::Fixture;
use crate::{JsonRow, RowFilter, StoreError, Table};

fn object(value: Value) -> JsonRow {
    serde_json::from_value(value).expect("a row is an object")
}

fn text<'a>(row: &'a JsonRow, column: &str) -> &'a str {
    row[column].as_str().unwrap_or_else(|| panic!("{column} of {row:?} has no text"))
}

async fn list(fixture: &Fixture, table: Table, filter: RowFilter) -> Vec<JsonRow> {
    fixture.store.list_rows(table, filter).await.expect("the filter is good")
}

async fn all(fixture: &Fixture, table: Table) -> Vec<JsonRow> {
    list(fixture, table, RowFilter { limit: 1_000, ..RowFilter::default() }).await
}

/// The only row, besides the default routes.
async fn only(fixture: &Fixture, table: Table) -> JsonRow {
    let mut rows = all(fixture, table).await;
    rows.retain(|row| table != Table::Routing || text(row, "event_type") != "*");
    assert_eq!(rows.len(), 1, "{rows:?}");
    rows.remove(0)
}

/// A row of each table with something in every column.
fn full(table: Table) -> Value {
    match table {
        Table::Recipients => json!({
            "user_type": "RESTAURANT_USER", "user_id": "50", "entity_type": "RESTAURANT", "entity_id": "5",
            "role": "MANAGER", "name": "Ada", "email": "ada@example.org", "phone": "+39 02", "push_tokens": ["t1",
            "t2"],
            "slack_webhook": "https://example.org/hook", "addresses": {"PAGER": "7", "FAX": ["8", "9"]}, "locale": "it",
            "time_zone": "Europe/Rome", "active": false,
        }),
        Table::Entities => {
            json!({ "entity_type": "RESTAURANT", "entity_id": "5", "kind": "PIZZERIA", "name": "Da Ada" })
        }
        Table::Preferences => json!({
            "user_type": "CUSTOMER", "user_id": "42", "channel": "SMS", "event_type": "NEWS", "enabled": false,
            "min_priority": "HIGH", "quiet_hours_start": "22:00", "quiet_hours_end": "08:00",
            "quiet_hours_mode": "DEFER",
        }),
        Table::Settings => json!({
            "entity_type": "RESTAURANT", "entity_id": "5", "kind": "*", "channel": "SMS", "event_type": "NEWS",
            "enabled": false, "max_recipients": 3, "min_priority": "HIGH", "roles": ["MANAGER", "CHEF"],
            "quiet_hours_start": "22:00",
            "quiet_hours_end": "08:00", "quiet_hours_mode": "DEFER",
        }),
        Table::Routing => json!({
            "event_type": "NEWS", "channel": "SLACK", "mandatory": true, "delivery_strategy": "IMMEDIATE",
            "priority": "LOW",
            "min_priority": "NORMAL",
        }),
        Table::Audiences => json!({
            "event_type": "NEWS", "name": "staff", "recipient_type": "RESTAURANT_USER",
            "entity_path": "/payload/restaurantId",
            "roles": ["CHEF"], "scope": "TEAM", "shared_read": true, "when": "payload.total > 100",
        }),
        Table::Templates => json!({
            "event_type": "NEWS", "channel": "EMAIL", "locale": "it", "title": "Novità {{ payload.total }}",
            "body": "\u{1F514}\n'x'",
            "html": "<p>\"è\"</p>", "url": "https://example.org/{{ payload.total }}",
        }),
    }
}

/// The same with nothing but what has no default, and what the other columns are then.
fn sparse(table: Table) -> (Value, Value) {
    match table {
        Table::Recipients => (
            json!({ "user_type": "RESTAURANT_USER", "user_id": "50" }),
            json!({
                "entity_type": null, "entity_id": null, "role": null, "name": null, "email": null, "phone": null,
                "push_tokens": [], "slack_webhook": null, "addresses": {}, "locale": null, "time_zone": null,
                "active": true,
            }),
        ),
        Table::Entities => {
            (json!({ "entity_type": "RESTAURANT", "entity_id": "5" }), json!({ "kind": null, "name": null }))
        }
        Table::Preferences => (
            json!({ "user_type": "CUSTOMER", "user_id": "42", "channel": "SMS", "event_type": "NEWS" }),
            json!({
                "enabled": true, "min_priority": null, "quiet_hours_start": null, "quiet_hours_end": null,
                "quiet_hours_mode": "SUPPRESS",
            }),
        ),
        Table::Settings => (
            json!({ "entity_type": "RESTAURANT", "entity_id": "5", "channel": "SMS", "event_type": "NEWS" }),
            json!({
                "kind": "*", "enabled": true, "max_recipients": null, "min_priority": null, "roles": null,
                "quiet_hours_start": null, "quiet_hours_end": null, "quiet_hours_mode": "SUPPRESS",
            }),
        ),
        Table::Routing => (
            json!({ "event_type": "NEWS", "channel": "SLACK" }),
            json!({ "mandatory": false, "delivery_strategy": "IMMEDIATE", "min_priority": null, "priority": null }),
        ),
        Table::Audiences => (
            json!({ "event_type": "NEWS", "name": "staff", "recipient_type": "CUSTOMER" }),
            json!({ "entity_path": null, "roles": null, "scope": "PERSONAL", "shared_read": false, "when": null }),
        ),
        Table::Templates => (
            json!({ "event_type": "NEWS", "channel": "EMAIL", "locale": "it", "title": "Novità" }),
            json!({ "body": "", "html": null, "url": null }),
        ),
    }
}

fn with_defaults(table: Table) -> JsonRow {
    let (given, defaults) = sparse(table);
    object(given).into_iter().chain(object(defaults)).collect()
}

pub async fn rows_come_back_as_they_were_written(fixture: &Fixture) {
    for table in Table::ALL {
        fixture.put(table, vec![full(table)]).await;
        assert_eq!(only(fixture, table).await, object(full(table)), "{table:?}");
    }
}

pub async fn what_a_row_does_not_name_has_its_default(fixture: &Fixture) {
    for table in Table::ALL {
        fixture.put(table, vec![sparse(table).0]).await;
        assert_eq!(only(fixture, table).await, with_defaults(table), "{table:?}");
    }
    for table in Table::ALL {
        let mut row = object(full(table));
        row.retain(|column, _| !table.is_selector(column) || !table.key().contains(&column.as_str()));
        fixture.put(table, vec![Value::Object(row)]).await;
        for column in table.key().iter().filter(|column| table.is_selector(column)) {
            let rows = all(fixture, table).await;
            assert!(rows.iter().any(|row| text(row, column) == "*"), "{table:?}: {column}");
        }
    }
}

pub async fn a_row_is_replaced_by_its_key(fixture: &Fixture) {
    for table in Table::ALL {
        fixture.put(table, vec![full(table)]).await;
        fixture.put(table, vec![sparse(table).0]).await;
        assert_eq!(only(fixture, table).await, with_defaults(table), "{table:?}: absent means default");
        fixture.put(table, vec![sparse(table).0, full(table)]).await;
        assert_eq!(only(fixture, table).await, object(full(table)), "{table:?}: the last one counts");
    }
    let two_types = ["CUSTOMER", "RESTAURANT_USER"].map(|t| json!({ "user_type": t, "user_id": "50" }));
    fixture.put(Table::Recipients, two_types.to_vec()).await;
    assert_eq!(all(fixture, Table::Recipients).await.len(), 2);
}

pub async fn a_bad_row_undoes_the_whole_put(fixture: &Fixture) {
    let good = json!({ "event_type": "NEWS", "title": "News" });
    let bad = json!({ "event_type": "OTHER", "title": null });
    let refused = fixture.store.put_rows(Table::Templates, vec![object(good), object(bad)]).await;
    assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
    assert!(all(fixture, Table::Templates).await.is_empty());
}

pub async fn pages_cover_every_row_once(fixture: &Fixture) {
    let users = (0..7).flat_map(|n| ["CUSTOMER", "RESTAURANT_USER"].map(|t| (t, n.to_string())));
    let preference = |(user_type, user_id): (&str, String), channel: &str| {
        json!({ "user_type": user_type,
        "user_id": user_id, "channel": channel })
    };
    let rows = users.flat_map(|user| ["SMS", "EMAIL"].map(|channel| preference(user.clone(), channel)));
    let rows: Vec<Value> = rows.collect();
    fixture.put(Table::Preferences, rows.clone()).await;
    let whole = all(fixture, Table::Preferences).await;
    assert_eq!(whole.len(), rows.len());
    let key =
        |row: &JsonRow| Table::Preferences.key().iter().map(|c| text(row, c).to_owned()).collect::<Vec<_>>();
    assert!(whole.is_sorted_by_key(key), "in the order of the key");
    for limit in [1, 5, 27, 28, 29] {
        let mut paged = Vec::new();
        let mut after = None;
        loop {
            let page =
                list(fixture, Table::Preferences, RowFilter { after, limit, ..RowFilter::default() }).await;
            after = page.last().map(key);
            paged.extend(page);
            assert!(paged.len() <= whole.len(), "in pages of {limit}");
            if after.is_none() {
                break;
            }
        }
        assert_eq!(paged, whole, "in pages of {limit}");
    }
}

pub async fn rows_are_filtered(fixture: &Fixture) {
    let staff = |restaurant: &str, id: &str, role: &str, active: bool| {
        json!({
            "user_type": "RESTAURANT_USER", "user_id": id, "entity_type": "RESTAURANT", "entity_id": restaurant,
            "role": role,
            "active": active,
        })
    };
    let recipients = vec![
        staff("5", "1", "MANAGER", true),
        staff("5", "2", "WAITER", true),
        staff("6", "3", "WAITER", false),
        json!({ "user_type": "CUSTOMER", "user_id": "1" }),
    ];
    fixture.put(Table::Recipients, recipients).await;
    let found = async |columns: &[(&'static str, &str)], after: Option<[&str; 2]>| {
        let columns = columns.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        let after = after.map(|key| key.map(str::to_owned).to_vec());
        let rows = list(fixture, Table::Recipients, RowFilter { columns, after, limit: 10 }).await;
        rows.iter()
            .map(|row| format!("{} {}", text(row, "user_type"), text(row, "user_id")))
            .collect::<Vec<_>>()
    };
    let [one, two, three] = ["1", "2", "3"].map(|id| format!("RESTAURANT_USER {id}"));
    let five = [("entity_type", "RESTAURANT"), ("entity_id", "5")];
    assert_eq!(found(&five, None).await, [one.clone(), two.clone()]);
    assert_eq!(found(&five, Some(["RESTAURANT_USER", "1"])).await, std::slice::from_ref(&two));
    assert_eq!(found(&[("role", "WAITER")], None).await, [two, three.clone()]);
    assert_eq!(found(&[("active", "false")], None).await, [three]);
    assert_eq!(found(&[("active", "true"), ("user_type", "CUSTOMER")], None).await, ["CUSTOMER 1"]);
    assert_eq!(found(&[("user_id", "1")], None).await, ["CUSTOMER 1".to_owned(), one]);
    assert!(found(&[("role", "ADMIN")], None).await.is_empty());
    for table in Table::ALL {
        fixture.put(table, vec![full(table)]).await;
        for column in table.filters() {
            let value = match &full(table)[column] {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            let filter = RowFilter { columns: vec![(column, value)], limit: 100, ..RowFilter::default() };
            let rows = list(fixture, table, filter).await;
            assert!(rows.contains(&object(full(table))), "{table:?} by {column}");
        }
    }
}

pub async fn a_deleted_row_is_gone(fixture: &Fixture) {
    for table in Table::ALL {
        fixture.put(table, vec![full(table)]).await;
        let before = all(fixture, table).await.len();
        let row = object(full(table));
        let key = || table.key().iter().map(|column| text(&row, column).to_owned()).collect::<Vec<_>>();
        let mut other = key();
        "something else".clone_into(other.last_mut().expect("a key has columns"));
        assert!(!fixture.store.delete_row(table, other).await.expect("the key is good"), "{table:?}");
        assert!(fixture.store.delete_row(table, key()).await.expect("the key is good"), "{table:?}");
        assert!(!fixture.store.delete_row(table, key()).await.expect("the key is good"), "{table:?}");
        assert_eq!(all(fixture, table).await.len(), before - 1, "{table:?}");
    }
}
