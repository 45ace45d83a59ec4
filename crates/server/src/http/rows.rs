//! The rows that operators write. PUT upserts an array, GET filters and pages, DELETE removes one key. All tables share
//! this code; only the types differ.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use campanile_domain::access::audit::Actor;
use campanile_domain::channel::Channel;
use campanile_domain::id::{EntityId, EntityType, EventType, UserId, UserTypeName};
use campanile_domain::people::recipient::{Entity, Recipient};
use campanile_domain::people::user_type::UserTypes;
use campanile_domain::rules::row::{
    Audience, AudienceName, ChannelSelector, EntityIdSelector, EventTypeSelector, Preference, Route, Row,
    Setting, Template, TextSelector,
};
use campanile_domain::template::{canonical_locale, is_locale};
use campanile_store::{RowFilter, RowPage, Shown, Table, TableRow};
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};

use super::access::Operator;
use super::body::{self, Received, Sent};
use super::params::{Limit, Page, Params};
use super::problem::FieldProblem;
use super::redaction::Redaction;
use super::{App, Problem};

const MAX_ROWS: usize = 10_000;
/// The most values of all rows in a request, including those in lists. A value takes some hundred bytes in memory, and
/// as little as two in the text.
const MAX_VALUES: usize = 250_000;
/// What a selector in a key means if it is missing.
const ANY: &str = "*";

/// How many rows were written.
#[derive(Debug, Serialize, ToSchema)]
pub struct Written {
    #[schema(example = 1)]
    pub written: u64,
}

/// The three calls of a table. A key has columns that must be given, and selectors that are `*` otherwise.
macro_rules! row_calls {
    (
        $module:ident: $row:ident in $table:expr, $path:literal, $tag:literal,
        put $put:literal, list $list:literal, delete $delete:literal,
        key ($($key:ident: $key_type:ty),*), selectors ($($selector:ident: $selector_type:ty),*),
        filters ($($filter:ident: $filter_type:ty),*)
    ) => {
        pub mod $module {
            use super::*;

            /// Which rows to list.
            #[derive(Debug, Deserialize, IntoParams)]
            #[into_params(parameter_in = Query)]
            pub struct Filter {
                $(#[param(value_type = Option<$key_type>)] $key: Option<String>,)*
                $(#[param(value_type = Option<$selector_type>)] $selector: Option<String>,)*
                $(#[param(value_type = Option<$filter_type>)] $filter: Option<String>,)*
                cursor: Option<String>,
                #[serde(default)]
                #[param(value_type = Option<u32>, minimum = 1, maximum = 1000)]
                limit: Limit,
            }

            /// The row to delete. A selector that is missing is `*`.
            #[derive(Debug, Deserialize, IntoParams)]
            #[into_params(parameter_in = Query)]
            pub struct Key {
                $(#[param(value_type = $key_type)] $key: String,)*
                $(#[param(value_type = Option<$selector_type>)] $selector: Option<String>,)*
            }

            #[utoipa::path(
                put, path = $path, tag = $tag, operation_id = concat!("put_", stringify!($module)), summary = $put,
                description = "Replaces at most 10,000 rows by key, all or none. A missing column has its default.",
                request_body = Vec<$row>,
                responses(
                    (status = 200, description = "The rows are written.", body = Written),
                    (status = 409, description = "The rows are a view, and are written elsewhere.", body = Problem,
                     content_type = "application/problem+json"),
                ),
            )]
            pub async fn put(
                State(app): State<App>,
                Operator(actor): Operator,
                headers: HeaderMap,
                body: Body,
            ) -> Result<Json<Written>, Problem> {
                super::write::<$row>(&app, &actor, $table, &headers, body).await
            }

            #[utoipa::path(
                get, path = $path, tag = $tag, operation_id = concat!("list_", stringify!($module)), summary = $list,
                params(Filter), responses((status = 200, description = "A page of rows.", body = Page<$row>)),
            )]
            pub async fn list(
                State(app): State<App>,
                Params(given): Params<Filter>,
            ) -> Result<Json<Page<Shown<TableRow>>>, Problem> {
                let filters = vec![
                    $((stringify!($key), given.$key),)*
                    $((stringify!($selector), given.$selector),)*
                    $((stringify!($filter), given.$filter),)*
                ];
                super::list(&app, $table, filters, given.cursor, given.limit).await
            }

            #[utoipa::path(
                delete, path = $path, tag = $tag, operation_id = concat!("delete_", stringify!($module)),
                summary = $delete,
                description = "A part of the key that may be `*` is `*` if it is missing.", params(Key),
                responses(
                    (status = 204, description = "The row is deleted."),
                    (status = 404, description = "No row has this key.", body = Problem,
                     content_type = "application/problem+json"),
                    (status = 409, description = "The rows are a view, and are written elsewhere.", body = Problem,
                     content_type = "application/problem+json"),
                ),
            )]
            pub async fn delete(
                State(app): State<App>,
                Operator(actor): Operator,
                Params(given): Params<Key>,
            ) -> Result<StatusCode, Problem> {
                let key = vec![
                    $((stringify!($key), Some(given.$key)),)*
                    $((stringify!($selector), given.$selector),)*
                ];
                super::delete(&app, &actor, $table, key).await
            }
        }
    };
}

