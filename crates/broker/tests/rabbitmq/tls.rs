//! TLS: a private authority is trusted only if it is configured.

use campanile_broker::{Broker, BrokerError, RabbitMq, RabbitMqConfig};
use campanile_testkit::certificate::Certificate;

use crate::support::{Place, make_good, publish, receive_and_ack, within};

#[tokio::test]
async fn a_broker_is_trusted_by_the_authority_that_is_named() {
    let (port, certificate) = encrypted().await;
    let (place, url) = (Place::new(&["a"]), url(port));
    let config =
        RabbitMqConfig { url, ca_file: Some(certificate.authority_file().to_owned()), ..place.config() };
    let broker = within(RabbitMq::open(config)).await.expect("it is trusted");
    make_good(&broker).await;
    publish(&broker, "a", 0..1_000).await;
    receive_and_ack(&mut *broker.consume("a", 100).await.expect("it is there"), 0..1_000).await;
    drop(broker);
    place.remove().await;
}

#[tokio::test]
async fn a_broker_of_an_unknown_authority_is_not_trusted() {
    let (port, _certificate) = encrypted().await;
    let (_port, other) = encrypted().await;
    let config = RabbitMqConfig {
        url: url(port),
        ca_file: Some(other.authority_file().to_owned()),
        ..Place::new(&[]).config()
    };
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

/// The TLS port of the broker, and its certificate.
async fn encrypted() -> (u16, Certificate) {
    let (url, certificate) = (crate::support::url(), Certificate::issued());
    let target = format!("{}:{}", url.host_str().unwrap_or("localhost"), url.port().unwrap_or(5672));
    (certificate.wrapped(target).await, certificate)
}

fn url(port: u16) -> String {
    let url = crate::support::url().to_string().replacen("amqp:", "amqps:", 1);
    let mut url: url::Url = url.parse().expect("it is a URL");
    url.set_host(Some("localhost")).expect("a URL of a broker has a host");
    url.set_port(Some(port)).expect("a URL of a broker has a port");
    url.to_string()
}
