//! API keys of services. A key is `cpk_<id>_<secret>`; the prefix lets secret scanners find it. Only a hash of the
//! secret is stored. The secret has 256 random bits, so a fast hash is enough.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use utoipa::ToSchema;

use super::scope::{Scope, Scopes};
use crate::hex::hex;
use crate::id;
use crate::time::{Moment, Timestamp};

const PREFIX: &str = "cpk_";
pub const ID_BYTES: usize = 8;
pub const SECRET_BYTES: usize = 32;

/// The public part of a key: 16 hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
#[schema(example = "9f86d081884c7d65")]
pub struct ApiKeyId(String);

impl ApiKeyId {
    /// Wraps an id that was checked when it was stored.
    pub fn stored(id: impl Into<String>) -> Self {
        ApiKeyId(id.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ApiKeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not the id of an API key: expected 16 hexadecimal digits, as `campanile api-key list` shows them")]
pub struct InvalidApiKeyId;

impl FromStr for ApiKeyId {
    type Err = InvalidApiKeyId;

    fn from_str(text: &str) -> Result<Self, InvalidApiKeyId> {
        if is_hex(text, ID_BYTES) { Ok(ApiKeyId(text.to_owned())) } else { Err(InvalidApiKeyId) }
    }
}

/// A whole key, as a client presents it.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKeyToken {
    pub id: ApiKeyId,
    secret: String,
}

impl ApiKeyToken {
    /// Makes a key from random bytes.
    pub fn new(id: [u8; ID_BYTES], secret: [u8; SECRET_BYTES]) -> Self {
        ApiKeyToken { id: ApiKeyId(hex(&id)), secret: hex(&secret) }
    }

    /// Whether a text claims to be an API key, well-formed or not.
    pub fn is_meant(text: &str) -> bool {
        text.starts_with(PREFIX)
    }

    /// `None` if the text is not a well-formed key.
    pub fn parse(text: &str) -> Option<Self> {
        let (id, secret) = text.strip_prefix(PREFIX)?.split_once('_')?;
        let secret = is_hex(secret, SECRET_BYTES).then(|| secret.to_owned())?;
        Some(ApiKeyToken { id: id.parse().ok()?, secret })
    }

    /// The text to show once, to whoever created the key.
    pub fn reveal(&self) -> String {
        format!("{PREFIX}{}_{}", self.id, self.secret)
    }

    pub fn hash(&self) -> ApiKeyHash {
        ApiKeyHash(hex(&Sha256::digest(&self.secret)))
    }
}

impl fmt::Debug for ApiKeyToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiKeyToken").field("id", &self.id).finish_non_exhaustive()
    }
}

/// The SHA-256 of a key's secret, in hexadecimal digits.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKeyHash(String);

impl ApiKeyHash {
    /// Wraps a hash that was computed when it was stored.
    pub fn stored(hash: impl Into<String>) -> Self {
        ApiKeyHash(hash.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ApiKeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKeyHash")
    }
}

fn is_hex(text: &str, bytes: usize) -> bool {
    text.len() == 2 * bytes && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// A stored key, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ApiKey {
    pub id: ApiKeyId,
    pub name: String,
    /// The beginning of the key, by which a person recognises it.
    #[schema(example = "cpk_9f86d081884c7d65")]
    pub prefix: String,
    #[schema(value_type = Vec<Scope>)]
    pub scopes: Scopes,
    pub created_at: Moment,
    /// Written at most once a minute.
    pub last_used_at: Option<Moment>,
    pub expires_at: Option<Moment>,
    pub revoked_at: Option<Moment>,
}

/// Why a key with the right secret is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    Revoked,
    Expired,
}

impl ApiKey {
    pub fn prefix_of(id: &ApiKeyId) -> String {
        format!("{PREFIX}{id}")
    }

    /// Why the key may not be used at this time, if so.
    pub fn refusal(&self, now: Timestamp) -> Option<Refusal> {
        if self.revoked_at.is_some() {
            Some(Refusal::Revoked)
        } else if self.expires_at.is_some_and(|Moment(expires_at)| expires_at <= now) {
            Some(Refusal::Expired)
        } else {
            None
        }
    }
}

