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
}

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

    /// Under whose name a change is recorded.
    pub fn actor(&self) -> Actor {
        match self {
            Caller::ApiKey(key) => Actor::ApiKey { id: key.id.clone(), name: key.name.clone() },
            Caller::AdminKey | Caller::Anybody | Caller::User(_) => Actor::AdminKey,
        }
    }
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        Ok(parts.extensions.get::<Caller>().cloned().unwrap_or(Caller::Anybody))
    }
}

/// Why a credential is not accepted.
enum Rejected {
    /// It identifies nobody, so the answer is 401.
    Unknown(Problem),
    /// It can't be verified now, or never here.
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
    let scope = match access {
        Access::Health | Access::Signature => return next.run(request).await,
        Access::Public => {
            let remaining = app.access.limits.per_address.take(address, now);
            return limited(remaining, next.run(request)).await;
        }
        Access::Scope(scope) | Access::ScopeOrUser(scope) => scope,
    };
    let wrong_keys = &app.access.limits.wrong_keys;
    if let Some(wait) = wrong_keys.peek(address, now).filter(|left| left.retry_after_seconds().is_some()) {
        return too_many(wait, "too many wrong keys from this address");
    }
    let caller = match caller(&app, request.headers()).await {
        Ok(caller) => caller,
        Err(Rejected::Unverified(problem)) => return problem.into_response(),
        Err(Rejected::Unknown(problem)) => {
            let left = wrong_keys.take(address, now);
            let challenge = [(header::WWW_AUTHENTICATE, "Bearer")];
            let mut response = (challenge, problem).into_response();
            if let Some(left) = left {
                left.add_to(response.headers_mut());
            }
            return response;
        }
    };
    let remaining = match &caller {
        Caller::Anybody => None,
        Caller::AdminKey => app.access.limits.per_key.take(None, now),
        Caller::ApiKey(key) => app.access.limits.per_key.take(Some(key.id.clone()), now),
        Caller::User(user) => app.access.limits.per_user.take(user.user.clone(), now),
    };
    let is_permitted = match (&caller, access) {
        (Caller::User(_), Access::ScopeOrUser(_)) => true,
        (Caller::User(_), _) => return Problem::users_may_not().into_response(),
        _ => caller.has_scope(scope),
    };
    if !is_permitted {
        return Problem::missing_scope(scope).into_response();
    }
    request.extensions_mut().insert(caller);
    limited(remaining, next.run(request)).await
}

/// The response, or a refusal if nothing remains of the caller's limit.
async fn limited(remaining: Option<Remaining>, response: impl Future<Output = Response>) -> Response {
    let Some(remaining) = remaining else { return response.await };
    if remaining.retry_after_seconds().is_some() {
        return too_many(remaining, "too many requests");
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
async fn caller(app: &App, headers: &HeaderMap) -> Result<Caller, Rejected> {
    let unknown = |problem| Err(Rejected::Unknown(problem));
    let credential = match credential(headers) {
        Ok(Some(credential)) => credential,
        Ok(None) => return unknown(Problem::unauthorized()),
        Err(problem) => return unknown(problem),
    };
    if app.access.admin_key.is(credential) {
        return Ok(Caller::AdminKey);
    }
    if ApiKeyToken::is_meant(credential) {
        let Some(token) = ApiKeyToken::parse(credential) else {
            return unknown(Problem::bad_key("it is not a complete API key: cpk_<id>_<secret>"));
        };
        return match app.engine.authenticate(&token).await {
            Ok(Authenticated::Valid(key)) => Ok(Caller::ApiKey(key)),
            Ok(Authenticated::Unknown) => unknown(Problem::bad_key("this API key does not exist")),
            Ok(Authenticated::Refused(Refusal::Revoked)) => {
                unknown(Problem::bad_key("this API key was revoked"))
            }
            Ok(Authenticated::Refused(Refusal::Expired)) => {
                unknown(Problem::bad_key("this API key has expired"))
            }
            Err(error) => Err(Rejected::Unverified(error.into())),
        };
    }
    if credential.split('.').count() != 3 {
        return unknown(Problem::unauthorized());
    }
    let Some(tokens) = &app.access.tokens else { return Err(Rejected::Unverified(Problem::no_end_users())) };
    match tokens.verify(credential, app.engine.user_types()) {
        Ok(user) => Ok(Caller::User(Arc::new(user))),
        Err(why) => unknown(Problem::bad_key(&format!("invalid token: {why}"))),
    }
}

/// The credential of an `Authorization` header. `None` if there is no usable one.
fn credential(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let first = values.next();
    if values.next().is_some() {
        return Err(Problem::bad_key("a request must have at most one `Authorization` header"));
    }
    let Some((scheme, credential)) = first.and_then(|value| value.to_str().ok()?.split_once(' ')) else {
        return Ok(None);
    };
    let credential = credential.trim();
    if !scheme.eq_ignore_ascii_case("bearer") || credential.is_empty() {
        return Ok(None);
    }
    if credential.len() > MAX_CREDENTIAL_BYTES {
        return Err(Problem::bad_key("the key or token is too long"));
    }
    Ok(Some(credential))
}
