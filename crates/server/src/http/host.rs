//! On loopback, only local host names and the public one are served: otherwise a web page could reach the server under
//! its own name.

use axum::extract::{Request, State};
use axum::http::header;
use axum::http::uri::Authority;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::{App, Problem};

pub async fn check_host(State(app): State<App>, request: Request, next: Next) -> Response {
    if request.headers().get_all(header::HOST).iter().count() > 1 {
        return Problem::two_hosts().into_response();
    }
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    // A request for a whole URL names the host there.
    let host = request.uri().authority().map_or(host, Authority::as_str);
    if app.local_only && !is_local(host) && !app.public_host.as_deref().is_some_and(|public| is(host, public))
    {
        return Problem::foreign_host(&host.chars().take(100).collect::<String>()).into_response();
    }
    next.run(request).await
}

fn is_local(host: &str) -> bool {
    ["localhost", "127.0.0.1", "[::1]"].iter().any(|local| is(host, local))
}

/// Compares host names without case.
fn is(host: &str, name: &str) -> bool {
    name_of(host).eq_ignore_ascii_case(name)
}

/// The host without its port.
fn name_of(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_local() {
        for host in ["localhost", "localhost:8400", "127.0.0.1:8400", "[::1]:8400", "[::1]", "LocalHost:8400"]
        {
            assert!(is_local(host), "{host}");
        }
        for host in ["", "example.com", "evil.localhost.example:8400", "127.0.0.1.example", "0.0.0.0:8400"] {
            assert!(!is_local(host), "{host}");
        }
    }
}
