//! Access tokens: one is asked for by a signed assertion, kept as long as it is good, and renewed some minutes before it ends.
//! Only one renewal is under way at a time; whoever needs a token meanwhile waits for the same one, and shares its failure.

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
/// So long before its end a token is renewed: a renewal that fails has time to be repeated.
const AHEAD: Duration = Duration::from_mins(5);
/// How soon a renewal is tried again while the token at hand is still good.
const PAUSE: Duration = Duration::from_secs(30);

pub struct Access {
    account: ServiceAccount,
    http: Client,
    /// No renewal takes longer.
    limit: Duration,
    held: Mutex<Option<Held>>,
    /// Who holds it renews, and leaves here how it went wrong.
    renewal: tokio::sync::Mutex<Option<Failed>>,
}

#[derive(Clone)]
struct Held {
    bearer: HeaderValue,
    renew_at: Instant,
    ends_at: Instant,
}

impl Held {
    fn is_ageing(&self) -> bool {
        Instant::now() >= self.renew_at
    }
}

#[derive(Debug, Clone)]
struct Failed {
    at: Instant,
    why: NoAccess,
}

/// Why there is no token. None of it is about a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoAccess {
    pub after: Option<Duration>,
    pub error: String,
    /// The same in short.
    pub code: Cow<'static, str>,
    /// Whether somebody has to mend something; else it may pass by itself.
    pub refused: bool,
}

impl From<NoAccess> for DeviceOutcome {
    fn from(why: NoAccess) -> Self {
        let NoAccess { after, error, code, refused: refuses_us } = why;
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
        Access { account, http, limit, held: Mutex::default(), renewal: tokio::sync::Mutex::default() }
    }

    /// The `Authorization` of a request. `refused` is one that was not accepted and is not to be given out again.
    pub async fn bearer(
        &self,
        refused: Option<&HeaderValue>,
        until: Instant,
    ) -> Result<HeaderValue, NoAccess> {
        let Some(held) = self.good(refused) else {
            return timeout_at(until, self.wait(refused)).await.unwrap_or_else(|_| {
                Err(passing("timeout", format!("{} did not answer in time", self.place())))
            });
        };
        if !held.is_ageing() {
            return Ok(held.bearer);
        }
        // It is good for minutes still: one has to see to the next, and nobody else to wait for it.
        let Ok(failed) = self.renewal.try_lock() else { return Ok(held.bearer) };
        let held = self.good(refused).unwrap_or(held);
        if !held.is_ageing() || recently(failed.as_ref()) {
            return Ok(held.bearer);
        }
        let renewed = timeout_at(until, self.renew(failed)).await;
        Ok(renewed.ok().and_then(Result::ok).unwrap_or(held.bearer))
    }

    /// The token at hand, unless it has ended or was refused.
    fn good(&self, refused: Option<&HeaderValue>) -> Option<Held> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.as_ref().filter(|held| Instant::now() < held.ends_at && Some(&held.bearer) != refused).cloned()
    }

    async fn wait(&self, refused: Option<&HeaderValue>) -> Result<HeaderValue, NoAccess> {
        let since = Instant::now();
        let failed = self.renewal.lock().await;
        if let Some(held) = self.good(refused) {
            return Ok(held.bearer);
        }
        match failed.as_ref() {
            Some(failed) if failed.at >= since => Err(failed.why.clone()),
            Some(_) | None => self.renew(failed).await,
        }
    }

    async fn renew(
        &self,
        mut failed: tokio::sync::MutexGuard<'_, Option<Failed>>,
    ) -> Result<HeaderValue, NoAccess> {
        let asked = Instant::now();
        match self.ask().await {
            Ok((bearer, lifetime)) => {
                let ends_at = asked + lifetime;
                let renew_at = asked + lifetime.saturating_sub(AHEAD);
                let held = Held { bearer: bearer.clone(), renew_at, ends_at };
                *self.held.lock().unwrap_or_else(PoisonError::into_inner) = Some(held);
                *failed = None;
                Ok(bearer)
            }
            Err(why) => {
                tracing::debug!(error = why.error, "no access token for FCM could be obtained");
                *failed = Some(Failed { at: Instant::now(), why: why.clone() });
                Err(why)
            }
        }
    }

    async fn ask(&self) -> Result<(HeaderValue, Duration), NoAccess> {
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
            passing(http::no_response_cause(&error).code, format!("{} {}", self.place(), http::describe_no_response(&error)))
        })?;
        self.granted(response).await
    }

    async fn granted(&self, response: Response) -> Result<(HeaderValue, Duration), NoAccess> {
        let (status, after) = (response.status(), http::retry_after(&response));
        let body = http::read(response).await.unwrap_or_default();
        if status == StatusCode::OK {
            return token(&body)
                .ok_or_else(|| passing("200", format!("{} returned no access token", self.place())));
        }
        let code = serde_json::from_slice::<Refusal>(&body).ok().map(|refusal| refusal.error);
        let code = code.filter(|code| is_code(code));
        let number = status.as_u16().to_string();
        match (status.as_u16(), code.as_deref()) {
            (429 | 500..=599, _) => Err(NoAccess {
                after,
                ..passing(number, format!("{} is temporarily unavailable ({status})", self.place()))
            }),
            (_, Some(code @ "invalid_grant")) => Err(refused(
                format!("{number} {code}"),
                format!(
                    "{} does not accept the service account's key (invalid_grant): is this machine's clock right, \
                 and is the key still listed for the account in Google's console?",
                    self.place()
                ),
            )),
            (400 | 401 | 403, Some(code)) => Err(refused(
                format!("{number} {code}"),
                format!(
                    "{} refuses the service account ({code}): check that it exists and is enabled",
                    self.place()
                ),
            )),
            _ => Err(refused(
                number,
                format!(
                    "{} is not a token endpoint ({status}): check `token_uri` in the key file",
                    self.place()
                ),
            )),
        }
    }

    fn place(&self) -> &str {
        self.account.token_uri().authority()
    }
}

fn recently(failed: Option<&Failed>) -> bool {
    failed.is_some_and(|failed| failed.at.elapsed() < PAUSE)
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
    /// Google's are good for an hour; one that claims to be good for years is looked at daily.
    const MAX_LIFETIME: Duration = Duration::from_hours(24);
    let Granted { access_token, expires_in, token_type } = serde_json::from_slice(body).ok()?;
    if access_token.is_empty() || !token_type.eq_ignore_ascii_case("bearer") {
        return None;
    }
    let mut bearer = HeaderValue::from_str(&format!("Bearer {access_token}")).ok()?;
    bearer.set_sensitive(true);
    Some((bearer, Duration::from_secs(expires_in).min(MAX_LIFETIME)))
}

/// As OAuth's are written; anything else is not repeated to anybody.
fn is_code(code: &str) -> bool {
    (1..=40).contains(&code.len()) && code.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}

fn passing(code: impl Into<Cow<'static, str>>, error: String) -> NoAccess {
    NoAccess { after: None, error, code: code.into(), refused: false }
}

fn refused(code: impl Into<Cow<'static, str>>, error: String) -> NoAccess {
    NoAccess { refused: true, ..passing(code, error) }
}
