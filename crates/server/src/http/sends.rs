//! `/v1/sends`: lists sends, and resolves sends in doubt.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use campanile_domain::access::audit::Actor;
use campanile_domain::channel::Channel;
use campanile_domain::id::{EventId, SendKey, UserId, UserTypeName};
use campanile_domain::status::SendStatus;
use campanile_store::{ListedSend, Resolution, Resolved, SendCursor, SendFilter, SendPage};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::access::{Caller, Operator};
use super::body;
use super::params::{Limit, Page, Params, PathId, parsed};
use super::problem::FieldProblem;
use super::redaction::Redaction;
use super::send_rows::{self, ShownSend};
use super::{App, Problem};

const MAX_NOTE_CHARS: usize = 2_000;

/// Which sends to list.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct SendParams {
    #[serde(default, deserialize_with = "status")]
    #[param(value_type = Option<SendStatus>, example = "IN_DOUBT")]
    status: Option<SendStatus>,
    #[serde(default, deserialize_with = "parsed")]
    #[param(value_type = Option<Channel>)]
    channel: Option<Channel>,
    #[param(value_type = Option<EventId>)]
    event_id: Option<String>,
    #[param(value_type = Option<UserTypeName>)]
    user_type: Option<String>,
    #[param(value_type = Option<UserId>)]
    user_id: Option<String>,
    provider: Option<String>,
    cursor: Option<String>,
    #[serde(default)]
    #[param(value_type = Option<u32>, minimum = 1, maximum = 1000)]
    limit: Limit,
}

fn status<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SendStatus>, D::Error> {
    let status = String::deserialize(deserializer)?;
    let known: Vec<&str> = SendStatus::ALL.iter().map(|status| status.as_str()).collect();
    status
        .parse()
        .map(Some)
        .map_err(|_| D::Error::custom(format!("unknown status `{status}`: expected {}", known.join(", "))))
}

/// List sends
///
/// With an event, by recipient. Without one, `IN_DOUBT` and `DUE` sends in the order in which they wait, and others
/// from the newest to the oldest. Without the scope `payload`, addresses are hidden.
#[utoipa::path(
    get, path = "/v1/sends", tag = "sends", operation_id = "list_sends", params(SendParams),
    responses((status = 200, description = "A page of sends.", body = Page<ShownSend<ListedSend>>)),
)]
pub async fn list(
    State(app): State<App>,
    caller: Caller,
    Params(given): Params<SendParams>,
) -> Result<Json<Page<ShownSend<ListedSend>>>, Problem> {
    let mut filter = SendFilter {
        status: given.status,
        channel: given.channel,
        event_id: given.event_id,
        user_type: given.user_type,
        user_id: given.user_id,
        provider: given.provider,
        after: None,
        limit: given.limit.0,
    };
    if let Some(cursor) = given.cursor {
        let wrong = || {
            Problem::bad_query(
                "cursor: not a cursor for these filters; use `next` of the previous page, with the same filters",
            )
        };
        filter.after = Some(filter.cursor(&cursor).ok_or_else(wrong)?);
    }
    let SendPage { mut items, next } = app.engine.list_sends(filter).await?;
    for send in &mut items {
        Redaction::of(&caller).send(&mut send.row);
    }
    let items = send_rows::shown(app.engine.providers(), items, |send| &send.row);
    Ok(Json(Page { items, next: next.as_ref().map(SendCursor::to_text) }))
}

/// Why a send is sent again.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"note": "the customer did not get it"}))]
pub struct Resend {
    #[schema(max_length = 2000)]
    note: Option<String>,
}

/// The new status of a send.
#[derive(Debug, Serialize, ToSchema)]
pub struct ResolvedSend {
    id: SendKey,
    status: SendStatus,
}

