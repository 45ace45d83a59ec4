//! The rows that operators write. PUT upserts an array, GET filters and pages, DELETE removes one key. All tables share
//! this code; only the types differ.

use std::collections::HashMap;

use axum::Json;
use axum::body::Body;
use axum::extract::{Query as Parameters, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::{MethodRouter, put};
use campanile_domain::people::recipient::{Entity, Recipient};
use campanile_domain::people::user_type::UserTypes;
use campanile_domain::rules::row::{Audience, Preference, Route, Row, Setting, Template};
use campanile_domain::template::{canonical_locale, is_locale};
use campanile_store::{RowFilter, RowPage, Table, TableRow};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::body::{self, Received, Sent};
use super::problem::FieldProblem;
use super::query::Query;
use super::{App, Problem};

const MAX_ROWS: usize = 10_000;
/// The most values of all rows in a request, including those in lists. A value takes some hundred bytes in memory, and
/// as little as two in the text.
const MAX_VALUES: usize = 250_000;

type Given = Parameters<HashMap<String, String>>;

pub fn methods(table: Table) -> MethodRouter<App> {
    put(move |State(app): State<App>, headers: HeaderMap, body: Body| write(app, table, headers, body))
        .get(move |State(app): State<App>, Parameters(given): Given| list(app, table, given))
        .delete(move |State(app): State<App>, Parameters(given): Given| delete(app, table, given))
}

async fn write(app: App, table: Table, headers: HeaderMap, body: Body) -> Result<Json<Value>, Problem> {
    let received = body::read(&headers, body).await?;
    // Templates are compiled, which may take milliseconds each. Until they are written, rows take several times the
    // memory of their text.
    let permit = match table {
        Table::Templates => app.heavy.permit_of_heavy().await,
        _ => app.heavy.permit(received.len()).await,
    };
    let rows = permit.run(|| rows_of(table, &received, app.engine.user_types()))?;
    drop(received);
    let written = app.engine.put_rows(table, rows).await.map_err(Problem::of_write)?;
    Ok(Json(json!({ "written": written })))
}

fn rows_of(table: Table, received: &Received, user_types: &UserTypes) -> Result<Vec<TableRow>, Problem> {
    let Sent::Many(items) = received.json()? else {
        return Err(Problem::malformed("the body must be an array of rows"));
    };
    let items = items.at_most(MAX_ROWS, "rows")?;
    let values = received.count_values();
    if values > MAX_VALUES {
        let detail = format!("at most {MAX_VALUES} values per request, got {values}; send fewer rows");
        return Err(Problem::invalid(vec![FieldProblem { index: 0, pointer: String::new(), detail }]));
    }
    match table {
        Table::Recipients => checked::<Recipient>(&items, user_types),
        Table::Entities => checked::<Entity>(&items, user_types),
        Table::Preferences => checked::<Preference>(&items, user_types),
        Table::Settings => checked::<Setting>(&items, user_types),
        Table::Routing => checked::<Route>(&items, user_types),
        Table::Audiences => checked::<Audience>(&items, user_types),
        Table::Templates => checked::<Template>(&items, user_types),
    }
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

async fn list(app: App, table: Table, given: HashMap<String, String>) -> Result<Json<Value>, Problem> {
    let mut query = Query::new(given)?;
    let limit = query.take_limit()?;
    let after = query.take("cursor").map(|cursor| parse_cursor(table, &cursor)).transpose()?;
    let columns: Vec<(&str, String)> =
        table.filters().filter_map(|name| query.take(name).map(|value| (name, value))).collect();
    if let Some((_, active)) =
        columns.iter().find(|(name, value)| *name == "active" && !["true", "false"].contains(&value.as_str()))
    {
        return Err(Problem::bad_query(format!("active: `{active}` is neither `true` nor `false`")));
    }
    query.end(&format!("{}, cursor, limit", table.filters().collect::<Vec<_>>().join(", ")))?;
    let columns = columns.into_iter().map(|(name, value)| (name, as_stored(table, name, value))).collect();
    let RowPage { items, next } = app.engine.list_rows(table, RowFilter { columns, after, limit }).await?;
    Ok(Json(json!({ "items": items, "next": next.map(|key| json!(key).to_string()) })))
}

fn parse_cursor(table: Table, cursor: &str) -> Result<Vec<String>, Problem> {
    let key: Option<Vec<String>> = serde_json::from_str(cursor).ok();
    // An escape sequence may hide a NUL.
    key.filter(|key| key.len() == table.key().len() && key.iter().all(|part| !part.contains('\0')))
        .ok_or_else(|| {
            Problem::bad_query("cursor: not a cursor of this list; use `next` of its previous page")
        })
}

async fn delete(app: App, table: Table, given: HashMap<String, String>) -> Result<StatusCode, Problem> {
    let mut query = Query::new(given)?;
    let mut key = Vec::new();
    for name in table.key() {
        // A missing selector means `*`, as in a row.
        let value = query.take(name).or_else(|| table.is_selector(name).then(|| "*".to_owned()));
        key.push(value.ok_or_else(|| {
            Problem::bad_query(format!("{name} is missing; the key of a row is {}", table.key().join(", ")))
        })?);
    }
    query.end(&table.key().join(", "))?;
    let stored =
        table.key().iter().zip(key.clone()).map(|(name, value)| as_stored(table, name, value)).collect();
    // Rows written by SQL may spell a language differently.
    if !app.engine.delete_row(table, vec![key, stored]).await? {
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
