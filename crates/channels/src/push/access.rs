//! Access tokens of Google's OAuth. A token is requested with a signed assertion, cached, and renewed minutes before it
//! expires. Only one renewal runs at a time. Others who need a token wait for it and share its failure.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use reqwest::header::HeaderValue;
use reqwest::{Client, Response, StatusCode};
use serde::Deserialize;
use tokio::time::{Instant, timeout_at};

use crate::push::account::ServiceAccount;
use crate::push::reply::DeviceOutcome;
use crate::{Cause, http};

const SCOPE: &str = "https://www.googleapis.com/auth/firebase.messaging";
const GRANT_TYPE: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
/// How long before its end a token is renewed, so that a failed renewal can be repeated.
const RENEW_BEFORE_EXPIRY: Duration = Duration::from_mins(5);
/// How soon a failed renewal is repeated while the current token is valid.
const RENEWAL_RETRY_INTERVAL: Duration = Duration::from_secs(30);

pub struct Access {
    account: ServiceAccount,
    http: Client,
    /// The longest time of a renewal.
    limit: Duration,
    cached: Mutex<Option<CachedToken>>,
    /// The holder renews, and stores a failure here.
    renewal: tokio::sync::Mutex<Option<FailedRenewal>>,
}

#[derive(Clone)]
struct CachedToken {
    bearer: HeaderValue,
    renew_at: Instant,
    ends_at: Instant,
}

impl CachedToken {
    fn needs_renewal(&self) -> bool {
        Instant::now() >= self.renew_at
    }
}

#[derive(Debug, Clone)]
struct FailedRenewal {
    at: Instant,
    why: TokenError,
}

/// Why there is no token. It never concerns a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenError {
    pub after: Option<Duration>,
    pub error: String,
    /// The error in short.
    pub code: Cow<'static, str>,
    /// Whether somebody has to correct the configuration; otherwise the error may be temporary.
    pub refused: bool,
}

impl From<TokenError> for DeviceOutcome {
    fn from(why: TokenError) -> Self {
        let TokenError { after, error, code, refused: refuses_us } = why;
        DeviceOutcome::Down { after, error, cause: Cause { code, refuses_us } }
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").field("account", &self.account).finish_non_exhaustive()
    }
}

impl Access {
    pub fn new(account: ServiceAccount, http: Client, limit: Duration) -> Self {
        Access { account, http, limit, cached: Mutex::default(), renewal: tokio::sync::Mutex::default() }
    }

    /// The `Authorization` header. `refused` is one that was not accepted and must not be returned again.
    pub async fn bearer(
        &self,
        refused: Option<&HeaderValue>,
        until: Instant,
    ) -> Result<HeaderValue, TokenError> {
        let Some(cached) = self.valid_token(refused) else {
            return timeout_at(until, self.wait(refused)).await.unwrap_or_else(|_| {
                Err(transient("timeout", format!("{} did not answer in time", self.token_host())))
            });
        };
        if !cached.needs_renewal() {
            return Ok(cached.bearer);
        }
        // The token is valid for minutes. One caller renews it, and the others do not wait.
        let Ok(failed) = self.renewal.try_lock() else { return Ok(cached.bearer) };
        let cached = self.valid_token(refused).unwrap_or(cached);
        if !cached.needs_renewal() || failed_recently(failed.as_ref()) {
            return Ok(cached.bearer);
        }
        let renewed = timeout_at(until, self.renew(failed)).await;
        Ok(renewed.ok().and_then(Result::ok).unwrap_or(cached.bearer))
    }

    /// The cached token, unless it has expired or was refused.
    fn valid_token(&self, refused: Option<&HeaderValue>) -> Option<CachedToken> {
        let cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        cached
            .as_ref()
            .filter(|cached| Instant::now() < cached.ends_at && Some(&cached.bearer) != refused)
            .cloned()
    }

    async fn wait(&self, refused: Option<&HeaderValue>) -> Result<HeaderValue, TokenError> {
        let since = Instant::now();
        let failed = self.renewal.lock().await;
        if let Some(cached) = self.valid_token(refused) {
            return Ok(cached.bearer);
        }
        match failed.as_ref() {
            Some(failed) if failed.at >= since => Err(failed.why.clone()),
            Some(_) | None => self.renew(failed).await,
        }
    }

