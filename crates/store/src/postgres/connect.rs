//! Connects to PostgreSQL: the URL, TLS and the settings of every session. It also translates PostgreSQL's errors for
//! the caller.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{Hook, HookError, Manager, ManagerConfig, RecyclingMethod};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio_postgres::Config;
use tokio_postgres::config::SslMode;
use tokio_postgres::error::SqlState;
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::StoreError;
use crate::error::explained;

/// The class of SQLSTATE of a violated constraint.
const CONSTRAINT_VIOLATION: &str = "23";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A connection is given up after the other end was silent for this long.
const PEER_TIMEOUT: Duration = Duration::from_secs(20);

/// Session settings. Every statement is written for its index and walks it in nested loops, so the planner gets little
/// choice: it would remember plans for young tables long after they have grown. A row costs more than a page, so that
/// not even a small table is scanned. Tables are joined in the written order. The timeouts end what a foreign lock or a
/// dead process would block.
pub const SESSION: &str =
    "SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; SET jit = off;
    SET enable_bitmapscan = off; SET max_parallel_workers_per_gather = 0; SET seq_page_cost = 0; \
    SET random_page_cost = 0;
    SET cpu_tuple_cost = 1; SET join_collapse_limit = 1;
    SET plan_cache_mode = force_generic_plan; SET statement_timeout = '60s'; SET lock_timeout = '20s';
    SET idle_in_transaction_session_timeout = '60s'; SET TimeZone = 'UTC'";

/// A database server, and how to connect to it.
#[derive(Clone)]
pub struct Server {
    pub config: Config,
    pub tls: MakeRustlsConnect,
}

impl Server {
    /// `key` is where the URL was configured, such as `database.url`.
    pub fn new(key: &str, url: &str, ca_file: Option<&Path>) -> Result<Self, StoreError> {
        let Url { rest, verify, ca_file: root } = Url::read(key, url)?;
        let mut config: Config = rest.parse().map_err(|e: tokio_postgres::Error| {
            let why = std::error::Error::source(&e).map_or_else(|| e.to_string(), ToString::to_string);
            unusable(format!(
                "{key} is not usable: {why}; expected something like postgres://user:password@host:5432/database"
            ))
        })?;
        let ca_file = ca_file.map(Path::to_owned).or(root);
        let verify = verify || ca_file.is_some();
        if verify {
            config.ssl_mode(SslMode::Require);
        }
        if config.get_application_name().is_none() {
            config.application_name("campanile");
        }
        config.connect_timeout(CONNECT_TIMEOUT).tcp_user_timeout(PEER_TIMEOUT).keepalives_idle(PEER_TIMEOUT);
        let tls = MakeRustlsConnect::new(tls(verify, ca_file.as_deref())?);
        Ok(Server { config, tls })
    }

    pub fn manager(&self) -> Manager {
        let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        Manager::from_config(self.config.clone(), self.tls.clone(), recycling)
    }

    /// Host, port and database, for messages: never the password.
    pub fn name(&self) -> String {
        use tokio_postgres::config::Host;
        let host = match self.config.get_hosts().first() {
            Some(Host::Tcp(host)) => host.clone(),
            Some(Host::Unix(folder)) => folder.display().to_string(),
            None => "localhost".to_owned(),
        };
        let port = self.config.get_ports().first().copied().unwrap_or(5432);
        format!("{host}:{port}/{}", self.config.get_dbname().unwrap_or_default())
    }
}

pub fn prepare_session() -> Hook {
    Hook::async_fn(|client, _| {
        Box::pin(async move { client.batch_execute(SESSION).await.map_err(HookError::Backend) })
    })
}

/// Parameters of a URL that libpq knows and the driver does not.
#[derive(Debug, PartialEq)]
struct Url {
    rest: String,
    verify: bool,
    ca_file: Option<PathBuf>,
}

impl Url {
    fn read(key: &str, url: &str) -> Result<Self, StoreError> {
        let Some((server, query)) = url.split_once('?') else {
            return Ok(Url { rest: url.to_owned(), verify: false, ca_file: None });
        };
        let (mut verify, mut ca_file, mut rest) = (false, None, Vec::new());
        for option in query.split('&').filter(|option| !option.is_empty()) {
            match option.split_once('=') {
                Some(("sslmode", "verify-full")) => verify = true,
                Some(("sslmode", "verify-ca")) => {
                    return Err(unusable(format!(
                        "{key}: sslmode=verify-ca is not supported; use sslmode=verify-full, \
                         which also checks the host's name"
                    )));
                }
                Some(("sslmode", "allow")) => rest.push("sslmode=prefer"),
                Some(("sslrootcert", file)) => ca_file = Some(PathBuf::from(file)),
                _ => rest.push(option),
            }
        }
        let query = if rest.is_empty() { String::new() } else { format!("?{}", rest.join("&")) };
        Ok(Url { rest: format!("{server}{query}"), verify, ca_file })
    }
}

