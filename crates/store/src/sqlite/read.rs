//! Reads rows of any table as JSON objects, and as the types that these objects represent.

use std::collections::HashMap;
use std::sync::LazyLock;

use rusqlite::Row;
use rusqlite::types::ValueRef;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::columns;
use super::session::{Named, Session};
use crate::columns::{Columns, bad};
use crate::error::explained;
use crate::row::Kind;
use crate::{StoreError, Table};

/// What the columns of the tables that operators write hold. A name means the same in each of these tables.
static KINDS: LazyLock<HashMap<&str, Kind>> =
    LazyLock::new(|| Table::ALL.into_iter().flat_map(|table| table.description().columns).copied().collect());

/// A row as an object with its column names. What should be JSON or UTF-8 and is not comes as text.
pub fn object(row: &Row) -> Result<Map<String, Value>, StoreError> {
    let names = row.as_ref();
    let mut object = Map::new();
    for index in 0..names.column_count() {
        let name = names.column_name(index)?;
        object.insert(name.to_owned(), value(name, row.get_ref(index)?)?);
    }
    Ok(object)
}

fn value(column: &str, stored: ValueRef) -> Result<Value, StoreError> {
    Ok(match stored {
        ValueRef::Integer(flag) if KINDS.get(column) == Some(&Kind::Flag) => Value::Bool(flag != 0),
        ValueRef::Text(text) if KINDS.get(column) == Some(&Kind::Json) => {
            let text = String::from_utf8_lossy(text);
            serde_json::from_str(&text).unwrap_or_else(|_| Value::from(text))
        }
        ValueRef::Blob(_) => return Err(bad(column, "binary data")),
        stored => columns::value(stored),
    })
}

/// The rows of a table as the type that their column names spell. One that somebody wrote by hand and that can't be
/// used is skipped and named, so that it does not stand in the way of all others. `key` is what may be logged of it.
pub fn valid_rows<T: DeserializeOwned>(
    session: &Session,
    table: &str,
    key: &[&str],
    sql: &str,
    params: Named,
) -> Result<Vec<T>, StoreError> {
    let rows = session.all(sql, params, |row| {
        typed(table, row).map_or_else(
            |error| {
                let key = key.iter().map(|column| row.lossy(column)).collect::<Result<Vec<_>, _>>()?;
                tracing::error!(table, ?key, %error, "invalid row skipped");
                Ok(None)
            },
            |row| Ok(Some(row)),
        )
    })?;
    Ok(rows.into_iter().flatten().collect())
}

fn typed<T: DeserializeOwned>(table: &str, row: &Row) -> Result<T, StoreError> {
    serde_json::from_value(Value::Object(object(row)?)).map_err(|e| {
        StoreError::Refused(explained(format!("a row of {table} holds an invalid value: {e}"), e))
    })
}
