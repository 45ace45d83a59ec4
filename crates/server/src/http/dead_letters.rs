//! `/v1/dead-letters`: lists and replays dead letters.

use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use campanile_domain::access::scope::Scope;
use campanile_domain::channel::Channel;
use campanile_domain::id::EventId;
use campanile_engine::ReplayLimits;
use campanile_store::{DeadLetterFilter, ListedDeadLetter, Replayed};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::access::{Caller, Operator};
use super::body;
use super::params::{Limit, Page, Params, flag, number};
use super::problem::FieldProblem;
use super::redaction::Redaction;
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

/// Which dead letters to list.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct DeadLetterParams {
    #[serde(default, deserialize_with = "number")]
    id: Option<i64>,
    event_id: Option<String>,
    /// `fan_out`, `publish`, `receive` or `send`.
    stage: Option<String>,
    #[param(value_type = Option<Channel>)]
    channel: Option<String>,
    provider: Option<String>,
    /// The code of the failure.
    #[param(example = "NO_RECIPIENTS")]
    reason: Option<String>,
    /// A part of the error's text. It may contain an address, so this filter needs the scope `payload`.
    error: Option<String>,
    /// Whether those that were replayed already are included.
    #[serde(default, deserialize_with = "flag")]
    #[param(value_type = Option<bool>)]
    replayed: bool,
    #[serde(default, deserialize_with = "number")]
    #[param(value_type = Option<String>)]
    cursor: Option<i64>,
    #[serde(default)]
    #[param(value_type = Option<u32>, minimum = 1, maximum = 1000)]
    limit: Limit,
}

/// List dead letters
///
/// What failed for good, from the oldest to the newest.
#[utoipa::path(
    get, path = "/v1/dead-letters", tag = "dead letters", operation_id = "list_dead_letters", params(DeadLetterParams),
    responses((status = 200, description = "A page of dead letters.", body = Page<ListedDeadLetter>)),
)]
pub async fn list(
    State(app): State<App>,
    caller: Caller,
    Params(given): Params<DeadLetterParams>,
) -> Result<Json<Page<ListedDeadLetter>>, Problem> {
    check(given.stage.as_deref(), given.channel.as_deref())
        .map_err(|(name, detail)| Problem::bad_query(format!("{name}: {detail}")))?;
    if given.error.is_some() && !caller.sees_payloads() {
        return Err(Problem::missing_scope(Scope::Payload));
    }
    let limit = given.limit.0;
    let filter = DeadLetterFilter {
        id: given.id,
        event_id: given.event_id,
        stage: given.stage,
        channel: given.channel,
        provider: given.provider,
        reason: given.reason,
        error: given.error,
        replayed: given.replayed,
        until: None,
        after: given.cursor.unwrap_or(0),
        limit,
    };
    let mut items = app.engine.list_dead_letters(filter).await?;
    for dead_letter in &mut items {
        Redaction::of(&caller).listed_dead_letter(dead_letter);
    }
    Ok(Json(Page::full(items, limit, |dead_letter| dead_letter.row.id)))
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
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"reason": "NO_RECIPIENTS"}))]
pub struct ReplayRequest {
    id: Option<i64>,
    event_id: Option<EventId>,
    stage: Option<String>,
    channel: Option<String>,
    provider: Option<String>,
    reason: Option<String>,
    error: Option<String>,
    /// Every dead letter; instead of filters.
    #[serde(default)]
    all: bool,
    /// `next` of the previous call.
    cursor: Option<String>,
    /// The most dead letters to replay.
    #[schema(minimum = 1, maximum = 100_000)]
    limit: Option<usize>,
}

impl ReplayRequest {
    fn check(&self) -> Result<(), FieldProblem> {
        let wrong =
            |name: &str, detail: String| FieldProblem { index: 0, pointer: format!("/{name}"), detail };
        if self.limit.is_some_and(|limit| limit == 0 || limit > MAX_REPLAYED) {
            return Err(wrong("limit", format!("must lie between 1 and {MAX_REPLAYED}")));
        }
        if self.cursor.as_ref().is_some_and(|cursor| cursor.parse::<i64>().is_err()) {
            return Err(wrong("cursor", "is not a cursor; use `next` of the previous call".to_owned()));
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
        let ReplayRequest { id, event_id, stage, channel, provider, reason, error, cursor, .. } = self;
        let event_id = event_id.map(|id| id.to_string());
        DeadLetterFilter {
            id,
            event_id,
            stage,
            channel,
            provider,
            reason,
            error,
            after: cursor.and_then(|cursor| cursor.parse().ok()).unwrap_or_default(),
            ..DeadLetterFilter::default()
        }
    }
}

/// What became of a replay.
#[derive(Debug, Serialize, ToSchema)]
pub struct ReplayResult {
    /// The dead letters whose event, row or send is processed again.
    replayed: u64,
    /// At most 100 of those that cannot be replayed.
    skipped: Vec<SkippedDeadLetter>,
    skipped_total: usize,
    /// The cursor of the next call, if there may be more. Null at the end.
    next: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct SkippedDeadLetter {
    id: i64,
    reason: String,
}

/// Replay dead letters
///
/// Moves failed events, rows and sends back to the stage where they failed. Nobody who was told is told again.
#[utoipa::path(
    post, path = "/v1/dead-letters/replay", tag = "dead letters", operation_id = "replay_dead_letters",
    request_body = ReplayRequest,
    responses((status = 200, description = "They are processed again.", body = ReplayResult)),
)]
pub async fn replay(
    State(app): State<App>,
    caller: Caller,
    Operator(actor): Operator,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<ReplayResult>, Problem> {
    let received = body::read(&headers, body).await?;
    let wanted = received.one("the body must be an object with filters, or {\"all\": true}")?;
    let Some(wanted) = body::typed(&[wanted], ReplayRequest::check)?.pop() else {
        return Err(Problem::malformed("the body is empty"));
    };
    if wanted.error.is_some() && !caller.sees_payloads() {
        return Err(Problem::missing_scope(Scope::Payload));
    }
    let limits = ReplayLimits {
        dead_letters: wanted.limit.unwrap_or(DEFAULT_REPLAYED),
        batch: BATCH,
        timeout: REPLAY_TIMEOUT,
    };
    let Replayed { replayed, skipped, next } = app.engine.replay(wanted.filter(), limits, &actor).await?;
    let skipped_total = skipped.len();
    let listed = skipped.into_iter().take(MAX_SKIPPED_LISTED);
    Ok(Json(ReplayResult {
        replayed,
        skipped: listed.map(|(id, reason)| SkippedDeadLetter { id, reason }).collect(),
        skipped_total,
        next: next.map(|next| next.to_string()),
    }))
}
