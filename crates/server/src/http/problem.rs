//! Errors as problem details of RFC 9457 with a stable `type`.

use std::time::Duration;

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use campanile_domain::access::scope::Scope;
use campanile_domain::schema;
use campanile_store::StoreError;
use serde::Serialize;
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use super::log_limit::LogLimit;

/// What went wrong, by RFC 9457.
#[derive(Debug, Serialize, ToSchema)]
pub struct Problem {
    #[serde(rename = "type")]
    #[schema(value_type = ProblemType)]
    kind: &'static str,
    #[schema(example = "The data is not valid")]
    title: &'static str,
    #[schema(example = 422)]
    status: u16,
    /// What happened, to which thing, and what to do.
    #[schema(example = "[0] /event_id: must not be empty")]
    detail: String,
    /// The problems of single fields, if there are any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<FieldProblem>,
}

/// The schema of `type`.
struct ProblemType;

impl PartialSchema for ProblemType {
    fn schema() -> RefOr<Schema> {
        schema::word("A stable name of the problem, for programs. Later versions may add names.", &TYPES)
    }
}

impl ToSchema for ProblemType {}

const TYPES: [&str; 23] = [
    "urn:campanile:configured-key",
    "urn:campanile:conflict",
    "urn:campanile:forbidden",
    "urn:campanile:host",
    "urn:campanile:idempotency-key",
    "urn:campanile:in-flight",
    "urn:campanile:internal",
    "urn:campanile:invalid",
    "urn:campanile:invalid-query",
    "urn:campanile:key-reused",
    "urn:campanile:malformed",
    "urn:campanile:method",
    "urn:campanile:missing-scope",
    "urn:campanile:not-configured",
    "urn:campanile:not-found",
    "urn:campanile:not-in-doubt",
    "urn:campanile:rate-limit",
    "urn:campanile:read-only",
    "urn:campanile:refused",
    "urn:campanile:too-large",
    "urn:campanile:too-slow",
    "urn:campanile:unauthorized",
    "urn:campanile:unavailable",
];

/// One problem in a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct FieldProblem {
    /// The position in an array; 0 for a single object.
    pub index: usize,
    /// A JSON pointer to the field.
    #[schema(example = "/event_id")]
    pub pointer: String,
    #[schema(example = "must not be empty")]
    pub detail: String,
}

impl Problem {
    fn new(status: StatusCode, kind: &'static str, title: &'static str, detail: impl Into<String>) -> Self {
        Problem { kind, title, status: status.as_u16(), detail: detail.into(), errors: Vec::new() }
    }

