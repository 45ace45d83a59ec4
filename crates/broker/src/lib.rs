//! The way of a message from `publish` to `receive`, whichever broker carries it.
//!
//! Here are the nouns and the two traits; [`InProcess`] implements them in memory, [`RabbitMq`] by a server.
//! What a message says, who writes it and what happens after a refusal is the engine's business; this crate
//! moves bytes and promises:
//!
//! - What was confirmed is delivered at least once, until it is acknowledged or the broker reports its queue
//!   by [`Broker::losses`]. Nothing is ever dropped to make room.
//! - A message may come twice. Receivers recognise it by its [`Message::id`].
//! - Order is that of publishing, as long as nothing is given back.

mod amqp;
mod in_process;
mod limit;
mod rabbitmq;

#[cfg(feature = "conformance")]
pub mod conformance;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

pub use in_process::InProcess;
pub use rabbitmq::{RabbitMq, RabbitMqConfig};

/// Where rejected and poisonous messages go. It is consumed like any queue, and differs in two things, so that
/// nothing is ever lost in it: it has no limit of messages (the engine empties it), and what is rejected in it,
/// or comes back too often, stays in it.
pub const DEAD_LETTER_QUEUE: &str = "notification.dlq";

/// How often a message may be delivered again. When it comes back once more, it is a dead letter.
pub const DELIVERY_LIMIT: u32 = 100;

/// How much of a body is delivered at least. A receiver needs the id, and the beginning of the text for people; a
/// broker may cut off the rest, so that what consumers hold is bounded in bytes whatever others put into our queues.
pub const DELIVERED_BODY_BYTES: usize = 64 * 1024;

/// Carries messages from publishers to consumers.
#[async_trait]
pub trait Broker: Send + Sync + fmt::Debug {
    /// Publishes to one queue, and returns when every message is confirmed or refused.
    ///
    /// A queue that does not exist refuses each message. After an error, or when the call is dropped, some of
    /// the messages may have been taken: publish them all again.
    async fn publish(&self, queue: &str, messages: Vec<Message>) -> Result<Published, BrokerError>;

    /// True when a publish is not worth preparing: fewer places are free than a chunk of 1,000 messages needs, or
    /// in a small queue than a fifth of the limit. Who finds a queue full, here or by [`Published::Full`], finds it
    /// full until it takes all that it turned away.
    ///
    /// Cheap, and a hint: [`Broker::publish`] alone decides, to the message, and takes a few where this says true.
    fn is_full(&self, queue: &str) -> bool;

    /// Resolves when this queue was full, as [`Broker::is_full`] or [`Published::Full`] told somebody, and no longer
    /// is. It may also resolve for no reason, but never does at each acknowledgement. For a queue that does not
    /// exist, which is never full, it does not resolve.
    ///
    /// It counts from the call, not from the first poll: create it *before* the check, and no wake-up between
    /// the check and the wait is missed.
    ///
    /// ```
    /// # use campanile_broker::{Broker, BrokerError, Message, Published};
    /// # async fn publish(broker: &dyn Broker, messages: Vec<Message>) -> Result<Published, BrokerError> {
    /// loop {
    ///     let capacity = broker.wait_for_capacity("notification.customer");
    ///     match broker.publish("notification.customer", messages.clone()).await? {
    ///         Published::Full => capacity.await,
    ///         confirmed => return Ok(confirmed),
    ///     }
    /// }
    /// # }
    /// ```
    fn wait_for_capacity(&self, queue: &str) -> CapacityWait<'_>;

    /// Opens a consumer of one queue that holds at most `prefetch` unacknowledged messages (zero counts as one).
    async fn consume(&self, queue: &str, prefetch: usize) -> Result<Box<dyn Consumer>, BrokerError>;

    /// Queues whose messages were lost: at start all of them, for a broker that keeps nothing. Each is there, and can
    /// be used, only after [`Broker::restore`]: the caller first sees to it that what was not delivered will be
    /// published again. Whoever dies in between leaves the queue missing, so that the next one finds the loss. When the
    /// dead-letter queue is among them, what it held may have come from any queue.
    fn losses(&self) -> Vec<String>;

    /// Makes lost queues again.
    async fn restore(&self, queues: &[String]) -> Result<(), BrokerError>;

    /// Why the broker can't be used at present, if so.
    fn unavailable_reason(&self) -> Option<String>;

