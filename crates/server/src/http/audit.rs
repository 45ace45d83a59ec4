//! `GET /v1/audit`: who changed what over HTTP.

use axum::Json;
use axum::extract::State;
use campanile_store::{AuditOf, AuditRow};
use serde::Deserialize;
use utoipa::IntoParams;

use super::params::{Limit, Page, Params, number};
use super::{App, Problem};

/// Which changes to list: of a thing, of a kind of things, or by an API key.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct AuditParams {
    #[param(example = "recipient")]
    object_type: Option<String>,
    /// Together with `object_type`.
    #[param(example = "[\"RESTAURANT_USER\",\"10\"]")]
    object_id: Option<String>,
    /// The id of an API key; empty for the admin key.
    actor_id: Option<String>,
    #[serde(default, deserialize_with = "number")]
    #[param(value_type = Option<String>)]
    cursor: Option<i64>,
    #[serde(default)]
    #[param(value_type = Option<u32>, minimum = 1, maximum = 1000)]
    limit: Limit,
}

/// List changes
///
/// Every change of people, rules, templates and keys, and every operator's action, the newest first. Secrets are left
/// out.
#[utoipa::path(
    get, path = "/v1/audit", tag = "access", operation_id = "list_audit", params(AuditParams),
    responses((status = 200, description = "A page of changes.", body = Page<AuditRow>)),
)]
pub async fn list(
    State(app): State<App>,
    Params(given): Params<AuditParams>,
) -> Result<Json<Page<AuditRow>>, Problem> {
    let of = match (given.object_type, given.object_id, given.actor_id) {
        (None, None, None) => AuditOf::Everything,
        (Some(object_type), None, None) => AuditOf::Type(object_type),
        (Some(object_type), Some(object_id), None) => AuditOf::Object { object_type, object_id },
        (None, None, Some(actor_id)) => AuditOf::Actor(actor_id),
        (None, Some(_), _) => return Err(Problem::bad_query("object_id: must be given with object_type")),
        (Some(_), _, Some(_)) => {
            return Err(Problem::bad_query("actor_id: cannot be combined with object_type"));
        }
    };
    let limit = given.limit.0;
    let items = app.engine.list_audit(of, given.cursor, limit).await?;
    Ok(Json(Page::full(items, limit, |change| change.id)))
}