row_calls!(
    recipients: Recipient in super::Table::Recipients, "/v1/recipients", "people",
    put "Write recipients", list "List recipients", delete "Delete a recipient",
    key (user_type: UserTypeName, user_id: UserId), selectors (),
    filters (entity_type: EntityType, entity_id: EntityId, role: String, active: bool)
);
row_calls!(
    entities: Entity in super::Table::Entities, "/v1/entities", "people",
    put "Write entities", list "List entities", delete "Delete an entity",
    key (entity_type: EntityType, entity_id: EntityId), selectors (), filters (kind: String)
);
row_calls!(
    preferences: Preference in super::Table::Preferences, "/v1/preferences", "people",
    put "Write preferences of users", list "List preferences of users", delete "Delete a preference of a user",
    key (user_type: UserTypeName, user_id: UserId, channel: Channel),
    selectors (event_type: EventTypeSelector), filters ()
);
row_calls!(
    settings: Setting in super::Table::Settings, "/v1/settings", "rules",
    put "Write settings of entities", list "List settings of entities", delete "Delete a setting of an entity",
    key (entity_type: EntityType, channel: Channel),
    selectors (entity_id: EntityIdSelector, kind: TextSelector, event_type: EventTypeSelector), filters ()
);
row_calls!(
    routing: Route in super::Table::Routing, "/v1/routing", "rules",
    put "Write routes", list "List routes", delete "Delete a route",
    key (channel: Channel), selectors (event_type: EventTypeSelector), filters ()
);
row_calls!(
    audiences: Audience in super::Table::Audiences, "/v1/audiences", "rules",
    put "Write audiences", list "List audiences", delete "Delete an audience",
    key (event_type: EventType, name: AudienceName), selectors (), filters ()
);
row_calls!(
    templates: Template in super::Table::Templates, "/v1/templates", "rules",
    put "Write templates", list "List templates", delete "Delete a template",
    key (), selectors (event_type: EventTypeSelector, channel: ChannelSelector, locale: TextSelector), filters ()
);

async fn write<T: Row + Into<TableRow>>(
    app: &App,
    actor: &Actor,
    table: Table,
    headers: &HeaderMap,
    body: Body,
) -> Result<Json<Written>, Problem> {
    let received = body::read(headers, body).await?;
    // Templates are compiled, which may take milliseconds each. Until they are written, rows take several times the
    // memory of their text.
    let permit = match table {
        Table::Templates => app.heavy.permit_of_heavy().await,
        _ => app.heavy.permit(received.len()).await,
    };
    let rows = permit.run(|| rows_of::<T>(&received, app.engine.user_types()))?;
    drop(received);
    let written = app.engine.put_rows(table, rows, actor).await.map_err(Problem::of_write)?;
    Ok(Json(Written { written }))
}

