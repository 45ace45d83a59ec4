//! The HTTP interface: JSON in, JSON out, problems by RFC 9457. Handlers check what they got, call a verb of the
//! engine, and answer.

mod auth;
mod body;
mod callbacks;
mod captured;
mod connections;
mod dead_letters;
mod events;
mod explain;
mod health;
mod heavy;
mod log_limit;
mod permits;
mod preview;
mod problem;
mod query;
mod request_body;
mod rows;
mod send_rows;
mod sends;
mod write_probe;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post};
use campanile_engine::Engine;
use campanile_store::Table;
use metrics_exporter_prometheus::PrometheusHandle;

pub use auth::AdminKey;
pub use callbacks::TwilioCallbacks;
pub use connections::{Limits, RESERVED_CONNECTIONS, Routers, serve};
pub use heavy::Heavy;
pub use permits::{Permits, permits};
use problem::Problem;
use write_probe::WriteProbe;

/// What handlers share.
#[derive(Debug, Clone)]
pub struct App {
    pub engine: Engine,
    pub admin_key: Arc<AdminKey>,
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
}

/// The routes of an instance: all of them, or without the role `api` only those for operators.
pub fn routers(app: App, api: bool) -> Routers {
    let reserved = finish(health_routes().fallback(permits::refuse), app.clone());
    Routers { all: if api { router(app) } else { health_only(app) }, reserved }
}

fn router(app: App) -> Router {
    let mut guarded = Router::new()
        .route("/v1/events", post(events::accept).get(events::list))
        .route("/v1/events/{id}", get(events::trace))
        .route("/v1/explain", post(explain::explain))
        .route("/v1/templates/preview", post(preview::preview))
        .route("/v1/captured", get(captured::list))
        .route("/v1/dead-letters", get(dead_letters::list))
        .route("/v1/dead-letters/replay", post(dead_letters::replay))
        .route("/v1/sends", get(sends::list))
        .route("/v1/sends/{id}/resend", post(sends::resend))
        .route("/v1/sends/{id}/settle", post(sends::settle));
    for table in Table::ALL {
        guarded = guarded.route(&format!("/v1/{}", table.path()), rows::methods(table));
    }
    // The last layer sees a request first, so a request without a key takes no permit.
    let guarded = guarded
        .layer(axum::middleware::from_fn_with_state(app.clone(), permits::take_permit))
        .layer(axum::middleware::from_fn_with_state(app.clone(), auth::require_key));
    let nothing = || async { Problem::not_found("path not found") };
    finish(health_routes().merge(callback_routes()).merge(guarded).fallback(nothing), app)
}

/// Callbacks are authorised by a signature instead of a key.
fn callback_routes() -> Router<App> {
    Router::new()
        .route("/v1/callbacks/twilio", post(callbacks::twilio))
        .layer(DefaultBodyLimit::max(callbacks::MAX_BYTES))
        .layer(axum::middleware::from_fn_with_state(
            permits::callback_permits(),
            permits::take_callback_permit,
        ))
}

fn health_only(app: App) -> Router {
    let nothing = || async { Problem::not_found("path not found") };
    finish(health_routes().fallback(nothing), app)
}

fn health_routes() -> Router<App> {
    Router::new()
        .route("/healthz", get(health::live))
        .route("/readyz", get(health::ready))
        .route("/metrics", get(health::metrics))
}

fn finish(routes: Router<App>, app: App) -> Router {
    routes
        .method_not_allowed_fallback(|| async { Problem::method_not_allowed() })
        .layer(axum::middleware::from_fn_with_state(app.clone(), auth::check_host))
        .layer(axum::middleware::from_fn_with_state(app.clone(), request_body::watch))
        .with_state(app)
}
