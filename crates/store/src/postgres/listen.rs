//! Listens for signals from other instances, on its own connection. Nothing depends on it: every stage also polls.

use std::future::poll_fn;
use std::time::Duration;

use tokio::sync::broadcast::{self, Receiver, Sender};
use tokio::task::JoinHandle;
use tokio_postgres::AsyncMessage;

use super::connect::Server;
use crate::Signal;

const RECONNECT_DELAY: Duration = Duration::from_secs(5);
/// The number of signals that are kept for a slow receiver. Older ones are merged into one.
const CHANNEL_CAPACITY: usize = 16;

/// Listens until it is dropped.
#[derive(Debug)]
pub struct Listener {
    task: JoinHandle<()>,
    sender: Sender<Signal>,
}

/// The signal that a notification stands for.
pub fn payload(signal: Signal) -> &'static str {
    match signal {
        Signal::Events => "",
        Signal::Chunks => "chunks",
        Signal::Sends => "sends",
    }
}

impl Listener {
    pub fn start(server: Server) -> Self {
        let (sender, _) = broadcast::channel(CHANNEL_CAPACITY);
        let publisher = sender.clone();
        let task = tokio::spawn(async move {
            loop {
                if let Err(error) = listen(&server, &publisher).await {
                    tracing::warn!(%error, "the LISTEN connection failed; polling until it is re-established");
                }
                tokio::time::sleep(RECONNECT_DELAY).await;
            }
        });
        Listener { task, sender }
    }

    pub fn subscribe(&self) -> Receiver<Signal> {
        self.sender.subscribe()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn listen(server: &Server, sender: &Sender<Signal>) -> Result<(), tokio_postgres::Error> {
    let (client, mut connection) = server.config.connect(server.tls.clone()).await?;
    let received = async {
        while let Some(message) = poll_fn(|context| connection.poll_message(context)).await {
            if let AsyncMessage::Notification(notification) = message? {
                // An error means that nothing subscribes at the moment.
                Signal::ALL.into_iter().filter(|signal| payload(*signal) == notification.payload()).for_each(
                    |signal| {
                        drop(sender.send(signal));
                    },
                );
            }
        }
        Ok(())
    };
    // The connection works only while it is polled, so both run together. Dropping the client would end the connection.
    let listening = async {
        client.batch_execute("LISTEN campanile").await?;
        std::future::pending().await
    };
    tokio::select! {
        received = received => received,
        listening = listening => listening,
    }
}
