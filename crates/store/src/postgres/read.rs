//! Rows of any table as JSON objects, and as the types that such objects spell.

use campanile_domain::event::payload;
use campanile_domain::time::{self, Timestamp};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, Type};
use uuid::Uuid;

use super::columns::JsonText;
use crate::columns::bad;
use crate::{JsonRow, StoreError};

pub fn get<'a, T: FromSql<'a>>(row: &'a Row, column: &str) -> Result<T, StoreError> {
    row.try_get(column).map_err(|e| bad(column, e))
}

/// The one row that a statement always answers.
pub fn only_row(rows: &[Row]) -> Result<&Row, StoreError> {
    rows.first().ok_or_else(|| {
        StoreError::Unusable("a table with one required row is empty; restore it from a backup".into())
    })
}

/// Rows as objects with their column names.
pub fn json_rows(rows: &[Row]) -> Result<Vec<JsonRow>, StoreError> {
    rows.iter().map(json_row).collect()
}

pub fn json_row(row: &Row) -> Result<JsonRow, StoreError> {
    let mut object = Map::new();
    for (index, column) in row.columns().iter().enumerate() {
        object.insert(column.name().to_owned(), json_value(row, index)?);
    }
    Ok(object)
}

fn json_value(row: &Row, index: usize) -> Result<Value, StoreError> {
    fn read<'a, T: FromSql<'a>>(row: &'a Row, index: usize) -> Result<Option<T>, StoreError> {
        row.try_get(index).map_err(|e| bad(row.columns()[index].name(), e))
    }
    let value = match *row.columns()[index].type_() {
        Type::BOOL => read::<bool>(row, index)?.map(Value::from),
        Type::INT2 => read::<i16>(row, index)?.map(Value::from),
        Type::INT4 => read::<i32>(row, index)?.map(Value::from),
        Type::INT8 => read::<i64>(row, index)?.map(Value::from),
        Type::JSON | Type::JSONB => {
            read::<JsonText>(row, index)?.map(|JsonText(text)| match row.columns()[index].name() {
                "payload" => payload::shown(text),
                _ => serde_json::from_str(text).unwrap_or_else(|_| Value::from(text)),
            })
        }
        Type::UUID => read::<Uuid>(row, index)?.map(|id| Value::from(id.to_string())),
        Type::TIMESTAMPTZ => read::<Timestamp>(row, index)?.map(|at| Value::from(time::to_text(at))),
        _ => read::<String>(row, index)?.map(Value::from),
    };
    Ok(value.unwrap_or_default())
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
        match serde_json::from_value(Value::Object(json_row(row)?)) {
            Ok(row) => found.push(row),
            Err(error) => {
                let key: Vec<String> = key.iter().filter_map(|column| row.try_get(column).ok()).collect();
                tracing::error!(table, ?key, %error, "invalid row skipped");
            }
        }
    }
    Ok(found)
}