fn rows_of<T: Row + Into<TableRow>>(
    received: &Received,
    user_types: &UserTypes,
) -> Result<Vec<TableRow>, Problem> {
    let Sent::Many(items) = received.json()? else {
        return Err(Problem::malformed("the body must be an array of rows"));
    };
    let items = items.at_most(MAX_ROWS, "rows")?;
    let values = received.count_values();
    if values > MAX_VALUES {
        let detail = format!("at most {MAX_VALUES} values per request, got {values}; send fewer rows");
        return Err(Problem::invalid(vec![FieldProblem { index: 0, pointer: String::new(), detail }]));
    }
    checked::<T>(&items, user_types)
}

fn checked<T: Row + Into<TableRow>>(
    items: &[&RawValue],
    user_types: &UserTypes,
) -> Result<Vec<TableRow>, Problem> {
    let rows: Vec<T> = body::typed(items, |row: &T| {
        row.check(user_types).map_err(|e| FieldProblem {
            index: 0,
            pointer: format!("/{}", e.field),
            detail: e.detail,
        })
    })?;
    if let Some((index, error)) = T::collision(&rows) {
        let problem = FieldProblem { index, pointer: format!("/{}", error.field), detail: error.detail };
        return Err(Problem::invalid(vec![problem]));
    }
    Ok(rows.into_iter().map(|row| row.canonical().into()).collect())
}

async fn list(
    app: &App,
    table: Table,
    filters: Vec<(&'static str, Option<String>)>,
    cursor: Option<String>,
    Limit(limit): Limit,
) -> Result<Json<Page<Shown<TableRow>>>, Problem> {
    let after = cursor.map(|cursor| parse_cursor(table, &cursor)).transpose()?;
    let given = filters.into_iter().filter_map(|(name, value)| Some((name, value?)));
    let columns: Vec<_> = given.map(|(name, value)| (name, as_stored(table, name, value))).collect();
    if let Some((_, active)) =
        columns.iter().find(|(name, value)| *name == "active" && !["true", "false"].contains(&value.as_str()))
    {
        return Err(Problem::bad_query(format!("active: `{active}` is neither `true` nor `false`")));
    }
    if let Some((_, channel)) = columns.iter().find(|(name, value)| *name == "channel" && value != ANY) {
        channel.parse::<Channel>().map_err(|error| Problem::bad_query(format!("channel: {error}")))?;
    }
    let RowPage { mut items, next } =
        app.engine.list_rows(table, RowFilter { columns, after, limit }).await?;
    items.iter_mut().for_each(Redaction::table_row);
    Ok(Json(Page { items, next: next.map(|key| json!(key).to_string()) }))
}

fn parse_cursor(table: Table, cursor: &str) -> Result<Vec<String>, Problem> {
    let key: Option<Vec<String>> = serde_json::from_str(cursor).ok();
    // An escape sequence may hide a NUL.
    key.filter(|key| key.len() == table.key().len() && key.iter().all(|part| !part.contains('\0')))
        .ok_or_else(|| {
            Problem::bad_query("cursor: not a cursor of this list; use `next` of its previous page")
        })
}

/// A key that lacks a column without a default was refused before.
async fn delete(
    app: &App,
    actor: &Actor,
    table: Table,
    given: Vec<(&'static str, Option<String>)>,
) -> Result<StatusCode, Problem> {
    let value_of = |name: &&str| {
        let given = given.iter().find(|(given, _)| given == name);
        given.and_then(|(_, value)| value.clone()).unwrap_or_else(|| ANY.to_owned())
    };
    let key: Vec<String> = table.key().iter().map(value_of).collect();
    let stored =
        table.key().iter().zip(key.clone()).map(|(name, value)| as_stored(table, name, value)).collect();
    // Rows written by SQL may spell a language differently.
    if !app.engine.delete_row(table, vec![key, stored], actor).await? {
        return Err(Problem::not_found("no row has this key"));
    }
    Ok(StatusCode::NO_CONTENT)
}

/// A key's value in its stored spelling.
fn as_stored(table: Table, column: &str, value: String) -> String {
    if table == Table::Templates && column == "locale" && is_locale(&value) {
        canonical_locale(&value)
    } else {
        value
    }
}
