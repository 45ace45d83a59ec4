//! Checks access to the tables that operators write.

use campanile_domain::access::audit::Actor;
use campanile_domain::rules::row::Preference;
use serde_json::{Value, json};

use super::Fixture;
use super::setup::table_row;
use crate::{RowFilter, RowPage, Shown, StoreError, Table, TableRow};

async fn list(fixture: &Fixture, table: Table, filter: RowFilter) -> RowPage {
    fixture.store.list_rows(table, filter).await.expect("the filter is good")
}

async fn all(fixture: &Fixture, table: Table) -> Vec<Shown<TableRow>> {
    list(fixture, table, RowFilter { limit: 1_000, ..RowFilter::default() }).await.items
}

/// Returns the only row, not counting the default routes.
async fn only(fixture: &Fixture, table: Table) -> Shown<TableRow> {
    let mut rows = all(fixture, table).await;
    rows.retain(|row| !matches!(row.typed(), Some(TableRow::Route(route)) if route.event_type.is_any()));
    assert_eq!(rows.len(), 1, "{rows:?}");
    rows.remove(0)
}

/// A row of each table with a value in every column.
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
            "quiet_hours_mode": "SUPPRESS",
        }),
        Table::Settings => json!({
            "entity_type": "RESTAURANT", "entity_id": "5", "kind": "*", "channel": "SMS", "event_type": "NEWS",
            "enabled": false, "max_recipients": 3, "min_priority": "HIGH", "roles": ["MANAGER", "CHEF"],
            "quiet_hours_start": "22:00",
            "quiet_hours_end": "08:00", "quiet_hours_mode": "SUPPRESS",
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

/// A row with only the columns that have no default, and the same row with all defaults.
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

fn full_row(table: Table) -> TableRow {
    table_row(table, &full(table))
}

fn with_defaults(table: Table) -> TableRow {
    let (mut row, defaults) = sparse(table);
    for (column, default) in defaults.as_object().expect("defaults are an object") {
        row[column] = default.clone();
    }
    table_row(table, &row)
}

pub async fn rows_come_back_as_they_were_written(fixture: &Fixture) {
    for table in Table::ALL {
        fixture.put(table, vec![full(table)]).await;
        let stored = only(fixture, table).await;
        assert_eq!(stored, full_row(table), "{table:?}");
        assert_eq!(json!(stored), full(table), "{table:?}: all columns are shown");
    }
}

pub async fn what_a_row_does_not_name_has_its_default(fixture: &Fixture) {
    for table in Table::ALL {
        fixture.put(table, vec![sparse(table).0]).await;
        assert_eq!(only(fixture, table).await, with_defaults(table), "{table:?}");
    }
    for table in Table::ALL {
        let selectors: Vec<_> = table.key().iter().filter(|column| table.is_selector(column)).collect();
        let mut row = full(table);
        let columns = row.as_object_mut().expect("a row is an object");
        columns.retain(|column, _| !selectors.iter().any(|selector| *selector == column));
        fixture.put(table, vec![row]).await;
        for column in selectors {
            let rows = json!(all(fixture, table).await);
            let mut rows = rows.as_array().into_iter().flatten();
            assert!(rows.any(|row| row[*column] == "*"), "{table:?}: {column}");
        }
    }
}

pub async fn a_row_is_replaced_by_its_key(fixture: &Fixture) {
    for table in Table::ALL {
        fixture.put(table, vec![full(table)]).await;
        fixture.put(table, vec![sparse(table).0]).await;
        assert_eq!(only(fixture, table).await, with_defaults(table), "{table:?}: absent means default");
        fixture.put(table, vec![sparse(table).0, full(table)]).await;
        assert_eq!(only(fixture, table).await, full_row(table), "{table:?}: the last one counts");
    }
    let two_types = ["CUSTOMER", "RESTAURANT_USER"].map(|t| json!({ "user_type": t, "user_id": "50" }));
    fixture.put(Table::Recipients, two_types.to_vec()).await;
    assert_eq!(all(fixture, Table::Recipients).await.len(), 2);
}

pub async fn a_bad_row_undoes_the_whole_put(fixture: &Fixture) {
    // Every typed row fits its table, so only this index makes the database refuse one.
    fixture.execute("CREATE UNIQUE INDEX one_title ON template (title)").await;
    let [good, bad] =
        ["NEWS", "OTHER"].map(|event_type| json!({ "event_type": event_type, "title": "Same title" }));
    let rows = [good, bad].map(|row| table_row(Table::Templates, &row)).to_vec();
    let refused = fixture.store.put_rows(Table::Templates, rows, Some(&Actor::AdminKey)).await;
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
    let key = |row: &Shown<TableRow>| match row.typed() {
        Some(TableRow::Preference(Preference { user_type, user_id, channel, event_type, .. })) => {
            [user_type.to_string(), user_id.to_string(), channel.to_string(), event_type.to_string()]
        }
        other => panic!("{other:?} is no preference"),
    };
    assert!(whole.is_sorted_by_key(key), "in the order of the key");
    for limit in [1, 5, 27, 28, 29] {
        let mut paged = Vec::new();
        let mut after = None;
        loop {
            let page =
                list(fixture, Table::Preferences, RowFilter { after, limit, ..RowFilter::default() }).await;
            paged.extend(page.items);
            after = page.next;
            assert!(
                after.is_none() || after.as_deref() == paged.last().map(key).as_ref().map(|key| &key[..])
            );
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
        let name = |row: &Shown<TableRow>| match row.typed() {
            Some(TableRow::Recipient(recipient)) => format!("{} {}", recipient.user_type, recipient.user_id),
            other => panic!("{other:?} is no recipient"),
        };
        rows.items.iter().map(name).collect::<Vec<_>>()
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
            assert!(rows.items.iter().any(|row| *row == full_row(table)), "{table:?} by {column}");
        }
    }
}

pub async fn a_deleted_row_is_gone(fixture: &Fixture) {
    for table in Table::ALL {
        fixture.put(table, vec![full(table)]).await;
        let before = all(fixture, table).await.len();
        let row = full(table);
        let text = |column: &&str| row[*column].as_str().expect("keys are texts").to_owned();
        let key = || table.key().iter().map(text).collect::<Vec<_>>();
        let mut other = key();
        "something else".clone_into(other.last_mut().expect("a key has columns"));
        assert!(
            !fixture.store.delete_row(table, other, &Actor::AdminKey).await.expect("the key is good"),
            "{table:?}"
        );
        assert!(
            fixture.store.delete_row(table, key(), &Actor::AdminKey).await.expect("the key is good"),
            "{table:?}"
        );
        assert!(
            !fixture.store.delete_row(table, key(), &Actor::AdminKey).await.expect("the key is good"),
            "{table:?}"
        );
        assert_eq!(all(fixture, table).await.len(), before - 1, "{table:?}");
    }
}

pub async fn a_row_that_somebody_damaged_is_listed_as_it_is(fixture: &Fixture) {
    for user_id in ["41", "42"] {
        let row = json!({ "user_type": "CUSTOMER", "user_id": user_id, "channel": "SMS" });
        fixture.put(Table::Preferences, vec![row]).await;
    }
    fixture.execute("UPDATE user_notification_preferences SET channel = 'FAX' WHERE user_id = '41'").await;
    let rows = all(fixture, Table::Preferences).await;
    assert!(rows[0].typed().is_none() && rows[1].typed().is_some(), "{rows:?}");
    assert_eq!((&json!(rows[0])["user_id"], &json!(rows[0])["channel"]), (&json!("41"), &json!("FAX")));
}

pub async fn rows_of_another_table_are_refused(fixture: &Fixture) {
    let refused = fixture
        .store
        .put_rows(Table::Recipients, vec![full_row(Table::Entities)], Some(&Actor::AdminKey))
        .await;
    assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
}
