//! The network between an instance and its servers: a TCP proxy that delays, cuts, half-closes, swallows and refuses.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
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
    /// Connections are refused.
    Refuse,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Events {
    cuts: u64,
    half_closes: u64,
}

#[derive(Debug)]
pub struct Proxy {
    pub address: SocketAddr,
    mode: watch::Sender<Mode>,
    events: watch::Sender<Events>,
    accepted: Arc<AtomicU64>,
    running: JoinHandle<()>,
}

impl Proxy {
    pub async fn to(upstream: String) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("no port is free for a proxy")?;
        let address = listener.local_addr()?;
        let (mode, modes) = watch::channel(Mode::Pass);
        let (events, happened) = watch::channel(Events::default());
        let accepted = Arc::new(AtomicU64::new(0));
        let line = Line { upstream, modes, happened, accepted: Arc::clone(&accepted) };
        let running = tokio::spawn(listen(listener, address, line));
        Ok(Proxy { address, mode, events, accepted, running })
    }

    pub fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }

    /// Ends all connections at once.
    pub fn cut(&self) {
        self.events.send_modify(|events| events.cuts += 1);
    }

    /// Sends the end of the stream to the instance on all connections, and keeps reading from it.
    pub fn half_close(&self) {
        self.events.send_modify(|events| events.half_closes += 1);
    }

    /// The number of connections through this proxy.
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
    modes: watch::Receiver<Mode>,
    happened: watch::Receiver<Events>,
    accepted: Arc<AtomicU64>,
}

async fn listen(first: TcpListener, address: SocketAddr, mut line: Line) {
    // They end with this task.
    let mut connections = JoinSet::new();
    let mut listener = Some(first);
    loop {
        while connections.try_join_next().is_some() {}
        let mode = *line.modes.borrow_and_update();
        if mode == Mode::Refuse {
            listener = None;
            connections.abort_all();
            if line.modes.changed().await.is_err() {
                return;
            }
            continue;
        }
        let Some(open) = &listener else {
            listener = TcpListener::bind(address).await.ok();
            if listener.is_none() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            continue;
        };
        tokio::select! {
            Ok((client, _)) = open.accept() => {
                line.accepted.fetch_add(1, Ordering::Relaxed);
                connections.spawn(carry(client, line.clone()));
            }
            changed = line.modes.changed() => if changed.is_err() { return },
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
    let up = pump(from_client, to_server, line.modes.clone(), None);
    let down = pump(from_server, to_client, line.modes.clone(), Some((before, line.happened.clone())));
    let cut = line.happened.wait_for(|now| now.cuts != before.cuts);
    tokio::select! {
        _ = async { tokio::join!(up, down) } => {}
        _ = cut => {}
    }
}

/// Copies one direction until its end. After a half-close it keeps reading, so that the sender does not block.
async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut modes: watch::Receiver<Mode>,
    closing: Option<(Events, watch::Receiver<Events>)>,
) {
    const BUFFER: usize = 32 * 1024;
    let mut buffer = vec![0; BUFFER];
    let mut closed = false;
    loop {
        let half_closed = async {
            match &closing {
                Some((before, happened)) if !closed => {
                    let mut happened = happened.clone();
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
        let mode = *modes.borrow();
        if let Mode::Delay(by) = mode {
            tokio::time::sleep(by).await;
        }
        if modes.wait_for(|mode| *mode != Mode::BlackHole).await.is_err() {
            return;
        }
        if !closed && to.write_all(&buffer[..length]).await.is_err() {
            return;
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
        proxy.set(Mode::Refuse);
        while TcpStream::connect(proxy.address).await.is_ok() {}
        proxy.set(Mode::Pass);
        let mut stream = loop {
            if let Ok(stream) = TcpStream::connect(proxy.address).await {
                break stream;
            }
        };
        assert!(answers(&mut stream).await);
    }
}
