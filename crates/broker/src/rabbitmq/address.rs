//! The broker's address, the login, and opening a connection.

use std::fmt;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use url::Url;

use crate::BrokerError;
use crate::amqp::{Connection, Fault, Login, MAX_SHORT_BYTES, Wire};

const PLAIN_PORT: u16 = 5672;
const TLS_PORT: u16 = 5671;
/// Limits the whole attempt: name resolution, connection, TLS, handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The reply code for a wrong user or password.
const ACCESS_REFUSED: u16 = 403;
/// The reply code for a virtual host that does not exist or is not permitted.
const NOT_ALLOWED: u16 = 530;

pub(super) struct Address {
    host: String,
    port: u16,
    user: String,
    password: String,
    vhost: String,
    tls: Option<Tls>,
}

struct Tls {
    connector: TlsConnector,
    name: ServerName<'static>,
}

/// The URL without user and password, safe to show.
pub(super) fn without_login(url: &str) -> Option<String> {
    let url = Url::parse(url).ok()?;
    Some(format!("{}://{}{}", url.scheme(), url.host_str()?, url.path()))
}

impl Address {
    pub(super) fn parse(url: &str, ca_file: Option<&Path>) -> Result<Self, BrokerError> {
        let wrong = |what: &str| {
            BrokerError::Misconfigured(format!(
                "the URL of the broker {what}; it looks like `amqp://user:password@host:5672/vhost`"
            ))
        };
        let url = Url::parse(url).map_err(|error| wrong(&format!("cannot be read ({error})")))?;
        let tls = match url.scheme() {
            "amqp" => false,
            "amqps" => true,
            scheme => return Err(wrong(&format!("begins with `{scheme}:`, not with `amqp:` or `amqps:`"))),
        };
        let host = url.host_str().filter(|host| !host.is_empty()).ok_or_else(|| wrong("names no host"))?;
        if url.query().is_some() || url.fragment().is_some() {
            return Err(wrong("has a query or fragment, which is not supported"));
        }
        let decoded = |text: &str, default: &str| {
            let text = percent_decode_str(text).decode_utf8().map_err(|_| wrong("is not UTF-8"))?;
            let text = if text.is_empty() { default } else { &text };
            if text.len() > MAX_SHORT_BYTES {
                return Err(wrong("has a part that is longer than 255 bytes"));
            }
            Ok(text.to_owned())
        };
        Ok(Self {
            host: host.to_owned(),
            port: url.port().unwrap_or(if tls { TLS_PORT } else { PLAIN_PORT }),
            user: decoded(url.username(), "guest")?,
            password: decoded(url.password().unwrap_or_default(), "guest")?,
            vhost: decoded(url.path().trim_start_matches('/'), "/")?,
            tls: if tls { Some(Tls::new(host, ca_file)?) } else { None },
        })
    }

    pub(super) fn user(&self) -> &str {
        &self.user
    }

    pub(super) fn vhost(&self) -> &str {
        &self.vhost
    }

    /// Opens a connection with this name in the broker's tools.
    pub(super) async fn connect(&self, name: &str) -> Result<Connection, BrokerError> {
        let name = format!("Campanile {name}");
        let login = Login { user: &self.user, password: &self.password, vhost: &self.vhost, name: &name };
        let connected =
            async { Connection::open(self.wire().await?, login).await.map_err(|fault| self.explain(&fault)) };
        match timeout(CONNECT_TIMEOUT, connected).await {
            Ok(connected) => connected,
            Err(_) => Err(self.unreachable(&"it does not answer")),
        }
    }

    async fn wire(&self) -> Result<Wire, BrokerError> {
        let endpoint = (self.host.trim_matches(['[', ']']), self.port);
        let stream = TcpStream::connect(endpoint).await.map_err(|error| self.unreachable(&error))?;
        stream.set_nodelay(true).map_err(|error| self.unreachable(&error))?;
        let Some(tls) = &self.tls else {
            let (read, write) = stream.into_split();
            return Ok(Wire::new(read, write));
        };
        let stream = tls.connector.connect(tls.name.clone(), stream).await.map_err(|error| match error.kind() {
            ErrorKind::InvalidData => BrokerError::Misconfigured(format!(
                "RabbitMQ at {self} cannot be trusted: {error}; if its certificate comes from an authority of your \
                 own, name that authority's file in `broker.ca_file`"
            )),
            _ => self.unreachable(&error),
        })?;
        let (read, write) = tokio::io::split(stream);
        Ok(Wire::new(read, write))
    }

