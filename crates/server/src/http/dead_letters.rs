//! `/v1/dead-letters`: lists and replays dead letters.

use std::collections::HashMap;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::{Query as Parameters, State};
use axum::http::HeaderMap;
use campanile_domain::channel::Channel;
use campanile_domain::id::EventId;
use campanile_engine::ReplayLimits;
use campanile_store::DeadLetterFilter;
use serde::Deserialize;
use serde_json::{Value, json};

use super::body;
use super::problem::FieldProblem;
use super::query::Query;
use super::{App, Problem};

const STAGES: [&str; 4] = ["fan_out", "publish", "receive", "send"];
/// Dead letters of one transaction.
const BATCH: usize = 1_000;
const DEFAULT_REPLAYED: usize = 10_000;
const MAX_REPLAYED: usize = 100_000;
/// A replay that takes longer answers how far it came, before HTTP clients time out.
const REPLAY_TIMEOUT: Duration = Duration::from_secs(20);
/// The most skipped dead letters that are listed with their reasons; the others are counted.
const MAX_SKIPPED_LISTED: usize = 100;

pub async fn list(
    State(app): State<App>,
    Parameters(given): Parameters<HashMap<String, String>>,
) -> Result<Json<Value>, Problem> {
    let mut query = Query::new(given)?;
    let filter = DeadLetterFilter {
        id: query.take_number("id")?,
        event_id: query.take("event_id"),
        stage: query.take("stage"),
        channel: query.take("channel"),
        provider: query.take("provider"),
        reason: query.take("reason"),
        error: query.take("error"),
        replayed: match query.take("replayed").as_deref() {
            None | Some("false") => false,
            Some("true") => true,
            Some(other) => {
                return Err(Problem::bad_query(format!("replayed: `{other}` is neither `true` nor `false`")));
            }
        },
        until: None,
        after: query.take_number("cursor")?.unwrap_or(0),
        limit: query.take_limit()?,
    };
    query.end("id, event_id, stage, channel, provider, reason, error, replayed, cursor, limit")?;
    check(filter.stage.as_deref(), filter.channel.as_deref())
        .map_err(|(name, detail)| Problem::bad_query(format!("{name}: {detail}")))?;
    let limit = filter.limit;
    let items = app.engine.list_dead_letters(filter).await?;
    let next = items.last().filter(|_| items.len() == limit).map(|last| last.row.id);
    Ok(Json(json!({ "items": items, "next": next })))
}

/// Validates the filters: a misspelt word would match nothing and look as if there were no dead letters.
fn check(stage: Option<&str>, channel: Option<&str>) -> Result<(), (&'static str, String)> {
    if let Some(stage) = stage.filter(|stage| !STAGES.contains(stage)) {
        return Err(("stage", format!("unknown stage `{stage}`: expected {}", STAGES.join(", "))));
    }
    channel.map_or(Ok(()), |channel| match channel.parse::<Channel>() {
        Ok(_) => Ok(()),
        Err(error) => Err(("channel", error.to_string())),
    })
}

/// The dead letters to replay: those that match the filters, or all if that is requested.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    id: Option<i64>,
    event_id: Option<EventId>,
    stage: Option<String>,
    channel: Option<String>,
    provider: Option<String>,
    reason: Option<String>,
    error: Option<String>,
    #[serde(default)]
    all: bool,
    #[serde(default)]
    cursor: i64,
    limit: Option<usize>,
}

impl Wanted {
    fn check(&self) -> Result<(), FieldProblem> {
        let wrong =
            |name: &str, detail: String| FieldProblem { index: 0, pointer: format!("/{name}"), detail };
        if self.limit.is_some_and(|limit| limit == 0 || limit > MAX_REPLAYED) {
            return Err(wrong("limit", format!("must lie between 1 and {MAX_REPLAYED}")));
        }
        match (self.all, self.narrows()) {
            (false, false) => {
                let detail = "set a filter (id, event_id, stage, channel, provider, reason, error), or `\"all\": true`";
                return Err(wrong("all", detail.to_owned()));
            }
            (true, true) => {
                let detail = "`all` cannot be combined with filters; use one or the other";
                return Err(wrong("all", detail.to_owned()));
            }
            (true, false) | (false, true) => {}
        }
        let texts = [
            ("stage", &self.stage),
            ("channel", &self.channel),
            ("provider", &self.provider),
            ("reason", &self.reason),
            ("error", &self.error),
        ];
        if let Some((name, _)) =
            texts.iter().find(|(_, text)| text.as_ref().is_some_and(|t| t.contains('\0')))
        {
            return Err(wrong(name, "must not contain NUL".to_owned()));
        }
        check(self.stage.as_deref(), self.channel.as_deref()).map_err(|(name, detail)| wrong(name, detail))
    }

    fn narrows(&self) -> bool {
        let texts = [&self.stage, &self.channel, &self.provider, &self.reason, &self.error];
        self.id.is_some() || self.event_id.is_some() || texts.into_iter().any(Option::is_some)
    }

    /// Without the limit, which is one of the whole replay.
    fn filter(self) -> DeadLetterFilter {
        let Wanted { id, event_id, stage, channel, provider, reason, error, cursor, .. } = self;
        let event_id = event_id.map(|id| id.to_string());
        DeadLetterFilter {
            id,
            event_id,
            stage,
            channel,
            provider,
            reason,
            error,
            after: cursor,
            ..DeadLetterFilter::default()
        }
    }
}

pub async fn replay(State(app): State<App>, headers: HeaderMap, body: Body) -> Result<Json<Value>, Problem> {
    let received = body::read(&headers, body).await?;
    let wanted = received.one("the body must be an object with filters, or {\"all\": true}")?;
    let Some(wanted) = body::typed(&[wanted], Wanted::check)?.pop() else {
        return Err(Problem::malformed("the body is empty"));
    };
    let limits = ReplayLimits {
        dead_letters: wanted.limit.unwrap_or(DEFAULT_REPLAYED),
        batch: BATCH,
        timeout: REPLAY_TIMEOUT,
    };
    let total = app.engine.replay(wanted.filter(), limits).await?;
    let skipped: Vec<Value> = total
        .skipped
        .iter()
        .take(MAX_SKIPPED_LISTED)
        .map(|(id, reason)| json!({ "id": id, "reason": reason }))
        .collect();
    Ok(Json(json!({
        "replayed": total.replayed, "skipped": skipped, "skipped_total": total.skipped.len(), "next": total.next,
    })))
}
