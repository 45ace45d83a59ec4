//! Whom events concern: recipients in their order, with what decides about them, and the groups that they belong to. All
//! pages of a batch are asked for at once.

use std::collections::{BTreeSet, HashMap};

use campanile_domain::channel::Channel;
use campanile_domain::fan_out::{Page, Position};
use campanile_domain::id::{EntityId, EntityRef, EntityType, UserId, UserRef, UserTypeName};
use campanile_domain::recipient::{Candidate, DeadAddress, Group, Recipient};
use campanile_domain::row::{Preference, Selector, Setting};
use campanile_domain::rules::Reach;
use deadpool_postgres::Object;
use serde_json::Value;
use tokio_postgres::Row;

use super::{Params, prepare, query_prepared, read, statement};
use crate::{StoreError, Table};

/// One answer per page.
pub async fn candidates(client: &Object, pages: &[Page]) -> Result<Vec<Vec<Candidate>>, StoreError> {
    let recipients = recipients(client, pages).await?;
    with_their_rules(client, recipients).await
}

/// The pages of one kind of reach, as columns.
#[derive(Debug, Default)]
struct Asked<'a> {
    pages: Vec<i32>,
    user_types: Vec<&'a str>,
    entity_types: Vec<&'a str>,
    entity_ids: Vec<&'a str>,
    ranks: Vec<i32>,
    user_ids: Vec<&'a str>,
    /// Roles as a JSON array: arrays of arrays must be of one length.
    roles: Vec<Option<Value>>,
    limits: Vec<i64>,
}

impl<'a> Asked<'a> {
    fn add(
        &mut self,
        number: usize,
        page: &'a Page,
        entity: (&'a str, &'a str),
        rank: i64,
        user_id: &'a str,
    ) {
        self.pages.push(i32::try_from(number).unwrap_or(i32::MAX));
        self.user_types.push(page.reach.user_type().as_str());
        self.entity_types.push(entity.0);
        self.entity_ids.push(entity.1);
        self.ranks.push(i32::try_from(rank).unwrap_or(i32::MAX));
        self.user_ids.push(user_id);
        self.roles.push(page.roles.as_ref().map(|roles| serde_json::json!(roles)));
        self.limits.push(i64::try_from(page.limit).unwrap_or(i64::MAX));
    }

    async fn rows(&self, client: &Object, sql: &str) -> Result<Vec<Row>, StoreError> {
        if self.pages.is_empty() {
            return Ok(Vec::new());
        }
        let Asked { pages, user_types, entity_types, entity_ids, ranks, user_ids, roles, limits } = self;
        let [statement] = prepare(client, [sql]).await?;
        let params: Params = &[pages, user_types, entity_types, entity_ids, ranks, user_ids, roles, limits];
        query_prepared(client, &statement, params).await
    }
}

async fn recipients(client: &Object, pages: &[Page]) -> Result<Vec<Vec<Recipient>>, StoreError> {
    let start = Position { entity_id: String::new(), rank: -1, user_id: String::new() };
    let (mut users, mut members, mut everybody) = (Asked::default(), Asked::default(), Asked::default());
    for (number, page) in pages.iter().enumerate() {
        let after = page.after.as_ref().unwrap_or(&start);
        match &page.reach {
            Reach::User(_) if page.after.is_some() => {}
            Reach::User(user) => users.add(number, page, ("", ""), -1, user.user_id.as_str()),
            Reach::Entity { entity, .. } => {
                let entity = (entity.entity_type.as_str(), entity.entity_id.as_str());
                members.add(number, page, entity, after.rank, &after.user_id);
            }
            Reach::Everybody(_) => {
                everybody.add(number, page, ("", &after.entity_id), after.rank, &after.user_id);
            }
        }
    }
    let (users, members, everybody) = tokio::try_join!(
        biased;
        users.rows(client, statement::PAGE_USER),
        members.rows(client, statement::PAGE_ENTITY),
        everybody.rows(client, statement::PAGE_EVERYBODY),
    )?;
    let mut found: Vec<Vec<Recipient>> = pages.iter().map(|_| Vec::new()).collect();
    for row in users.iter().chain(&members).chain(&everybody) {
        let page = usize::try_from(read::get::<i32>(row, "page")?).unwrap_or_default();
        found.get_mut(page).into_iter().try_for_each(|page| {
            page.push(recipient(row)?);
            Ok::<_, StoreError>(())
        })?;
    }
    for page in &mut found {
        page.sort_by_cached_key(|recipient| {
            let Position { entity_id, rank, user_id } = Position::of(recipient);
            (entity_id, rank, user_id)
        });
    }
    Ok(found)
}

