//! TLS: a private authority is trusted only if it is configured.

use std::sync::Arc;

use crate::support::{Place, make_good, publish, receive_and_ack, within};
use campanile_broker::{Broker, BrokerError, RabbitMq, RabbitMqConfig};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tempfile::NamedTempFile;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

#[tokio::test]
async fn a_broker_is_trusted_by_the_authority_that_is_named() {
    let (port, authority) = encrypted().await;
    let (place, url) = (Place::new(&["a"]), url(port));
    let config = RabbitMqConfig { url, ca_file: Some(authority.path().to_owned()), ..place.config() };
    let broker = within(RabbitMq::open(config)).await.expect("it is trusted");
    make_good(&broker).await;
    publish(&broker, "a", 0..1_000).await;
    receive_and_ack(&mut *broker.consume("a", 100).await.expect("it is there"), 0..1_000).await;
    drop(broker);
    place.remove().await;
}

#[tokio::test]
async fn a_broker_of_an_unknown_authority_is_not_trusted() {
    let (port, _authority) = encrypted().await;
    let (_port, other) = encrypted().await;
    let config =
        RabbitMqConfig { url: url(port), ca_file: Some(other.path().to_owned()), ..Place::new(&[]).config() };
    match within(RabbitMq::open(config)).await {
        Err(BrokerError::Misconfigured(error)) => assert!(error.contains("`broker.ca_file`"), "{error}"),
        other => panic!("it was to be refused, but {other:?}"),
    }
}

#[tokio::test]
async fn a_file_without_certificates_is_named() {
    let ca_file = Some("no-such-file.pem".into());
    let config = RabbitMqConfig { url: url(1), ca_file, ..Place::new(&[]).config() };
    match within(RabbitMq::open(config)).await {
        Err(BrokerError::Misconfigured(error)) => assert!(error.contains("no-such-file.pem"), "{error}"),
        other => panic!("it was to be refused, but {other:?}"),
    }
}

/// The TLS port of the broker, and the file of its authority.
async fn encrypted() -> (u16, NamedTempFile) {
    let authority_key = KeyPair::generate().expect("keys can be made");
    let mut authority = CertificateParams::new(Vec::new()).expect("it has no names");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_certificate = authority.self_signed(&authority_key).expect("it signs itself");
    let issuer = Issuer::new(authority, authority_key);
    let key = KeyPair::generate().expect("keys can be made");
    let certificate = CertificateParams::new(vec!["localhost".to_owned()]).expect("it is a name");
    let certificate = certificate.signed_by(&key, &issuer).expect("the authority signs it");
    let file = NamedTempFile::new().expect("files can be made");
    std::fs::write(&file, authority_certificate.pem()).expect("the file is ours");

    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring knows them")
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], PrivateKeyDer::Pkcs8(key.serialize_der().into()))
        .expect("key and certificate belong together");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let port = listener.local_addr().expect("it is bound").port();
    tokio::spawn(decrypt(listener, TlsAcceptor::from(Arc::new(config))));
    (port, file)
}

async fn decrypt(listener: TcpListener, acceptor: TlsAcceptor) {
    let url = crate::support::url();
    let target = (url.host_str().unwrap_or("localhost").to_owned(), url.port().unwrap_or(5672));
    loop {
        let (near, _) = listener.accept().await.expect("the listener is open");
        let (acceptor, target) = (acceptor.clone(), target.clone());
        tokio::spawn(async move {
            let Ok(mut near) = acceptor.accept(near).await else { return };
            let mut far = TcpStream::connect(target).await.expect("RabbitMQ is there");
            copy_bidirectional(&mut near, &mut far).await.ok();
        });
    }
}

fn url(port: u16) -> String {
    let url = crate::support::url().to_string().replacen("amqp:", "amqps:", 1);
    let mut url: url::Url = url.parse().expect("it is a URL");
    url.set_host(Some("localhost")).expect("a URL of a broker has a host");
    url.set_port(Some(port)).expect("a URL of a broker has a port");
    url.to_string()
}
