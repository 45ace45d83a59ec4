//! A proxy between the engine and its database that counts round trips: requests that follow an answer.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

#[derive(Debug)]
pub struct RoundTrips {
    address: SocketAddr,
    url: String,
    count: Arc<AtomicUsize>,
    serving: JoinHandle<()>,
}

impl RoundTrips {
    /// A proxy to the database at this URL.
    pub async fn between(url: &str) -> Result<Self> {
        let place = place(url).context("the database's URL names no host")?;
        let target = if has_port(place) { place.to_owned() } else { format!("{place}:5432") };
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (address, count) = (listener.local_addr()?, Arc::<AtomicUsize>::default());
        let counted = Arc::clone(&count);
        let serving = tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let Ok(far) = TcpStream::connect(&target).await else { continue };
                // Otherwise the delay of small packets would be measured.
                if near.set_nodelay(true).and(far.set_nodelay(true)).is_err() {
                    continue;
                }
                let ((from_near, to_near), (from_far, to_far)) = (near.into_split(), far.into_split());
                let has_listened = Arc::new(AtomicBool::new(true));
                tokio::spawn(there(from_near, to_far, Arc::clone(&has_listened), Arc::clone(&counted)));
                tokio::spawn(back(from_far, to_near, has_listened));
            }
        });
        Ok(RoundTrips { address, url: url.to_owned(), count, serving })
    }

    pub fn url(&self) -> String {
        match place(&self.url) {
            Some(place) => self.url.replacen(place, &self.address.to_string(), 1),
            None => self.url.clone(),
        }
    }

    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }
}

impl Drop for RoundTrips {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Host and port.
fn place(url: &str) -> Option<&str> {
    let rest = url.split_once("://")?.1;
    let authority = rest.split(['/', '?']).next()?;
    Some(authority.rsplit('@').next().unwrap_or(authority))
}

/// Whether there is a port. An IPv6 address is in brackets and contains colons.
fn has_port(place: &str) -> bool {
    place.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok())
}

async fn there(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    has_listened: Arc<AtomicBool>,
    count: Arc<AtomicUsize>,
) {
    let mut said = vec![0; 64 * 1024];
    while let Ok(bytes @ 1..) = from.read(&mut said).await {
        if has_listened.swap(false, Ordering::Relaxed) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        if to.write_all(&said[..bytes]).await.is_err() {
            return;
        }
    }
}

async fn back(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, has_listened: Arc<AtomicBool>) {
    let mut said = vec![0; 64 * 1024];
    while let Ok(bytes @ 1..) = from.read(&mut said).await {
        has_listened.store(true, Ordering::Relaxed);
        if to.write_all(&said[..bytes]).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_its_host() {
        assert_eq!(place("postgres://a:b@h:5432/x?y=z"), Some("h:5432"));
        assert_eq!(place("postgres://127.0.0.1:1"), Some("127.0.0.1:1"));
        assert!(["h:5432", "[::1]:1"].into_iter().all(has_port));
        assert!(!["h", "[::1]"].into_iter().any(has_port));
    }
}
