//! Reads rows of any table as JSON objects, and as the types that these objects represent.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tokio_postgres::types::FromSql;
use tokio_postgres::{Column, Row};

use super::columns;
use crate::StoreError;
use crate::columns::bad;

pub fn get<'a, T: FromSql<'a>>(row: &'a Row, column: &str) -> Result<T, StoreError> {
    row.try_get(column).map_err(|e| bad(column, e))
}

/// The one row that a statement always answers.
pub fn only_row(rows: &[Row]) -> Result<&Row, StoreError> {
    rows.first().ok_or_else(|| {
        StoreError::Unusable("a table with one required row is empty; restore it from a backup".into())
    })
}

/// A row as an object with its column names.
pub fn object(row: &Row) -> Result<Map<String, Value>, StoreError> {
    let value = |(index, column): (usize, &Column)| {
        Ok((column.name().to_owned(), columns::value(row, index)?.unwrap_or_default()))
    };
    row.columns().iter().enumerate().map(value).collect()
}

/// The rows of a table as the type that their column names spell. One that somebody wrote by hand and that can't be
/// used is skipped and named, so that it does not stand in the way of all others. `key` is what may be logged of it.
pub fn valid_rows<T: DeserializeOwned>(
    table: &str,
    key: &[&str],
    rows: &[Row],
) -> Result<Vec<T>, StoreError> {
    let mut found = Vec::with_capacity(rows.len());
    for row in rows {
        match serde_json::from_value(Value::Object(object(row)?)) {
            Ok(row) => found.push(row),
            Err(error) => {
                let key: Vec<String> = key.iter().filter_map(|column| row.try_get(column).ok()).collect();
                tracing::error!(table, ?key, %error, "invalid row skipped");
            }
        }
    }
    Ok(found)
}