    pub fn malformed(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "urn:campanile:malformed", "Invalid body", detail)
    }

    pub fn invalid(errors: Vec<FieldProblem>) -> Self {
        let detail = match &errors[..] {
            [one] if one.pointer.is_empty() => one.detail.clone(),
            [one] => format!("[{}] {}: {}", one.index, one.pointer, one.detail),
            many => format!("{} problems found; nothing was written", many.len()),
        };
        let problem = Self::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "urn:campanile:invalid",
            "The data is not valid",
            detail,
        );
        Problem { errors, ..problem }
    }

    pub fn conflict(errors: Vec<FieldProblem>) -> Self {
        let detail = "an event with this id and a different body was already accepted; nothing was changed";
        let problem = Self::new(StatusCode::CONFLICT, "urn:campanile:conflict", "The id is taken", detail);
        Problem { errors, ..problem }
    }

    pub fn not_in_doubt(detail: impl Into<String>) -> Self {
        let title = "The send is not in doubt";
        Self::new(StatusCode::CONFLICT, "urn:campanile:not-in-doubt", title, detail)
    }

    pub fn bad_query(detail: impl Into<String>) -> Self {
        Self::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "urn:campanile:invalid-query",
            "The query is not valid",
            detail,
        )
    }

    pub fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "urn:campanile:not-found", "Not found", detail)
    }

    pub fn method_not_allowed() -> Self {
        let detail = "this path does not support this method";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "urn:campanile:method", "Method not allowed", detail)
    }

    pub fn too_large(limit_bytes: usize) -> Self {
        let detail = format!("the body exceeds {limit_bytes} bytes; send fewer items per request");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "urn:campanile:too-large", "The body is too large", detail)
    }

    pub fn too_slow(timeout: Duration) -> Self {
        let detail = format!("the body was not received within {timeout:?}");
        Self::new(StatusCode::REQUEST_TIMEOUT, "urn:campanile:too-slow", "The body is too slow", detail)
    }

    pub fn unavailable(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "urn:campanile:unavailable", "Not available", detail)
    }

    /// Stored data is unreadable; the request was correct.
    /// A failure of the server itself, which was logged.
    pub fn internal(detail: &str) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "urn:campanile:internal", "The server failed", detail)
    }

    pub fn unusable_data(detail: &str) -> Self {
        static LIMIT: LogLimit = LogLimit::new();
        if let Some(requests) = LIMIT.count() {
            tracing::error!(%detail, requests, "invalid data in the database");
        }
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "urn:campanile:internal",
            "Invalid stored data",
            format!("the request is valid, but the database contains invalid data: {detail}"),
        )
    }

    /// The database refused what the client sent.
    pub fn of_write(error: StoreError) -> Self {
        match error {
            StoreError::Refused(detail) => {
                static LIMIT: LogLimit = LogLimit::new();
                if let Some(requests) = LIMIT.count() {
                    tracing::error!(%detail, requests, "the database rejected a validated write");
                }
                Self::new(
                    StatusCode::UNPROCESSABLE_ENTITY,
                    "urn:campanile:refused",
                    "The data was refused",
                    detail.to_string(),
                )
            }
            other => other.into(),
        }
    }

    pub fn forbidden(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "urn:campanile:forbidden", "Not allowed", detail)
    }

    pub fn unauthorized() -> Self {
        Self::bad_key(
            "send an API key or the admin key as `Authorization: Bearer KEY`; by default the admin key is stored in \
             admin.key in the data folder",
        )
    }

    /// The presented key or token is not accepted.
    pub fn bad_key(detail: &str) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "urn:campanile:unauthorized", "Authentication required", detail)
    }

    pub fn missing_scope(scope: Scope) -> Self {
        let detail = format!("this call needs an API key with the scope `{scope}`");
        Self::new(StatusCode::FORBIDDEN, "urn:campanile:missing-scope", "The key lacks a scope", detail)
    }

    pub fn users_may_not() -> Self {
        Self::forbidden("this call is for services: it needs an API key, not the token of a user")
    }

    pub fn users_only() -> Self {
        Self::forbidden("this call is for end users: it needs the token of a user, not an API key")
    }

    pub fn no_end_users() -> Self {
        let detail = "end users have no access: configure auth.jwt.secret or auth.jwt.jwks_file";
        Self::new(StatusCode::NOT_IMPLEMENTED, "urn:campanile:not-configured", "Not configured", detail)
    }

    pub fn configured_key(detail: &str) -> Self {
        Self::new(
            StatusCode::CONFLICT,
            "urn:campanile:configured-key",
            "The configuration has the key",
            detail,
        )
    }

    pub fn too_many_requests(what: &str, seconds: u64) -> Self {
        let detail = format!("{what}; try again in {seconds} s");
        Self::new(StatusCode::TOO_MANY_REQUESTS, "urn:campanile:rate-limit", "Too many requests", detail)
    }

    pub fn bad_idempotency_key(detail: &str) -> Self {
        let detail = format!("Idempotency-Key: {detail}");
        let title = "The Idempotency-Key is not valid";
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "urn:campanile:idempotency-key", title, detail)
    }

    pub fn key_reused() -> Self {
        let detail = "this Idempotency-Key was used for another request; choose a new one for each action";
        let title = "The Idempotency-Key is taken";
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "urn:campanile:key-reused", title, detail)
    }

    pub fn in_flight() -> Self {
        let detail = "a request with this Idempotency-Key is being answered; repeat it after a moment";
        Self::new(StatusCode::CONFLICT, "urn:campanile:in-flight", "The request is in progress", detail)
    }

    pub fn two_hosts() -> Self {
        let detail = "a request must have exactly one `Host` header";
        Self::new(StatusCode::BAD_REQUEST, "urn:campanile:host", "More than one host", detail)
    }

    pub fn foreign_host(host: &str) -> Self {
        let detail = format!(
            "this server accepts only loopback host names, not `{host}`; set server.listen to expose it"
        );
        Self::new(StatusCode::MISDIRECTED_REQUEST, "urn:campanile:host", "Wrong host", detail)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_string(&self).unwrap_or_default();
        (status, [(header::CONTENT_TYPE, "application/problem+json")], body).into_response()
    }
}

