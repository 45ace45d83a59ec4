//! Reads the columns of a SQLite row.

use std::borrow::Cow;
use std::cell::Cell;

use campanile_domain::time::{self, Timestamp};
use rusqlite::Row;
use rusqlite::types::{FromSql, ToSqlOutput, ValueRef};
use serde_json::Value;
use uuid::Uuid;

use crate::StoreError;
use crate::columns::{Columns, bad};

/// A row from which a value is taken by the name of its column.
trait Values {
    fn value(&self, column: &str) -> Result<ValueRef<'_>, StoreError>;
}

impl Values for Row<'_> {
    fn value(&self, column: &str) -> Result<ValueRef<'_>, StoreError> {
        self.get_ref(column).map_err(|e| bad(column, e))
    }
}

impl<V: Values> Columns for V {
    fn maybe_str(&self, column: &str) -> Result<Option<&str>, StoreError> {
        self.value(column)?.as_str_or_null().map_err(|e| bad(column, e))
    }

    fn maybe_lossy(&self, column: &str) -> Result<Option<Cow<'_, str>>, StoreError> {
        let bytes = self.value(column)?.as_bytes_or_null().map_err(|e| bad(column, e))?;
        Ok(bytes.map(String::from_utf8_lossy))
    }

    fn maybe_integer(&self, column: &str) -> Result<Option<i64>, StoreError> {
        get(self, column)
    }

    fn maybe_flag(&self, column: &str) -> Result<Option<bool>, StoreError> {
        get(self, column)
    }

    /// Other processes may write times in most forms that SQLite understands. SQLite also accepts days that do not
    /// exist, such as 30 February; those are errors here.
    fn maybe_time(&self, column: &str) -> Result<Option<Timestamp>, StoreError> {
        let text = self.maybe_str(column)?;
        text.map(|text| time_of(text).ok_or_else(|| bad(column, "no moment of the calendar"))).transpose()
    }

    fn maybe_uuid(&self, column: &str) -> Result<Option<Uuid>, StoreError> {
        self.maybe_parsed(column)
    }

    fn maybe_json_text(&self, column: &str) -> Result<Option<Cow<'_, str>>, StoreError> {
        self.maybe_lossy(column)
    }

    fn maybe_value(&self, column: &str) -> Result<Option<Value>, StoreError> {
        Ok(Some(value(self.value(column)?)).filter(|value| !value.is_null()))
    }
}

/// The value as JSON, according to its stored type.
pub fn value(stored: ValueRef) -> Value {
    match stored {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => Value::from(number),
        ValueRef::Real(number) => Value::from(number),
        ValueRef::Text(text) | ValueRef::Blob(text) => Value::from(String::from_utf8_lossy(text)),
    }
}

fn get<T: FromSql>(row: &impl Values, column: &str) -> Result<Option<T>, StoreError> {
    Option::column_result(row.value(column)?).map_err(|e| bad(column, e))
}

fn time_of(text: &str) -> Option<Timestamp> {
    time::from_text(text)
        .or_else(|| time::from_text(&format!("{}Z", text.replace(' ', "T"))))
        .or_else(|| time::from_text(&format!("{text}T00:00:00Z")))
}

/// Reads columns in the order in which the statement names them, so that each is found without a search. A search by
/// name starts at the first column. With the parameters of statements, such searches took a tenth of the writer's time
/// (decision 0024). A column in another position is found by name.
pub struct InOrder<'r> {
    row: &'r Row<'r>,
    next: Cell<usize>,
}

impl<'r> InOrder<'r> {
    pub fn new(row: &'r Row<'r>) -> Self {
        Self { row, next: Cell::new(0) }
    }

    /// The value as it is stored, to be written elsewhere.
    pub fn param(&self, column: &str) -> Result<ToSqlOutput<'_>, StoreError> {
        self.value(column).map(ToSqlOutput::Borrowed)
    }
}

impl Values for InOrder<'_> {
    fn value(&self, column: &str) -> Result<ValueRef<'_>, StoreError> {
        let (names, next) = (self.row.as_ref(), self.next.get());
        let is_next = next < names.column_count() && names.column_name(next)? == column;
        let index = if is_next { next } else { names.column_index(column).map_err(|e| bad(column, e))? };
        self.next.set(index + 1);
        self.row.get_ref(index).map_err(|e| bad(column, e))
    }
}
