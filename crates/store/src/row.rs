//! Access to the tables that operators write, by table name. One description per table provides put, get and delete in
//! both SQL dialects.

use async_trait::async_trait;
use campanile_domain::access::audit::{Actor, AuditEntry};
use campanile_domain::people::recipient::{Entity, Recipient};
use campanile_domain::rules::RuleRows;
use campanile_domain::rules::row::{Audience, Preference, Route, Setting, Template};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use self::Kind::{Flag, Json, Number, Text};
use crate::columns::Columns;
use crate::{Shown, StoreError};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Table {
    Recipients,
    Entities,
    Preferences,
    Settings,
    Routing,
    Audiences,
    Templates,
}

/// The type of a column, for the conversion between JSON and the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    Number,
    Flag,
    /// An array or an object, stored as JSON text.
    Json,
}

#[derive(Debug)]
pub(crate) struct Description {
    pub table: &'static str,
    pub key: &'static [&'static str],
    /// All columns, including the key.
    pub columns: &'static [(&'static str, Kind)],
    /// Columns to filter by, in addition to those of the key.
    pub filters: &'static [&'static str],
}

impl Table {
    pub const ALL: [Table; 7] = [
        Table::Recipients,
        Table::Entities,
        Table::Preferences,
        Table::Settings,
        Table::Routing,
        Table::Audiences,
        Table::Templates,
    ];

    /// The table's name in the HTTP path.
    pub fn path(self) -> &'static str {
        match self {
            Table::Recipients => "recipients",
            Table::Entities => "entities",
            Table::Preferences => "preferences",
            Table::Settings => "settings",
            Table::Routing => "routing",
            Table::Audiences => "audiences",
            Table::Templates => "templates",
        }
    }

    /// The columns of the key, in order.
    pub fn key(self) -> &'static [&'static str] {
        self.description().key
    }

    /// Whether a key column contains `*` if no value is given.
    pub fn is_selector(self, column: &str) -> bool {
        match self {
            Table::Preferences | Table::Routing => column == "event_type",
            Table::Settings => ["entity_id", "kind", "event_type"].contains(&column),
            Table::Templates => true,
            Table::Recipients | Table::Entities | Table::Audiences => false,
        }
    }

    /// The columns that a listing may be filtered by.
    pub fn filters(self) -> impl Iterator<Item = &'static str> {
        let description = self.description();
        description.key.iter().chain(description.filters).copied()
    }

    pub(crate) fn description(self) -> &'static Description {
        match self {
            Table::Recipients => &RECIPIENTS,
            Table::Entities => &ENTITIES,
            Table::Preferences => &PREFERENCES,
            Table::Settings => &SETTINGS,
            Table::Routing => &ROUTING,
            Table::Audiences => &AUDIENCES,
            Table::Templates => &TEMPLATES,
        }
    }
}

static RECIPIENTS: Description = Description {
    table: "recipient",
    key: &["user_type", "user_id"],
    columns: &[
        ("user_type", Text),
        ("user_id", Text),
        ("entity_type", Text),
        ("entity_id", Text),
        ("role", Text),
        ("name", Text),
        ("email", Text),
        ("phone", Text),
        ("push_tokens", Json),
        ("slack_webhook", Text),
        ("addresses", Json),
        ("locale", Text),
        ("time_zone", Text),
        ("active", Flag),
    ],
    filters: &["entity_type", "entity_id", "role", "active"],
};

static ENTITIES: Description = Description {
    table: "entity",
    key: &["entity_type", "entity_id"],
    columns: &[("entity_type", Text), ("entity_id", Text), ("kind", Text), ("name", Text)],
    filters: &["kind"],
};

static PREFERENCES: Description = Description {
    table: "user_notification_preferences",
    key: &["user_type", "user_id", "channel", "event_type"],
    columns: &[
        ("user_type", Text),
        ("user_id", Text),
        ("channel", Text),
        ("event_type", Text),
        ("enabled", Flag),
        ("min_priority", Text),
        ("quiet_hours_start", Text),
        ("quiet_hours_end", Text),
        ("quiet_hours_mode", Text),
    ],
    filters: &[],
};

static SETTINGS: Description = Description {
    table: "entity_notification_settings",
    key: &["entity_type", "entity_id", "kind", "channel", "event_type"],
    columns: &[
        ("entity_type", Text),
        ("entity_id", Text),
        ("kind", Text),
        ("channel", Text),
        ("event_type", Text),
        ("enabled", Flag),
        ("max_recipients", Number),
        ("min_priority", Text),
        ("roles", Json),
        ("quiet_hours_start", Text),
        ("quiet_hours_end", Text),
        ("quiet_hours_mode", Text),
    ],
    filters: &[],
};

static ROUTING: Description = Description {
    table: "event_type_channel_routing",
    key: &["event_type", "channel"],
    columns: &[
        ("event_type", Text),
        ("channel", Text),
        ("mandatory", Flag),
        ("delivery_strategy", Text),
        ("min_priority", Text),
        ("priority", Text),
    ],
    filters: &[],
};

static AUDIENCES: Description = Description {
    table: "event_audience",
    key: &["event_type", "name"],
    columns: &[
        ("event_type", Text),
        ("name", Text),
        ("recipient_type", Text),
        ("entity_path", Text),
        ("roles", Json),
        ("scope", Text),
        ("shared_read", Flag),
        ("when", Text),
    ],
    filters: &[],
};

