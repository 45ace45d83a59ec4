//! A self-signed certificate for `localhost`.

use std::fs;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tempfile::TempDir;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

#[derive(Debug)]
pub struct Certificate {
    _folder: TempDir,
    files: (String, String),
}

impl Certificate {
    pub fn localhost() -> Self {
        Self::of("localhost", rcgen::IsCa::NoCa)
    }

    /// A certificate that claims to be an authority, like those of `openssl req -x509`.
    pub fn authority(name: &str) -> Self {
        Self::of(name, rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained))
    }

    fn of(name: &str, is_ca: rcgen::IsCa) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut params = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.is_ca = is_ca;
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let files = (path("certificate.pem"), path("key.pem"));
        fs::write(&files.0, certificate.pem()).unwrap();
        fs::write(&files.1, key.serialize_pem()).unwrap();
        Certificate { _folder: folder, files }
    }

    pub fn files(&self) -> (&str, &str) {
        (&self.files.0, &self.files.1)
    }

    /// The port of a TLS proxy in front of this port.
    pub async fn wrapped(&self, inner: u16) -> u16 {
        let certificate = CertificateDer::from_pem_file(&self.files.0).unwrap();
        let key = PrivateKeyDer::from_pem_file(&self.files.1).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((outside, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    let mut outside = acceptor.accept(outside).await.ok()?;
                    let mut inside = TcpStream::connect(("127.0.0.1", inner)).await.ok()?;
                    copy_bidirectional(&mut outside, &mut inside).await.ok()
                });
            }
        });
        port
    }
}
