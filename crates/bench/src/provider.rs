//! An SMS provider that accepts every message and records when it arrived. It implements only what a sender needs of
//! Twilio's protocol; other tests check that senders follow the protocol.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

const ACCOUNT: &str = "AC00000000000000000000000000000000";
const ANSWER: &str = r#"{"sid": "SM00000000000000000000000000000000", "status": "queued"}"#;

#[derive(Debug)]
pub struct Provider {
    address: SocketAddr,
    arrivals: Arrivals,
    serving: JoinHandle<()>,
}

/// The first arrival of each text.
type Arrivals = Arc<Mutex<HashMap<String, Instant>>>;

impl Provider {
    pub async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (address, arrivals) = (listener.local_addr()?, Arrivals::default());
        let noted = Arc::clone(&arrivals);
        let serving = tokio::spawn(async move {
            while let Ok((wire, _)) = listener.accept().await {
                let arrivals = Arc::clone(&noted);
                tokio::spawn(async move { serve(wire, arrivals).await });
            }
        });
        Ok(Provider { address, arrivals, serving })
    }

    /// The value for `channels.sms.url`.
    pub fn url(&self) -> String {
        format!("http://{ACCOUNT}:token@{}?from=%2B15005550006", self.address)
    }

    pub fn arrived(&self, text: &str) -> Option<Instant> {
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner).get(text).copied()
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(mut wire: TcpStream, arrivals: Arrivals) -> Result<()> {
    wire.set_nodelay(true)?;
    let (read, mut write) = wire.split();
    let mut read = BufReader::new(read);
    while let Some(form) = request(&mut read).await? {
        let at = Instant::now();
        // The texts are numbers, which need no decoding in a form.
        let text =
            form.split('&').find_map(|field| field.strip_prefix("Body=")).context("a text has a body")?;
        arrivals.lock().unwrap_or_else(PoisonError::into_inner).entry(text.to_owned()).or_insert(at);
        let answer = format!(
            "HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{ANSWER}",
            ANSWER.len()
        );
        write.write_all(answer.as_bytes()).await?;
    }
    Ok(())
}

/// The body of the next request; `None` at the end.
async fn request(read: &mut (impl AsyncBufReadExt + Unpin)) -> io::Result<Option<String>> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        if read.read_line(&mut line).await? == 0 {
            return Ok(None);
        }
        if line.trim().is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().unwrap_or_default();
        }
    }
    let mut body = vec![0; length];
    read.read_exact(&mut body).await?;
    Ok(Some(String::from_utf8_lossy(&body).into_owned()))
}
