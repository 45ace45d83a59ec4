//! The document that describes the API, in `OpenAPI` 3.1. It is made from the table of routes and from the types of the
//! handlers. What all calls of a kind share is added here: who may call, and which problems may be answered.

mod refine;

use std::collections::BTreeMap;

use campanile_domain::access::scope::Scope;
use campanile_domain::rules::row::AudienceName;
use serde_json::json;
use utoipa::openapi::header::HeaderBuilder;
use utoipa::openapi::path::{Operation, ParameterBuilder, ParameterIn, PathItem};
use utoipa::openapi::response::ResponseBuilder;
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::tag::TagBuilder;
use utoipa::openapi::{
    ComponentsBuilder, ContentBuilder, InfoBuilder, LicenseBuilder, OpenApi, OpenApiBuilder, Paths, Ref,
    Required,
};
use utoipa::{PartialSchema, ToSchema};

use self::refine::refine;
use super::Problem;
use super::access::Access;
use super::routes::{Call, calls, health_calls};

const API_KEY: &str = "apiKey";
const USER_TOKEN: &str = "userToken";
const PROBLEM_TYPE: &str = "application/problem+json";

/// The groups of calls, in the order in which a reader needs them.
const TAGS: [(&str, &str); 9] = [
    ("events", "Emit events, and see what became of them."),
    ("people", "Who can be told: recipients, their groups, and what they prefer."),
    ("rules", "Who is told of which event, over which channels, and in which words."),
    ("sends", "What was sent, and sends of which nobody knows whether they arrived."),
    ("dead letters", "What failed for good."),
    ("access", "Keys of services, tickets of end users, and who changed what."),
    ("callbacks", "Called by providers."),
    ("health", "Called by monitors."),
    ("docs", "This description."),
];

const DESCRIPTION: &str = "Campanile tells everybody whom an event concerns, once.\n\n\
    Services call with an API key, and end users with a token (JWT): `Authorization: Bearer …`. Errors are problem \
    documents by RFC 9457 with a stable `type`. Lists are pages: `next` is the cursor of the next page.";

/// The whole document.
pub fn document() -> OpenApi {
    let mut paths = Paths::new();
    let mut schemas = vec![(Problem::name().into_owned(), Problem::schema())];
    Problem::schemas(&mut schemas);
    // Only parameters have it, and utoipa collects the schemas of bodies.
    schemas.push((AudienceName::name().into_owned(), AudienceName::schema()));
    for Call { access, repeatable, described: (of_call, described, _) } in
        calls().into_iter().chain(health_calls())
    {
        schemas.extend(of_call);
        for (path, mut item) in described.paths {
            for operation in operations(&mut item) {
                complete(operation, access, repeatable);
            }
            match paths.paths.get_mut(&path) {
                Some(known) => known.merge_operations(item),
                None => drop(paths.paths.insert(path, item)),
            }
        }
    }
    let components = ComponentsBuilder::new()
        .schemas_from_iter(schemas)
        .security_scheme(
            API_KEY,
            bearer("An API key with the scope that the call names, or the admin key.", "cpk_<id>_<secret>"),
        )
        .security_scheme(USER_TOKEN, bearer("The token of an end user.", "JWT"));
    OpenApiBuilder::new()
        .info(
            InfoBuilder::new()
                .title("Campanile")
                .version(env!("CARGO_PKG_VERSION"))
                .description(Some(DESCRIPTION))
                .license(Some(LicenseBuilder::new().name(env!("CARGO_PKG_LICENSE")).build())),
        )
        .paths(paths)
        .components(Some(components.build()))
        .tags(Some(TAGS.map(|(name, about)| TagBuilder::new().name(name).description(Some(about)).build())))
        .build()
}

fn bearer(description: &str, format: &str) -> SecurityScheme {
    let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).bearer_format(format);
    SecurityScheme::Http(bearer.description(Some(description)).build())
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    let PathItem { get, put, post, delete, .. } = item;
    [get, put, post, delete].into_iter().flatten()
}

/// Adds what follows from who may call, and from what a call takes.
fn complete(operation: &mut Operation, access: Access, repeatable: bool) {
    let mut problems = BTreeMap::new();
    let mut may = |status: &'static str, description: &'static str| problems.insert(status, description);
    match access {
        Access::Health | Access::Public => operation.security = Some(Vec::new()),
        Access::Signature => {
            operation.security = Some(Vec::new());
            may("503", "Too many requests at the same time.");
        }
        Access::Scope(scope) => operation.security = Some(vec![needs(API_KEY, &[scope])]),
        Access::ScopeOrUser(scope) => {
            operation.security = Some(vec![needs(API_KEY, &[scope]), needs(USER_TOKEN, &[])]);
        }
    }
    if let Access::Scope(_) | Access::ScopeOrUser(_) = access {
        may("401", "The key or token is missing or not accepted.");
        may("403", "The key lacks the scope, or a user calls what is for services.");
        if matches!(access, Access::ScopeOrUser(_)) {
            may("501", "The call has a user's token, and no end users are configured.");
        }
        may("503", "The database is not available, or too many requests come at the same time.");
    }
    if !matches!(access, Access::Health | Access::Signature) {
        may("429", "Too many requests. `Retry-After` says when to try again.");
    }
    if operation.request_body.is_some() {
        may("400", "The body is not JSON of the right form.");
        may("408", "The body came too slowly.");
        may("413", "The body is too large.");
    }
    if operation.request_body.is_some() || operation.parameters.is_some() {
        may("422", "The data is not valid; nothing was done.");
    }
    if repeatable {
        may("409", "The state does not allow it, or the same request is in progress.");
        operation.parameters.get_or_insert_default().push(idempotency_key());
    }
    let responses = &mut operation.responses.responses;
    for (status, description) in problems {
        let known = responses.contains_key(status);
        if !known {
            responses.insert(status.to_owned(), problem(status, description).into());
        }
    }
}

fn needs(scheme: &str, scopes: &[Scope]) -> SecurityRequirement {
    SecurityRequirement::new(scheme, scopes.iter().map(|scope| scope.as_str()))
}

fn idempotency_key() -> utoipa::openapi::RefOr<utoipa::openapi::path::Parameter> {
    ParameterBuilder::new()
        .name("Idempotency-Key")
        .parameter_in(ParameterIn::Header)
        .required(Required::False)
        .description(Some(
            "Chosen by the client. A repetition under the same key within 24 hours gets the same answer, marked \
             `Idempotent-Replayed: true`, and does nothing again.",
        ))
        .schema(Some(
            ObjectBuilder::new().schema_type(Type::String).min_length(Some(1)).max_length(Some(255)).pattern(
                Some("^[!-~]+$"),
            ),
        ))
        .build()
        .into()
}

fn problem(status: &str, description: &str) -> utoipa::openapi::Response {
    let content = ContentBuilder::new().schema(Some(Ref::from_schema_name(Problem::name()))).build();
    let response = ResponseBuilder::new().description(description).content(PROBLEM_TYPE, content);
    let seconds = || ObjectBuilder::new().schema_type(Type::Integer);
    match status {
        "429" => response
            .header("Retry-After", HeaderBuilder::new().schema(Some(seconds())).build())
            .header("RateLimit-Limit", HeaderBuilder::new().schema(Some(seconds())).build())
            .header("RateLimit-Remaining", HeaderBuilder::new().schema(Some(seconds())).build())
            .header("RateLimit-Reset", HeaderBuilder::new().schema(Some(seconds())).build())
            .build(),
        _ => response.build(),
    }
}

/// The document as it is served.
pub fn text() -> String {
    refine(json!(document())).to_string()
}
