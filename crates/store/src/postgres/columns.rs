//! Reads the columns of a PostgreSQL row.

use std::borrow::Cow;
use std::error::Error;

use campanile_domain::time::{self, Timestamp};
use serde_json::Value;
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, Type};
use uuid::Uuid;

use crate::StoreError;
use crate::columns::{Columns, bad};

fn get<'a, T: FromSql<'a>>(row: &'a Row, column: &str) -> Result<Option<T>, StoreError> {
    row.try_get(column).map_err(|e| bad(column, e))
}

impl Columns for Row {
    fn maybe_str(&self, column: &str) -> Result<Option<&str>, StoreError> {
        get(self, column)
    }

    /// PostgreSQL stores only valid UTF-8.
    fn maybe_lossy(&self, column: &str) -> Result<Option<Cow<'_, str>>, StoreError> {
        Ok(self.maybe_str(column)?.map(Cow::Borrowed))
    }

    fn maybe_integer(&self, column: &str) -> Result<Option<i64>, StoreError> {
        Ok(get::<Integer>(self, column)?.map(|Integer(number)| number))
    }

    fn maybe_flag(&self, column: &str) -> Result<Option<bool>, StoreError> {
        get(self, column)
    }

    fn maybe_time(&self, column: &str) -> Result<Option<Timestamp>, StoreError> {
        get(self, column)
    }

    fn maybe_uuid(&self, column: &str) -> Result<Option<Uuid>, StoreError> {
        get(self, column)
    }

    fn maybe_json_text(&self, column: &str) -> Result<Option<Cow<'_, str>>, StoreError> {
        Ok(get::<JsonText>(self, column)?.map(|JsonText(text)| Cow::Borrowed(text)))
    }

    fn maybe_value(&self, column: &str) -> Result<Option<Value>, StoreError> {
        let index = self.columns().iter().position(|found| found.name() == column);
        value(self, index.ok_or_else(|| bad(column, "the statement does not answer it"))?)
    }
}

/// The value as JSON, according to the type of its column.
pub fn value(row: &Row, index: usize) -> Result<Option<Value>, StoreError> {
    fn read<'a, T: FromSql<'a>>(row: &'a Row, index: usize) -> Result<Option<T>, StoreError> {
        row.try_get(index).map_err(|e| bad(row.columns()[index].name(), e))
    }
    Ok(match *row.columns()[index].type_() {
        Type::BOOL => read::<bool>(row, index)?.map(Value::from),
        Type::INT2 => read::<i16>(row, index)?.map(Value::from),
        Type::INT4 => read::<i32>(row, index)?.map(Value::from),
        Type::INT8 => read::<i64>(row, index)?.map(Value::from),
        Type::JSON | Type::JSONB => read::<JsonText>(row, index)?
            .map(|JsonText(text)| serde_json::from_str(text).unwrap_or_else(|_| Value::from(text))),
        Type::UUID => read::<Uuid>(row, index)?.map(|id| Value::from(id.to_string())),
        Type::TIMESTAMPTZ => read::<Timestamp>(row, index)?.map(|at| Value::from(time::to_text(at))),
        _ => read::<String>(row, index)?.map(Value::from),
    })
}

/// An integer of any width.
struct Integer(i64);

impl<'a> FromSql<'a> for Integer {
    fn from_sql(ty: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Integer(match *ty {
            Type::INT2 => i16::from_sql(ty, raw)?.into(),
            Type::INT4 => i32::from_sql(ty, raw)?.into(),
            _ => i64::from_sql(ty, raw)?,
        }))
    }

    fn accepts(ty: &Type) -> bool {
        matches!(*ty, Type::INT2 | Type::INT4 | Type::INT8)
    }
}

/// JSON as the database wrote it, or text that contains JSON.
pub struct JsonText<'a>(pub &'a str);

impl<'a> FromSql<'a> for JsonText<'a> {
    fn from_sql(ty: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        // `jsonb` begins with the version of its format, which is 1.
        let text =
            if *ty == Type::JSONB { raw.strip_prefix(&[1]).ok_or("unknown form of jsonb")? } else { raw };
        Ok(JsonText(std::str::from_utf8(text)?))
    }

    fn accepts(ty: &Type) -> bool {
        matches!(*ty, Type::JSON | Type::JSONB | Type::TEXT)
    }
}
