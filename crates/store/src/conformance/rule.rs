//! Checks the rules that engines keep in memory, and the version that shows when the rules have changed.

use campanile_domain::access::audit::Actor;
use campanile_domain::channel::Channel;
use campanile_domain::rules::row::{Audience, Route, Selector, Setting, Template};
use serde_json::{Value, json};

use super::Fixture;
use crate::Table;

async fn version(fixture: &Fixture) -> i64 {
    fixture.store.rule_version().await.expect("the database is there")
}

/// A row of each table of rules, a changed version of it, and its key.
fn rules() -> [(Table, Value, Value, Vec<&'static str>); 4] {
    let audience = |scope: &str| {
        json!({ "event_type": "NEWS", "name": "all", "recipient_type": "CUSTOMER",
        "scope": scope })
    };
    let route = |mandatory: bool| json!({ "event_type": "NEWS", "channel": "SMS", "mandatory": mandatory });
    let template = |title: &str| json!({ "event_type": "NEWS", "title": title });
    let setting =
        |enabled: bool| json!({ "entity_type": "RESTAURANT", "channel": "SMS", "enabled": enabled });
    [
        (Table::Audiences, audience("TEAM"), audience("PERSONAL"), vec!["NEWS", "all"]),
        (Table::Routing, route(true), route(false), vec!["NEWS", "SMS"]),
        (Table::Templates, template("News"), template("Old news"), vec!["NEWS", "*", "*"]),
        (Table::Settings, setting(true), setting(false), vec!["RESTAURANT", "*", "*", "SMS", "*"]),
    ]
}

pub async fn the_version_rises_with_every_change_of_a_rule(fixture: &Fixture) {
    let mut last = version(fixture).await;
    let mut risen = async |what: &str, table: Table| {
        let now = version(fixture).await;
        assert!(now > last, "{what} of {table:?}");
        last = now;
    };
    for (table, row, changed, key) in rules() {
        fixture.put(table, vec![row]).await;
        risen("insert", table).await;
        fixture.put(table, vec![changed]).await;
        risen("change", table).await;
        let key = key.into_iter().map(str::to_owned).collect();
        assert!(fixture.store.delete_row(table, key, &Actor::AdminKey).await.expect("the key is good"));
        risen("delete", table).await;
    }
    fixture.execute("UPDATE event_type_channel_routing SET priority = 'LOW' WHERE channel = 'SMS'").await;
    risen("change by hand", Table::Routing).await;
}

pub async fn the_version_stays_when_no_rule_changes(fixture: &Fixture) {
    let before = version(fixture).await;
    let own_setting = json!({ "entity_type": "RESTAURANT", "entity_id": "5", "channel": "SMS" });
    for _ in 0..2 {
        fixture.put(Table::Recipients, vec![json!({ "user_type": "CUSTOMER", "user_id": "42" })]).await;
        fixture.put(Table::Entities, vec![json!({ "entity_type": "RESTAURANT", "entity_id": "5" })]).await;
        let preference = json!({ "user_type": "CUSTOMER", "user_id": "42", "channel": "SMS" });
        fixture.put(Table::Preferences, vec![preference]).await;
        fixture.put(Table::Settings, vec![own_setting.clone()]).await;
    }
    let own_key = ["RESTAURANT", "5", "*", "SMS", "*"].map(str::to_owned).to_vec();
    assert!(
        fixture.store.delete_row(Table::Settings, own_key, &Actor::AdminKey).await.expect("the key is good")
    );
    assert_eq!(version(fixture).await, before);
}

pub async fn rules_come_back_as_they_were_written(fixture: &Fixture) {
    let audience = json!({
        "event_type": "NEWS", "name": "staff", "recipient_type": "RESTAURANT_USER",
        "entity_path": "/payload/restaurantId",
        "roles": ["CHEF"], "scope": "TEAM", "shared_read": true, "when": "payload.total > 100",
    });
    let route = json!({ "event_type": "NEWS", "channel": "SLACK", "mandatory": true, "priority": "LOW",
        "min_priority": "LOW" });
    let template =
        json!({ "event_type": "NEWS", "channel": "EMAIL", "locale": "it", "title": "Novità", "html": "<p>" });
    let of_kind = json!({
        "entity_type": "RESTAURANT", "kind": "PIZZERIA", "channel": "SMS", "roles": ["MANAGER"], "max_recipients": 2,
        "min_priority": "NORMAL",
        "quiet_hours_start": "22:00", "quiet_hours_end": "08:00", "quiet_hours_mode": "SUPPRESS",
    });
    let own = json!({ "entity_type": "RESTAURANT", "entity_id": "5", "channel": "SMS" });
    fixture.put(Table::Audiences, vec![audience.clone()]).await;
    fixture.put(Table::Routing, vec![route.clone()]).await;
    fixture.put(Table::Templates, vec![template.clone()]).await;
    fixture.put(Table::Settings, vec![of_kind.clone(), own]).await;
    let rules = fixture.store.rule_rows().await.expect("the database is there");
    let good = "the row is good";
    assert_eq!(rules.audiences, [serde_json::from_value::<Audience>(audience).expect(good)]);
    assert!(rules.routing.contains(&serde_json::from_value::<Route>(route).expect(good)));
    assert_eq!(rules.templates, [serde_json::from_value::<Template>(template).expect(good)]);
    assert_eq!(rules.default_settings, [serde_json::from_value::<Setting>(of_kind).expect(good)]);
}

pub async fn default_routes_are_there_from_the_start(fixture: &Fixture) {
    let rules = fixture.store.rule_rows().await.expect("the database is there");
    assert!(rules.routing.iter().all(|route| route.event_type == Selector::Any && route.priority.is_none()));
    let mut routes: Vec<_> = rules.routing.iter().map(|route| (route.channel, route.mandatory)).collect();
    routes.sort_unstable();
    let expected =
        [(Channel::Email, false), (Channel::Push, false), (Channel::Sms, false), (Channel::Websocket, true)];
    assert_eq!(routes, expected);
    assert!(rules.audiences.is_empty() && rules.templates.is_empty() && rules.default_settings.is_empty());
}

pub async fn a_rule_that_can_not_be_used_does_not_hide_the_others(fixture: &Fixture) {
    let setting = |channel: &str| json!({ "entity_type": "RESTAURANT", "channel": channel });
    fixture.put(Table::Settings, vec![setting("SMS"), setting("EMAIL")]).await;
    fixture.execute("UPDATE entity_notification_settings SET channel = 'FAX' WHERE channel = 'SMS'").await;
    fixture.execute("UPDATE event_type_channel_routing SET channel = 'FAX' WHERE channel = 'SMS'").await;
    fixture
        .execute("UPDATE event_type_channel_routing SET min_priority = 'URGENT' WHERE channel = 'PUSH'")
        .await;
    let rules = fixture.store.rule_rows().await.expect("the rest can be used");
    assert_eq!(rules.default_settings.len(), 1);
    assert_eq!(rules.default_settings[0].channel, Channel::Email);
    assert_eq!(rules.routing.len(), 2);
}
