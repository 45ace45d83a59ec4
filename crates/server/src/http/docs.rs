//! The API's document, and a page to read and try it. The page's script is part of the binary, so nothing is loaded
//! from other hosts.

use campanile_domain::schema::JsonObject;
use std::sync::LazyLock;

use axum::body::Bytes;
use axum::http::header;
use axum::response::{Html, IntoResponse, Response};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::json;
use sha2::{Digest, Sha256};

use super::openapi;

static DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| Bytes::from(openapi::text()));
static SCRIPT: LazyLock<Bytes> =
    LazyLock::new(|| Bytes::from(scalar_api_reference::get_asset("scalar.js").unwrap_or_default()));
static PAGE: LazyLock<Page> = LazyLock::new(Page::new);

struct Page {
    html: String,
    /// Permits nothing but our own files and the one script of the page.
    policy: String,
}

impl Page {
    fn new() -> Self {
        let configuration = json!({
            "url": "/openapi.json", "withDefaultFonts": false, "telemetry": false, "agent": {"disabled": true},
            "mcp": {"disabled": true}, "hideClientButton": true, "showDeveloperTools": "never",
            "defaultOpenAllTags": true, "authentication": {"preferredSecurityScheme": "apiKey"},
        });
        let start = format!("Scalar.createApiReference('#app', {configuration})");
        let hash = BASE64_STANDARD.encode(Sha256::digest(&start));
        let html = format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>Campanile API</title>\n<link rel=\"icon\" href=\"data:,\">\n</head>\n<body>\n\
             <div id=\"app\"></div>\n\
             <script src=\"/docs/scalar.js\"></script>\n<script>{start}</script>\n</body>\n</html>\n"
        );
        let policy = format!(
            "default-src 'none'; script-src 'self' 'sha256-{hash}'; style-src 'self' 'unsafe-inline'; \
             img-src 'self' data:; font-src 'self' data:; connect-src 'self'; base-uri 'none'; \
             form-action 'none'; frame-ancestors 'none'"
        );
        Page { html, policy }
    }
}

/// Read the API's document
#[utoipa::path(
    get, path = "/openapi.json", tag = "docs", operation_id = "read_openapi",
    responses((status = 200, description = "OpenAPI 3.1.", body = JsonObject, content_type = "application/json")),
)]
pub async fn document() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], DOCUMENT.clone()).into_response()
}

/// Read the reference page
#[utoipa::path(
    get, path = "/docs", tag = "docs", operation_id = "read_reference_page",
    responses(
        (status = 200, description = "A page that shows the document.", body = String, content_type = "text/html"),
    ),
)]
pub async fn page() -> Response {
    let headers = [(header::CONTENT_SECURITY_POLICY, PAGE.policy.as_str())];
    (headers, Html(PAGE.html.as_str())).into_response()
}

/// Read the script of the reference page
#[utoipa::path(
    get, path = "/docs/scalar.js", tag = "docs", operation_id = "read_reference_script",
    responses((status = 200, description = "The script.", body = String, content_type = "text/javascript")),
)]
pub async fn script() -> Response {
    let headers =
        [(header::CONTENT_TYPE, "text/javascript"), (header::CACHE_CONTROL, "public, max-age=86400")];
    (headers, SCRIPT.clone()).into_response()
}