    fn explain(&self, fault: &Fault) -> BrokerError {
        let Self { user, vhost, .. } = self;
        if let Fault::NotAmqp = fault {
            return BrokerError::Misconfigured(format!(
                "{self} does not speak AMQP 0-9-1; check the port in `broker.url`. TLS ports need \
                 `amqps://`"
            ));
        }
        match fault.code() {
            Some(ACCESS_REFUSED) => BrokerError::Misconfigured(format!(
                "RabbitMQ at {self} refuses user `{user}`: correct user and password in `broker.url`, or create the \
                 user by `rabbitmqctl add_user` (`guest` may connect from the broker's own machine only)"
            )),
            Some(NOT_ALLOWED) => BrokerError::Misconfigured(format!(
                "RabbitMQ at {self} denies user `{user}` access to the virtual host `{vhost}`: {fault}; correct it \
                 in `broker.url`, or use `rabbitmqctl add_vhost` and `rabbitmqctl set_permissions`"
            )),
            _ => self.unreachable(fault),
        }
    }

    fn unreachable(&self, why: &dyn fmt::Display) -> BrokerError {
        BrokerError::Unreachable(format!("{self}: {why}"))
    }
}

impl Tls {
    /// Names ring explicitly, so that the process's default crypto provider does not matter.
    fn new(host: &str, ca_file: Option<&Path>) -> Result<Self, BrokerError> {
        let wrong = |what: String| BrokerError::Misconfigured(what);
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if let Some(file) = ca_file {
            let unreadable = |error: &dyn fmt::Display| {
                wrong(format!(
                    "the certificates of `broker.ca_file` ({}) cannot be read: {error}",
                    file.display()
                ))
            };
            let certificates =
                CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
            let certificates = certificates.map_err(|error| unreadable(&error))?;
            if certificates.is_empty() {
                return Err(unreadable(&"it holds no certificate"));
            }
            for certificate in certificates {
                roots.add(certificate).map_err(|error| unreadable(&error))?;
            }
        }
        if roots.is_empty() {
            return Err(wrong(
                "no certificate authority is trusted here; name one in `broker.ca_file`".to_owned(),
            ));
        }
        let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| wrong(format!("TLS cannot be set up: {error}")))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned())
            .map_err(|_| wrong(format!("`{host}` is no name that a certificate could have")))?;
        Ok(Self { connector: TlsConnector::from(Arc::new(config)), name })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(url: &str) -> (String, String, String, String) {
        let address = Address::parse(url, None).expect("the URL is right");
        (address.to_string(), address.user, address.password, address.vhost)
    }

    fn strings(endpoint: &str, user: &str, password: &str, vhost: &str) -> (String, String, String, String) {
        (endpoint.to_owned(), user.to_owned(), password.to_owned(), vhost.to_owned())
    }

    #[test]
    fn a_url_is_taken_apart_and_decoded() {
        assert_eq!(parsed("amqp://rabbit"), strings("rabbit:5672", "guest", "guest", "/"));
        assert_eq!(parsed("amqp://rabbit/"), strings("rabbit:5672", "guest", "guest", "/"));
        assert_eq!(parsed("amqp://a:b@rabbit:1/%2f"), strings("rabbit:1", "a", "b", "/"));
        assert_eq!(
            parsed("amqp://a%40b:p%3Aw%2F@[::1]/my%20host"),
            strings("[::1]:5672", "a@b", "p:w/", "my host")
        );
    }

    #[test]
    fn what_is_no_url_of_a_broker_is_refused_without_its_password() {
        for url in [
            "http://u:secret@h",
            "amqp://",
            "rabbit",
            "amqp://u:secret@h/?heartbeat=5",
            "amqp://u:secret@h:x",
        ] {
            let error = Address::parse(url, None).expect_err("the URL is wrong").to_string();
            assert!(error.contains("amqp://user:password@host:5672/vhost"), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
