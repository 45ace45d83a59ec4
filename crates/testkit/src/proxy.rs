//! The network between a client and a server: a TCP proxy that delays, cuts, half-closes, swallows, refuses, and leaves
//! out what a filter chooses.

use std::fmt::Debug;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Pass,
    /// All data arrives this much later.
    Delay(Duration),
    /// All data is swallowed without an error.
    BlackHole,
    /// Connections are refused, and those that exist end.
    Refuse,
    /// New connections are accepted and closed at once.
    Slam,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    ToServer,
    ToClient,
}

/// Chooses what of the traffic arrives, for protocols whose messages it knows.
pub trait Filter: Debug + Send + Sync {
    /// Takes complete messages from the front of `unread`, and returns those that go on.
    fn pass(&self, direction: Direction, unread: &mut Vec<u8>) -> Vec<u8>;
}

#[derive(Debug)]
struct Everything;

impl Filter for Everything {
    fn pass(&self, _: Direction, unread: &mut Vec<u8>) -> Vec<u8> {
        std::mem::take(unread)
    }
}

#[derive(Debug, Clone, Copy)]
struct Order {
    number: u64,
    mode: Mode,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Events {
    cuts: u64,
    half_closes: u64,
}

#[derive(Debug)]
pub struct Proxy {
    pub address: SocketAddr,
    order: watch::Sender<Order>,
    /// The number of the order that new connections are treated by.
    followed: watch::Receiver<u64>,
    events: watch::Sender<Events>,
    accepted: Arc<AtomicU64>,
    running: JoinHandle<()>,
}

impl Proxy {
    pub async fn to(upstream: String) -> io::Result<Self> {
        Self::filtered(upstream, Arc::new(Everything)).await
    }

    pub async fn filtered(upstream: String, filter: Arc<dyn Filter>) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (order, orders) = watch::channel(Order { number: 0, mode: Mode::Pass });
        let (follow, followed) = watch::channel(0);
        let (events, happened) = watch::channel(Events::default());
        let accepted = Arc::new(AtomicU64::new(0));
        let line = Line { upstream, filter, orders, happened, accepted: Arc::clone(&accepted) };
        let running = tokio::spawn(listen(listener, address, line, follow));
        Ok(Proxy { address, order, followed, events, accepted, running })
    }

    pub fn set(&self, mode: Mode) {
        self.order.send_modify(|order| *order = Order { number: order.number + 1, mode });
    }

    /// Like `set`, and returns when it is so: no connection is treated as before, and with `Refuse` none is left.
    pub async fn become_so(&self, mode: Mode) {
        self.set(mode);
        let wanted = self.order.borrow().number;
        let mut followed = self.followed.clone();
        followed.wait_for(|number| *number >= wanted).await.expect("the proxy listens as long as it exists");
    }

    /// Ends all connections at once.
    pub fn cut(&self) {
        self.events.send_modify(|events| events.cuts += 1);
    }

    /// Sends the end of the stream to the client on all connections, and keeps reading from it.
    pub fn half_close(&self) {
        self.events.send_modify(|events| events.half_closes += 1);
    }

    /// The number of connections so far.
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.running.abort();
    }
}

#[derive(Debug, Clone)]
struct Line {
    upstream: String,
    filter: Arc<dyn Filter>,
    orders: watch::Receiver<Order>,
    happened: watch::Receiver<Events>,
    accepted: Arc<AtomicU64>,
}

