//! The table of routes. Each line says what a call asks of its caller; path, method and description stand with the
//! handler. A call that is not in this table does not exist, neither for clients nor in the API's document.

use axum::Router;
use axum::middleware::from_fn_with_state;
use campanile_domain::access::scope::Scope;
use utoipa_axum::router::UtoipaMethodRouter;
use utoipa_axum::routes;

use super::access::{Access, authorize, idempotency};
use super::{
    App, api_keys, audit, callbacks, captured, dead_letters, docs, events, explain, health, inbox, permits,
    preview, rows, sends, tickets, trace,
};

/// The largest body of an action, and of a call that end users may make.
const MAX_SMALL_BODY_BYTES: usize = 16 * 1024;

/// One call.
pub struct Call {
    pub access: Access,
    /// Whether clients may repeat it under an `Idempotency-Key`.
    pub repeatable: bool,
    pub described: UtoipaMethodRouter<App>,
}

fn call(access: Access, described: UtoipaMethodRouter<App>) -> Call {
    Call { access, repeatable: false, described }
}

/// A call that does something and has no natural key.
fn action(access: Access, described: UtoipaMethodRouter<App>) -> Call {
    Call { repeatable: true, ..call(access, described) }
}

/// Every call of the API.
pub fn calls() -> Vec<Call> {
    let scope = Access::Scope;
    let mut calls = vec![
        call(scope(Scope::Emit), routes!(events::accept)),
        call(scope(Scope::Read), routes!(events::list)),
        call(scope(Scope::Read), routes!(trace::trace)),
        call(scope(Scope::Read), routes!(explain::explain)),
        call(scope(Scope::Rules), routes!(preview::preview)),
        call(scope(Scope::Payload), routes!(captured::list)),
        call(scope(Scope::Read), routes!(dead_letters::list)),
        action(scope(Scope::Operate), routes!(dead_letters::replay)),
        call(scope(Scope::Read), routes!(sends::list)),
        action(scope(Scope::Operate), routes!(sends::resend)),
        action(scope(Scope::Operate), routes!(sends::settle)),
        call(Access::ScopeOrUser(Scope::Tickets), routes!(tickets::issue)),
        call(Access::User, routes!(inbox::preferences)),
        call(Access::User, routes!(inbox::choose)),
        call(scope(Scope::Admin), routes!(api_keys::create)),
        call(scope(Scope::Admin), routes!(api_keys::list)),
        call(scope(Scope::Admin), routes!(api_keys::revoke)),
        action(scope(Scope::Admin), routes!(api_keys::rotate)),
        call(scope(Scope::Admin), routes!(audit::list)),
        call(Access::Signature, routes!(callbacks::twilio)),
        call(Access::Public, routes!(docs::document)),
        call(Access::Public, routes!(docs::page)),
        call(Access::Public, routes!(docs::script)),
    ];
    macro_rules! row_calls {
        ($($module:ident),+) => {
            $(calls.push(call(scope(Scope::Rules), routes!(rows::$module::put)));
            calls.push(call(scope(Scope::Rules), routes!(rows::$module::list)));
            calls.push(call(scope(Scope::Rules), routes!(rows::$module::delete)));)+
        };
    }
    row_calls!(recipients, entities, preferences, settings, routing, audiences, templates);
    calls
}

/// The calls that tell operators how the server is. They are served also when everything else is busy.
pub fn health_calls() -> Vec<Call> {
    vec![
        call(Access::Health, routes!(health::live)),
        call(Access::Health, routes!(health::ready)),
        call(Access::Health, routes!(health::metrics)),
    ]
}

/// Serves these calls.
pub fn router(calls: Vec<Call>, app: &App) -> Router<App> {
    calls.into_iter().fold(Router::new(), |router, call| {
        let Call { access, repeatable, described: (_, paths, mut methods) } = call;
        methods = match access {
            // An action goes on in a task of its own, which takes the permit.
            _ if repeatable => methods
                .route_layer(from_fn_with_state(app.clone(), permits::take_permit))
                .route_layer(from_fn_with_state(app.clone(), idempotency::once))
                .route_layer(from_fn_with_state(MAX_SMALL_BODY_BYTES, permits::receive_small_body)),
            Access::Health => methods,
            Access::Signature => methods
                .route_layer(from_fn_with_state(permits::callback_permits(), permits::take_callback_permit))
                .route_layer(from_fn_with_state(callbacks::MAX_BYTES, permits::receive_small_body)),
            Access::ScopeOrUser(_) | Access::User => methods
                .route_layer(from_fn_with_state(app.clone(), permits::take_permit))
                .route_layer(from_fn_with_state(MAX_SMALL_BODY_BYTES, permits::receive_small_body)),
            Access::Public | Access::Scope(_) => {
                methods.route_layer(from_fn_with_state(app.clone(), permits::take_permit))
            }
        };
        // The last layer sees a request first, so a request without a key takes no permit.
        let methods = methods.route_layer(from_fn_with_state((app.clone(), access), authorize));
        paths.paths.keys().fold(router, |router, path| router.route(path, methods.clone()))
    })
}

#[cfg(test)]
mod tests {
    /// The document and the permission matrix know only what is in the table above.
    #[test]
    fn no_other_file_adds_a_route() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src");
        let mut folders = vec![std::path::PathBuf::from(folder)];
        let mut adding = Vec::new();
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else if ["\u{2e}route(", "\u{2e}nest(", "\u{2e}route_service("]
                    .iter()
                    .any(|call| std::fs::read_to_string(&path).unwrap_or_default().contains(call))
                {
                    adding.push(path.file_name().unwrap().to_owned());
                }
            }
        }
        assert_eq!(adding, ["routes.rs"]);
    }
}
