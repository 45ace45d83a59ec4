//! The certificate of this server and its key: PEM files, read again when they change, as after a renewal.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context;
use rustls::ServerConfig;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

/// How often the files are looked at.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct TlsFiles {
    cert: PathBuf,
    key: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    config: Arc<ServerConfig>,
    modified: [Option<SystemTime>; 2],
    checked_at: Instant,
}

impl TlsFiles {
    pub fn open(cert: &Path, key: &Path) -> anyhow::Result<Self> {
        let modified = [modified(cert), modified(key)];
        let config = Arc::new(read(cert, key)?);
        let state = State { config, modified, checked_at: Instant::now() };
        Ok(TlsFiles { cert: cert.to_owned(), key: key.to_owned(), state: Mutex::new(state) })
    }

    /// The configuration for a new connection. While changed files do not fit together, the earlier ones stay in use.
    pub fn current(&self) -> Arc<ServerConfig> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.checked_at.elapsed() >= CHECK_INTERVAL {
            state.checked_at = Instant::now();
            let modified = [modified(&self.cert), modified(&self.key)];
            if modified != state.modified {
                state.modified = modified;
                match read(&self.cert, &self.key) {
                    Ok(config) => {
                        tracing::info!(cert = %self.cert.display(), "server.tls was read again");
                        state.config = Arc::new(config);
                    }
                    Err(error) => tracing::error!(
                        error = format!("{error:#}"),
                        "server.tls cannot be used; the certificate read before stays in use"
                    ),
                }
            }
        }
        Arc::clone(&state.config)
    }
}

fn modified(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).ok()?.modified().ok()
}

fn read(cert: &Path, key: &Path) -> anyhow::Result<ServerConfig> {
    let chain: Vec<_> = CertificateDer::pem_file_iter(cert)
        .and_then(Iterator::collect)
        .with_context(|| format!("server.tls.cert: cannot read certificates from {}", cert.display()))?;
    anyhow::ensure!(!chain.is_empty(), "server.tls.cert: {} has no certificate", cert.display());
    let private = PrivateKeyDer::from_pem_file(key)
        .with_context(|| format!("server.tls.key: cannot read a private key from {}", key.display()))?;
    let mut config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(chain, private)
        .context("server.tls: the certificate and the key do not fit together")?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}
