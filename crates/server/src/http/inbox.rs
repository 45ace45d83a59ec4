//! `/v1/inbox`: what an end user sees and changes. The caller's token names the user; nothing else does.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use campanile_domain::id::UserRef;
use campanile_domain::inbox::preferences::{Choice, EffectiveChoice};
use campanile_domain::rules::row::Row;
use serde::Serialize;
use utoipa::ToSchema;

use super::access::EndUserCaller;
use super::body::{self, Sent};
use super::problem::FieldProblem;
use super::rows::Written;
use super::{App, Problem};

const MAX_CHOICES: usize = 1_000;

/// The preferences of a user.
#[derive(Debug, Serialize, ToSchema)]
pub struct Preferences {
    /// For each event type that may concern the user and for `*`, each channel that it may come over.
    items: Vec<EffectiveChoice>,
}

/// Read the own preferences
///
/// What may be chosen, what was chosen, what is locked and why, and what the rules decide now.
#[utoipa::path(
    get, path = "/v1/inbox/preferences", tag = "inbox", operation_id = "read_own_preferences",
    responses(
        (status = 200, description = "The preferences.", body = Preferences),
        (status = 404, description = "The user is no recipient.", body = Problem,
         content_type = "application/problem+json"),
    ),
)]
pub async fn preferences(
    State(app): State<App>,
    EndUserCaller(user): EndUserCaller,
) -> Result<Json<Preferences>, Problem> {
    let UserRef { user_type, user_id } = &user.user;
    let found = app.engine.preferences_of(&user.user).await?;
    let items = found
        .ok_or_else(|| Problem::not_found(format!("there is no active recipient {user_type} {user_id}")))?;
    Ok(Json(Preferences { items }))
}

/// Write own preferences
///
/// Replaces the choices for these event types and channels, all or none. A field that is missing has its default. What
/// is locked cannot be switched off.
#[utoipa::path(
    put, path = "/v1/inbox/preferences", tag = "inbox", operation_id = "write_own_preferences",
    request_body = Vec<Choice>,
    responses((status = 200, description = "The choices are written.", body = Written)),
)]
pub async fn choose(
    State(app): State<App>,
    EndUserCaller(user): EndUserCaller,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Written>, Problem> {
    let received = body::read(&headers, body).await?;
    let Sent::Many(items) = received.json()? else {
        return Err(Problem::malformed("the body must be an array of choices"));
    };
    let rules = app.engine.rules();
    let choices = body::typed(&items.at_most(MAX_CHOICES, "choices")?, |choice: &Choice| {
        let row = choice.clone().of(user.user.clone());
        let checked = row.check(&rules.user_types).and_then(|()| choice.check_lock(&rules, &user.user));
        checked.map_err(|error| FieldProblem {
            index: 0,
            pointer: format!("/{}", error.field),
            detail: error.detail,
        })
    })?;
    let written = app.engine.choose(&user.user, choices).await.map_err(Problem::of_write)?;
    Ok(Json(Written { written }))
}
