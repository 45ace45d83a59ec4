//! Stands between Campanile and `RabbitMQ`, counts what it sees, and can go away.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use url::Url;

/// How every frame ends that opens a channel, from its length on.
const OPEN_CHANNEL: [u8; 10] = [0, 0, 0, 5, 0, 20, 0, 10, 0, 0xce];

#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    target: String,
    running: Option<JoinHandle<()>>,
    channels_opened: Arc<AtomicUsize>,
}

impl Proxy {
    /// Reserves an address; connections to it are refused.
    pub async fn down() -> Self {
        let url = super::url();
        let target = format!("{}:{}", url.host_str().unwrap_or("localhost"), url.port().unwrap_or(5672));
        let address = TcpListener::bind("127.0.0.1:0").await.expect("a port is free").local_addr();
        let channels_opened = Arc::default();
        Self { address: address.expect("it is bound"), target, running: None, channels_opened }
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
        self.running =
            Some(tokio::spawn(forward(listener, self.target.clone(), Arc::clone(&self.channels_opened))));
    }

    /// How many channels were opened by way of it.
    pub fn channels_opened(&self) -> usize {
        self.channels_opened.load(Ordering::Relaxed)
    }

    /// While it is cut: lets so many connect, and hangs up on each at once.
    pub async fn slam(&self, times: usize) {
        let listener = TcpListener::bind(self.address).await.expect("nobody else took the port");
        for _ in 0..times {
            drop(listener.accept().await.expect("the listener is open"));
        }
    }

    /// Cuts what is connected, and refuses all others.
    pub async fn cut(&mut self) {
        if let Some(running) = self.running.take() {
            running.abort();
            running.await.expect_err("it was aborted");
        }
    }
}

async fn forward(listener: TcpListener, target: String, channels_opened: Arc<AtomicUsize>) {
    let mut connections = JoinSet::new();
    loop {
        let (near, _) = listener.accept().await.expect("the listener is open");
        let far = TcpStream::connect(&target).await.expect("RabbitMQ is there");
        connections.spawn(connect(near, far, Arc::clone(&channels_opened)));
    }
}

async fn connect(near: TcpStream, far: TcpStream, channels_opened: Arc<AtomicUsize>) {
    let ((mut from_near, mut to_near), (mut from_far, mut to_far)) = (near.into_split(), far.into_split());
    let there = async {
        let mut seen = Vec::new();
        while from_near.read_buf(&mut seen).await? > 0 {
            to_far.write_all(&seen).await?;
            let opened = seen.windows(OPEN_CHANNEL.len()).filter(|bytes| *bytes == OPEN_CHANNEL).count();
            channels_opened.fetch_add(opened, Ordering::Relaxed);
            seen.clear();
        }
        to_far.shutdown().await
    };
    let back = async {
        tokio::io::copy(&mut from_far, &mut to_near).await?;
        to_near.shutdown().await
    };
    tokio::try_join!(there, back).ok();
}
