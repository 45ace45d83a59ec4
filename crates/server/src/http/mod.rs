//! The HTTP interface: JSON in, JSON out, problems by RFC 9457. Handlers check what they got, call a verb of the
//! engine, and answer.

mod access;
mod api_keys;
mod audit;
mod body;
mod callbacks;
mod captured;
mod connections;
mod dead_letters;
mod docs;
mod events;
mod explain;
mod health;
mod heavy;
mod host;
mod inbox;
mod log_limit;
mod openapi;
mod params;
mod permits;
mod preview;
mod problem;
mod redaction;
mod reloaded;
mod request_body;
mod routes;
mod rows;
mod send_rows;
mod sends;
mod tickets;
mod tls;
mod trace;
mod write_probe;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderName, HeaderValue, Method, header};
use axum::middleware::from_fn_with_state;
use campanile_engine::Engine;
use metrics_exporter_prometheus::PrometheusHandle;
use tower_http::cors::{AllowOrigin, CorsLayer};

pub use access::client_address::TrustedProxies;
pub use access::jwks::JwksFile;
pub use access::jwt::TokenVerifier;
pub use access::signing_keys::SigningKeys;
pub use access::{AccessControl, AccessLimits, AdminKey, MAX_UNKNOWN_KEY_LOOKUPS};
pub use callbacks::TwilioCallbacks;
pub use connections::{Limits, RESERVED_CONNECTIONS, Routers, serve};
pub use heavy::Heavy;
pub use permits::{Permits, permits};
use problem::Problem;
pub use tls::TlsFiles;
use write_probe::WriteProbe;

/// What handlers share.
#[derive(Debug, Clone)]
pub struct App {
    pub engine: Engine,
    pub access: Arc<AccessControl>,
    pub metrics: PrometheusHandle,
    /// Whether only local host names are served, on loopback: otherwise a web page could reach the server under its own
    /// name.
    pub local_only: bool,
    /// The public host name, as a proxy may pass it on.
    pub public_host: Option<String>,
    pub twilio_callbacks: Option<Arc<TwilioCallbacks>>,
    pub permits: Permits,
    pub heavy: Heavy,
    /// The longest time for receiving a body; a slow one holds memory and permits that others wait for.
    pub body_timeout: Duration,
    pub write_probe: Arc<WriteProbe>,
    /// `doctor` compares it to see whether this server uses the same database.
    pub database_id: Arc<str>,
    /// The origins whose pages may call; none by default.
    pub cors_origins: Arc<[HeaderValue]>,
}

/// The routes of an instance: all of them, or without the role `api` only those for operators.
pub fn routers(app: &App, api: bool) -> Routers {
    let health = || routes::router(routes::health_calls(), app);
    let nothing = || async { Problem::not_found("path not found") };
    let all = if api { health().merge(routes::router(routes::calls(), app)) } else { health() };
    Routers {
        all: finish(all.fallback(nothing), app),
        reserved: finish(health().fallback(permits::refuse), app),
    }
}

fn finish(routes: Router<App>, app: &App) -> Router {
    let routes = routes.method_not_allowed_fallback(|| async { Problem::method_not_allowed() });
    // Inside the check of the host, so that no page learns anything under a foreign name.
    let routes = match cors(&app.cors_origins) {
        Some(cors) => routes.layer(cors),
        None => routes,
    };
    routes
        .layer(from_fn_with_state(app.clone(), host::check_host))
        .layer(from_fn_with_state(app.clone(), request_body::watch))
        .with_state(app.clone())
}

/// Lets pages of these origins call, with keys and tokens but without cookies.
fn cors(origins: &[HeaderValue]) -> Option<CorsLayer> {
    if origins.is_empty() {
        return None;
    }
    let any = origins.iter().any(|origin| origin == "*");
    let origins = if any { AllowOrigin::any() } else { AllowOrigin::list(origins.iter().cloned()) };
    let exposed =
        ["ratelimit-limit", "ratelimit-remaining", "ratelimit-reset", "retry-after", "idempotent-replayed"];
    Some(
        CorsLayer::new()
            .allow_origin(origins)
            .allow_methods([Method::GET, Method::PUT, Method::POST, Method::DELETE])
            .allow_headers([
                header::AUTHORIZATION,
                header::CONTENT_TYPE,
                HeaderName::from_static("idempotency-key"),
                HeaderName::from_static("last-event-id"),
            ])
            .expose_headers(exposed.map(HeaderName::from_static))
            .max_age(Duration::from_hours(1)),
    )
}
