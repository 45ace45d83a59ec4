//! `[auth]`: the admin key, the signing key, and who may sign tokens of end users. Secrets may come from files.

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use campanile_domain::access::api_key::ApiKeyToken;
use jsonwebtoken::DecodingKey;
use serde::{Deserialize, Serialize};

use super::backend::given;
use super::values::redacted;
use crate::data_folder::read_key;
use crate::http::{JwksFile, TokenVerifier};

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Auth {
    #[serde(serialize_with = "redacted")]
    pub admin_key: String,
    pub admin_key_file: PathBuf,
    #[serde(serialize_with = "redacted")]
    pub signing_key: String,
    pub signing_key_file: PathBuf,
    pub jwt: Jwt,
}

/// `[auth.jwt]`: who may sign tokens of end users.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Jwt {
    #[serde(serialize_with = "redacted")]
    pub secret: String,
    pub secret_file: PathBuf,
    pub jwks_file: PathBuf,
    pub audience: String,
    pub issuer: String,
}

/// The fewest bytes of the admin key, and of a secret that signs tokens: as many as HS256 has.
const MIN_SECRET_BYTES: usize = 32;
const TOO_SHORT: &str = "must have at least 32 bytes; `openssl rand -hex 32` prints a good one";

impl Auth {
    /// Checks what needs no file.
    pub fn check(&self) -> anyhow::Result<()> {
        self.jwt.check()
    }

    /// Also checks the files, which only a server needs to read.
    pub fn check_files(&self) -> anyhow::Result<()> {
        self.given_key()?;
        let (signing_key, secret) = (self.signing_key()?, self.jwt.secret()?);
        if signing_key.is_some() && signing_key == secret {
            bail!(
                "auth.signing_key and auth.jwt.secret are the same; then tickets would be tokens: choose two"
            );
        }
        self.jwt.verifier().map(drop)
    }

    /// The configured key for tickets and other tokens. Without one, the database has it.
    pub fn signing_key(&self) -> anyhow::Result<Option<String>> {
        secret("auth.signing_key", &self.signing_key, &self.signing_key_file)
    }

    /// The configured key, or the one in the configured file.
    pub fn given_key(&self) -> anyhow::Result<Option<String>> {
        let key = match given(&self.admin_key_file) {
            _ if !self.admin_key.is_empty() => self.admin_key.clone(),
            Some(file) => read_key(&file)
                .with_context(|| format!("cannot read auth.admin_key_file {}", file.display()))?,
            None => return Ok(None),
        };
        if key.len() < MIN_SECRET_BYTES {
            bail!("auth.admin_key: {TOO_SHORT}");
        }
        if ApiKeyToken::is_meant(&key) {
            bail!("auth.admin_key: must not begin with cpk_, as API keys do");
        }
        Ok(Some(key))
    }
}

impl Jwt {
    fn check(&self) -> anyhow::Result<()> {
        let is_used = !self.secret.is_empty()
            || [&self.secret_file, &self.jwks_file].iter().any(|f| given(f).is_some());
        for (key, value) in [("audience", &self.audience), ("issuer", &self.issuer)] {
            if !value.is_empty() && !is_used {
                bail!("auth.jwt.{key} has no effect without auth.jwt.secret or auth.jwt.jwks_file");
            }
        }
        Ok(())
    }

    fn secret(&self) -> anyhow::Result<Option<String>> {
        secret("auth.jwt.secret", &self.secret, &self.secret_file)
    }

    /// What verifies tokens of end users, if anything is configured.
    pub fn verifier(&self) -> anyhow::Result<Option<TokenVerifier>> {
        let secret = self.secret()?;
        let jwks = given(&self.jwks_file).map(|file| JwksFile::open(&file)).transpose();
        let jwks = jwks.context("auth.jwt.jwks_file")?;
        if secret.is_none() && jwks.is_none() {
            return Ok(None);
        }
        let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Ok(Some(TokenVerifier {
            secret: secret.map(|secret| DecodingKey::from_secret(secret.as_bytes())),
            jwks,
            audience: text(&self.audience),
            issuer: text(&self.issuer),
        }))
    }
}

/// A secret, given directly or by a file, that is long enough.
fn secret(key: &str, direct: &str, file: &Path) -> anyhow::Result<Option<String>> {
    let secret = match given(file) {
        _ if !direct.is_empty() => direct.to_owned(),
        Some(file) => {
            read_key(&file).with_context(|| format!("cannot read {key}_file {}", file.display()))?
        }
        None => return Ok(None),
    };
    if secret.len() < MIN_SECRET_BYTES {
        bail!("{key}: {TOO_SHORT}");
    }
    Ok(Some(secret))
}

impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Auth")
            .field("admin_key_file", &self.admin_key_file)
            .field("jwks_file", &self.jwt.jwks_file)
            .finish_non_exhaustive()
    }
}