/// What the creator of a key chooses.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewApiKey {
    /// Who uses the key, such as the name of a service.
    #[schema(example = "booking service", min_length = 1, max_length = 200)]
    pub name: String,
    #[schema(value_type = Vec<Scope>, min_items = 1)]
    pub scopes: Scopes,
    /// The key is refused from this time on.
    #[serde(default)]
    pub expires_at: Option<Moment>,
}

/// Why a key can't be created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidApiKey {
    pub field: &'static str,
    pub detail: String,
}

impl NewApiKey {
    pub fn check(&self, now: Timestamp) -> Result<(), InvalidApiKey> {
        let wrong = |field, detail: String| Err(InvalidApiKey { field, detail });
        if let Err(error) = id::check(&self.name) {
            return wrong("name", error.to_string());
        }
        if self.scopes.is_empty() {
            return wrong("scopes", "must name at least one scope".to_owned());
        }
        match self.expires_at {
            Some(Moment(at)) if at <= now => wrong("expires_at", "must lie in the future".to_owned()),
            Some(Moment(at)) => {
                crate::time::check(at).or_else(|error| wrong("expires_at", error.to_string()))
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::time;

    fn token() -> ApiKeyToken {
        ApiKeyToken::new([7; ID_BYTES], [171; SECRET_BYTES])
    }

    #[test]
    fn a_key_comes_back_from_its_text() {
        let text = token().reveal();
        assert_eq!(text, format!("cpk_{}_{}", "07".repeat(8), "ab".repeat(32)));
        assert_eq!(ApiKeyToken::parse(&text), Some(token()));
        assert_eq!(ApiKeyToken::parse(&text).unwrap().hash(), token().hash());
        let other = ApiKeyToken::new([7; ID_BYTES], [172; SECRET_BYTES]);
        assert_ne!(other.hash(), token().hash());
        assert!(!format!("{:?}", token()).contains("abab"));
    }

    #[test]
    fn what_is_not_exactly_a_key_is_none() {
        let good = token().reveal();
        let wrong = [
            String::new(),
            "cpk_".to_owned(),
            good.to_uppercase(),
            good.replace("cpk_", "cpx_"),
            format!("{good}0"),
            format!(" {good}"),
            good[..good.len() - 1].to_owned(),
            good.replacen('0', "g", 1),
            format!("cpk_{}", "_".repeat(81)),
            "x".repeat(10_000_000),
        ];
        for text in wrong {
            assert_eq!(ApiKeyToken::parse(&text), None, "{}", &text[..text.len().min(100)]);
        }
    }

    #[test]
    fn a_key_is_refused_once_it_is_revoked_or_expired() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        let moment = |seconds: i64| Some(Moment(Timestamp::from_second(seconds).unwrap()));
        let key = ApiKey {
            id: token().id,
            name: "shop".to_owned(),
            prefix: ApiKey::prefix_of(&token().id),
            scopes: [Scope::Emit].into_iter().collect(),
            created_at: Moment(now),
            last_used_at: None,
            expires_at: moment(1_000_001),
            revoked_at: None,
        };
        assert_eq!(key.refusal(now), None);
        assert_eq!(key.refusal(time::later(now, Duration::from_secs(1))), Some(Refusal::Expired));
        let revoked = ApiKey { revoked_at: moment(1), ..key };
        assert_eq!(revoked.refusal(now), Some(Refusal::Revoked));
    }

    #[test]
    fn a_new_key_needs_a_name_a_scope_and_a_future() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        let good = NewApiKey {
            name: "shop".to_owned(),
            scopes: [Scope::Emit].into_iter().collect(),
            expires_at: None,
        };
        assert_eq!(good.check(now), Ok(()));
        let field = |key: NewApiKey| key.check(now).unwrap_err().field;
        assert_eq!(field(NewApiKey { name: String::new(), ..good.clone() }), "name");
        assert_eq!(field(NewApiKey { name: "a\nb".to_owned(), ..good.clone() }), "name");
        assert_eq!(field(NewApiKey { scopes: Scopes::default(), ..good.clone() }), "scopes");
        assert_eq!(field(NewApiKey { expires_at: Some(Moment(now)), ..good }), "expires_at");
    }
}
