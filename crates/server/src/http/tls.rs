//! The certificate of this server and its key: PEM files, read again when they change, as after a renewal.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use rustls::ServerConfig;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use super::reloaded::Reloaded;

#[derive(Debug)]
pub struct TlsFiles(Reloaded<ServerConfig>);

impl TlsFiles {
    pub fn open(cert: &Path, key: &Path) -> anyhow::Result<Self> {
        Ok(TlsFiles(Reloaded::open("server.tls", vec![cert.to_owned(), key.to_owned()], read)?))
    }

    /// The configuration for a new connection.
    pub fn current(&self) -> Arc<ServerConfig> {
        self.0.current()
    }
}

fn read(files: &[PathBuf]) -> anyhow::Result<ServerConfig> {
    let [cert, key] = files else { bail!("server.tls needs a certificate and a key") };
    let chain: Vec<_> = CertificateDer::pem_file_iter(cert)
        .and_then(Iterator::collect)
        .with_context(|| format!("server.tls.cert: cannot read certificates from {}", cert.display()))?;
    anyhow::ensure!(!chain.is_empty(), "server.tls.cert: {} has no certificate", cert.display());
    let private = PrivateKeyDer::from_pem_file(key).with_context(|| {
        format!("server.tls.key: cannot read a private key without a password from {}", key.display())
    })?;
    let mut config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(chain, private)
        .context("server.tls: the certificate and the key do not fit together")?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}
