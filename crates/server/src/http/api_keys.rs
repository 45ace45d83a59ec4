//! `/v1/api-keys`: creates, lists and revokes the keys of services.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use campanile_domain::access::api_key::{ApiKey, ApiKeyId, ApiKeyToken, NewApiKey};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::access::Operator;
use super::body;
use super::params::{Limit, Page, Params, PathId, number};
use super::problem::FieldProblem;
use super::{App, Problem};
use crate::data_folder::random_bytes;

/// A new key. Only this answer shows it.
#[derive(Debug, Serialize, ToSchema)]
pub struct CreatedApiKey {
    /// The whole key, for the header `Authorization: Bearer KEY`.
    key: String,
    #[serde(flatten)]
    stored: ApiKey,
}

/// Create an API key
///
/// The answer shows the key, and nothing shows it again.
#[utoipa::path(
    post, path = "/v1/api-keys", tag = "access", operation_id = "create_api_key",
    request_body(content = NewApiKey, example = json!({"name": "booking service", "scopes": ["emit", "read"]})),
    responses((status = 201, description = "The key.", body = CreatedApiKey)),
)]
pub async fn create(
    State(app): State<App>,
    Operator(actor): Operator,
    headers: HeaderMap,
    body: Body,
) -> Result<(StatusCode, Json<CreatedApiKey>), Problem> {
    let now = app.engine.now();
    let key: NewApiKey = body::one(&headers, body, |key: &NewApiKey| {
        key.check(now).map_err(|error| FieldProblem {
            index: 0,
            pointer: format!("/{}", error.field),
            detail: error.detail,
        })
    })
    .await?;
    let random = || Problem::unavailable("the system has no random numbers; try again later");
    let id = random_bytes().map_err(|_| random())?;
    let secret = random_bytes().map_err(|_| random())?;
    let token = ApiKeyToken::new(id, secret);
    let stored = app.engine.create_api_key(&token, key, &actor).await.map_err(Problem::of_write)?;
    Ok((StatusCode::CREATED, Json(CreatedApiKey { key: token.reveal(), stored })))
}

/// Which page of the list to show.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ApiKeyParams {
    #[serde(default, deserialize_with = "number")]
    #[param(value_type = Option<String>)]
    cursor: Option<i64>,
    #[serde(default)]
    #[param(value_type = Option<u32>, minimum = 1, maximum = 1000)]
    limit: Limit,
}

/// List API keys
///
/// Also those that are revoked or expired, the newest first.
#[utoipa::path(
    get, path = "/v1/api-keys", tag = "access", operation_id = "list_api_keys", params(ApiKeyParams),
    responses((status = 200, description = "A page of keys.", body = Page<ApiKey>)),
)]
pub async fn list(
    State(app): State<App>,
    Params(given): Params<ApiKeyParams>,
) -> Result<Json<Page<ApiKey>>, Problem> {
    let page = app.engine.list_api_keys(given.cursor, given.limit.0).await?;
    Ok(Json(Page { items: page.items, next: page.next.map(|next| next.to_string()) }))
}

/// Revoke an API key
///
/// It is refused by every instance within five seconds.
#[utoipa::path(
    delete, path = "/v1/api-keys/{id}", tag = "access", operation_id = "revoke_api_key",
    params(("id" = ApiKeyId, Path, description = "The key's id.")),
    responses(
        (status = 204, description = "The key is revoked."),
        (status = 404, description = "There is no such key.", body = Problem,
         content_type = "application/problem+json"),
    ),
)]
pub async fn revoke(
    State(app): State<App>,
    Operator(actor): Operator,
    PathId(id): PathId,
) -> Result<StatusCode, Problem> {
    let id: ApiKeyId = id.parse().map_err(|error| Problem::not_found(format!("{error}")))?;
    if !app.engine.revoke_api_key(&id, &actor).await? {
        return Err(Problem::not_found(format!("API key {id} not found")));
    }
    Ok(StatusCode::NO_CONTENT)
}

/// How to replace the signing key.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"revoke_old": false}))]
pub struct Rotation {
    /// Whether tokens of older keys end at once. Otherwise they stay valid until they expire.
    #[serde(default)]
    revoke_old: bool,
}

/// The key that signs from now on.
#[derive(Debug, Serialize, ToSchema)]
pub struct Rotated {
    id: i64,
}

/// Replace the signing key
///
/// The key signs tickets and other tokens of this installation. A key in the configuration is replaced there.
#[utoipa::path(
    post, path = "/v1/signing-key/rotate", tag = "access", operation_id = "rotate_signing_key",
    request_body = Rotation,
    responses(
        (status = 200, description = "A new key signs.", body = Rotated),
        (status = 409, description = "The configuration has the key.", body = Problem,
         content_type = "application/problem+json"),
    ),
)]
pub async fn rotate(
    State(app): State<App>,
    Operator(actor): Operator,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Rotated>, Problem> {
    if app.access.signing_keys.is_configured() {
        let detail =
            "auth.signing_key is set in the configuration, and signs; replace it there on every instance";
        return Err(Problem::configured_key(detail));
    }
    let Rotation { revoke_old } = body::one(&headers, body, |_| Ok(())).await?;
    let id = app.access.signing_keys.rotate(&app.engine, revoke_old, &actor).await?;
    Ok(Json(Rotated { id }))
}
