//! `GET /v1/captured`: the messages that the `capture` provider stored instead of sending.

use axum::Json;
use axum::extract::State;
use campanile_domain::id::EventId;
use campanile_store::CapturedRow;
use serde::Deserialize;
use utoipa::IntoParams;

use super::access::Caller;
use super::params::{Limit, Page, Params, number};
use super::redaction::Redaction;
use super::{App, Problem};

/// A message may have 256 KB of HTML. A page that exceeds this ends early.
const MAX_HTML_BYTES: usize = 4 * 1024 * 1024;
/// Messages that are read with one query.
const BATCH: usize = 25;

/// Which messages to list.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct CapturedParams {
    #[param(value_type = Option<EventId>)]
    event_id: Option<String>,
    #[serde(default, deserialize_with = "number")]
    #[param(value_type = Option<String>)]
    cursor: Option<i64>,
    #[serde(default)]
    #[param(value_type = Option<u32>, minimum = 1, maximum = 1000)]
    limit: Limit,
}

/// List captured messages
///
/// Messages of channels without a provider, which were stored instead of sent, from the oldest to the newest.
#[utoipa::path(
    get, path = "/v1/captured", tag = "sends", operation_id = "list_captured_messages", params(CapturedParams),
    responses((status = 200, description = "A page of messages.", body = Page<CapturedRow>)),
)]
pub async fn list(
    State(app): State<App>,
    caller: Caller,
    Params(given): Params<CapturedParams>,
) -> Result<Json<Page<CapturedRow>>, Problem> {
    let CapturedParams { event_id, cursor, limit: Limit(limit) } = given;
    let mut after = cursor.unwrap_or(0);
    let (mut items, mut html_bytes, mut more) = (Vec::new(), 0, true);
    while more && items.len() < limit && html_bytes < MAX_HTML_BYTES {
        let batch = BATCH.min(limit - items.len());
        let found = app.engine.list_captured(event_id.clone(), after, batch).await?;
        more = found.len() == batch;
        after = found.last().map_or(after, |last| last.id);
        html_bytes += found.iter().map(|message| message.html.as_ref().map_or(0, String::len)).sum::<usize>();
        items.extend(found);
    }
    let redaction = Redaction::of(&caller);
    for message in &mut items {
        redaction.address(&message.channel, &mut message.address);
    }
    Ok(Json(Page { items, next: more.then(|| after.to_string()) }))
}
