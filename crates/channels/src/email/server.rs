//! One mail server: its address, its security and our credentials.

use std::net::SocketAddr;
use std::{fmt, io};

use tokio::net::{TcpStream, lookup_host};
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;

/// How to reach a server and what to say to it.
pub struct Server {
    /// A name or an address without brackets.
    pub host: String,
    pub port: u16,
    pub security: Security,
    pub credentials: Option<Credentials>,
    /// The name in EHLO.
    pub hello: String,
    pub tls: TlsConnector,
}

impl Server {
    /// Host and port for people.
    pub fn host_port(&self) -> String {
        let Server { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }

    /// Opens a TCP connection, or says in words why not.
    pub async fn connect(&self, until: Instant) -> Result<TcpStream, String> {
        let connect = async {
            let unknown = |_| format!("is unreachable: host name {} does not resolve", self.host);
            let found = lookup_host((self.host.as_str(), self.port)).await.map_err(unknown)?;
            let addresses: Vec<SocketAddr> = found.collect();
            let refused = |error: io::Error| format!("is unreachable: {}", error.kind());
            TcpStream::connect(&addresses[..]).await.map_err(refused)
        };
        timeout_at(until, connect).await.map_err(|_| "could not be reached before the timeout".to_owned())?
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:?})", self.host_port(), self.security)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Security {
    /// TLS from the first byte, usually on port 465.
    Implicit,
    /// STARTTLS, or nothing is sent.
    Required,
    /// STARTTLS if the server offers it.
    IfOffered,
    None,
}

pub struct Credentials {
    pub user: String,
    pub password: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials")
    }
}
