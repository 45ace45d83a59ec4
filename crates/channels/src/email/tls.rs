//! TLS to a mail server: which certificates are trusted, and how failures are described.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use tokio_rustls::TlsConnector;

/// Trusts the system's authorities and the certificates in `ca_file`: authorities, or the server's own certificate.
pub fn connector(ca_file: Option<&Path>) -> Result<TlsConnector, String> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let pinned = ca_file.map(certificates).transpose()?.unwrap_or_default();
    for certificate in &pinned {
        roots.add(certificate.clone()).map_err(|error| format!("a certificate can't be used: {error}"))?;
    }
    let set_up = |error: &dyn std::fmt::Display| format!("TLS can't be set up: {error}");
    let crypto = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&crypto))
        .with_safe_default_protocol_versions()
        .map_err(|error| set_up(&error))?;
    let config = if pinned.is_empty() {
        builder.with_root_certificates(roots)
    } else {
        let authorities = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), crypto)
            .build()
            .map_err(|error| set_up(&error))?;
        builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AuthorityOrPinned { authorities, pinned }))
    };
    Ok(TlsConnector::from(Arc::new(config.with_no_client_auth())))
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let shown = file.display();
    let unreadable = |error: &dyn std::fmt::Display| format!("{shown} can't be read: {error}");
    let found: Vec<_> = CertificateDer::pem_file_iter(file)
        .map_err(|error| unreadable(&error))?
        .collect::<Result<_, _>>()
        .map_err(|error| unreadable(&error))?;
    if found.is_empty() {
        return Err(format!("{shown} holds no certificate, which begins with -----BEGIN CERTIFICATE-----"));
    }
    Ok(found)
}

/// Why there is no TLS, with a remedy for an untrusted certificate.
pub fn failed(error: &io::Error) -> String {
    const REMEDY: &str = "set channels.email.ca_file to the authority's or the server's own certificate";
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    match inner {
        Some(Error::InvalidCertificate(CertificateError::UnknownIssuer)) => format!(
            "failed the TLS handshake: its certificate was issued by an untrusted authority; {REMEDY}"
        ),
        // This includes a server certificate that claims to be an authority, as self-signed ones do.
        Some(Error::InvalidCertificate(CertificateError::Other(_))) => {
            format!("failed the TLS handshake: {error}; {REMEDY}")
        }
        _ => format!("failed the TLS handshake: {error}"),
    }
}

/// Trusts authorities, and the given certificates themselves. `openssl req -x509` creates certificates that claim to be
/// an authority; these are otherwise refused as server certificates.
#[derive(Debug)]
struct AuthorityOrPinned {
    authorities: Arc<WebPkiServerVerifier>,
    pinned: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for AuthorityOrPinned {
    fn verify_server_cert(
        &self,
        server: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match self.authorities.verify_server_cert(server, intermediates, name, ocsp, now) {
            // The certificate is neither expired nor revoked; these have errors of their own.
            Err(Error::InvalidCertificate(CertificateError::Other(_))) if self.pinned.contains(server) => {
                verify_server_name(&ParsedCertificate::try_from(server)?, name)?;
                Ok(ServerCertVerified::assertion())
            }
            result => result,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        server: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.authorities.verify_tls12_signature(message, server, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        server: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.authorities.verify_tls13_signature(message, server, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.authorities.supported_verify_schemes()
    }
}