    async fn renew(
        &self,
        mut failed: tokio::sync::MutexGuard<'_, Option<FailedRenewal>>,
    ) -> Result<HeaderValue, TokenError> {
        let asked = Instant::now();
        match self.ask().await {
            Ok((bearer, lifetime)) => {
                let ends_at = asked + lifetime;
                let renew_at = asked + lifetime.saturating_sub(RENEW_BEFORE_EXPIRY);
                let cached = CachedToken { bearer: bearer.clone(), renew_at, ends_at };
                *self.cached.lock().unwrap_or_else(PoisonError::into_inner) = Some(cached);
                *failed = None;
                Ok(bearer)
            }
            Err(why) => {
                tracing::debug!(error = why.error, "no access token for FCM could be obtained");
                *failed = Some(FailedRenewal { at: Instant::now(), why: why.clone() });
                Err(why)
            }
        }
    }

    async fn ask(&self) -> Result<(HeaderValue, Duration), TokenError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let assertion = self.account.assertion(SCOPE, now).map_err(|_| {
            refused("key", "the service account's key cannot sign: replace the key file".to_owned())
        })?;
        let request = self
            .http
            .post(self.account.token_uri().clone())
            .timeout(self.limit)
            .form(&[("grant_type", GRANT_TYPE), ("assertion", &assertion)]);
        let response = request.send().await.map_err(|error| {
            transient(
                http::no_response_cause(&error).code,
                format!("{} {}", self.token_host(), http::describe_no_response(&error)),
            )
        })?;
        self.granted(response).await
    }

    async fn granted(&self, response: Response) -> Result<(HeaderValue, Duration), TokenError> {
        let (status, after) = (response.status(), http::retry_after(&response));
        let body = http::read(response).await.unwrap_or_default();
        if status == StatusCode::OK {
            return token(&body)
                .ok_or_else(|| transient("200", format!("{} returned no access token", self.token_host())));
        }
        let code = serde_json::from_slice::<Refusal>(&body).ok().map(|refusal| refusal.error);
        let code = code.filter(|code| is_code(code));
        let number = status.as_u16().to_string();
        match (status.as_u16(), code.as_deref()) {
            (429 | 500..=599, _) => Err(TokenError {
                after,
                ..transient(number, format!("{} is temporarily unavailable ({status})", self.token_host()))
            }),
            (_, Some(code @ "invalid_grant")) => Err(refused(
                format!("{number} {code}"),
                format!(
                    "{} does not accept the service account's key (invalid_grant): is this machine's clock right, \
                 and is the key still listed for the account in Google's console?",
                    self.token_host()
                ),
            )),
            (400 | 401 | 403, Some(code)) => Err(refused(
                format!("{number} {code}"),
                format!(
                    "{} refuses the service account ({code}): check that it exists and is enabled",
                    self.token_host()
                ),
            )),
            _ => Err(refused(
                number,
                format!(
                    "{} is not a token endpoint ({status}): check `token_uri` in the key file",
                    self.token_host()
                ),
            )),
        }
    }

    fn token_host(&self) -> &str {
        self.account.token_uri().authority()
    }
}

fn failed_recently(failed: Option<&FailedRenewal>) -> bool {
    failed.is_some_and(|failed| failed.at.elapsed() < RENEWAL_RETRY_INTERVAL)
}

#[derive(Deserialize)]
struct Granted {
    access_token: String,
    expires_in: u64,
    token_type: String,
}

#[derive(Deserialize)]
struct Refusal {
    error: String,
}

fn token(body: &[u8]) -> Option<(HeaderValue, Duration)> {
    /// Google's tokens are valid for an hour. One that claims years is renewed daily.
    const MAX_LIFETIME: Duration = Duration::from_hours(24);
    let Granted { access_token, expires_in, token_type } = serde_json::from_slice(body).ok()?;
    if access_token.is_empty() || !token_type.eq_ignore_ascii_case("bearer") {
        return None;
    }
    let mut bearer = HeaderValue::from_str(&format!("Bearer {access_token}")).ok()?;
    bearer.set_sensitive(true);
    Some((bearer, Duration::from_secs(expires_in).min(MAX_LIFETIME)))
}

/// Whether the text looks like an OAuth error code; any other text is not repeated.
fn is_code(code: &str) -> bool {
    (1..=40).contains(&code.len()) && code.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}

fn transient(code: impl Into<Cow<'static, str>>, error: String) -> TokenError {
    TokenError { after: None, error, code: code.into(), refused: false }
}

fn refused(code: impl Into<Cow<'static, str>>, error: String) -> TokenError {
    TokenError { refused: true, ..transient(code, error) }
}
