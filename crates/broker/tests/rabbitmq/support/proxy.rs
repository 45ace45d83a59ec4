//! The proxy between Campanile and `RabbitMQ`: it counts and withholds frames.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use campanile_testkit::proxy::{self, Direction, Mode};
use campanile_testkit::until;
use url::Url;

/// The class and method at the start of a frame's payload.
const OPEN_CHANNEL: [u8; 4] = [0, 20, 0, 10];
const DECLARE_QUEUE: [u8; 4] = [0, 50, 0, 10];
const CONSUME: [u8; 4] = [0, 60, 0, 20];
const CONFIRM: [u8; 4] = [0, 60, 0, 80];
/// What a client sends first, before any frame.
const PROTOCOL_HEADER: &[u8] = b"AMQP";
const PROTOCOL_HEADER_BYTES: usize = 8;
const FRAME_HEADER_BYTES: usize = 7;
const FRAME_END_BYTES: usize = 1;

#[derive(Debug)]
pub struct Proxy {
    proxy: proxy::Proxy,
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
    /// Connections to it are refused.
    pub async fn down() -> Self {
        let mut proxy = Self::up().await;
        proxy.cut().await;
        proxy
    }

    pub async fn up() -> Self {
        let (url, filter) = (super::url(), Arc::<Filter>::default());
        let target = format!("{}:{}", url.host_str().unwrap_or("localhost"), url.port().unwrap_or(5672));
        let proxy = proxy::Proxy::filtered(target, Arc::clone(&filter) as _).await.expect("a port is free");
        Self { proxy, filter }
    }

    /// The URL of the broker through this proxy.
    pub fn url(&self) -> String {
        let mut url: Url = super::url();
        url.set_host(Some("127.0.0.1")).expect("a URL of a broker has a host");
        url.set_port(Some(self.proxy.address.port())).expect("a URL of a broker has a port");
        url.to_string()
    }

    pub async fn restore(&mut self) {
        self.proxy.become_so(Mode::Pass).await;
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

    /// While it is cut: accepts at least this many connections and closes each at once.
    pub async fn slam(&self, times: u64) {
        let before = self.proxy.accepted();
        self.proxy.set(Mode::Slam);
        until("the broker is tried again", async || (self.proxy.accepted() >= before + times).then_some(()))
            .await;
        self.proxy.become_so(Mode::Refuse).await;
    }

    /// Closes all connections, and refuses new ones.
    pub async fn cut(&mut self) {
        self.proxy.become_so(Mode::Refuse).await;
    }
}

impl proxy::Filter for Filter {
    fn pass(&self, direction: Direction, unread: &mut Vec<u8>) -> Vec<u8> {
        let mut passed = Vec::new();
        while let Some(length) = unit_bytes(unread).filter(|length| *length <= unread.len()) {
            let unit: Vec<u8> = unread.drain(..length).collect();
            let goes_on = match direction {
                Direction::ToServer => self.passes(&unit),
                Direction::ToClient => self.comes_back(&unit),
            };
            if goes_on {
                passed.extend(unit);
            }
        }
        passed
    }
}

/// The length of the frame or protocol header at the front, if enough of it is there.
fn unit_bytes(unread: &[u8]) -> Option<usize> {
    if unread.starts_with(PROTOCOL_HEADER) {
        return Some(PROTOCOL_HEADER_BYTES);
    }
    let payload_bytes: [u8; 4] = unread.get(3..FRAME_HEADER_BYTES)?.try_into().ok()?;
    Some(FRAME_HEADER_BYTES + u32::from_be_bytes(payload_bytes) as usize + FRAME_END_BYTES)
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
