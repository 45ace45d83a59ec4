//! Certificates for one test, and TLS in front of a server by one of them.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
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
    folder: TempDir,
    files: (String, String),
    /// The file that clients must trust.
    authority: String,
}

impl Certificate {
    /// A self-signed certificate for `localhost`.
    pub fn localhost() -> Self {
        Self::self_signed("localhost", IsCa::NoCa)
    }

    /// A self-signed certificate that claims to be an authority, like those of `openssl req -x509`.
    pub fn authority(name: &str) -> Self {
        Self::self_signed(name, IsCa::Ca(BasicConstraints::Unconstrained))
    }

    /// A certificate for `localhost` by an authority of its own.
    pub fn issued() -> Self {
        let mut authority = CertificateParams::new(Vec::new()).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority_key = KeyPair::generate().unwrap();
        let authority_pem = authority.self_signed(&authority_key).unwrap().pem();
        let issuer = Issuer::new(authority, authority_key);
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let mut written = Self::written(&params.signed_by(&key, &issuer).unwrap(), &key);
        written.authority = path(&written.folder, "authority.pem");
        fs::write(&written.authority, authority_pem).unwrap();
        written
    }

    fn self_signed(name: &str, is_ca: IsCa) -> Self {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.is_ca = is_ca;
        let key = KeyPair::generate().unwrap();
        Self::written(&params.self_signed(&key).unwrap(), &key)
    }

    fn written(certificate: &rcgen::Certificate, key: &KeyPair) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let files = (path(&folder, "certificate.pem"), path(&folder, "key.pem"));
        fs::write(&files.0, certificate.pem()).unwrap();
        fs::write(&files.1, key.serialize_pem()).unwrap();
        Certificate { folder, authority: files.0.clone(), files }
    }

    /// The files of the certificate and of its key.
    pub fn files(&self) -> (&str, &str) {
        (&self.files.0, &self.files.1)
    }

    /// The file with the certificate of who signed it.
    pub fn authority_file(&self) -> &Path {
        Path::new(&self.authority)
    }

    /// The port of a TLS proxy in front of this server, such as `127.0.0.1:25`.
    pub async fn wrapped(&self, target: String) -> u16 {
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
                let (acceptor, target) = (acceptor.clone(), target.clone());
                tokio::spawn(async move {
                    let mut outside = acceptor.accept(outside).await.ok()?;
                    let mut inside = TcpStream::connect(target).await.ok()?;
                    copy_bidirectional(&mut outside, &mut inside).await.ok()
                });
            }
        });
        port
    }
}

fn path(folder: &TempDir, name: &str) -> String {
    folder.path().join(name).to_str().unwrap().to_owned()
}
