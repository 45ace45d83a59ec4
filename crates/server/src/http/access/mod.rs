//! Who calls, and whether they may: by the admin key, an API key, or an end user's token. Each route says what it asks
//! of its caller, in the table of routes.

pub mod client_address;
pub mod idempotency;
pub mod jwks;
pub mod jwt;
pub mod rate_limit;
pub mod signing_keys;
pub mod ticket;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Instant;

use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use campanile_domain::access::api_key::{ApiKey, ApiKeyId, ApiKeyToken, Refusal};
use campanile_domain::access::audit::Actor;
use campanile_domain::access::end_user::EndUser;
use campanile_domain::access::scope::Scope;
use campanile_domain::id::UserRef;
use campanile_engine::Authenticated;
use subtle::ConstantTimeEq;
use tokio::sync::Semaphore;

use self::client_address::{Peer, TrustedProxies, limited_unit};
use self::jwt::TokenVerifier;
use self::rate_limit::{RateLimit, Remaining};
use self::signing_keys::SigningKeys;
use super::{App, Problem};

/// A longer key or token is refused unread.
const MAX_CREDENTIAL_BYTES: usize = 8 * 1024;

/// What a route asks of its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Access {
    /// Nothing, and no limit: monitors ask often.
    Health,
    /// Nothing.
    Public,
    /// A provider's signature, which the handler verifies.
    Signature,
    /// An API key with this scope.
    Scope(Scope),
    /// An API key with this scope, or the token of an end user.
    ScopeOrUser(Scope),
    /// The token of an end user.
    User,
}

/// Who may call this server, and how often.
#[derive(Debug)]
pub struct AccessControl {
    pub admin_key: AdminKey,
    /// Without it, end users have no access.
    pub tokens: Option<TokenVerifier>,
    pub signing_keys: SigningKeys,
    pub proxies: TrustedProxies,
    pub limits: AccessLimits,
    /// For lookups of unknown API keys, of addresses that sent too many wrong ones.
    pub unknown_key_lookups: Semaphore,
}

/// Lookups of such keys at the same time.
pub const MAX_UNKNOWN_KEY_LOOKUPS: usize = 4;

#[derive(Debug)]
pub struct AccessLimits {
    per_key: RateLimit<Option<ApiKeyId>>,
    per_user: RateLimit<UserRef>,
    per_address: RateLimit<IpAddr>,
    wrong_keys: RateLimit<IpAddr>,
}

impl AccessLimits {
    /// Requests a minute; 0 means no limit.
    pub fn new(per_key: u32, per_user: u32, per_address: u32, wrong_keys: u32) -> Self {
        AccessLimits {
            per_key: RateLimit::new(per_key),
            per_user: RateLimit::new(per_user),
            per_address: RateLimit::new(per_address),
            wrong_keys: RateLimit::new(wrong_keys),
        }
    }
}

/// The key that permits everything.
pub struct AdminKey(String);

impl AdminKey {
    pub fn new(key: String) -> Self {
        AdminKey(key)
    }

    /// Compares in constant time, so that response times reveal nothing about the key.
    fn is(&self, presented: &str) -> bool {
        self.0.as_bytes().ct_eq(presented.as_bytes()).into()
    }
}

impl std::fmt::Debug for AdminKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AdminKey")
    }
}

/// Who calls. Handlers take it as an argument.
#[derive(Debug, Clone)]
pub enum Caller {
    /// Nobody in particular, on a route that asks for nothing.
    Anybody,
    AdminKey,
    ApiKey(Arc<ApiKey>),
    User(Arc<EndUser>),
}

impl Caller {
    fn has_scope(&self, scope: Scope) -> bool {
        match self {
            Caller::AdminKey => true,
            Caller::ApiKey(key) => key.scopes.allow(scope),
            Caller::Anybody | Caller::User(_) => false,
        }
    }

    /// Whether the caller sees payloads, addresses and texts.
    pub fn sees_payloads(&self) -> bool {
        self.has_scope(Scope::Payload)
    }
}

/// A service or an operator, under whose name a change is recorded. Handlers of calls with a scope take it.
#[derive(Debug)]
pub struct Operator(pub Actor);

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        Ok(parts.extensions.get::<Caller>().cloned().unwrap_or(Caller::Anybody))
    }
}