    /// Undelivered messages, ready and unacknowledged, per queue; for metrics and readiness.
    fn depths(&self) -> Vec<(String, usize)>;

    /// What logs, metrics and `/health` call this broker.
    fn name(&self) -> &'static str;
}

/// What [`Broker::wait_for_capacity`] returns.
pub type CapacityWait<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// Takes messages from one queue, and says what became of each.
///
/// A consumer that is dropped gives back all it holds, and each time counts as a release. After
/// [`BrokerError::Unreachable`] or [`BrokerError::Lost`] it goes on by itself once the broker or the queue is back;
/// what it held then comes again, under new tags. Tags that it does not hold, because they were settled already or went
/// with a connection, are passed over.
#[async_trait]
pub trait Consumer: Send + fmt::Debug {
    /// Waits for at least one message, then takes what is there up to `max` (zero counts as one), waiting at
    /// most `linger` for more.
    ///
    /// Cancel-safe: a dropped call loses nothing. While the consumer holds its whole prefetch, the call waits
    /// for ever, so select it against whatever leads to the next acknowledgement.
    async fn receive(&mut self, max: usize, linger: Duration) -> Result<Vec<Delivery>, BrokerError>;

    /// Removes these for good.
    async fn ack(&mut self, tags: &[Tag]) -> Result<(), BrokerError>;

    /// Gives these back; they are delivered again, marked as redelivered. One that was redelivered
    /// [`DELIVERY_LIMIT`] times already becomes a dead letter instead.
    async fn release(&mut self, tags: &[Tag]) -> Result<(), BrokerError>;

    /// Sends these to the [`DEAD_LETTER_QUEUE`].
    async fn reject(&mut self, tags: &[Tag]) -> Result<(), BrokerError>;
}

/// A message on its way: `id` is unique per outbox row, `body` is JSON, shared so that delivering it again
/// copies nothing.
#[derive(Clone, PartialEq, Eq)]
pub struct Message {
    pub id: String,
    pub body: Arc<[u8]>,
    /// Absent from messages of others, and of releases that did not write it.
    pub stamp: Option<Stamp>,
}

/// Which instance published a message, and when. It travels as the headers `published_by` and `published_at_ms`, so
/// whoever may write to the queue can claim anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    pub instance: i32,
    /// Milliseconds since 1970.
    pub at_ms: i64,
}

/// Bodies hold addresses and payloads, which have no place in a log.
impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, body, .. } = self;
        f.debug_struct("Message").field("id", id).field("body_bytes", &body.len()).finish()
    }
}

/// What became of a whole publish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Published {
    /// What the broker said to each message, in input order.
    Confirmed(Vec<Confirm>),
    /// Nothing was taken: the queue holds its limit of undelivered messages. Wait for
    /// [`Broker::wait_for_capacity`].
    Full,
}

/// What the broker said to one message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Confirm {
    Accepted,
    /// The broker is there and does not want it. This counts against the message.
    Refused {
        reason: String,
    },
}

/// A message in a consumer's hands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    pub tag: Tag,
    /// Its body may end after [`DELIVERED_BODY_BYTES`].
    pub message: Message,
    /// True when somebody may have seen it before.
    pub redelivered: bool,
    /// How often it was delivered before and came back.
    pub delivery_count: u32,
}

/// Names a delivery, within the consumer that received it only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(pub u64);

/// Why a broker could not do it, by what the caller does next.
#[derive(Debug, thiserror::Error)]
pub enum BrokerError {
    /// Back off and call again; this counts against no message.
    #[error("the broker is unreachable: {0}")]
    Unreachable(String),
    /// Back off and call again; this counts against no message either. [`Broker::restore`] makes the queue, and that it
    /// is gone was logged when it was noticed.
    #[error(
        "the queue `{0}` is missing; it is declared again once its messages are scheduled to be republished"
    )]
    Lost(String),
    /// Stop: the broker was dropped, and will not be back.
    #[error("the broker is closed")]
    Closed,
    /// Correct the configuration: nobody declared this queue.
    #[error("the broker has no queue `{0}`; the queues are declared when it is opened")]
    NoSuchQueue(String),
    /// Stop, and let somebody correct the configuration or the broker: waiting does not help. Only opening a
    /// broker answers it; once it runs, it goes on trying.
    #[error("{0}")]
    Misconfigured(String),
}