/// Send a send in doubt again
#[utoipa::path(
    post, path = "/v1/sends/{id}/resend", tag = "sends", operation_id = "resend",
    params(("id" = SendKey, Path, description = "The send's id.")),
    request_body(content = Option<Resend>, content_type = "application/json"),
    responses(
        (status = 200, description = "It is sent again at once.", body = ResolvedSend),
        (status = 404, description = "There is no such send.", body = Problem,
         content_type = "application/problem+json"),
        (status = 409, description = "The send is not in doubt.", body = Problem,
         content_type = "application/problem+json"),
    ),
)]
pub async fn resend(
    State(app): State<App>,
    Operator(actor): Operator,
    PathId(id): PathId,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<ResolvedSend>, Problem> {
    let Resend { note } =
        body::one_or_default(&headers, body, |resend: &Resend| check_note(resend.note.as_deref())).await?;
    resolve(&app, &actor, &id, Resolution::Resend, note).await
}

/// The outcome that a person knows.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"as": "SENT", "note": "the customer confirmed it"}))]
pub struct Settle {
    #[serde(rename = "as")]
    end: SettledStatus,
    #[schema(max_length = 2000)]
    note: Option<String>,
}

/// Whether the message arrived.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "UPPERCASE")]
enum SettledStatus {
    Sent,
    Failed,
}

/// Settle a send in doubt
#[utoipa::path(
    post, path = "/v1/sends/{id}/settle", tag = "sends", operation_id = "settle",
    params(("id" = SendKey, Path, description = "The send's id.")),
    request_body = Settle,
    responses(
        (status = 200, description = "The outcome is recorded.", body = ResolvedSend),
        (status = 404, description = "There is no such send.", body = Problem,
         content_type = "application/problem+json"),
        (status = 409, description = "The send is not in doubt.", body = Problem,
         content_type = "application/problem+json"),
    ),
)]
pub async fn settle(
    State(app): State<App>,
    Operator(actor): Operator,
    PathId(id): PathId,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<ResolvedSend>, Problem> {
    let Settle { end, note } =
        body::one(&headers, body, |settle: &Settle| check_note(settle.note.as_deref())).await?;
    let resolution = match end {
        SettledStatus::Sent => Resolution::Sent,
        SettledStatus::Failed => Resolution::Failed,
    };
    resolve(&app, &actor, &id, resolution, note).await
}

/// Checks a note. It is stored with the errors of attempts, which are one line each.
fn check_note(note: Option<&str>) -> Result<(), FieldProblem> {
    let wrong = |detail: String| FieldProblem { index: 0, pointer: "/note".to_owned(), detail };
    let Some(note) = note else { return Ok(()) };
    match note.chars().count() {
        chars if chars > MAX_NOTE_CHARS => {
            Err(wrong(format!("must have at most {MAX_NOTE_CHARS} characters, has {chars}")))
        }
        _ if note.chars().any(char::is_control) => {
            Err(wrong("must not contain control characters such as NUL or line breaks".to_owned()))
        }
        _ => Ok(()),
    }
}

async fn resolve(
    app: &App,
    actor: &Actor,
    id: &str,
    resolution: Resolution,
    note: Option<String>,
) -> Result<Json<ResolvedSend>, Problem> {
    let key: SendKey = id.parse().map_err(|error| Problem::not_found(format!("{error}")))?;
    let resolved = app.engine.resolve(key, resolution, note, actor).await;
    match resolved.map_err(Problem::of_write)? {
        Resolved::Done => Ok(Json(ResolvedSend { id: key, status: resolution.status() })),
        Resolved::Unknown => Err(Problem::not_found(format!("send `{key}` not found"))),
        Resolved::NotInDoubt(status) => Err(Problem::not_in_doubt(format!("{key} {}", instead(status)))),
    }
}

/// The status of a send that is not in doubt, and what can be done about it.
fn instead(status: SendStatus) -> &'static str {
    match status {
        SendStatus::Failed => {
            "is FAILED, not IN_DOUBT; to retry, replay its dead letter (POST /v1/dead-letters/replay)"
        }
        SendStatus::Sent => "is already SENT, not IN_DOUBT; nothing was changed",
        SendStatus::Due => "is DUE, not IN_DOUBT; it will be sent automatically",
        SendStatus::Sending => "is SENDING, not IN_DOUBT; it is being sent now",
        SendStatus::Cancelled => "is CANCELLED, not IN_DOUBT; nothing was changed",
        SendStatus::InDoubt => "is IN_DOUBT",
    }
}
