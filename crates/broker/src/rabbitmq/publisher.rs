//! Publishes to one queue, on a connection of its own, so that no queue waits for another.

use std::sync::Arc;

use tokio::sync::{Semaphore, SemaphorePermit, watch};

use super::confirms::Confirms;
use crate::amqp::{Channel, Connection, Fault, MAX_SHORT_BYTES, Outgoing, Request};
use crate::{Confirm, Message};

/// What every version of the broker takes without closing the channel.
const MAX_BODY_BYTES: usize = 16 * 1024 * 1024;
/// What comes behind unconfirmed messages waits for them: without a bound, buffers on the way would hold what takes the broker a
/// second. Fewer cost the broker more for each.
const MAX_UNCONFIRMED: usize = 300;
/// So many are sent when there is room for them.
const STEP: usize = 100;

pub(super) struct Publisher {
    connection: Connection,
    channel: Channel,
    /// Room for what is unconfirmed.
    window: Arc<Semaphore>,
    confirms: Arc<Confirms>,
    exchange: String,
    key: String,
}

impl Publisher {
    pub(super) async fn open(
        connection: Connection,
        (exchange, key): (String, String),
        ended: &Arc<watch::Sender<Option<Fault>>>,
    ) -> Result<Self, Fault> {
        let window = Arc::new(Semaphore::new(MAX_UNCONFIRMED));
        let confirms = Arc::new(Confirms::new(Arc::clone(&window), Arc::clone(ended)));
        let channel = connection.channel(Arc::clone(&confirms) as _).await?;
        channel.ask(Request::ConfirmSelect).await?;
        Ok(Self { connection, channel, window, confirms, exchange, key })
    }

    pub(super) fn close(&self) {
        self.connection.close();
    }

    pub(super) fn blocked(&self) -> Option<String> {
        self.connection.blocked()
    }

    /// Returns when every message is confirmed or refused.
    pub(super) async fn publish(&self, messages: Vec<Message>) -> Result<Vec<Confirm>, Fault> {
        let messages = Arc::new(messages);
        let answers: Vec<_> = messages.iter().map(check).collect();
        let places: Vec<_> =
            (0..messages.len()).filter(|&place| answers[place] == Confirm::Accepted).collect();
        if places.is_empty() {
            return Ok(answers);
        }
        let mut waiting = self.confirms.begin(Arc::clone(&messages), answers, places.len());
        let batch = waiting.batch();
        for step in places.chunks(STEP) {
            let room = u32::try_from(step.len()).map_err(Fault::broken)?;
            let mut room = self.window.acquire_many(room).await.map_err(|_| unconfirmed())?;
            let outgoing: Vec<_> = step.iter().map(|&place| outgoing(&messages[place])).collect();
            let sending = |index: usize| {
                // Its confirm gives it back; what is not sent after all, we do.
                room.split(1).into_iter().for_each(SemaphorePermit::forget);
                self.confirms.sending(batch, step[index]);
            };
            self.channel.publish(&self.exchange, &self.key, &outgoing, sending).await?;
        }
        waiting.answers().await.ok_or_else(unconfirmed)
    }
}

fn unconfirmed() -> Fault {
    Fault::broken("the connection broke before the broker had confirmed")
}

fn outgoing(message: &Message) -> Outgoing<'_> {
    Outgoing { id: &message.id, body: &message.body }
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
