//! The public keys that may sign tokens of end users: a JWKS file, read again when it changes. Each key is pinned to
//! one algorithm, so that a token cannot choose how it is verified.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use serde::Deserialize;
use serde_json::Value;

use crate::http::reloaded::Reloaded;

const MAX_FILE_BYTES: u64 = 1024 * 1024;
/// The length of a 2048-bit RSA modulus in base64url; shorter keys are too weak.
const MIN_MODULUS_CHARS: usize = 342;

#[derive(Debug)]
pub struct JwksFile(Reloaded<Vec<PinnedKey>>);

pub struct PinnedKey {
    kid: Option<String>,
    algorithm: Algorithm,
    key: DecodingKey,
}

impl std::fmt::Debug for PinnedKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PinnedKey")
            .field("kid", &self.kid)
            .field("algorithm", &self.algorithm)
            .finish_non_exhaustive()
    }
}

impl JwksFile {
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        Ok(JwksFile(Reloaded::open("auth.jwt.jwks_file", vec![path.to_owned()], read)?))
    }

    /// The key for this algorithm and key id. A token without a key id may use the only key of its algorithm.
    pub fn key(&self, algorithm: Algorithm, kid: Option<&str>) -> Option<DecodingKey> {
        let keys = self.0.current();
        let mut fitting = keys.iter().filter(|key| {
            key.algorithm == algorithm && kid.is_none_or(|kid| key.kid.as_deref() == Some(kid))
        });
        let first = fitting.next()?;
        fitting.next().is_none().then(|| first.key.clone())
    }
}

#[derive(Deserialize)]
struct Jwks {
    keys: Vec<Value>,
}

/// Reads the usable keys of a file. Keys of other kinds are skipped, as RFC 7517 wants it; a file without any usable
/// key is an error.
fn read(files: &[PathBuf]) -> anyhow::Result<Vec<PinnedKey>> {
    let [path] = files else { bail!("there is one JWKS file") };
    let name = path.display();
    let size = std::fs::metadata(path).with_context(|| format!("cannot read {name}"))?.len();
    if size > MAX_FILE_BYTES {
        bail!("{name} has {size} bytes; a JWKS file has at most {MAX_FILE_BYTES}");
    }
    let text = std::fs::read(path).with_context(|| format!("cannot read {name}"))?;
    let jwks: Jwks = serde_json::from_slice(&text)
        .with_context(|| format!("{name} is not a JWKS: {{\"keys\": [...]}}"))?;
    let mut keys = Vec::new();
    let mut skipped = Vec::new();
    for (index, key) in jwks.keys.into_iter().enumerate() {
        match pinned(key) {
            Ok(key) => keys.push(key),
            Err(why) => skipped.push(format!("key {index}: {why:#}")),
        }
    }
    if keys.is_empty() {
        bail!("{name} has no usable key for RS256, ES256 or EdDSA ({})", skipped.join("; "));
    }
    for why in skipped {
        tracing::warn!(path = %name, "skipped {why}");
    }
    Ok(keys)
}

fn pinned(key: Value) -> anyhow::Result<PinnedKey> {
    let jwk: Jwk = serde_json::from_value(key).context("not a known kind of key")?;
    if jwk.common.public_key_use.as_ref().is_some_and(|purpose| *purpose != PublicKeyUse::Signature) {
        bail!("it is not for signatures");
    }
    let (algorithm, named) = match &jwk.algorithm {
        AlgorithmParameters::RSA(rsa) if rsa.n.trim_end_matches('=').len() < MIN_MODULUS_CHARS => {
            bail!("an RSA key needs at least 2048 bits")
        }
        AlgorithmParameters::RSA(_) => (Algorithm::RS256, KeyAlgorithm::RS256),
        AlgorithmParameters::EllipticCurve(ec) if ec.curve == EllipticCurve::P256 => {
            (Algorithm::ES256, KeyAlgorithm::ES256)
        }
        AlgorithmParameters::OctetKeyPair(okp) if okp.curve == EllipticCurve::Ed25519 => {
            (Algorithm::EdDSA, KeyAlgorithm::EdDSA)
        }
        AlgorithmParameters::OctetKey(_) => {
            bail!("a shared secret does not belong here; use auth.jwt.secret")
        }
        _ => bail!("its curve is not supported; use P-256 or Ed25519"),
    };
    if jwk.common.key_algorithm.is_some_and(|declared| declared != named) {
        bail!("its algorithm is not supported; use RS256, ES256 or EdDSA");
    }
    let key = DecodingKey::from_jwk(&jwk).context("its numbers cannot be used")?;
    Ok(PinnedKey { kid: jwk.common.key_id, algorithm, key })
}
