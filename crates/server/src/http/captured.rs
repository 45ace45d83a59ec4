//! `GET /v1/captured`: the messages that the `capture` provider stored instead of sending.

use std::collections::HashMap;

use axum::Json;
use axum::extract::{Query as Parameters, State};
use serde_json::{Value, json};

use super::query::Query;
use super::{App, Problem, send_rows};

/// A message may have 256 KB of HTML. A page that exceeds this ends early.
const MAX_HTML_BYTES: usize = 4 * 1024 * 1024;
/// Messages that are read with one query.
const BATCH: usize = 25;

pub async fn list(
    State(app): State<App>,
    Parameters(given): Parameters<HashMap<String, String>>,
) -> Result<Json<Value>, Problem> {
    let mut query = Query::new(given)?;
    let event_id = query.take("event_id");
    let mut after = query.take_number("cursor")?.unwrap_or(0);
    let limit = query.take_limit()?;
    query.end("event_id, cursor, limit")?;
    let (mut items, mut html_bytes, mut more) = (Vec::new(), 0, true);
    while more && items.len() < limit && html_bytes < MAX_HTML_BYTES {
        let batch = BATCH.min(limit - items.len());
        let found = app.engine.list_captured(event_id.clone(), after, batch).await?;
        more = found.len() == batch;
        after = found.last().map_or(after, |last| last.id);
        html_bytes += found.iter().map(|message| message.html.as_ref().map_or(0, String::len)).sum::<usize>();
        items.extend(found);
    }
    for message in &mut items {
        send_rows::mask_secret(&message.channel, &mut message.address);
    }
    Ok(Json(json!({ "items": items, "next": more.then_some(after) })))
}
