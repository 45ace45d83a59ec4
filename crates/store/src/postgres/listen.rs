//! Hearing of what others wrote, on a connection of its own. Nothing depends on it: whoever polls finds it.

use std::future::poll_fn;
use std::time::Duration;

use tokio::sync::broadcast::{self, Receiver, Sender};
use tokio::task::JoinHandle;
use tokio_postgres::AsyncMessage;

use super::connect::Server;
use crate::Signal;

const PAUSE: Duration = Duration::from_secs(5);
/// Signals that nobody took yet; older ones are told again as one.
const BACKLOG: usize = 16;

/// Listens until it is dropped.
#[derive(Debug)]
pub struct Listener {
    task: JoinHandle<()>,
    heard: Sender<Signal>,
}

/// What a notification says.
pub fn word(signal: Signal) -> &'static str {
    match signal {
        Signal::Events => "",
        Signal::Chunks => "chunks",
        Signal::Sends => "sends",
    }
}

impl Listener {
    pub fn start(server: Server) -> Self {
        let (heard, _) = broadcast::channel(BACKLOG);
        let teller = heard.clone();
        let task = tokio::spawn(async move {
            loop {
                if let Err(error) = listen(&server, &teller).await {
                    tracing::warn!(%error, "the LISTEN connection failed; polling until it is re-established");
                }
                tokio::time::sleep(PAUSE).await;
            }
        });
        Listener { task, heard }
    }

    pub fn hear(&self) -> Receiver<Signal> {
        self.heard.subscribe()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn listen(server: &Server, heard: &Sender<Signal>) -> Result<(), tokio_postgres::Error> {
    let (client, mut connection) = server.config.connect(server.tls.clone()).await?;
    let told = async {
        while let Some(message) = poll_fn(|context| connection.poll_message(context)).await {
            if let AsyncMessage::Notification(told) = message? {
                // An error means that nobody listens just now.
                Signal::ALL.into_iter().filter(|signal| word(*signal) == told.payload()).for_each(|signal| {
                    drop(heard.send(signal));
                });
            }
        }
        Ok(())
    };
    // The connection works only while it is polled, so both go on at once; the client is kept, or the connection would end.
    let asked = async {
        client.batch_execute("LISTEN campanile").await?;
        std::future::pending().await
    };
    tokio::select! {
        told = told => told,
        asked = asked => asked,
    }
}
