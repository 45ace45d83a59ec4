//! Access to the tables that operators write. The SQL is generated from the description of each table. Rows are passed
//! as one JSON array.

use std::collections::{HashMap, HashSet};

use async_trait::async_trait;
use campanile_domain::access::audit::{Actor, AuditEntry};
use campanile_domain::rules::RuleRows;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tokio_postgres::types::ToSql;

use super::transaction::Transaction;
use super::{Postgres, audit, read, statement};
use crate::error::explained;
use crate::row::{self, Description, Kind};
use crate::{RowFilter, RowPage, RowStore, StoreError, Table, TableRow};

#[async_trait]
impl RowStore for Postgres {
    async fn put_rows(
        &self,
        table: Table,
        rows: Vec<TableRow>,
        actor: Option<&Actor>,
    ) -> Result<u64, StoreError> {
        self.check_not_a_view(table).await?;
        let count = rows.len() as u64;
        let rows = last_of_each_key(table.key(), row::objects(table, rows).await?);
        let rows = Value::Array(rows.into_iter().map(Value::Object).collect());
        let Some(actor) = actor else {
            self.execute(&upsert(table.description()), &[&rows]).await?;
            return Ok(count);
        };
        let transaction = self.begin().await?;
        // A row that does not exist cannot be locked, so that another write of it could go unrecorded.
        transaction.query(statement::LOCK_WRITES, &[&table.description().table]).await?;
        let before = transaction.query(&locking(table.description()), &[&rows]).await?;
        let before = before.iter().map(read::object).collect::<Result<_, _>>()?;
        transaction.execute(&upsert(table.description()), &[&rows]).await?;
        let changes = row::on_blocking_thread(move || changes(table, before, rows)).await?;
        audit::insert(&transaction, actor, &changes).await?;
        transaction.commit().await?;
        Ok(count)
    }

    async fn list_rows(&self, table: Table, filter: RowFilter) -> Result<RowPage, StoreError> {
        let (sql, params) = listing(table.description(), &filter);
        let params: Vec<&(dyn ToSql + Sync)> = params.iter().map(|param| param.as_ref() as _).collect();
        let rows = self.query(&sql, &params).await?;
        let last = rows.last().filter(|_| rows.len() == filter.limit);
        let shown = |row| Ok(row::shown(table, read::object(row)?));
        Ok(RowPage {
            items: rows.iter().map(shown).collect::<Result<_, StoreError>>()?,
            next: last.map(|last| row::key_of(table, last)).transpose()?,
        })
    }

    async fn delete_row(&self, table: Table, key: Vec<String>, actor: &Actor) -> Result<bool, StoreError> {
        self.check_not_a_view(table).await?;
        let params: Vec<&(dyn ToSql + Sync)> = key.iter().map(|value| value as _).collect();
        let transaction = self.begin().await?;
        let rows = transaction.query(&deletion(table.description()), &params).await?;
        let Some(deleted) = rows.first() else { return Ok(false) };
        let change = row::change(table, Some(read::object(deleted)?), None);
        audit::insert(&transaction, actor, change.as_slice()).await?;
        transaction.commit().await?;
        Ok(true)
    }

    async fn rule_version(&self) -> Result<i64, StoreError> {
        let rows = self.query(statement::RULE_VERSION, &[]).await?;
        read::get(read::only_row(&rows)?, "version")
    }

    async fn rule_rows(&self) -> Result<RuleRows, StoreError> {
        let snapshot = self.snapshot().await?;
        let settings = snapshot.query(statement::DEFAULT_SETTINGS, &[]).await?;
        let Description { table, key, .. } = Table::Settings.description();
        Ok(RuleRows {
            audiences: all_rows(&snapshot, Table::Audiences).await?,
            routing: all_rows(&snapshot, Table::Routing).await?,
            templates: all_rows(&snapshot, Table::Templates).await?,
            default_settings: read::valid_rows(table, key, &settings)?,
        })
    }
}