impl<S: Sync> FromRequestParts<S> for Operator {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        match parts.extensions.get::<Caller>() {
            Some(Caller::AdminKey) => Ok(Operator(Actor::AdminKey)),
            Some(Caller::ApiKey(key)) => {
                Ok(Operator(Actor::ApiKey { id: key.id.clone(), name: key.name.clone() }))
            }
            Some(Caller::User(_)) => Err(Problem::users_may_not()),
            Some(Caller::Anybody) | None => Err(Problem::unauthorized()),
        }
    }
}

/// The end user who calls. Handlers of calls for users only take it.
#[derive(Debug)]
pub struct EndUserCaller(pub Arc<EndUser>);

impl<S: Sync> FromRequestParts<S> for EndUserCaller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        match parts.extensions.get::<Caller>() {
            Some(Caller::User(user)) => Ok(EndUserCaller(Arc::clone(user))),
            Some(Caller::AdminKey | Caller::ApiKey(_)) => Err(Problem::users_only()),
            Some(Caller::Anybody) | None => Err(Problem::unauthorized()),
        }
    }
}

/// Why a credential is not accepted.
enum Rejected {
    /// There is none.
    Missing(Problem),
    /// It identifies nobody.
    Wrong(Problem),
    /// Too many wrong keys came from this address to look up another unknown one.
    Limited(Remaining),
    /// No end users are configured.
    NotConfigured(Problem),
    /// It can't be verified now.
    Unverified(Problem),
}

/// Lets a request through if its caller has what the route asks for, within the caller's limits.
pub async fn authorize(
    State((app, access)): State<(App, Access)>,
    mut request: Request,
    next: Next,
) -> Response {
    let now = Instant::now();
    let address = limited_unit(app.access.client_address(&request));
    let limits = &app.access.limits;
    let scope = match access {
        Access::Health | Access::Signature => return next.run(request).await,
        Access::Public => {
            let remaining = limits.per_address.take(address, now);
            return limited(remaining, "too many requests from this address", next.run(request)).await;
        }
        Access::Scope(scope) | Access::ScopeOrUser(scope) => Some(scope),
        Access::User => None,
    };
    let wrong_keys = limits.wrong_keys.peek(address, now);
    let caller = match caller(&app, access, request.headers(), wrong_keys).await {
        Ok(caller) => caller,
        // Only wrong keys are refused, so that clients that share an address do not lock each other out.
        Err(Rejected::Wrong(problem)) => {
            let remaining = limits.wrong_keys.take(address, now);
            return limited(remaining, TOO_MANY_WRONG_KEYS, async { challenge(problem) }).await;
        }
        Err(Rejected::Limited(remaining)) => return too_many(remaining, TOO_MANY_WRONG_KEYS),
        Err(Rejected::Missing(problem)) => {
            let remaining = limits.per_address.take(address, now);
            return limited(remaining, TOO_MANY_WITHOUT_KEY, async { challenge(problem) }).await;
        }
        Err(Rejected::NotConfigured(problem)) => {
            let remaining = limits.per_address.take(address, now);
            return limited(remaining, TOO_MANY_WITHOUT_KEY, async { problem.into_response() }).await;
        }
        Err(Rejected::Unverified(problem)) => return problem.into_response(),
    };
    let remaining = match &caller {
        Caller::Anybody => None,
        Caller::AdminKey => limits.per_key.take(None, now),
        Caller::ApiKey(key) => limits.per_key.take(Some(key.id.clone()), now),
        Caller::User(user) => limits.per_user.take(user.user.clone(), now),
    };
    let refusal = match (&caller, scope) {
        (Caller::User(_), _) if matches!(access, Access::ScopeOrUser(_) | Access::User) => None,
        (Caller::User(_), _) => Some(Problem::users_may_not()),
        (_, None) => Some(Problem::users_only()),
        (_, Some(scope)) if caller.has_scope(scope) => None,
        (_, Some(scope)) => Some(Problem::missing_scope(scope)),
    };
    request.extensions_mut().insert(caller);
    let response = async {
        match refusal {
            Some(problem) => problem.into_response(),
            None => next.run(request).await,
        }
    };
    limited(remaining, "too many requests", response).await
}

const TOO_MANY_WRONG_KEYS: &str = "too many wrong keys from this address";
const TOO_MANY_WITHOUT_KEY: &str = "too many requests without a key from this address";

fn challenge(problem: Problem) -> Response {
    ([(header::WWW_AUTHENTICATE, "Bearer")], problem).into_response()
}

