//! Reads audiences: recipients in order, the data that decides what they get, and the groups that they belong to. All
//! pages of a batch are requested at once.

use std::collections::{BTreeSet, HashMap};

use async_trait::async_trait;
use campanile_domain::fan_out::{Page, Position};
use campanile_domain::id::EntityRef;
use campanile_domain::people::recipient::{Candidate, DeadAddress, Group, Recipient};
use campanile_domain::rules::Reach;
use campanile_domain::time::Timestamp;
use deadpool_postgres::Object;
use serde_json::Value;
use tokio_postgres::Row;

use super::transaction::Transaction;
use super::{Params, Postgres, prepare, query_prepared, read, statement};
use crate::audience;
use crate::decode;
use crate::{AudienceReader, AudienceStore, StoreError, Table};

#[async_trait]
impl AudienceStore for Postgres {
    async fn read_audience(&self) -> Result<Box<dyn AudienceReader>, StoreError> {
        let transaction = self.begin().await?;
        let now = read::get(read::only_row(&transaction.query(statement::NOW, &[]).await?)?, "now")?;
        Ok(Box::new(PostgresAudience { transaction, now }))
    }
}

/// A transaction for its time limits. Each statement sees what is committed by then.
#[derive(Debug)]
struct PostgresAudience {
    transaction: Transaction,
    now: Timestamp,
}

#[async_trait]
impl AudienceReader for PostgresAudience {
    fn now(&self) -> Timestamp {
        self.now
    }

    async fn candidates(&mut self, pages: Vec<Page>) -> Result<Vec<Vec<Candidate>>, StoreError> {
        candidates(&self.transaction, &pages).await
    }

    async fn groups(&mut self, entities: Vec<EntityRef>) -> Result<HashMap<EntityRef, Group>, StoreError> {
        groups(&self.transaction, &entities).await
    }
}

/// One answer per page.
pub async fn candidates(client: &Object, pages: &[Page]) -> Result<Vec<Vec<Candidate>>, StoreError> {
    let found = recipients(client, pages).await?;
    with_preferences(client, pages, found).await
}

/// The pages of one kind of reach, as columns.
#[derive(Debug, Default)]
struct PageColumns<'a> {
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

impl<'a> PageColumns<'a> {
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
        let PageColumns { pages, user_types, entity_types, entity_ids, ranks, user_ids, roles, limits } =
            self;
        let [statement] = prepare(client, [sql]).await?;
        let params: Params = &[pages, user_types, entity_types, entity_ids, ranks, user_ids, roles, limits];
        query_prepared(client, &statement, params).await
    }
}

pub async fn recipients(client: &Object, pages: &[Page]) -> Result<Vec<Vec<Recipient>>, StoreError> {
    let start = Position { entity_id: String::new(), rank: -1, user_id: String::new() };
    let (mut users, mut members, mut everybody) =
        (PageColumns::default(), PageColumns::default(), PageColumns::default());
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
            page.push(audience::recipient(row)?);
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

fn valid_rows<T: serde::de::DeserializeOwned>(table: Table, rows: &[Row]) -> Result<Vec<T>, StoreError> {
    let description = table.description();
    read::valid_rows(description.table, description.key, rows)
}

/// Preferences and dead addresses of all pages in one go.
async fn with_preferences(
    client: &Object,
    pages: &[Page],
    found: Vec<Vec<Recipient>>,
) -> Result<Vec<Vec<Candidate>>, StoreError> {
    // Somebody may be on two pages, and an address may be of two people: each is looked up once.
    let users = audience::users(&found).into_iter().map(|(user_type, id)| (user_type.as_str(), id.as_str()));
    let (user_types, user_ids): (Vec<&str>, Vec<&str>) = users.unzip();
    let addresses = audience::addresses(pages, &found).into_iter().map(|(c, a)| (c.as_str(), a));
    let (channels, addresses): (Vec<&str>, Vec<&str>) = addresses.unzip();
    let [preferences_of, dead_addresses_of] =
        prepare(client, [statement::PREFERENCES_OF, statement::DEAD_ADDRESSES]).await?;
    let (users, addresses): (Params, Params) = (&[&user_types, &user_ids], &[&channels, &addresses]);
    let (preference_rows, dead_rows) = tokio::try_join!(
        biased;
        query_prepared(client, &preferences_of, users),
        query_prepared(client, &dead_addresses_of, addresses),
    )?;
    let dead = read::valid_rows::<DeadAddress>("dead_address", &["channel"], &dead_rows)?;
    Ok(audience::candidates(pages, found, &valid_rows(Table::Preferences, &preference_rows)?, &dead))
}

pub async fn groups(
    client: &Object,
    entities: &[EntityRef],
) -> Result<HashMap<EntityRef, Group>, StoreError> {
    let keys: BTreeSet<_> = entities.iter().map(|e| (e.entity_type.as_str(), e.entity_id.as_str())).collect();
    let (types, ids): (Vec<&str>, Vec<&str>) = keys.into_iter().unzip();
    let [kinds, settings] = prepare(client, [statement::GROUPS, statement::GROUP_SETTINGS]).await?;
    let entities: Params = &[&types, &ids];
    let (kinds, settings) = tokio::try_join!(biased; query_prepared(client, &kinds, entities), query_prepared(client,
        &settings, entities))?;
    let mut of_entities = Vec::with_capacity(kinds.len());
    for row in &kinds {
        if let Some(entity) = decode::entity_of(row)? {
            of_entities.push((entity, read::get(row, "kind")?));
        }
    }
    Ok(audience::groups(of_entities, valid_rows(Table::Settings, &settings)?))
}