impl Postgres {
    /// Recipients may be a view over the business's own tables, which the engine must not write.
    async fn check_not_a_view(&self, table: Table) -> Result<(), StoreError> {
        if table == Table::Recipients && !self.recipients_are_a_table().await? {
            return Err(StoreError::ReadOnly(
                "campanile.recipient is a view; change the tables behind it".into(),
            ));
        }
        Ok(())
    }

    async fn recipients_are_a_table(&self) -> Result<bool, StoreError> {
        let rows = self.query(statement::RECIPIENT_RELATION, &[]).await?;
        let kind: Option<i8> = rows.first().map(|row| read::get(row, "relkind")).transpose()?;
        match kind.and_then(|kind| u8::try_from(kind).ok()) {
            Some(b'r' | b'p') => Ok(true),
            Some(_) => Ok(false),
            None => Err(StoreError::Unusable("campanile.recipient is missing".into())),
        }
    }

    /// Checks that a view in place of the table has all its columns. Otherwise no recipient would ever be found.
    pub(super) async fn check_recipients(&self) -> Result<(), StoreError> {
        if self.recipients_are_a_table().await? {
            return Ok(());
        }
        let (sql, _) = listing(Table::Recipients.description(), &RowFilter::default());
        let client = self.client().await?;
        client.prepare(&sql).await.map_err(|error| {
            let why = error.as_db_error().map_or_else(|| error.to_string(), |db| db.message().to_owned());
            let columns: Vec<&str> =
                Table::Recipients.description().columns.iter().map(|(name, _)| *name).collect();
            let text = format!(
                "the view campanile.recipient can't be used: {why}; it needs the columns {}",
                columns.join(", ")
            );
            StoreError::Unusable(explained(text, error))
        })?;
        Ok(())
    }
}

async fn all_rows<T: DeserializeOwned>(snapshot: &Transaction, table: Table) -> Result<Vec<T>, StoreError> {
    let description = table.description();
    let (sql, _) = listing(description, &RowFilter::default());
    let rows = snapshot.query(&sql, &[&i64::MAX]).await?;
    read::valid_rows(description.table, description.key, &rows)
}

/// The records of the rows that a write changed.
fn changes(table: Table, before: Vec<Map<String, Value>>, after: Value) -> Vec<AuditEntry> {
    let mut before: HashMap<Vec<String>, Map<String, Value>> =
        before.into_iter().map(|row| (row::key_values(table, &row), row)).collect();
    let Value::Array(after) = after else { return Vec::new() };
    let change = |row: Value| match row {
        Value::Object(row) => row::change(table, before.remove(&row::key_values(table, &row)), Some(row)),
        _ => None,
    };
    after.into_iter().filter_map(change).collect()
}

/// Keeps the last of several rows with the same key, because one statement can't write a row twice.
fn last_of_each_key(key: &[&str], rows: Vec<Map<String, Value>>) -> Vec<Map<String, Value>> {
    let mut last: HashMap<String, usize> = HashMap::new();
    for (index, row) in rows.iter().enumerate() {
        let key: Vec<Option<&Value>> = key.iter().map(|name| row.get(*name)).collect();
        last.insert(serde_json::json!(key).to_string(), index);
    }
    let kept: HashSet<usize> = last.into_values().collect();
    let kept = |(index, row): (usize, Map<String, Value>)| kept.contains(&index).then_some(row);
    rows.into_iter().enumerate().filter_map(kept).collect()
}

/// The rows are passed as one parameter, a JSON array.
pub(super) fn upsert(description: &Description) -> String {
    let quoted = |(name, _): &(&str, Kind)| format!("\"{name}\"");
    let names: Vec<String> = description.columns.iter().map(quoted).collect();
    let typed = description.columns.iter().map(|(name, kind)| format!("\"{name}\" {}", sql_type(*kind)));
    let typed: Vec<String> = typed.collect();
    let replaced: Vec<String> = description
        .columns
        .iter()
        .filter(|(name, _)| !description.key.contains(name))
        .map(|(name, _)| format!("\"{name}\" = excluded.\"{name}\""))
        .collect();
    let (names, key) = (names.join(", "), description.key.join(", "));
    // In key order, so that two concurrent statements do not deadlock.
    format!(
        "INSERT INTO campanile.{} ({names}) SELECT {names} FROM json_to_recordset($1::json) AS n ({})
         ORDER BY {key} ON CONFLICT ({key}) DO UPDATE SET {}",
        description.table,
        typed.join(", "),
        replaced.join(", ")
    )
}

