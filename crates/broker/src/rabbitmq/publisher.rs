//! Publishes to one queue, on a connection of its own, so that queues do not wait for each other: other events beside a
//! large one 140 → 35 ms (decision 0024).

use std::sync::Arc;

use tokio::sync::{Mutex, SemaphorePermit, watch};
use tokio::time::Instant;

use super::confirms::Confirms;
use super::window::{Rank, Window};
use crate::amqp::{Channel, Connection, Fault, MAX_SHORT_BYTES, Outgoing, Request};
use crate::{Confirm, Message};

/// The largest body that every version of the broker accepts without closing the channel.
const MAX_BODY_BYTES: usize = 16 * 1024 * 1024;

pub(super) struct Publisher {
    connection: Connection,
    /// `None` after a channel was given up, until the next publish.
    lane: Mutex<Option<Arc<Lane>>>,
    exchange: String,
    key: String,
    rank: Rank,
    /// Receives the reason when a channel ends.
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

    /// Publishes messages, and returns when each is confirmed or refused.
    pub(super) async fn publish(&self, messages: Vec<Message>) -> Result<Vec<Confirm>, Fault> {
        let lane = self.lane().await?;
        lane.publish((&self.exchange, &self.key), messages).await
    }

    /// Gives up the channel and its unconfirmed messages; the next publish opens another. RabbitMQ caches a queue per
    /// channel. If the queue was deleted and created again, the old channel may never get a confirm.
    pub(super) async fn begin_anew(&self) {
        *self.lane.lock().await = None;
    }

    async fn lane(&self) -> Result<Arc<Lane>, Fault> {
        let mut lane = self.lane.lock().await;
        if let Some(lane) = &*lane {
            return Ok(Arc::clone(lane));
        }
        let opened = Lane::open(&self.connection, &self.rank, &self.ended).await.inspect_err(|fault| {
            // While there was no channel, nobody would have noticed the end of the connection.
            self.ended.send_replace(Some(fault.clone()));
        })?;
        Ok(Arc::clone(lane.insert(Arc::new(opened))))
    }
}

/// A channel and its unconfirmed messages.
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
                // The confirm returns this permit. Permits of messages that are not sent return by themselves.
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

/// Refuses messages that the broker would answer by closing the channel, which would fail all other messages on it.
fn check(message: &Message) -> Confirm {
    if message.id.len() > MAX_SHORT_BYTES {
        Confirm::Refused { reason: format!("its id is longer than {MAX_SHORT_BYTES} bytes") }
    } else if message.body.len() > MAX_BODY_BYTES {
        Confirm::Refused { reason: format!("its body is longer than {MAX_BODY_BYTES} bytes") }
    } else {
        Confirm::Accepted
    }
}
