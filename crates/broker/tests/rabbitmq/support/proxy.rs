//! Stands between Campanile and `RabbitMQ`, and can go away.

use std::net::SocketAddr;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use url::Url;

#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    target: String,
    running: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Reserves an address; connections to it are refused.
    pub async fn down() -> Self {
        let url = super::url();
        let target = format!("{}:{}", url.host_str().unwrap_or("localhost"), url.port().unwrap_or(5672));
        let address = TcpListener::bind("127.0.0.1:0").await.expect("a port is free").local_addr();
        Self { address: address.expect("it is bound"), target, running: None }
    }

    pub async fn up() -> Self {
        let mut proxy = Self::down().await;
        proxy.restore().await;
        proxy
    }

    /// The URL of the broker, by way of this proxy.
    pub fn url(&self) -> String {
        let mut url: Url = super::url();
        url.set_host(Some("127.0.0.1")).expect("a URL of a broker has a host");
        url.set_port(Some(self.address.port())).expect("a URL of a broker has a port");
        url.to_string()
    }

    pub async fn restore(&mut self) {
        let listener = TcpListener::bind(self.address).await.expect("nobody else took the port");
        self.running = Some(tokio::spawn(forward(listener, self.target.clone())));
    }

    /// Cuts what is connected, and refuses all others.
    pub async fn cut(&mut self) {
        if let Some(running) = self.running.take() {
            running.abort();
            running.await.expect_err("it was aborted");
        }
    }
}

async fn forward(listener: TcpListener, target: String) {
    let mut connections = JoinSet::new();
    loop {
        let (mut near, _) = listener.accept().await.expect("the listener is open");
        let mut far = TcpStream::connect(&target).await.expect("RabbitMQ is there");
        connections.spawn(async move { copy_bidirectional(&mut near, &mut far).await.ok() });
    }
}
