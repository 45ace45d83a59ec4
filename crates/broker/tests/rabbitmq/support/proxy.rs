//! A proxy between Campanile and `RabbitMQ` that counts and withholds frames, and can go away.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use url::Url;

/// The class and method at the start of a frame's payload.
const OPEN_CHANNEL: [u8; 4] = [0, 20, 0, 10];
const DECLARE_QUEUE: [u8; 4] = [0, 50, 0, 10];
const CONSUME: [u8; 4] = [0, 60, 0, 20];
const CONFIRM: [u8; 4] = [0, 60, 0, 80];
/// What a client sends first, before any frame.
const PROTOCOL_HEADER_BYTES: usize = 8;
const FRAME_HEADER_BYTES: usize = 7;

#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    target: String,
    running: Option<JoinHandle<()>>,
    filter: Arc<Filter>,
}

/// What it searches in the traffic.
#[derive(Debug, Default)]
struct Filter {
    channels_opened: AtomicUsize,
    unheard_queue: Mutex<Option<String>>,
    without_confirms: AtomicBool,
}

impl Proxy {
    /// Reserves an address; connections to it are refused.
    pub async fn down() -> Self {
        let url = super::url();
        let target = format!("{}:{}", url.host_str().unwrap_or("localhost"), url.port().unwrap_or(5672));
        let address = TcpListener::bind("127.0.0.1:0").await.expect("a port is free").local_addr();
        Self { address: address.expect("it is bound"), target, running: None, filter: Arc::default() }
    }

    pub async fn up() -> Self {
        let mut proxy = Self::down().await;
        proxy.restore().await;
        proxy
    }

    /// The URL of the broker through this proxy.
    pub fn url(&self) -> String {
        let mut url: Url = super::url();
        url.set_host(Some("127.0.0.1")).expect("a URL of a broker has a host");
        url.set_port(Some(self.address.port())).expect("a URL of a broker has a port");
        url.to_string()
    }

    pub async fn restore(&mut self) {
        let listener = TcpListener::bind(self.address).await.expect("nobody else took the port");
        self.running = Some(tokio::spawn(forward(listener, self.target.clone(), Arc::clone(&self.filter))));
    }

    /// Drops requests about this queue from now on, as if the broker hung only there.
    pub fn leave_unheard(&self, queue: Option<String>) {
        *self.filter.unheard_queue.lock().expect("nobody panicked") = queue;
    }

    /// Starts or stops dropping confirms.
    pub fn keep_confirms(&self, keep: bool) {
        self.filter.without_confirms.store(keep, Ordering::Relaxed);
    }

    /// The number of channels that were opened through it.
    pub fn channels_opened(&self) -> usize {
        self.filter.channels_opened.load(Ordering::Relaxed)
    }

    /// While it is cut: accepts this many connections and closes each at once.
    pub async fn slam(&self, times: usize) {
        let listener = TcpListener::bind(self.address).await.expect("nobody else took the port");
        for _ in 0..times {
            drop(listener.accept().await.expect("the listener is open"));
        }
    }

    /// Closes all connections, and refuses new ones.
    pub async fn cut(&mut self) {
        if let Some(running) = self.running.take() {
            running.abort();
            running.await.expect_err("it was aborted");
        }
    }
}

async fn forward(listener: TcpListener, target: String, filter: Arc<Filter>) {
    let mut connections = JoinSet::new();
    loop {
        let (near, _) = listener.accept().await.expect("the listener is open");
        let far = TcpStream::connect(&target).await.expect("RabbitMQ is there");
        connections.spawn(connect(near, far, Arc::clone(&filter)));
    }
}

async fn connect(near: TcpStream, far: TcpStream, filter: Arc<Filter>) {
    let ((mut from_near, mut to_near), (mut from_far, mut to_far)) = (near.into_split(), far.into_split());
    let there = async {
        let mut frame = vec![0; PROTOCOL_HEADER_BYTES];
        from_near.read_exact(&mut frame).await?;
        loop {
            if filter.passes(&frame) {
                to_far.write_all(&frame).await?;
            }
            match read_frame(&mut from_near).await {
                Ok(next) => frame = next,
                Err(_) => return to_far.shutdown().await,
            }
        }
    };
    let back = async {
        while let Ok(frame) = read_frame(&mut from_far).await {
            if filter.comes_back(&frame) {
                to_near.write_all(&frame).await?;
            }
        }
        to_near.shutdown().await
    };
    tokio::try_join!(there, back).ok();
}

async fn read_frame(from: &mut (impl AsyncReadExt + Unpin)) -> io::Result<Vec<u8>> {
    let mut frame = vec![0; FRAME_HEADER_BYTES];
    from.read_exact(&mut frame).await?;
    let payload_bytes = u32::from_be_bytes([frame[3], frame[4], frame[5], frame[6]]);
    let end = 1;
    frame.resize(FRAME_HEADER_BYTES + payload_bytes as usize + end, 0);
    from.read_exact(&mut frame[FRAME_HEADER_BYTES..]).await?;
    Ok(frame)
}

impl Filter {
    fn comes_back(&self, frame: &[u8]) -> bool {
        !(self.without_confirms.load(Ordering::Relaxed) && payload(frame).starts_with(&CONFIRM))
    }

    fn passes(&self, frame: &[u8]) -> bool {
        let payload = payload(frame);
        if payload.starts_with(&OPEN_CHANNEL) {
            self.channels_opened.fetch_add(1, Ordering::Relaxed);
        }
        let unheard = self.unheard_queue.lock().expect("nobody panicked");
        let names = |queue: &String| payload.windows(queue.len()).any(|part| part == queue.as_bytes());
        let asks = payload.starts_with(&DECLARE_QUEUE) || payload.starts_with(&CONSUME);
        !(asks && unheard.as_ref().is_some_and(names))
    }
}

fn payload(frame: &[u8]) -> &[u8] {
    frame.get(FRAME_HEADER_BYTES..).unwrap_or_default()
}
