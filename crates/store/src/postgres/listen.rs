//! Hearing of events that `campanile.emit` wrote, on a connection of its own. Nothing depends on it: whoever polls finds them.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_postgres::AsyncMessage;

use super::connect::Server;

const PAUSE: Duration = Duration::from_secs(5);

/// Listens until it is dropped.
#[derive(Debug)]
pub struct Listener(JoinHandle<()>);

impl Listener {
    pub fn start(server: Server, arrivals: Arc<Notify>) -> Self {
        Listener(tokio::spawn(async move {
            loop {
                if let Err(error) = listen(&server, &arrivals).await {
                    tracing::warn!(%error, "new events are found by polling until notifications can be heard again");
                }
                tokio::time::sleep(PAUSE).await;
            }
        }))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn listen(server: &Server, arrivals: &Notify) -> Result<(), tokio_postgres::Error> {
    let (client, mut connection) = server.config.connect(server.tls.clone()).await?;
    let heard = async {
        while let Some(message) = poll_fn(|context| connection.poll_message(context)).await {
            if let AsyncMessage::Notification(_) = message? {
                arrivals.notify_one();
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
        heard = heard => heard,
        asked = asked => asked,
    }
}