fn tls(verify: bool, ca_file: Option<&Path>) -> Result<ClientConfig, StoreError> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|e| unusable(format!("TLS can't be used: {e}")))?;
    if !verify {
        let verifier = Arc::new(AcceptAnyCertificate::new(&provider));
        return Ok(builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth());
    }
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(file) = ca_file {
        let bad =
            |why: String| unusable(format!("the CA certificates in {} can't be used: {why}", file.display()));
        let certificates: Vec<_> = CertificateDer::pem_file_iter(file)
            .and_then(Iterator::collect)
            .map_err(|e| bad(e.to_string()))?;
        if certificates.is_empty() {
            return Err(bad("the file contains no certificate".to_owned()));
        }
        for certificate in certificates {
            roots.add(certificate).map_err(|e| bad(e.to_string()))?;
        }
    }
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// Encrypts without checking the server's certificate, as libpq does for `prefer` and `require`. `verify-full`, or a
/// file of authorities, checks it.
#[derive(Debug)]
struct AcceptAnyCertificate {
    algorithms: WebPkiSupportedAlgorithms,
}

impl AcceptAnyCertificate {
    fn new(provider: &CryptoProvider) -> Self {
        AcceptAnyCertificate { algorithms: provider.signature_verification_algorithms }
    }
}

impl ServerCertVerifier for AcceptAnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Classifies an error by what the caller does next. Invalid data is refused. The operator must fix a missing schema or
/// privilege. Other errors are temporary.
pub fn error(error: tokio_postgres::Error) -> StoreError {
    let Some(db) = error.as_db_error() else {
        let text = std::error::Error::source(&error).map(|source| format!("{error}: {source}"));
        let text = text.unwrap_or_else(|| error.to_string());
        // A value that can't be converted is bad data. Everything else is the connection.
        let conversion = text.starts_with("error serializing") || text.starts_with("error deserializing");
        let cause = explained(text, error);
        return if conversion { StoreError::Refused(cause) } else { StoreError::Unavailable(cause) };
    };
    let code = db.code().clone();
    if code.code().starts_with(CONSTRAINT_VIOLATION) {
        // The detail quotes the whole row, addresses and payloads included. The message names the constraint.
        return StoreError::Refused(db.message().into());
    }
    let text = match db.detail() {
        Some(detail) => format!("{}: {detail}", db.message()),
        None => db.message().to_owned(),
    };
    match &code {
        // A plan that DDL made useless, or a server behind a proxy that never saw the statement: the next try makes a
        // new one.
        &SqlState::FEATURE_NOT_SUPPORTED | &SqlState::INVALID_SQL_STATEMENT_NAME => {
            StoreError::Unavailable(explained(text, error))
        }
        code => match &code.code()[..2] {
            // The last ones come from functions and triggers of the business, behind its view of recipients for
            // example.
            "21" | "22" | "54" | "2F" | "38" | "39" | "44" | "P0" => {
                StoreError::Refused(explained(text, error))
            }
            "28" | "3D" | "3F" | "42" => {
                StoreError::Unusable(explained(format!("the database does not allow it: {text}"), error))
            }
            _ => StoreError::Unavailable(explained(text, error)),
        },
    }
}

/// Whether a statement only has to be prepared again: DDL invalidated it, or a pooler gave us another session.
pub fn is_stale(error: &tokio_postgres::Error) -> bool {
    matches!(error.code(), Some(&SqlState::FEATURE_NOT_SUPPORTED | &SqlState::INVALID_SQL_STATEMENT_NAME))
}

fn unusable(message: String) -> StoreError {
    StoreError::Unusable(message.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libpqs_words_are_understood() {
        let read = |url: &str| Url::read("database.url", url).unwrap();
        let plain = Url { rest: "postgres://h/d".to_owned(), verify: false, ca_file: None };
        assert_eq!(read("postgres://h/d"), plain);
        assert_eq!(read("postgres://h/d?"), plain);
        let full = read("postgres://h/d?sslmode=verify-full&application_name=x&sslrootcert=/ca.pem");
        assert_eq!(full.rest, "postgres://h/d?application_name=x");
        assert!(full.verify);
        assert_eq!(full.ca_file, Some(PathBuf::from("/ca.pem")));
        assert!(Url::read("database.url", "postgres://h/d?sslmode=verify-ca").is_err());
    }

    #[test]
    fn the_name_of_a_server_has_no_password() {
        let server =
            Server::new("database.url", "postgres://anna:secret@db.example:6543/shop", None).unwrap();
        assert_eq!(server.name(), "db.example:6543/shop");
    }

    #[test]
    fn a_url_that_can_not_be_used_says_why_and_tells_no_password() {
        let error = Server::new("database.direct_url", "postgres://anna:secret@db:port/shop", None);
        let error = error.err().unwrap().to_string();
        assert!(error.contains("database.direct_url") && !error.contains("secret"), "{error}");
    }
}
