//! The key file of a service account from Google's console, and signing with its key. Nothing here shows the key:
//! errors name the field and the remedy.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use reqwest::Url;
use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use rustls_pki_types::PrivatePkcs8KeyDer;
use rustls_pki_types::pem::PemObject;
use serde::Serialize;
use serde_json::{Map, Value};

/// The sending account and its project.
#[derive(Clone)]
pub struct ServiceAccount {
    project_id: String,
    client_email: String,
    key_id: String,
    token_uri: Url,
    key: Arc<RsaKeyPair>,
}

impl fmt::Debug for ServiceAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceAccount")
            .field("project_id", &self.project_id)
            .field("client_email", &self.client_email)
            .field("token_uri", &self.token_uri.as_str())
            .finish_non_exhaustive()
    }
}

/// What is wrong with a key file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyFileError {
    #[error("the key file is not JSON (line {line}, column {column}): {DOWNLOAD_HINT}")]
    NotJson { line: usize, column: usize },
    #[error("this is an app's google-services.json, not a service account key: {DOWNLOAD_HINT}")]
    AppConfig,
    #[error(
        "the key file is not a service account key: its `type` is not `service_account`; {DOWNLOAD_HINT}"
    )]
    WrongType,
    #[error("the key file has no `{0}`: {DOWNLOAD_HINT}")]
    Missing(&'static str),
    #[error("`{0}` in the key file is invalid: {DOWNLOAD_HINT}")]
    Invalid(&'static str),
    #[error(
        "`private_key` in the key file is not an RSA key in PEM (PKCS#8) of at least 2048 bits; \
         were its line breaks lost? {DOWNLOAD_HINT}"
    )]
    Key,
    #[error("`token_uri` in the key file must be https: Google's is https://oauth2.googleapis.com/token")]
    TokenUri,
}

const DOWNLOAD_HINT: &str =
    "download one in the Firebase console under Project settings, Service accounts, Generate new private key";

impl ServiceAccount {
    pub fn parse(json: &str) -> Result<Self, KeyFileError> {
        // Errors of `serde_json` may quote the file's contents, so only the position is used.
        let file: Map<String, Value> = serde_json::from_str(json)
            .map_err(|error| KeyFileError::NotJson { line: error.line(), column: error.column() })?;
        if file.contains_key("project_info") {
            return Err(KeyFileError::AppConfig);
        }
        if text(&file, "type")? != "service_account" {
            return Err(KeyFileError::WrongType);
        }
        let project_id = text(&file, "project_id")?;
        if !is_project_id(project_id) {
            return Err(KeyFileError::Invalid("project_id"));
        }
        let client_email = text(&file, "client_email")?;
        if !client_email.contains('@') || !is_plain(client_email) {
            return Err(KeyFileError::Invalid("client_email"));
        }
        let key_id = text(&file, "private_key_id")?;
        if !is_plain(key_id) {
            return Err(KeyFileError::Invalid("private_key_id"));
        }
        let pem = text(&file, "private_key")?;
        let der = PrivatePkcs8KeyDer::from_pem_slice(pem.as_bytes()).map_err(|_| KeyFileError::Key)?;
        let key = RsaKeyPair::from_pkcs8(der.secret_pkcs8_der()).map_err(|_| KeyFileError::Key)?;
        let token_uri = Url::parse(text(&file, "token_uri")?).map_err(|_| KeyFileError::TokenUri)?;
        if !is_safe(&token_uri) {
            return Err(KeyFileError::TokenUri);
        }
        Ok(ServiceAccount {
            project_id: project_id.to_owned(),
            client_email: client_email.to_owned(),
            key_id: key_id.to_owned(),
            token_uri,
            key: Arc::new(key),
        })
    }

    pub fn project_id(&self) -> &str {
        &self.project_id
    }

    pub fn client_email(&self) -> &str {
        &self.client_email
    }

    /// The endpoint for access tokens.
    pub fn token_uri(&self) -> &Url {
        &self.token_uri
    }

    /// The assertion for requesting a token: a JWT, signed with RS256, valid for an hour from `now` in seconds since
    /// 1970.
    pub(super) fn assertion(&self, scope: &str, now: u64) -> Result<String, ring::error::Unspecified> {
        let header = Header { alg: "RS256", typ: "JWT", kid: &self.key_id };
        let claims = Claims {
            iss: &self.client_email,
            scope,
            aud: self.token_uri.as_str(),
            iat: now,
            exp: now + 3_600,
        };
        let signed = format!("{}.{}", encoded(&header), encoded(&claims));
        let mut signature = vec![0; self.key.public().modulus_len()];
        self.key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), signed.as_bytes(), &mut signature)?;
        Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }
}

#[derive(Serialize)]
struct Header<'a> {
    alg: &'a str,
    typ: &'a str,
    kid: &'a str,
}

#[derive(Serialize)]
struct Claims<'a> {
    iss: &'a str,
    scope: &'a str,
    aud: &'a str,
    iat: u64,
    exp: u64,
}

fn encoded(part: &impl Serialize) -> String {
    let json = serde_json::to_vec(part).expect("text and numbers can be written as JSON");
    URL_SAFE_NO_PAD.encode(json)
}

fn text<'a>(file: &'a Map<String, Value>, field: &'static str) -> Result<&'a str, KeyFileError> {
    match file.get(field) {
        Some(Value::String(text)) if !text.is_empty() => Ok(text),
        Some(Value::String(_) | Value::Null) | None => Err(KeyFileError::Missing(field)),
        Some(_) => Err(KeyFileError::Invalid(field)),
    }
}

/// The project id becomes a part of a path, so only safe characters are accepted. Old ids have a domain and a colon
/// before them.
fn is_project_id(text: &str) -> bool {
    text.len() <= 100
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.bytes().all(|byte| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.' | b':')
        })
}

fn is_plain(text: &str) -> bool {
    text.len() <= 320 && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Whether the token endpoint is safe: whoever reads the assertion can get a token with it.
fn is_safe(url: &Url) -> bool {
    let stays_here = matches!(url.host_str(), Some("127.0.0.1" | "[::1]" | "localhost"));
    let has_credentials = !url.username().is_empty() || url.password().is_some();
    !has_credentials && (url.scheme() == "https" || (url.scheme() == "http" && stays_here))
}
