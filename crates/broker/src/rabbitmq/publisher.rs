//! Publishes to one queue, on a channel of its own, so that no queue waits for the confirms of another.

use std::sync::Arc;

use tokio::sync::watch;

use super::confirms::Confirms;
use crate::amqp::{Channel, Connection, Fault, MAX_SHORT_BYTES, Outgoing, Request};
use crate::{Confirm, Message};

/// What every version of the broker takes without closing the channel.
const MAX_BODY_BYTES: usize = 16 * 1024 * 1024;

pub(super) struct Publisher {
    channel: Channel,
    confirms: Arc<Confirms>,
    exchange: String,
    key: String,
}

impl Publisher {
    pub(super) async fn open(
        connection: &Connection,
        exchange: String,
        key: String,
        ended: &Arc<watch::Sender<Option<Fault>>>,
    ) -> Result<Self, Fault> {
        let confirms = Arc::new(Confirms::new(Arc::clone(ended)));
        let channel = connection.channel(Arc::clone(&confirms) as _).await?;
        channel.ask(Request::ConfirmSelect).await?;
        Ok(Self { channel, confirms, exchange, key })
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
        let outgoing: Vec<_> = places.iter().map(|&place| outgoing(&messages[place])).collect();
        let sending = |index: usize| self.confirms.sending(batch, places[index]);
        self.channel.publish(&self.exchange, &self.key, &outgoing, sending).await?;
        waiting
            .answers()
            .await
            .ok_or_else(|| Fault::broken("the connection broke before the broker had confirmed"))
    }
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
