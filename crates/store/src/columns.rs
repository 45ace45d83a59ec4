//! Reads the columns of a row by name, in the same way for both databases. A mapping that is written against
//! [`Columns`] works for both. A value that does not fit its column causes an error that names the column.

use std::borrow::Cow;
use std::str::FromStr;

use campanile_domain::time::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use uuid::Uuid;

use crate::error::{Source, explained};
use crate::{Shown, StoreError};

/// A value that does not fit its column's meaning.
pub(crate) fn bad(column: &str, error: impl Into<Source>) -> StoreError {
    let error = error.into();
    StoreError::Refused(explained(format!("column {column} holds an invalid value: {error}"), error))
}

fn required<T>(column: &str, value: Option<T>) -> Result<T, StoreError> {
    value.ok_or_else(|| bad(column, "NULL"))
}

/// One row of a result. The `maybe_…` methods return `None` for NULL. The methods without the prefix return an error
/// for NULL.
pub(crate) trait Columns {
    fn maybe_str(&self, column: &str) -> Result<Option<&str>, StoreError>;

    /// Replaces invalid UTF-8. For callers that only show the value.
    fn maybe_lossy(&self, column: &str) -> Result<Option<Cow<'_, str>>, StoreError>;

    fn maybe_integer(&self, column: &str) -> Result<Option<i64>, StoreError>;

    fn maybe_flag(&self, column: &str) -> Result<Option<bool>, StoreError>;

    fn maybe_time(&self, column: &str) -> Result<Option<Timestamp>, StoreError>;

    fn maybe_uuid(&self, column: &str) -> Result<Option<Uuid>, StoreError>;

    /// JSON as the database stores it. It may be malformed, or valid JSON that other parsers reject, such as `1e400`.
    fn maybe_json_text(&self, column: &str) -> Result<Option<Cow<'_, str>>, StoreError>;

    /// The value as JSON, whatever is stored. Invalid UTF-8 is replaced.
    fn maybe_value(&self, column: &str) -> Result<Option<Value>, StoreError>;

    fn str(&self, column: &str) -> Result<&str, StoreError> {
        required(column, self.maybe_str(column)?)
    }

    fn text(&self, column: &str) -> Result<String, StoreError> {
        self.str(column).map(str::to_owned)
    }

    fn maybe_text(&self, column: &str) -> Result<Option<String>, StoreError> {
        Ok(self.maybe_str(column)?.map(str::to_owned))
    }

    fn lossy(&self, column: &str) -> Result<Cow<'_, str>, StoreError> {
        required(column, self.maybe_lossy(column)?)
    }

    fn lossy_text(&self, column: &str) -> Result<String, StoreError> {
        self.lossy(column).map(Cow::into_owned)
    }

    fn maybe_lossy_text(&self, column: &str) -> Result<Option<String>, StoreError> {
        Ok(self.maybe_lossy(column)?.map(Cow::into_owned))
    }

    /// The value as its type, or as it is stored if it does not fit. For callers that only show it.
    fn shown<T: Serialize + DeserializeOwned>(&self, column: &str) -> Result<Shown<T>, StoreError> {
        required(column, self.maybe_shown(column)?)
    }

    fn maybe_shown<T: Serialize + DeserializeOwned>(
        &self,
        column: &str,
    ) -> Result<Option<Shown<T>>, StoreError> {
        Ok(self.maybe_value(column)?.map(Shown::of))
    }

    /// Separate from `shown`, because SQLite stores flags as numbers.
    fn shown_flag(&self, column: &str) -> Result<Shown<bool>, StoreError> {
        self.flag(column).map_or_else(|_| self.shown(column), |flag| Ok(Shown::Typed(flag)))
    }

    fn integer<T: TryFrom<i64, Error: Into<Source>>>(&self, column: &str) -> Result<T, StoreError> {
        required(column, self.maybe_integer_as(column)?)
    }

    /// An integer, converted to the caller's type.
    fn maybe_integer_as<T: TryFrom<i64, Error: Into<Source>>>(
        &self,
        column: &str,
    ) -> Result<Option<T>, StoreError> {
        self.maybe_integer(column)?.map(|number| T::try_from(number).map_err(|e| bad(column, e))).transpose()
    }

    fn flag(&self, column: &str) -> Result<bool, StoreError> {
        required(column, self.maybe_flag(column)?)
    }

    fn time(&self, column: &str) -> Result<Timestamp, StoreError> {
        required(column, self.maybe_time(column)?)
    }

    fn uuid(&self, column: &str) -> Result<Uuid, StoreError> {
        required(column, self.maybe_uuid(column)?)
    }

    /// Parses a newtype or an enum from its text.
    fn parsed<T: FromStr<Err: Into<Source>>>(&self, column: &str) -> Result<T, StoreError> {
        required(column, self.maybe_parsed(column)?)
    }

    fn maybe_parsed<T: FromStr<Err: Into<Source>>>(&self, column: &str) -> Result<Option<T>, StoreError> {
        self.maybe_str(column)?.map(|text| text.parse().map_err(|e| bad(column, e))).transpose()
    }

    /// JSON to be shown. Text that is not valid JSON is returned as a string.
    fn maybe_json(&self, column: &str) -> Result<Option<Value>, StoreError> {
        let shown = |text: Cow<'_, str>| serde_json::from_str(&text).unwrap_or_else(|_| Value::from(text));
        Ok(self.maybe_json_text(column)?.map(shown))
    }

    fn json(&self, column: &str) -> Result<Value, StoreError> {
        required(column, self.maybe_json(column)?)
    }

    /// A list of texts, stored as a JSON array.
    fn maybe_list(&self, column: &str) -> Result<Option<Vec<String>>, StoreError> {
        let text = self.maybe_json_text(column)?;
        text.map(|text| serde_json::from_str(&text).map_err(|e| bad(column, e))).transpose()
    }
}
