//! Reads audiences: recipients in order, the data that decides what they get, and the groups that they belong to.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};

use async_trait::async_trait;
use campanile_domain::fan_out::{Page, Position};
use campanile_domain::id::{EntityId, EntityRef, EntityType};
use campanile_domain::people::recipient::{Candidate, DeadAddress, Group, Recipient};
use campanile_domain::rules::Reach;
use campanile_domain::time::Timestamp;
use rusqlite::named_params;
use serde_json::json;

use super::session::Session;
use super::{Sqlite, read, statement};
use crate::audience;
use crate::columns::Columns;
use crate::{AudienceReader, AudienceStore, StoreError, Table};

#[async_trait]
impl AudienceStore for Sqlite {
    async fn read_audience(&self) -> Result<Box<dyn AudienceReader>, StoreError> {
        Ok(Box::new(SqliteAudience { store: self.clone(), now: self.clock() }))
    }
}

#[derive(Debug)]
struct SqliteAudience {
    store: Sqlite,
    now: Timestamp,
}

#[async_trait]
impl AudienceReader for SqliteAudience {
    fn now(&self) -> Timestamp {
        self.now
    }

    async fn candidates(&mut self, pages: Vec<Page>) -> Result<Vec<Vec<Candidate>>, StoreError> {
        self.store.read(move |session| candidates(session, &pages)).await
    }

    async fn groups(&mut self, entities: Vec<EntityRef>) -> Result<HashMap<EntityRef, Group>, StoreError> {
        self.store.read(move |session| groups(session, &entities)).await
    }
}

/// One answer per page.
pub fn candidates(session: &Session, pages: &[Page]) -> Result<Vec<Vec<Candidate>>, StoreError> {
    let found = pages.iter().map(|page| recipients(session, page)).collect::<Result<Vec<_>, _>>()?;
    with_their_rules(session, pages, found)
}

pub fn recipients(session: &Session, page: &Page) -> Result<Vec<Recipient>, StoreError> {
    let start = Position { entity_id: String::new(), rank: -1, user_id: String::new() };
    let after = page.after.as_ref().unwrap_or(&start);
    let roles = page.roles.as_ref().map(|roles| json!(roles).to_string());
    let user_type = page.reach.user_type().as_str();
    match &page.reach {
        Reach::User(_) if page.after.is_some() => Ok(Vec::new()),
        Reach::User(user) => {
            let params =
                named_params! { ":user_type": user_type, ":user_id": user.user_id.as_str(), ":roles": roles };
            session.all(statement::PAGE_USER, params, |row| audience::recipient(row))
        }
        Reach::Entity { entity, .. } => {
            let params = named_params! {
                ":user_type": user_type, ":entity_id": entity.entity_id.as_str(),
                ":entity_type": entity.entity_type.as_str(), ":rank": after.rank, ":user_id": after.user_id,
                ":roles": roles, ":limit": page.limit,
            };
            session.all(statement::PAGE_ENTITY, params, |row| audience::recipient(row))
        }
        Reach::Everybody(_) => {
            let params = named_params! {
                ":user_type": user_type, ":entity_id": after.entity_id, ":rank": after.rank, ":user_id": after.user_id,
                ":roles": roles, ":limit": page.limit,
            };
            session.all(statement::PAGE_EVERYBODY, params, |row| audience::recipient(row))
        }
    }
}

fn named(table: Table) -> (&'static str, &'static [&'static str]) {
    let description = table.description();
    (description.table, description.key)
}

/// Preferences and dead addresses of all pages in one go each.
fn with_their_rules(
    session: &Session,
    pages: &[Page],
    found: Vec<Vec<Recipient>>,
) -> Result<Vec<Vec<Candidate>>, StoreError> {
    // Somebody may be on two pages, and an address may be of two people: each is looked up once.
    let params = named_params! { ":users": json!(audience::users(&found)).to_string() };
    let (table, key) = named(Table::Preferences);
    let preferences = read::valid_rows(session, table, key, statement::PREFERENCES_OF, params)?;
    let params = named_params! { ":addresses": json!(audience::addresses(pages, &found)).to_string() };
    let dead: Vec<DeadAddress> =
        read::valid_rows(session, "dead_address", &["channel"], statement::DEAD_ADDRESSES, params)?;
    Ok(audience::candidates(pages, found, &preferences, &dead))
}

pub fn groups(session: &Session, entities: &[EntityRef]) -> Result<HashMap<EntityRef, Group>, StoreError> {
    let keys: BTreeSet<_> = entities.iter().map(|e| (&e.entity_type, &e.entity_id)).collect();
    let keys = json!(keys).to_string();
    let kinds = session.all(statement::GROUPS, named_params! { ":entities": keys }, |row| {
        let entity = EntityRef {
            entity_type: EntityType::stored(row.get::<_, String>("entity_type")?),
            entity_id: EntityId::stored(row.get::<_, String>("entity_id")?),
        };
        Ok((entity, row.maybe_lossy("kind")?.map(Cow::into_owned)))
    })?;
    let params = named_params! { ":entities": keys };
    let (table, key) = named(Table::Settings);
    let settings = read::valid_rows(session, table, key, statement::GROUP_SETTINGS, params)?;
    Ok(audience::groups(kinds, settings))
}