/// The response, or a refusal if nothing remains of the caller's limit.
async fn limited(
    remaining: Option<Remaining>,
    too_many_what: &str,
    response: impl Future<Output = Response>,
) -> Response {
    let Some(remaining) = remaining else { return response.await };
    if remaining.retry_after_seconds().is_some() {
        return too_many(remaining, too_many_what);
    }
    let mut response = response.await;
    remaining.add_to(response.headers_mut());
    response
}

fn too_many(remaining: Remaining, what: &str) -> Response {
    let seconds = remaining.retry_after_seconds().unwrap_or(1);
    let mut response = Problem::too_many_requests(what, seconds).into_response();
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    remaining.add_to(response.headers_mut());
    response
}

impl AccessControl {
    fn client_address(&self, request: &Request) -> IpAddr {
        let Peer(peer) = *request.extensions().get().unwrap_or(&Peer(IpAddr::V4(Ipv4Addr::UNSPECIFIED)));
        self.proxies.client(peer, request.headers())
    }
}

/// Who presents the credential of these headers.
async fn caller(
    app: &App,
    access: Access,
    headers: &HeaderMap,
    wrong_keys: Option<Remaining>,
) -> Result<Caller, Rejected> {
    if access == Access::User && app.access.tokens.is_none() {
        return Err(Rejected::NotConfigured(Problem::no_end_users()));
    }
    let credential = match credential(headers)? {
        Some(credential) if app.access.admin_key.is(credential) => return Ok(Caller::AdminKey),
        Some(credential) => credential,
        None => return Err(Rejected::Missing(Problem::unauthorized())),
    };
    if ApiKeyToken::is_meant(credential) {
        return api_key(app, credential, wrong_keys).await;
    }
    let wrong = |detail: &str| Err(Rejected::Wrong(Problem::bad_key(detail)));
    if credential.split('.').count() != 3 {
        return wrong(
            "this key is neither the admin key of this server (by default in admin.key of its data folder), nor an \
             API key (cpk_…), nor a token",
        );
    }
    let Some(tokens) = &app.access.tokens else {
        return match access {
            Access::ScopeOrUser(_) => Err(Rejected::NotConfigured(Problem::no_end_users())),
            _ => wrong("this call needs an API key; it does not accept the tokens of users"),
        };
    };
    match tokens.verify(credential, app.engine.user_types(), app.engine.now()) {
        Ok(user) => Ok(Caller::User(Arc::new(user))),
        Err(why) => wrong(&format!("invalid token: {why}")),
    }
}

async fn api_key(app: &App, credential: &str, wrong_keys: Option<Remaining>) -> Result<Caller, Rejected> {
    let wrong = |detail: &str| Err(Rejected::Wrong(Problem::bad_key(detail)));
    let Some(token) = ApiKeyToken::parse(credential) else {
        return wrong("it is not a complete API key: cpk_<id>_<secret>");
    };
    // A flood of invented keys must not keep the database busy.
    let over_limit = wrong_keys.filter(|remaining| remaining.retry_after_seconds().is_some());
    let _permit = match over_limit {
        Some(remaining) if !app.engine.knows_api_key(&token) => {
            let permit = app.access.unknown_key_lookups.try_acquire();
            Some(permit.map_err(|_| Rejected::Limited(remaining))?)
        }
        Some(_) | None => None,
    };
    match app.engine.authenticate(&token).await {
        Ok(Authenticated::Valid(key)) => Ok(Caller::ApiKey(key)),
        Ok(Authenticated::Unknown) => wrong("this API key does not exist"),
        Ok(Authenticated::Refused(Refusal::Revoked)) => wrong("this API key was revoked"),
        Ok(Authenticated::Refused(Refusal::Expired)) => wrong("this API key has expired"),
        Err(error) => Err(Rejected::Unverified(error.into())),
    }
}

/// The credential of an `Authorization` header.
fn credential(headers: &HeaderMap) -> Result<Option<&str>, Rejected> {
    let wrong = |detail: &str| Err(Rejected::Wrong(Problem::bad_key(detail)));
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let Some(first) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return wrong("a request must have at most one `Authorization` header");
    }
    let parts = first.to_str().ok().and_then(|value| value.split_once(' '));
    let Some((_, credential)) = parts.filter(|(scheme, credential)| {
        scheme.eq_ignore_ascii_case("bearer") && !credential.trim().is_empty()
    }) else {
        return wrong("the header `Authorization` must be `Bearer KEY`");
    };
    if credential.len() > MAX_CREDENTIAL_BYTES {
        return wrong("the key or token is too long");
    }
    Ok(Some(credential.trim()))
}