/// Read leniently: what somebody wrote by hand into one row must not fail an event for everybody. Nobody is left out, either,
/// because a page with a gap would be taken for the last one.
fn recipient(row: &Row) -> Result<Recipient, StoreError> {
    let (user_type, user_id): (String, String) = (read::get(row, "user_type")?, read::get(row, "user_id")?);
    // The value is not logged: it may be an address.
    let unusable = |column: &str| {
        tracing::error!(table = "recipient", user_type, user_id, column, "unusable, and taken for empty");
    };
    let text = |column: &str| {
        let text: Result<Option<String>, _> = row.try_get(column);
        text.inspect_err(|_| unusable(column)).ok().flatten()
    };
    let time_zone =
        text("time_zone").and_then(|name| name.parse().inspect_err(|_: &String| unusable("time_zone")).ok());
    let push_tokens = text("push_tokens")
        .and_then(|json| serde_json::from_str(&json).inspect_err(|_| unusable("push_tokens")).ok());
    Ok(Recipient {
        entity_type: text("entity_type").map(EntityType::stored),
        entity_id: text("entity_id").map(EntityId::stored),
        role: text("role"),
        name: text("name"),
        email: text("email"),
        phone: text("phone"),
        push_tokens: push_tokens.unwrap_or_default(),
        slack_webhook: text("slack_webhook"),
        locale: text("locale"),
        time_zone,
        active: true,
        user_type: UserTypeName::stored(user_type),
        user_id: UserId::stored(user_id),
    })
}

fn usable<T: serde::de::DeserializeOwned>(table: Table, rows: &[Row]) -> Result<Vec<T>, StoreError> {
    let description = table.description();
    read::usable(description.table, description.key, rows)
}

/// Preferences and dead addresses of all pages in one go.
async fn with_their_rules(
    client: &Object,
    pages: Vec<Vec<Recipient>>,
) -> Result<Vec<Vec<Candidate>>, StoreError> {
    // Somebody may be on two pages, and an address may be of two people: each is looked up once.
    let everybody = || pages.iter().flatten();
    let users: BTreeSet<_> = everybody().map(|r| (r.user_type.as_str(), r.user_id.as_str())).collect();
    let (user_types, user_ids): (Vec<&str>, Vec<&str>) = users.into_iter().unzip();
    let addresses: BTreeSet<_> = everybody().flat_map(addresses_of).map(|(c, a)| (c.as_str(), a)).collect();
    let (channels, addresses): (Vec<&str>, Vec<&str>) = addresses.into_iter().unzip();
    let [preferences_of, dead_addresses_of] =
        prepare(client, [statement::PREFERENCES_OF, statement::DEAD_ADDRESSES_OF]).await?;
    let (users, addresses): (Params, Params) = (&[&user_types, &user_ids], &[&channels, &addresses]);
    let (preference_rows, dead_rows) = tokio::try_join!(
        biased;
        query_prepared(client, &preferences_of, users),
        query_prepared(client, &dead_addresses_of, addresses),
    )?;
    let mut preferences: HashMap<UserRef, Vec<Preference>> = HashMap::new();
    for preference in usable::<Preference>(Table::Preferences, &preference_rows)? {
        let user = UserRef { user_type: preference.user_type.clone(), user_id: preference.user_id.clone() };
        preferences.entry(user).or_default().push(preference);
    }
    let dead: Vec<DeadAddress> = read::usable("dead_address", &["channel"], &dead_rows)?;
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

pub async fn groups(
    client: &Object,
    entities: &[EntityRef],
) -> Result<HashMap<EntityRef, Group>, StoreError> {
    let keys: BTreeSet<_> = entities.iter().map(|e| (e.entity_type.as_str(), e.entity_id.as_str())).collect();
    let (types, ids): (Vec<&str>, Vec<&str>) = keys.into_iter().unzip();
    let [kinds, settings] = prepare(client, [statement::GROUPS, statement::GROUP_SETTINGS]).await?;
    let entities: Params = &[&types, &ids];
    let (kinds, settings) = tokio::try_join!(biased; query_prepared(client, &kinds, entities), query_prepared(client, &settings, entities))?;
    let mut groups: HashMap<EntityRef, Group> = HashMap::new();
    for row in &kinds {
        if let Some(entity) = read::entity_of(row)? {
            groups.entry(entity).or_default().kind = read::get(row, "kind")?;
        }
    }
    for setting in usable::<Setting>(Table::Settings, &settings)? {
        if let Selector::Only(entity_id) = &setting.entity_id {
            let entity = EntityRef { entity_type: setting.entity_type.clone(), entity_id: entity_id.clone() };
            groups.entry(entity).or_default().settings.push(setting);
        }
    }
    Ok(groups)
}
