//! A proxy to a local server with the delay of a network.

use std::time::Duration;

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

#[derive(Debug)]
pub struct Delay {
    pub port: u16,
    serving: JoinHandle<()>,
}

impl Delay {
    pub async fn start(to: u16, round_trip: Duration) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let serving = tokio::spawn(async move {
            while let Ok((here, _)) = listener.accept().await {
                let Ok(there) = TcpStream::connect(("127.0.0.1", to)).await else { continue };
                let _ = (here.set_nodelay(true), there.set_nodelay(true));
                let ((here_in, here_out), (there_in, there_out)) = (here.into_split(), there.into_split());
                tokio::spawn(carry(here_in, there_out, round_trip / 2));
                tokio::spawn(carry(there_in, here_out, round_trip / 2));
            }
        });
        Ok(Delay { port, serving })
    }
}

impl Drop for Delay {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Passes on data after `delay`. Data on the way does not wait for the data before it.
async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, delay: Duration) {
    let (put, mut on_the_way) = mpsc::channel::<(Instant, Vec<u8>)>(1_000);
    tokio::spawn(async move {
        while let Some((at, bytes)) = on_the_way.recv().await {
            sleep_until(at).await;
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
    });
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        if put.send((Instant::now() + delay, buffer[..read].to_vec())).await.is_err() {
            return;
        }
    }
}
