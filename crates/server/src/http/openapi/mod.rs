//! The document that describes the API, in `OpenAPI` 3.1. It is made from the table of routes and from the types of the
//! handlers. What all calls of a kind share is added here: who may call, and which problems may be answered.

mod refine;

use campanile_domain::access::scope::Scope;
use campanile_domain::rules::row::AudienceName;
use serde_json::json;
use utoipa::openapi::header::{Header, HeaderBuilder};
use utoipa::openapi::path::{Operation, ParameterBuilder, ParameterIn, PathItem};
use utoipa::openapi::response::ResponseBuilder;
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::tag::TagBuilder;
use utoipa::openapi::{
    ComponentsBuilder, ContentBuilder, InfoBuilder, LicenseBuilder, OpenApi, OpenApiBuilder, Paths, Ref,
    RefOr, Required,
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
const TAGS: [(&str, &str); 10] = [
    ("events", "Emit events, and see what became of them."),
    ("people", "Who can be told: recipients, their groups, and what they prefer."),
    ("rules", "Who is told of which event, over which channels, and in which words."),
    ("inbox", "What end users see and choose."),
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
    operation.security = Some(security(access));
    if repeatable {
        operation.parameters.get_or_insert_default().push(idempotency_key());
    }
    let has_body = operation.request_body.is_some();
    let has_input = has_body || operation.parameters.is_some();
    let is_limited = !matches!(access, Access::Health | Access::Signature);
    let responses = &mut operation.responses.responses;
    if is_limited {
        for response in responses.values_mut() {
            if let RefOr::T(response) = response {
                response.headers.extend(rate_limit_headers());
            }
        }
    }
    for (status, description) in problems(access, repeatable, has_body, has_input) {
        let known = responses.contains_key(status);
        if !known {
            responses.insert(status.to_owned(), problem(status, description).into());
        }
    }
}

fn security(access: Access) -> Vec<SecurityRequirement> {
    match access {
        Access::Health | Access::Public | Access::Signature => Vec::new(),
        Access::Scope(scope) => vec![needs(API_KEY, &[scope])],
        Access::ScopeOrUser(scope) => vec![needs(API_KEY, &[scope]), needs(USER_TOKEN, &[])],
        Access::User => vec![needs(USER_TOKEN, &[])],
    }
}

/// The problems that calls of a kind share.
fn problems(
    access: Access,
    repeatable: bool,
    has_body: bool,
    has_input: bool,
) -> impl Iterator<Item = (&'static str, &'static str)> {
    let is_authorized = matches!(access, Access::Scope(_) | Access::ScopeOrUser(_) | Access::User);
    let is_health = access == Access::Health;
    let is_of_user = matches!(access, Access::ScopeOrUser(_) | Access::User);
    [
        (has_body, "400", "The body is not JSON of the right form."),
        (is_authorized, "401", "The key or token is missing or not accepted."),
        (
            is_authorized,
            "403",
            "The key lacks the scope, or the call is for services only or for users only.",
        ),
        (has_body, "408", "The body came too slowly."),
        (repeatable, "409", "The state does not allow it, or the same request is in progress."),
        (has_body, "413", "The body is too large."),
        (true, "421", "The server does not answer under this host name."),
        (has_input, "422", "The data is not valid; nothing was done."),
        (!matches!(access, Access::Health | Access::Signature), "429", "Too many requests."),
        (is_authorized, "500", "The server failed, or found damaged data. Its log says more."),
        (is_of_user, "501", "No end users are configured."),
        (!is_health, "503", "The database is not available, or too many requests come at the same time."),
    ]
    .into_iter()
    .filter_map(|(applies, status, description)| applies.then_some((status, description)))
}

fn needs(scheme: &str, scopes: &[Scope]) -> SecurityRequirement {
    SecurityRequirement::new(scheme, scopes.iter().map(|scope| scope.as_str()))
}

fn idempotency_key() -> RefOr<utoipa::openapi::path::Parameter> {
    ParameterBuilder::new()
        .name("Idempotency-Key")
        .parameter_in(ParameterIn::Header)
        .required(Required::False)
        .description(Some(
            "Chosen by the client, in printable ASCII. A repetition under the same key within 24 hours gets the \
             same answer, marked `Idempotent-Replayed: true`, and does nothing again.",
        ))
        .schema(Some(
            ObjectBuilder::new().schema_type(Type::String).min_length(Some(1)).max_length(Some(255)),
        ))
        .build()
        .into()
}

fn problem(status: &str, description: &str) -> utoipa::openapi::Response {
    let content = ContentBuilder::new().schema(Some(Ref::from_schema_name(Problem::name()))).build();
    let mut response = ResponseBuilder::new().description(description).content(PROBLEM_TYPE, content).build();
    if matches!(status, "409" | "429" | "503") {
        response
            .headers
            .insert("Retry-After".to_owned(), seconds("Seconds after which to try again, if it helps."));
    }
    if status == "429" {
        response.headers.extend(rate_limit_headers());
    }
    response
}

fn rate_limit_headers() -> [(String, RefOr<Header>); 3] {
    [
        ("RateLimit-Limit", "Requests a minute."),
        ("RateLimit-Remaining", "Requests that may be made now."),
        ("RateLimit-Reset", "Seconds until all of them may be made again."),
    ]
    .map(|(name, description)| (name.to_owned(), seconds(description)))
}

fn seconds(description: &str) -> RefOr<Header> {
    let number = ObjectBuilder::new().schema_type(Type::Integer);
    HeaderBuilder::new().schema(Some(number)).description(Some(description)).build().into()
}

/// The document as it is served.
pub fn text() -> String {
    refine(json!(document())).to_string()
}
