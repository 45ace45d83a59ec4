//! Publishes to one queue, on a connection of its own, so that no queue waits for another.

use std::sync::Arc;

use tokio::sync::{Mutex, SemaphorePermit, watch};
use tokio::time::Instant;

use super::confirms::Confirms;
use super::window::{Rank, Window};
use crate::amqp::{Channel, Connection, Fault, MAX_SHORT_BYTES, Outgoing, Request};
use crate::{Confirm, Message};

/// What every version of the broker takes without closing the channel.
const MAX_BODY_BYTES: usize = 16 * 1024 * 1024;

pub(super) struct Publisher {
    connection: Connection,
    /// There is none from the moment at which one was given up until somebody publishes.
    lane: Mutex<Option<Arc<Lane>>>,
    exchange: String,
    key: String,
    rank: Rank,
    /// Told why a lane has ended.
    ended: Arc<watch::Sender<Option<Fault>>>,
}

impl Publisher {
    pub(super) async fn open(
        connection: Connection,
        (exchange, key): (String, String),
        rank: Rank,
        ended: &Arc<watch::Sender<Option<Fault>>>,
    ) -> Result<Self, Fault> {
        let lane = Mutex::new(Some(Arc::new(Lane::open(&connection, &rank, ended).await?)));
        Ok(Self { connection, lane, exchange, key, rank, ended: Arc::clone(ended) })
    }

    pub(super) fn close(&self) {
        self.connection.close();
    }

    pub(super) fn blocked(&self) -> Option<String> {
        self.connection.blocked()
    }

    /// Returns when every message is confirmed or refused.
    pub(super) async fn publish(&self, messages: Vec<Message>) -> Result<Vec<Confirm>, Fault> {
        let lane = self.lane().await?;
        lane.publish((&self.exchange, &self.key), messages).await
    }

    /// Gives up the channel, and what is unconfirmed there: the next message goes over another. A channel keeps what it
    /// knows of a queue, and one that was deleted and made again may confirm nothing that comes from it, for as long as
    /// the channel lives.
    pub(super) async fn begin_anew(&self) {
        *self.lane.lock().await = None;
    }

    async fn lane(&self) -> Result<Arc<Lane>, Fault> {
        let mut lane = self.lane.lock().await;
        if let Some(lane) = &*lane {
            return Ok(Arc::clone(lane));
        }
        let opened = Lane::open(&self.connection, &self.rank, &self.ended).await.inspect_err(|fault| {
            // While there was no lane, nobody heard whether the connection ended.
            self.ended.send_replace(Some(fault.clone()));
        })?;
        Ok(Arc::clone(lane.insert(Arc::new(opened))))
    }
}

/// A channel, and what is unconfirmed on it.
struct Lane {
    channel: Channel,
    window: Window,
    confirms: Arc<Confirms>,
}

impl Lane {
    async fn open(
        connection: &Connection,
        rank: &Rank,
        ended: &Arc<watch::Sender<Option<Fault>>>,
    ) -> Result<Self, Fault> {
        let window = Window::new(rank.clone());
        let confirms = Arc::new(Confirms::new(window.free(), Arc::clone(ended)));
        let channel = connection.channel(Arc::clone(&confirms) as _).await?;
        channel.ask(Request::ConfirmSelect).await?;
        Ok(Self { channel, window, confirms })
    }

    async fn publish(
        &self,
        (exchange, key): (&str, &str),
        messages: Vec<Message>,
    ) -> Result<Vec<Confirm>, Fault> {
        let messages = Arc::new(messages);
        let answers: Vec<_> = messages.iter().map(check).collect();
        let positions: Vec<_> =
            (0..messages.len()).filter(|&position| answers[position] == Confirm::Accepted).collect();
        if positions.is_empty() {
            return Ok(answers);
        }
        let mut waiting = self.confirms.begin(Arc::clone(&messages), answers, positions.len());
        let batch = waiting.batch();
        let (mut positions, begun) = (&positions[..], Instant::now());
        while !positions.is_empty() {
            let mut permits = self.window.next(positions.len(), begun).await.ok_or_else(unconfirmed)?;
            let step;
            (step, positions) = positions.split_at(permits.num_permits());
            let outgoing: Vec<_> = step.iter().map(|&position| outgoing(&messages[position])).collect();
            let sending = |index: usize| {
                // Its confirm gives it back; what is not sent after all, we do.
                permits.split(1).into_iter().for_each(SemaphorePermit::forget);
                self.confirms.sending(batch, step[index]);
            };
            self.channel.publish(exchange, key, &outgoing, sending).await?;
        }
        waiting.answers().await.ok_or_else(unconfirmed)
    }
}

fn unconfirmed() -> Fault {
    Fault::broken("the connection was lost before the broker confirmed")
}

fn outgoing(message: &Message) -> Outgoing<'_> {
    Outgoing { id: &message.id, body: &message.body, stamp: message.stamp }
}

/// The broker would answer these by closing the channel, and so refuse everybody else's messages with them.
fn check(message: &Message) -> Confirm {
    if message.id.len() > MAX_SHORT_BYTES {
        Confirm::Refused { reason: format!("its id is longer than {MAX_SHORT_BYTES} bytes") }
    } else if message.body.len() > MAX_BODY_BYTES {
        Confirm::Refused { reason: format!("its body is longer than {MAX_BODY_BYTES} bytes") }
    } else {
        Confirm::Accepted
    }
}