fn sql_type(kind: Kind) -> &'static str {
    match kind {
        Kind::Text => "text",
        Kind::Number => "bigint",
        Kind::Flag => "boolean",
        Kind::Json => "json",
    }
}

pub(super) fn deletion(description: &Description) -> String {
    let by_key: Vec<String> = description
        .key
        .iter()
        .enumerate()
        .map(|(index, name)| format!("\"{name}\" = ${}", index + 1))
        .collect();
    let (table, names) = (description.table, shown_columns(description, ""));
    format!("DELETE FROM campanile.{table} WHERE {} RETURNING {names}", by_key.join(" AND "))
}

/// The statement that reads and locks the rows that a write is about to replace, in key order like the write. The rows
/// to write are its parameter.
pub(super) fn locking(description: &Description) -> String {
    let key_of = |of: &str| {
        let names: Vec<String> = description.key.iter().map(|name| format!("{of}.\"{name}\"")).collect();
        names.join(", ")
    };
    let typed: Vec<String> = description.key.iter().map(|name| format!("\"{name}\" text")).collect();
    format!(
        "SELECT {} FROM json_to_recordset($1::json) AS n ({}) JOIN campanile.{} t ON ({}) = ({})
         ORDER BY {} FOR UPDATE OF t",
        shown_columns(description, "t."),
        typed.join(", "),
        description.table,
        key_of("t"),
        key_of("n"),
        key_of("t"),
    )
}

/// All columns of a table, such that each has the JSON that it had when it was written.
fn shown_columns(description: &Description, of: &str) -> String {
    let shown = |(name, kind): &(&str, Kind)| match kind {
        Kind::Json => format!("to_json({of}\"{name}\") AS \"{name}\""),
        Kind::Text | Kind::Number | Kind::Flag => format!("{of}\"{name}\""),
    };
    description.columns.iter().map(shown).collect::<Vec<_>>().join(", ")
}

/// Sorts by bytes, whatever collation the columns of a view have.
pub(super) fn listing(
    description: &Description,
    filter: &RowFilter,
) -> (String, Vec<Box<dyn ToSql + Sync + Send>>) {
    let kind_of = |name: &str| description.columns.iter().find(|(n, _)| *n == name).map(|(_, kind)| *kind);
    let mut conditions: Vec<String> = Vec::new();
    let mut params: Vec<Box<dyn ToSql + Sync + Send>> = Vec::new();
    for (name, value) in &filter.columns {
        match kind_of(name) {
            Some(Kind::Flag) => params.push(Box::new(value == "true")),
            _ => params.push(Box::new(value.clone())),
        }
        conditions.push(format!("\"{name}\" = ${}", params.len()));
    }
    let ordered: Vec<String> =
        description.key.iter().map(|name| format!("\"{name}\" COLLATE \"C\"")).collect();
    if let Some(after) = &filter.after {
        let mut marks = Vec::new();
        for value in after {
            params.push(Box::new(value.clone()));
            marks.push(format!("${}", params.len()));
        }
        conditions.push(format!("({}) > ({})", ordered.join(", "), marks.join(", ")));
    }
    params.push(Box::new(i64::try_from(filter.limit).unwrap_or(i64::MAX)));
    let conditions =
        if conditions.is_empty() { String::new() } else { format!("WHERE {} ", conditions.join(" AND ")) };
    let sql = format!(
        "SELECT {} FROM campanile.{} {conditions}ORDER BY {} LIMIT ${}",
        shown_columns(description, ""),
        description.table,
        ordered.join(", "),
        params.len()
    );
    (sql, params)
}