async fn listen(first: TcpListener, address: SocketAddr, mut line: Line, follow: watch::Sender<u64>) {
    // They end with this task.
    let mut connections = JoinSet::new();
    let mut listener = Some(first);
    loop {
        while connections.try_join_next().is_some() {}
        let Order { number, mode } = *line.orders.borrow_and_update();
        if mode == Mode::Refuse {
            listener = None;
            connections.shutdown().await;
        } else if listener.is_none() {
            listener = TcpListener::bind(address).await.ok();
            if listener.is_none() {
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            }
        }
        follow.send_replace(number);
        let next = async {
            match &listener {
                Some(open) => open.accept().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            Ok((client, _)) = next => {
                line.accepted.fetch_add(1, Ordering::Relaxed);
                if mode != Mode::Slam {
                    connections.spawn(carry(client, line.clone()));
                }
            }
            changed = line.orders.changed() => if changed.is_err() { return },
        }
    }
}

async fn carry(client: TcpStream, mut line: Line) {
    let Ok(server) = TcpStream::connect(&line.upstream).await else { return };
    // Latency is added only on purpose.
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let before = *line.happened.borrow_and_update();
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let half_close = Some((before, line.happened.clone()));
    let up = Pump::new(Direction::ToServer, &line, None).run(from_client, to_server);
    let down = Pump::new(Direction::ToClient, &line, half_close).run(from_server, to_client);
    let mut happened = line.happened.clone();
    let cut = happened.wait_for(|now| now.cuts != before.cuts);
    tokio::select! {
        _ = async { tokio::join!(up, down) } => {}
        _ = cut => {}
    }
}

/// One direction of a connection.
struct Pump {
    direction: Direction,
    filter: Arc<dyn Filter>,
    orders: watch::Receiver<Order>,
    half_close: Option<(Events, watch::Receiver<Events>)>,
}

impl Pump {
    fn new(direction: Direction, line: &Line, half_close: Option<(Events, watch::Receiver<Events>)>) -> Self {
        Pump { direction, filter: Arc::clone(&line.filter), orders: line.orders.clone(), half_close }
    }

    /// Copies until the end. After a half-close it keeps reading, so that the sender does not block.
    async fn run(mut self, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
        const BUFFER_BYTES: usize = 32 * 1024;
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut unread = Vec::new();
        let mut closed = false;
        loop {
            let half_closed = async {
                match &mut self.half_close {
                    Some((before, happened)) if !closed => {
                        let _ = happened.wait_for(|now| now.half_closes != before.half_closes).await;
                    }
                    _ => std::future::pending().await,
                }
            };
            let read = tokio::select! {
                read = from.read(&mut buffer) => read,
                () = half_closed => {
                    closed = true;
                    let _ = to.shutdown().await;
                    continue;
                }
            };
            let Ok(length @ 1..) = read else {
                let _ = to.shutdown().await;
                return;
            };
            let mode = self.orders.borrow().mode;
            if let Mode::Delay(by) = mode {
                tokio::time::sleep(by).await;
            }
            if self.orders.wait_for(|order| order.mode != Mode::BlackHole).await.is_err() {
                return;
            }
            unread.extend_from_slice(&buffer[..length]);
            let passed = self.filter.pass(self.direction, &mut unread);
            if !closed && to.write_all(&passed).await.is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that returns what it receives.
    async fn echo() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut from, mut to) = stream.into_split();
                    let _ = tokio::io::copy(&mut from, &mut to).await;
                });
            }
        });
        address
    }

    async fn answers(stream: &mut TcpStream) -> bool {
        let mut heard = [0; 2];
        let asked = stream.write_all(b"hi").await.is_ok();
        let heard = tokio::time::timeout(Duration::from_millis(300), stream.read_exact(&mut heard)).await;
        asked && matches!(heard, Ok(Ok(_)))
    }

    #[tokio::test]
    async fn it_passes_and_cuts() {
        let proxy = Proxy::to(echo().await).await.unwrap();
        let mut stream = TcpStream::connect(proxy.address).await.unwrap();
        assert!(answers(&mut stream).await);
        proxy.cut();
        assert!(!answers(&mut stream).await);
        let mut again = TcpStream::connect(proxy.address).await.unwrap();
        assert!(answers(&mut again).await);
        assert_eq!(proxy.accepted(), 2);
    }

    #[tokio::test]
    async fn what_a_black_hole_swallowed_comes_out_when_it_closes() {
        let proxy = Proxy::to(echo().await).await.unwrap();
        let mut stream = TcpStream::connect(proxy.address).await.unwrap();
        assert!(answers(&mut stream).await);
        proxy.set(Mode::BlackHole);
        assert!(!answers(&mut stream).await);
        proxy.set(Mode::Pass);
        let mut late = [0; 2];
        stream.read_exact(&mut late).await.unwrap();
        assert_eq!(&late, b"hi");
    }

    #[tokio::test]
    async fn half_closed_connections_end_for_the_reader_only() {
        let proxy = Proxy::to(echo().await).await.unwrap();
        let mut stream = TcpStream::connect(proxy.address).await.unwrap();
        assert!(answers(&mut stream).await);
        proxy.half_close();
        let mut nothing = [0; 1];
        assert_eq!(stream.read(&mut nothing).await.unwrap(), 0);
        stream.write_all(b"still taken").await.unwrap();
    }

    #[tokio::test]
    async fn whoever_is_refused_may_come_back_later() {
        let proxy = Proxy::to(echo().await).await.unwrap();
        let mut before = TcpStream::connect(proxy.address).await.unwrap();
        assert!(answers(&mut before).await);
        proxy.become_so(Mode::Refuse).await;
        assert!(!answers(&mut before).await);
        assert!(TcpStream::connect(proxy.address).await.is_err());
        proxy.become_so(Mode::Pass).await;
        assert!(answers(&mut TcpStream::connect(proxy.address).await.unwrap()).await);
    }

    #[tokio::test]
    async fn slammed_connections_are_counted_and_end_at_once() {
        let proxy = Proxy::to(echo().await).await.unwrap();
        proxy.become_so(Mode::Slam).await;
        for _ in 0..3 {
            let mut stream = TcpStream::connect(proxy.address).await.unwrap();
            assert!(!matches!(stream.read(&mut [0; 1]).await, Ok(1..)));
        }
        assert_eq!(proxy.accepted(), 3);
    }

    /// Swallows the letter `h` on its way to the server.
    #[derive(Debug)]
    struct WithoutH;

    impl Filter for WithoutH {
        fn pass(&self, direction: Direction, unread: &mut Vec<u8>) -> Vec<u8> {
            unread.drain(..).filter(|byte| direction == Direction::ToClient || *byte != b'h').collect()
        }
    }

    #[tokio::test]
    async fn a_filter_chooses_what_arrives() {
        let proxy = Proxy::filtered(echo().await, Arc::new(WithoutH)).await.unwrap();
        let mut stream = TcpStream::connect(proxy.address).await.unwrap();
        stream.write_all(b"hihi").await.unwrap();
        let mut heard = [0; 2];
        stream.read_exact(&mut heard).await.unwrap();
        assert_eq!(&heard, b"ii");
    }
}
