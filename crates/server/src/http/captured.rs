//! `GET /v1/captured`: what the `capture` provider kept instead of sending it.

use std::collections::HashMap;

use axum::Json;
use axum::extract::{Query as Parameters, State};
use serde_json::{Value, json};

use super::query::Query;
use super::{App, Problem, send_rows};

pub async fn list(
    State(app): State<App>,
    Parameters(given): Parameters<HashMap<String, String>>,
) -> Result<Json<Value>, Problem> {
    let mut query = Query::new(given)?;
    let event_id = query.take("event_id");
    let after = query.take_number("cursor")?.unwrap_or(0);
    let limit = query.take_limit()?;
    query.end("event_id, cursor, limit")?;
    let mut items = app.engine.store.list_captured(event_id, after, limit).await?;
    send_rows::mask_webhooks("address", &mut items);
    let next = items.last().filter(|_| items.len() == limit).and_then(|last| last.get("id")).cloned();
    Ok(Json(json!({ "items": items, "next": next })))
}
