//! Whom events concern: recipients in their order, with what decides about them, and the groups that they belong to.

use std::collections::{BTreeSet, HashMap};

use campanile_domain::channel::Channel;
use campanile_domain::fan_out::{Page, Position};
use campanile_domain::id::{EntityId, EntityRef, EntityType, UserId, UserRef, UserTypeName};
use campanile_domain::recipient::{Candidate, DeadAddress, Group, Recipient};
use campanile_domain::row::{Preference, Selector, Setting};
use campanile_domain::rules::Reach;
use rusqlite::{Connection, Row, named_params};
use serde_json::json;

use super::{read, statement};
use crate::{StoreError, Table};

/// One answer per page.
pub fn candidates(connection: &Connection, pages: &[Page]) -> Result<Vec<Vec<Candidate>>, StoreError> {
    let recipients = pages.iter().map(|page| recipients(connection, page)).collect::<Result<Vec<_>, _>>()?;
    with_their_rules(connection, recipients)
}

fn recipients(connection: &Connection, page: &Page) -> Result<Vec<Recipient>, StoreError> {
    let start = Position { entity_id: String::new(), rank: -1, user_id: String::new() };
    let after = page.after.as_ref().unwrap_or(&start);
    let roles = page.roles.as_ref().map(|roles| json!(roles).to_string());
    let user_type = page.reach.user_type().as_str();
    match &page.reach {
        Reach::User(_) if page.after.is_some() => Ok(Vec::new()),
        Reach::User(user) => {
            let params =
                named_params! { ":user_type": user_type, ":user_id": user.user_id.as_str(), ":roles": roles };
            read::all(connection, statement::PAGE_USER, params, recipient)
        }
        Reach::Entity { entity, .. } => {
            let params = named_params! {
                ":user_type": user_type, ":entity_id": entity.entity_id.as_str(),
                ":entity_type": entity.entity_type.as_str(), ":rank": after.rank, ":user_id": after.user_id,
                ":roles": roles, ":limit": page.limit,
            };
            read::all(connection, statement::PAGE_ENTITY, params, recipient)
        }
        Reach::Everybody(_) => {
            let params = named_params! {
                ":user_type": user_type, ":entity_id": after.entity_id, ":rank": after.rank, ":user_id": after.user_id,
                ":roles": roles, ":limit": page.limit,
            };
            read::all(connection, statement::PAGE_EVERYBODY, params, recipient)
        }
    }
}

/// Read leniently: what somebody wrote by hand into one row must not fail an event for everybody. Nobody is left out, either,
/// because a page with a gap would be taken for the last one.
fn recipient(row: &Row) -> Result<Recipient, StoreError> {
    let entity_type = read::maybe_lossy(row, "entity_type")?.map(EntityType::stored);
    let entity_id = read::maybe_lossy(row, "entity_id")?.map(EntityId::stored);
    let (user_type, user_id) = (read::lossy(row, "user_type")?, read::lossy(row, "user_id")?);
    // The value is not logged: it may be an address.
    let unusable = |column: &str| {
        tracing::error!(table = "recipient", user_type, user_id, column, "unusable, and taken for empty");
    };
    let text = |column: &str| {
        let text: Result<Option<String>, _> = row.get(column);
        text.inspect_err(|_| unusable(column)).ok().flatten()
    };
    let time_zone =
        text("time_zone").and_then(|name| name.parse().inspect_err(|_: &String| unusable("time_zone")).ok());
    let push_tokens = text("push_tokens")
        .and_then(|json| serde_json::from_str(&json).inspect_err(|_| unusable("push_tokens")).ok());
    Ok(Recipient {
        entity_type,
        entity_id,
        role: text("role"),
        name: text("name"),
        email: text("email"),
        phone: text("phone"),
        push_tokens: push_tokens.unwrap_or_default(),
        slack_webhook: text("slack_webhook"),
        locale: text("locale"),
        time_zone,
        active: row.get("active")?,
        user_type: UserTypeName::stored(user_type),
        user_id: UserId::stored(user_id),
    })
}

fn named(table: Table) -> (&'static str, &'static [&'static str]) {
    let description = table.description();
    (description.table, description.key)
}

/// Preferences and dead addresses of all pages in one go each.
fn with_their_rules(
    connection: &Connection,
    pages: Vec<Vec<Recipient>>,
) -> Result<Vec<Vec<Candidate>>, StoreError> {
    // Somebody may be on two pages, and an address may be of two people: each is looked up once.
    let everybody = || pages.iter().flatten();
    let users: BTreeSet<_> = everybody().map(|r| (&r.user_type, &r.user_id)).collect();
    let mut preferences: HashMap<UserRef, Vec<Preference>> = HashMap::new();
    let params = named_params! { ":users": json!(users).to_string() };
    let (table, key) = named(Table::Preferences);
    for preference in read::usable::<Preference>(connection, table, key, statement::PREFERENCES_OF, params)? {
        let user = UserRef { user_type: preference.user_type.clone(), user_id: preference.user_id.clone() };
        preferences.entry(user).or_default().push(preference);
    }
    let addresses: BTreeSet<_> = everybody().flat_map(addresses_of).collect();
    let params = named_params! { ":addresses": json!(addresses).to_string() };
    let dead: Vec<DeadAddress> =
        read::usable(connection, "dead_address", &["channel"], statement::DEAD_ADDRESSES_OF, params)?;
    let dead: HashMap<_, _> = dead.iter().map(|d| ((d.channel, d.address.as_str()), d)).collect();
    let candidate = |recipient: Recipient| Candidate {
        preferences: preferences.get(&recipient.user()).cloned().unwrap_or_default(),
        dead_addresses: addresses_of(&recipient).filter_map(|a| dead.get(&a).copied().cloned()).collect(),
        recipient,
    };
    Ok(pages.into_iter().map(|page| page.into_iter().map(&candidate).collect()).collect())
}

fn addresses_of(recipient: &Recipient) -> impl Iterator<Item = (Channel, &str)> {
    Channel::ALL.into_iter().flat_map(|c| recipient.addresses(c).into_iter().map(move |a| (c, a)))
}

pub fn groups(
    connection: &Connection,
    entities: &[EntityRef],
) -> Result<HashMap<EntityRef, Group>, StoreError> {
    let keys: BTreeSet<_> = entities.iter().map(|e| (&e.entity_type, &e.entity_id)).collect();
    let keys = json!(keys).to_string();
    let mut groups: HashMap<EntityRef, Group> = HashMap::new();
    read::all(connection, statement::GROUPS, named_params! { ":entities": keys }, |row| {
        let entity = EntityRef {
            entity_type: EntityType::stored(row.get::<_, String>("entity_type")?),
            entity_id: EntityId::stored(row.get::<_, String>("entity_id")?),
        };
        groups.entry(entity).or_default().kind = read::maybe_lossy(row, "kind")?;
        Ok(())
    })?;
    let params = named_params! { ":entities": keys };
    let (table, key) = named(Table::Settings);
    for setting in read::usable::<Setting>(connection, table, key, statement::GROUP_SETTINGS, params)? {
        if let Selector::Only(entity_id) = &setting.entity_id {
            let entity = EntityRef { entity_type: setting.entity_type.clone(), entity_id: entity_id.clone() };
            groups.entry(entity).or_default().settings.push(setting);
        }
    }
    Ok(groups)
}
