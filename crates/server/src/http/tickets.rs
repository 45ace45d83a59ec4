//! `POST /v1/tickets`: a short-lived token for one user, for browsers that cannot set headers on a WebSocket.

use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use campanile_domain::access::end_user::EndUser;
use campanile_domain::id::{EntityId, EntityRef, EntityType, UserId, UserRef, UserTypeName};
use campanile_domain::time::{self, Moment};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::access::{Caller, ticket};
use super::body;
use super::problem::FieldProblem;
use super::{App, Problem};

const MIN_SECONDS: u64 = 60;
const MAX_SECONDS: u64 = 15 * 60;
const DEFAULT_SECONDS: u64 = 5 * 60;
const MAX_NAME_CHARS: usize = 200;

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
    /// For the query parameter `ticket` of sockets and streams.
    ticket: String,
    expires_at: Moment,
}

/// Issue a ticket
///
/// For one user, for 60 s to 15 min. A user's own token issues tickets for this user only, and none outlives it.
#[utoipa::path(
    post, path = "/v1/tickets", tag = "access", operation_id = "issue_ticket", request_body = NewTicket,
    responses((status = 201, description = "The ticket.", body = Ticket)),
)]
pub async fn issue(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
    body: Body,
) -> Result<(StatusCode, Json<Ticket>), Problem> {
    let new: NewTicket = body::one(&headers, body, NewTicket::check).await?;
    let now = app.engine.now();
    let valid = Duration::from_secs(new.valid_seconds.unwrap_or(DEFAULT_SECONDS));
    let expires_at = time::later(now, valid);
    let user = match &caller {
        Caller::User(user) if new.names_somebody() => {
            return Err(wrong(
                "user_id",
                &format!("a ticket of your own token is for you, {}", user.user.user_id),
            ));
        }
        Caller::User(user) => EndUser { expires_at: expires_at.min(user.expires_at), ..EndUser::clone(user) },
        Caller::ApiKey(_) | Caller::AdminKey | Caller::Anybody => new.user(&app, expires_at)?,
    };
    let key = app.access.signing_keys.current(&app.engine).await?;
    let ticket = ticket::sign(&user, &key, now)
        .map_err(|error| Problem::unusable_data(&format!("the signing key cannot sign: {error}")))?;
    Ok((StatusCode::CREATED, Json(Ticket { ticket, expires_at: Moment(user.expires_at) })))
}

impl NewTicket {
    fn check(&self) -> Result<(), FieldProblem> {
        let wrong = |field: &str, detail: String| {
            Err(FieldProblem { index: 0, pointer: format!("/{field}"), detail })
        };
        if self.valid_seconds.is_some_and(|seconds| !(MIN_SECONDS..=MAX_SECONDS).contains(&seconds)) {
            return wrong("valid_seconds", format!("must lie between {MIN_SECONDS} and {MAX_SECONDS}"));
        }
        if self
            .name
            .as_ref()
            .is_some_and(|name| name.chars().count() > MAX_NAME_CHARS || name.chars().any(char::is_control))
        {
            return wrong(
                "name",
                format!("must have at most {MAX_NAME_CHARS} characters, none of them control"),
            );
        }
        match (&self.entity_type, &self.entity_id) {
            (Some(_), None) => wrong("entity_id", "is required with entity_type".to_owned()),
            (None, Some(_)) => wrong("entity_type", "is required with entity_id".to_owned()),
            (Some(_), Some(_)) | (None, None) => Ok(()),
        }
    }

    fn names_somebody(&self) -> bool {
        let Self { user_type, user_id, entity_type, entity_id, name, valid_seconds: _ } = self;
        user_type.is_some()
            || user_id.is_some()
            || entity_type.is_some()
            || entity_id.is_some()
            || name.is_some()
    }

    /// The user whom a service names.
    fn user(self, app: &App, expires_at: time::Timestamp) -> Result<EndUser, Problem> {
        let user_type = self.user_type.ok_or_else(|| wrong("user_type", "is missing"))?;
        let user_id = self.user_id.ok_or_else(|| wrong("user_id", "is missing"))?;
        let user_types = app.engine.user_types();
        if user_types.get(&user_type).is_none() {
            let detail = format!("unknown user type `{user_type}`: known are {}", user_types.names());
            return Err(wrong("user_type", &detail));
        }
        let entity = self.entity_type.zip(self.entity_id);
        let entity = entity.map(|(entity_type, entity_id)| EntityRef { entity_type, entity_id });
        Ok(EndUser { user: UserRef { user_type, user_id }, entity, name: self.name, expires_at })
    }
}

fn wrong(field: &str, detail: &str) -> Problem {
    let pointer = format!("/{field}");
    Problem::invalid(vec![FieldProblem { index: 0, pointer, detail: detail.to_owned() }])
}