static TEMPLATES: Description = Description {
    table: "template",
    key: &["event_type", "channel", "locale"],
    columns: &[
        ("event_type", Text),
        ("channel", Text),
        ("locale", Text),
        ("title", Text),
        ("body", Text),
        ("html", Text),
        ("url", Text),
    ],
    filters: &[],
};

/// A row of any of these tables. As JSON it is an object with the names of all its columns.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum TableRow {
    Recipient(Recipient),
    Entity(Entity),
    Preference(Preference),
    Setting(Setting),
    Route(Route),
    Audience(Audience),
    Template(Template),
}

impl TableRow {
    /// Parses a row from JSON. Missing columns have their defaults. An unknown column is an error.
    pub fn parse(table: Table, row: &Value) -> Result<Self, serde_json::Error> {
        match table {
            Table::Recipients => Recipient::deserialize(row).map(TableRow::Recipient),
            Table::Entities => Entity::deserialize(row).map(TableRow::Entity),
            Table::Preferences => Preference::deserialize(row).map(TableRow::Preference),
            Table::Settings => Setting::deserialize(row).map(TableRow::Setting),
            Table::Routing => Route::deserialize(row).map(TableRow::Route),
            Table::Audiences => Audience::deserialize(row).map(TableRow::Audience),
            Table::Templates => Template::deserialize(row).map(TableRow::Template),
        }
    }

    pub fn table(&self) -> Table {
        match self {
            TableRow::Recipient(_) => Table::Recipients,
            TableRow::Entity(_) => Table::Entities,
            TableRow::Preference(_) => Table::Preferences,
            TableRow::Setting(_) => Table::Settings,
            TableRow::Route(_) => Table::Routing,
            TableRow::Audience(_) => Table::Audiences,
            TableRow::Template(_) => Table::Templates,
        }
    }
}

macro_rules! table_rows {
    ($($name:ident),+) => {
        $(impl From<$name> for TableRow {
            fn from(row: $name) -> Self {
                TableRow::$name(row)
            }
        })+
    };
}

table_rows!(Recipient, Entity, Preference, Setting, Route, Audience, Template);

/// The rows to write, as objects with a member per column. Ten thousand rows take milliseconds, so a blocking thread
/// converts them.
pub(crate) async fn objects(
    table: Table,
    rows: Vec<TableRow>,
) -> Result<Vec<Map<String, Value>>, StoreError> {
    on_blocking_thread(move || objects_of(table, rows)).await?
}

/// Runs work that takes milliseconds, so that it does not delay other tasks.
pub(crate) async fn on_blocking_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, StoreError> {
    tokio::task::spawn_blocking(work).await.map_err(|error| StoreError::Unavailable(error.into()))
}

fn objects_of(table: Table, rows: Vec<TableRow>) -> Result<Vec<Map<String, Value>>, StoreError> {
    let object = |row: TableRow| match serde_json::to_value(&row) {
        Ok(Value::Object(object)) if row.table() == table => Ok(object),
        _ => Err(StoreError::Refused(
            format!("the table {} has no such rows", table.description().table).into(),
        )),
    };
    rows.into_iter().map(object).collect()
}

/// The values of a row's key, in key order.
pub(crate) fn key_values(table: Table, row: &Map<String, Value>) -> Vec<String> {
    let text = |column: &&str| match row.get(*column) {
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
        None => String::new(),
    };
    table.key().iter().map(text).collect()
}

/// The record of a row's change. `None` if nothing changed.
pub(crate) fn change(
    table: Table,
    before: Option<Map<String, Value>>,
    after: Option<Map<String, Value>>,
) -> Option<AuditEntry> {
    let key = key_values(table, before.as_ref().or(after.as_ref())?);
    AuditEntry::of_row(table.description().table, &key, before, after)
}

/// Converts a row that was read, with a member per column.
pub(crate) fn shown(table: Table, object: Map<String, Value>) -> Shown<TableRow> {
    Shown::parsed(Value::Object(object), |row| TableRow::parse(table, row))
}

pub(crate) fn key_of(table: Table, row: &impl Columns) -> Result<Vec<String>, StoreError> {
    table.key().iter().map(|column| row.lossy_text(column)).collect()
}

/// Selects the rows to list: each column must have its value, and the key must follow `after`.
#[derive(Debug, Clone, Default)]
pub struct RowFilter {
    pub columns: Vec<(&'static str, String)>,
    pub after: Option<Vec<String>>,
    pub limit: usize,
}

#[derive(Debug, Default, PartialEq)]
pub struct RowPage {
    pub items: Vec<Shown<TableRow>>,
    /// The key after which there may be more rows.
    pub next: Option<Vec<String>>,
}

#[async_trait]
pub trait RowStore {
    /// Replaces rows by key, all or none. All rows belong to this table. If several rows have the same key, the last
    /// one counts. Each row that changed is recorded as a change by the actor; without one, nothing is recorded.
    async fn put_rows(
        &self,
        table: Table,
        rows: Vec<TableRow>,
        actor: Option<&Actor>,
    ) -> Result<u64, StoreError>;

    /// Lists rows in the order of the key.
    async fn list_rows(&self, table: Table, filter: RowFilter) -> Result<RowPage, StoreError>;

    /// Deletes the row with these key values, given in key order. Returns whether it existed. The deletion is recorded
    /// as a change by the actor.
    async fn delete_row(&self, table: Table, key: Vec<String>, actor: &Actor) -> Result<bool, StoreError>;

    /// A number that increases whenever the result of `rule_rows` may have changed.
    async fn rule_version(&self) -> Result<i64, StoreError>;

    async fn rule_rows(&self) -> Result<RuleRows, StoreError>;
}
