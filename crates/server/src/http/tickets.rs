//! `POST /v1/tickets`: a short-lived token for one user, for browsers that cannot set headers on a WebSocket.

use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use campanile_domain::access::end_user::{Claims, EndUser};
use campanile_domain::id::{EntityId, EntityType, UserId, UserTypeName};
use campanile_domain::time::{self, Moment, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::access::{Caller, ticket};
use super::body;
use super::problem::FieldProblem;
use super::{App, Problem};

const MIN_SECONDS: u64 = 60;
const MAX_SECONDS: u64 = 15 * 60;
const DEFAULT_SECONDS: u64 = 5 * 60;

/// Whom a ticket is for, and for how long. With the token of a user it is for that user, and only `valid_seconds` may
/// be given.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "user_type": "RESTAURANT_USER", "user_id": "10", "entity_type": "RESTAURANT", "entity_id": "5",
    "valid_seconds": 300,
}))]
pub struct NewTicket {
    user_type: Option<UserTypeName>,
    user_id: Option<UserId>,
    entity_type: Option<EntityType>,
    entity_id: Option<EntityId>,
    /// The name to show to others.
    #[schema(max_length = 200)]
    name: Option<String>,
    #[schema(minimum = 60, maximum = 900, default = 300)]
    valid_seconds: Option<u64>,
}

/// A ticket. It may be used again until it expires.
#[derive(Debug, Serialize, ToSchema)]
pub struct Ticket {
    /// For the query parameter `ticket` of the inbox's sockets and streams.
    ticket: String,
    expires_at: Moment,
}

/// Issue a ticket
///
/// For one user, for 60 s to 15 min. A user's own token issues tickets for this user only, and none outlives it. The
/// body may be empty then.
#[utoipa::path(
    post, path = "/v1/tickets", tag = "access", operation_id = "issue_ticket",
    request_body(content = Option<NewTicket>, content_type = "application/json"),
    responses((status = 201, description = "The ticket.", body = Ticket)),
)]
pub async fn issue(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
    body: Body,
) -> Result<(StatusCode, Json<Ticket>), Problem> {
    let new: NewTicket = body::one_or_default(&headers, body, NewTicket::check).await?;
    let now = app.engine.now();
    let expires_at = time::later(now, Duration::from_secs(new.valid_seconds.unwrap_or(DEFAULT_SECONDS)));
    let user = match &caller {
        Caller::User(user) => {
            if let Some(field) = new.for_services_only() {
                let detail = "is for services; with your own token only `valid_seconds` may be given";
                return Err(wrong(field, detail));
            }
            // Clocks may differ by a minute, but a ticket cannot have ended when it begins.
            if user.expires_at <= now {
                return Err(Problem::bad_key("invalid token: the token has expired"));
            }
            EndUser { expires_at: expires_at.min(user.expires_at), ..EndUser::clone(user) }
        }
        Caller::ApiKey(_) | Caller::AdminKey | Caller::Anybody => new.user(&app, expires_at, now)?,
    };
    let key = app.access.signing_keys.current(&app.engine).await?;
    let ticket = ticket::sign(&user, &key, now)
        .map_err(|error| Problem::internal(&format!("the signing key cannot sign: {error}")))?;
    Ok((StatusCode::CREATED, Json(Ticket { ticket, expires_at: Moment(user.expires_at) })))
}

impl NewTicket {
    fn check(&self) -> Result<(), FieldProblem> {
        if self.valid_seconds.is_none_or(|seconds| (MIN_SECONDS..=MAX_SECONDS).contains(&seconds)) {
            return Ok(());
        }
        let detail = format!("must lie between {MIN_SECONDS} and {MAX_SECONDS}");
        Err(FieldProblem { index: 0, pointer: "/valid_seconds".to_owned(), detail })
    }

    /// The first field that only services may give.
    fn for_services_only(&self) -> Option<&'static str> {
        let Self { user_type, user_id, entity_type, entity_id, name, valid_seconds: _ } = self;
        [
            ("user_type", user_type.is_some()),
            ("user_id", user_id.is_some()),
            ("entity_type", entity_type.is_some()),
            ("entity_id", entity_id.is_some()),
            ("name", name.is_some()),
        ]
        .into_iter()
        .find_map(|(field, is_given)| is_given.then_some(field))
    }

    /// The user whom a service names.
    fn user(self, app: &App, expires_at: Timestamp, now: Timestamp) -> Result<EndUser, Problem> {
        let claims = Claims {
            user_type: self.user_type.ok_or_else(|| wrong("user_type", "is missing"))?,
            sub: self.user_id.ok_or_else(|| wrong("user_id", "is missing"))?,
            entity_type: self.entity_type,
            entity_id: self.entity_id,
            name: self.name,
            exp: Value::from(expires_at.as_second()),
            aud: Value::Null,
        };
        EndUser::of(claims, app.engine.user_types(), now).map_err(|error| wrong(&error.field, &error.detail))
    }
}

fn wrong(field: &str, detail: &str) -> Problem {
    let pointer = format!("/{field}");
    Problem::invalid(vec![FieldProblem { index: 0, pointer, detail: detail.to_owned() }])
}
