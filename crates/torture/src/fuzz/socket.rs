//! Sockets that send no HTTP, or nearly: broken request lines, endless headers, wrong chunk sizes, nothing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::journal::Journal;
use crate::random::Random;
use crate::servers::host_and_port;
use crate::world::KEY;

/// After this time the next socket is opened, whether or not the server has closed this one.
const SOCKET_LIMIT: Duration = Duration::from_millis(300);

/// Opens one socket after the other until `end`.
pub async fn abuse(url: String, journal: Arc<Journal>, mut random: Random, end: Instant) -> Result<()> {
    let address = host_and_port(&url)?.to_owned();
    while Instant::now() < end {
        let sent = hostile(&address, &mut random);
        journal.count("hostile sockets");
        let mut socket = TcpStream::connect(&address).await.context("the instance takes no connections")?;
        let mut answer = Vec::new();
        let exchange = async {
            // The server may close before everything is written.
            let _ = socket.write_all(&sent).await;
            let _ = socket.read_to_end(&mut answer).await;
        };
        // The server waits for the rest of an incomplete request, so this limits the wait.
        let _ = timeout(SOCKET_LIMIT, exchange).await;
        let first = String::from_utf8_lossy(&answer[..answer.len().min(12)]).into_owned();
        if first.starts_with("HTTP/1.1 5") {
            let sent = String::from_utf8_lossy(&sent[..sent.len().min(300)]).into_owned();
            journal.find(format!("a socket that sent {sent:?} was answered with {first}"));
        }
    }
    Ok(())
}

fn hostile(address: &str, random: &mut Random) -> Vec<u8> {
    let start = format!(
        "POST /v1/events HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {KEY}\r\n\
         Content-Type: application/json\r\n"
    );
    let text = match random.below(10) {
        0 => return (0..random.below(3_000)).filter_map(|_| u8::try_from(random.below(256)).ok()).collect(),
        1 => format!("GET /{} HTTP/1.1\r\nHost: {address}\r\n\r\n", "a".repeat(100_000)),
        2 => format!("{start}{}\r\n", "x: y\r\n".repeat(500)),
        3 => format!("{start}X: {}\r\n\r\n", "y".repeat(70_000)),
        4 => format!("{start}Content-Length: 5\r\nContent-Length: 6\r\n\r\n{{}}"),
        5 => format!("{start}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /"),
        6 => format!("{start}Transfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFF1\r\n{{}}\r\n"),
        7 => format!("{start}Content-Length: 99999999999999999999\r\n\r\n{{}}"),
        8 => format!("{start}Expect: 100-continue\r\nContent-Length: 20\r\n\r\n{{"),
        _ => format!("GET /readyz HTTP/1.1\r\nHost: {address}\r\nHost: other\r\n\r\n"),
    };
    text.into_bytes()
}