/// For all errors except those of writing the client's data, for which there is [`Problem::of_write`]. The request was
/// correct.
impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unavailable(_) | StoreError::Unusable(_) | StoreError::Lost(_) => {
                static LIMIT: LogLimit = LogLimit::new();
                if let Some(requests) = LIMIT.count() {
                    tracing::error!(%error, requests, "requests failed because the database is unavailable");
                }
                let detail = "the database is unavailable; try again later";
                Self::unavailable(detail)
            }
            StoreError::Refused(detail) => Self::unusable_data(&detail.to_string()),
            StoreError::ReadOnly(detail) => {
                Self::new(StatusCode::CONFLICT, "urn:campanile:read-only", "Read-only", detail.to_string())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_database_refuses_is_the_callers_fault_only_in_a_write() {
        let refused = || StoreError::Refused("column priority holds something unusable".into());
        let (read, write) = (Problem::from(refused()), Problem::of_write(refused()));
        assert_eq!((read.status, read.kind), (500, "urn:campanile:internal"));
        assert!(read.detail.contains("column priority"), "{}", read.detail);
        assert_eq!((write.status, write.kind), (422, "urn:campanile:refused"));
        let gone = Problem::of_write(StoreError::Unavailable("gone".into()));
        assert_eq!((gone.status, gone.kind), (503, "urn:campanile:unavailable"));
    }

    #[test]
    fn documents_of_every_type_are_as_before() {
        let field = |index, pointer: &str| FieldProblem {
            index,
            pointer: pointer.to_owned(),
            detail: "must not be empty".to_owned(),
        };
        let detail = "what happened";
        let problems = [
            Problem::malformed(detail),
            Problem::invalid(vec![field(0, "")]),
            Problem::invalid(vec![field(1, "/event_id")]),
            Problem::invalid(vec![field(0, "/event_id"), field(2, "/priority")]),
            Problem::conflict(vec![field(0, "/event_id")]),
            Problem::not_in_doubt(detail),
            Problem::bad_query(detail),
            Problem::not_found(detail),
            Problem::method_not_allowed(),
            Problem::too_large(1_024),
            Problem::too_slow(Duration::from_secs(30)),
            Problem::unavailable(detail),
            Problem::unusable_data(detail),
            Problem::internal(detail),
            Problem::of_write(StoreError::Refused(detail.into())),
            Problem::of_write(StoreError::Unavailable(detail.into())),
            Problem::from(StoreError::ReadOnly(detail.into())),
            Problem::forbidden(detail),
            Problem::unauthorized(),
            Problem::bad_key(detail),
            Problem::missing_scope(Scope::Emit),
            Problem::users_may_not(),
            Problem::users_only(),
            Problem::no_end_users(),
            Problem::configured_key(detail),
            Problem::too_many_requests(detail, 7),
            Problem::bad_idempotency_key(detail),
            Problem::key_reused(),
            Problem::in_flight(),
            Problem::two_hosts(),
            Problem::foreign_host("example.com"),
        ];
        let documents: Vec<String> =
            problems.iter().map(|problem| serde_json::to_string_pretty(problem).unwrap()).collect();
        insta::assert_snapshot!("documents", documents.join("\n"));
        assert!(
            problems.iter().all(|problem| TYPES.contains(&problem.kind)),
            "the document names every type"
        );
        let source = include_str!("problem.rs");
        let kinds = source.split('"').filter(|text| text.starts_with("urn:campanile:"));
        for kind in kinds.filter(|kind| kind.len() > "urn:campanile:".len()) {
            assert!(problems.iter().any(|problem| problem.kind == kind), "no document of {kind}");
        }
    }
}
