//! Brokers: the path of a message from `publish` to `receive`.
//!
//! This file has the types and the two traits. [`InProcess`] implements them in memory, [`RabbitMq`] with a server. The
//! engine decides what messages contain, who writes them, and what follows a refusal. This crate moves bytes and
//! guarantees:
//!
//! - A confirmed message is delivered at least once, until it is acknowledged or the broker reports its queue by
//!   [`Broker::losses`]. No message is dropped to make room.
//! - A message may be delivered twice. Receivers recognise it by its [`Message::id`].
//! - Messages are delivered in the order of publishing, as long as none is returned.

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

/// The queue of rejected messages and of those that come back too often. It is consumed like any queue, with two
/// differences, so that nothing in it is ever lost. It has no limit of messages (the engine empties it), and messages
/// that are rejected in it, or come back too often, stay in it.
pub const DEAD_LETTER_QUEUE: &str = "notification.dlq";

/// How often a message may be redelivered. When it comes back once more, it becomes a dead letter.
pub const DELIVERY_LIMIT: u32 = 100;

/// The part of a body that a broker delivers at least. A receiver needs the id, and the beginning of the text for
/// people. A broker may cut the rest, so that consumers use limited memory whatever others publish.
pub const DELIVERED_BODY_BYTES: usize = 64 * 1024;

/// Carries messages from publishers to consumers.
#[async_trait]
pub trait Broker: Send + Sync + fmt::Debug {
    /// Publishes to one queue, and returns when every message is confirmed or refused.
    ///
    /// A queue that does not exist refuses each message. After an error, or when the call is dropped, some of the
    /// messages may have been accepted: publish all of them again.
    async fn publish(&self, queue: &str, messages: Vec<Message>) -> Result<Published, BrokerError>;

    /// Whether a publish is not worth preparing: less room is left than a chunk of 1,000 messages needs, or than a
    /// fifth of a small limit. A queue that was found full, here or by [`Published::Full`], stays full until it has
    /// room for everything that it refused.
    ///
    /// This is cheap and only a hint. [`Broker::publish`] alone decides, and may accept a few messages when this
    /// returns true.
    fn is_full(&self, queue: &str) -> bool;

    /// Resolves when this queue has room again after it was found full, by [`Broker::is_full`] or [`Published::Full`].
    /// It may also resolve without a reason, but not at each acknowledgement. It never resolves for a queue that does
    /// not exist, because that is never full.
    ///
    /// It counts from the call, not from the first poll. Create it *before* the check, so that no wake-up between the
    /// check and the wait is missed.
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

    /// Opens a consumer of one queue. It holds at most `prefetch` unacknowledged messages; zero counts as one.
    async fn consume(&self, queue: &str, prefetch: usize) -> Result<Box<dyn Consumer>, BrokerError>;

    /// Queues whose messages were lost. A broker that keeps nothing reports all of its queues at start.
    ///
    /// A lost queue can be used only after [`Broker::restore`]. The caller first schedules the undelivered messages to
    /// be published again. If the caller dies before it restores the queue, the queue stays missing, and the next
    /// instance finds the loss. If the dead-letter queue is lost, its messages may have come from any queue.
    fn losses(&self) -> Vec<String>;

    /// Creates lost queues again.
    async fn restore(&self, queues: &[String]) -> Result<(), BrokerError>;

    /// Why the broker cannot be used at present, if so.
    fn unavailable_reason(&self) -> Option<String>;

    /// Undelivered messages per queue, ready and unacknowledged. For metrics and readiness.
    fn depths(&self) -> Vec<(String, usize)>;

    /// The name of the broker in logs, metrics and `/health`.
    fn name(&self) -> &'static str;
}

/// The future of [`Broker::wait_for_capacity`].
pub type CapacityWait<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// Takes messages from one queue, and settles each of them.
///
/// A dropped consumer returns all messages that it holds; this counts as a release. After [`BrokerError::Unreachable`]
/// or [`BrokerError::Lost`] it continues by itself once the broker or the queue is back. The messages that it held then
/// come again under new tags. Tags that it does not hold are ignored: they were settled already, or their connection is
/// gone.
#[async_trait]
pub trait Consumer: Send + fmt::Debug {
    /// Waits for at least one message, then takes up to `max` messages (zero counts as one). It waits at most `linger`
    /// for more.
    ///
    /// Cancel-safe: a dropped call loses nothing. While the consumer holds its whole prefetch, the call waits forever.
    /// So select it together with whatever leads to the next acknowledgement.
    async fn receive(&mut self, max: usize, linger: Duration) -> Result<Vec<Delivery>, BrokerError>;

    /// Removes these messages from the queue.
    async fn ack(&mut self, tags: &[Tag]) -> Result<(), BrokerError>;

    /// Returns these messages; they are delivered again, marked as redelivered. A message that was redelivered
    /// [`DELIVERY_LIMIT`] times becomes a dead letter instead.
    async fn release(&mut self, tags: &[Tag]) -> Result<(), BrokerError>;

    /// Moves these messages to the [`DEAD_LETTER_QUEUE`].
    async fn reject(&mut self, tags: &[Tag]) -> Result<(), BrokerError>;
}

/// A message. `id` is unique per outbox row. `body` is JSON, and shared so that a redelivery copies nothing.
#[derive(Clone, PartialEq, Eq)]
pub struct Message {
    pub id: String,
    pub body: Arc<[u8]>,
    /// `None` for messages of other publishers and of earlier releases.
    pub stamp: Option<Stamp>,
}

/// Which instance published a message, and when. It travels as the headers `published_by` and `published_at_ms`.
/// Everybody who may write to the queue can claim anything here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    pub instance: i32,
    /// Milliseconds since 1970.
    pub at_ms: i64,
}

/// Bodies contain addresses and payloads, which must not be logged.
impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, body, .. } = self;
        f.debug_struct("Message").field("id", id).field("body_bytes", &body.len()).finish()
    }
}

/// The result of a publish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Published {
    /// The result of each message, in input order.
    Confirmed(Vec<Confirm>),
    /// Nothing was accepted: the queue holds its limit of undelivered messages. Wait for [`Broker::wait_for_capacity`].
    Full,
}

/// The result of one message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Confirm {
    Accepted,
    /// The broker rejected the message. This counts as a failure of the message.
    Refused {
        reason: String,
    },
}

/// A message that a consumer holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    pub tag: Tag,
    /// The body may end after [`DELIVERED_BODY_BYTES`].
    pub message: Message,
    /// Whether a consumer may have received it before.
    pub redelivered: bool,
    /// How often it was delivered before and returned.
    pub delivery_count: u32,
}

/// Identifies a delivery within the consumer that received it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(pub u64);

/// Errors of a broker, by what the caller does next.
#[derive(Debug, thiserror::Error)]
pub enum BrokerError {
    /// Back off and call again. No message is at fault.
    #[error("the broker is unreachable: {0}")]
    Unreachable(String),
    /// Back off and call again. No message is at fault. [`Broker::restore`] creates the queue; the loss was logged when
    /// it was noticed.
    #[error(
        "the queue `{0}` is missing; it is declared again once its messages are scheduled to be republished"
    )]
    Lost(String),
    /// Stop: the broker was dropped and does not come back.
    #[error("the broker is closed")]
    Closed,
    /// Correct the configuration: this queue is not declared.
    #[error("the broker has no queue `{0}`; the queues are declared when it is opened")]
    NoSuchQueue(String),
    /// Stop, and correct the configuration or the broker: waiting does not help. Only opening a broker returns this; a
    /// running broker keeps trying.
    #[error("{0}")]
    Misconfigured(String),
}
