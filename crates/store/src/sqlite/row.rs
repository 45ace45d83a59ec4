//! Access to the tables that operators write. The SQL is generated from the description of each table.

use async_trait::async_trait;
use campanile_domain::access::audit::Actor;
use campanile_domain::rules::RuleRows;
use rusqlite::params_from_iter;
use rusqlite::types::Value as Sql;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::session::Session;
use super::{Sqlite, audit, read, statement};
use crate::row::{self, Description, Kind};
use crate::{RowFilter, RowPage, RowStore, StoreError, Table, TableRow};

#[async_trait]
impl RowStore for Sqlite {
    async fn put_rows(
        &self,
        table: Table,
        rows: Vec<TableRow>,
        actor: Option<&Actor>,
    ) -> Result<u64, StoreError> {
        let rows = row::objects(table, rows).await?;
        let actor = actor.cloned();
        self.write(move |session, now| {
            let description = table.description();
            let mut statement = session.prepare_cached(&upsert(description))?;
            let count = rows.len() as u64;
            for row in rows {
                let before = match &actor {
                    Some(_) => find(session, description, &row::key_values(table, &row))?,
                    None => None,
                };
                let values = description.columns.iter().map(|(name, kind)| sql_value(row.get(*name), *kind));
                statement.execute(params_from_iter(values))?;
                if let Some(actor) = &actor
                    && let Some(change) = row::change(table, before, Some(row))
                {
                    audit::insert(session, now, actor, &change)?;
                }
            }
            Ok(count)
        })
        .await
    }

    async fn list_rows(&self, table: Table, filter: RowFilter) -> Result<RowPage, StoreError> {
        self.read(move |session| {
            let (sql, params) = listing(table.description(), &filter);
            let mut statement = session.prepare_cached(&sql)?;
            let mut rows = statement.query(params_from_iter(params))?;
            let mut page = RowPage::default();
            while let Some(row) = rows.next()? {
                page.items.push(row::shown(table, read::object(row)?));
                if page.items.len() == filter.limit {
                    page.next = Some(row::key_of(table, row)?);
                }
            }
            Ok(page)
        })
        .await
    }

    async fn delete_row(&self, table: Table, key: Vec<String>, actor: &Actor) -> Result<bool, StoreError> {
        let actor = actor.clone();
        self.write(move |session, now| {
            let description = table.description();
            let before = find(session, description, &key)?;
            session.prepare_cached(&deletion(description))?.execute(params_from_iter(key))?;
            let Some(change) = row::change(table, before, None) else { return Ok(false) };
            audit::insert(session, now, &actor, &change)?;
            Ok(true)
        })
        .await
    }

    async fn rule_version(&self) -> Result<i64, StoreError> {
        self.read(|session| {
            let version = session.first(statement::RULE_VERSION, &[], |row| Ok(row.get(0)?))?;
            version.ok_or_else(|| StoreError::Unusable("the table rule_version is empty".into()))
        })
        .await
    }

    async fn rule_rows(&self) -> Result<RuleRows, StoreError> {
        self.read(|session| {
            let everything = RowFilter { limit: usize::MAX, ..RowFilter::default() };
            let all_rows = |table: Table| listing(table.description(), &everything).0;
            Ok(RuleRows {
                audiences: valid_rows(session, Table::Audiences, &all_rows(Table::Audiences))?,
                routing: valid_rows(session, Table::Routing, &all_rows(Table::Routing))?,
                templates: valid_rows(session, Table::Templates, &all_rows(Table::Templates))?,
                default_settings: valid_rows(session, Table::Settings, statement::DEFAULT_SETTINGS)?,
            })
        })
        .await
    }
}

/// The row with this key, as it is stored.
fn find(
    session: &Session,
    description: &Description,
    key: &[String],
) -> Result<Option<Map<String, Value>>, StoreError> {
    let mut statement = session.prepare_cached(&by_key(description))?;
    let mut rows = statement.query(params_from_iter(key))?;
    rows.next()?.map(read::object).transpose()
}

fn valid_rows<T: DeserializeOwned>(session: &Session, table: Table, sql: &str) -> Result<Vec<T>, StoreError> {
    let Description { table, key, .. } = table.description();
    read::valid_rows(session, table, key, sql, &[])
}

pub(super) fn upsert(description: &Description) -> String {
    let names: Vec<String> = description.columns.iter().map(|(name, _)| format!("\"{name}\"")).collect();
    let marks = vec!["?"; names.len()].join(", ");
    let replaced: Vec<String> = description
        .columns
        .iter()
        .filter(|(name, _)| !description.key.contains(name))
        .map(|(name, _)| format!("\"{name}\" = excluded.\"{name}\""))
        .collect();
    format!(
        "INSERT INTO {} ({}) VALUES ({marks}) ON CONFLICT ({}) DO UPDATE SET {}",
        description.table,
        names.join(", "),
        description.key.join(", "),
        replaced.join(", ")
    )
}

pub(super) fn deletion(description: &Description) -> String {
    format!("DELETE FROM {} WHERE {}", description.table, has_key(description))
}

/// The statement that reads the row of a key.
pub(super) fn by_key(description: &Description) -> String {
    let names: Vec<String> = description.columns.iter().map(|(name, _)| format!("\"{name}\"")).collect();
    format!("SELECT {} FROM {} WHERE {}", names.join(", "), description.table, has_key(description))
}

fn has_key(description: &Description) -> String {
    let by_key: Vec<String> = description.key.iter().map(|name| format!("\"{name}\" = ?")).collect();
    by_key.join(" AND ")
}

/// The statement that lists rows in key order, with its parameters. If the key begins with the filtered columns, SQLite
/// reads only their range of the index.
pub(super) fn listing(description: &Description, filter: &RowFilter) -> (String, Vec<Sql>) {
    let names: Vec<String> = description.columns.iter().map(|(name, _)| format!("\"{name}\"")).collect();
    let mut conditions: Vec<String> = Vec::new();
    let mut params = Vec::new();
    for (name, value) in &filter.columns {
        conditions.push(format!("\"{name}\" = ?"));
        let kind = description.columns.iter().find(|(column, _)| column == name).map(|(_, kind)| *kind);
        let json =
            if kind == Some(Kind::Flag) { Value::Bool(value == "true") } else { Value::from(value.as_str()) };
        params.push(sql_value(Some(&json), kind.unwrap_or(Kind::Text)));
    }
    if let Some(after) = &filter.after {
        let marks = vec!["?"; after.len()].join(", ");
        conditions.push(format!("({}) > ({marks})", description.key.join(", ")));
        params.extend(after.iter().cloned().map(Sql::Text));
    }
    let conditions =
        if conditions.is_empty() { String::new() } else { format!("WHERE {} ", conditions.join(" AND ")) };
    let sql = format!(
        "SELECT {} FROM {} {conditions}ORDER BY {} LIMIT {}",
        names.join(", "),
        description.table,
        description.key.join(", "),
        i64::try_from(filter.limit).unwrap_or(i64::MAX)
    );
    (sql, params)
}

fn sql_value(value: Option<&Value>, kind: Kind) -> Sql {
    match (kind, value) {
        (_, None | Some(Value::Null)) => Sql::Null,
        (Kind::Flag, Some(value)) => Sql::Integer(i64::from(value.as_bool().unwrap_or_default())),
        (Kind::Number, Some(value)) => value.as_i64().map_or(Sql::Null, Sql::Integer),
        (Kind::Text, Some(Value::String(text))) => Sql::Text(text.clone()),
        (Kind::Text | Kind::Json, Some(value)) => Sql::Text(value.to_string()),
    }
}
