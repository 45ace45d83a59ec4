//! A broker in memory, for an engine that runs as a single process.
//!
//! It keeps nothing across restarts. At start it reports every queue as lost, and the engine publishes again from its
//! outbox. The set of queues is fixed. Each queue has its own lock, so that queues do not wait for each other.

mod consumer;
mod queue;

use std::collections::BTreeMap;
use std::fmt;
use std::future;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;

use crate::{Broker, BrokerError, CapacityWait, Confirm, Consumer, DEAD_LETTER_QUEUE, Message, Published};
use consumer::InProcessConsumer;
use queue::Queue;

/// The broker in memory. Dropping it closes its consumers.
pub struct InProcess {
    queues: BTreeMap<String, Arc<Queue>>,
    dead_letters: Arc<Queue>,
    losses: Mutex<Vec<String>>,
}

impl InProcess {
    /// Creates a broker with these queues and the dead-letter queue.
    ///
    /// Each queue holds at most `limit` undelivered messages. It accepts a publish whole or not at all. A publish
    /// larger than the limit is accepted when the queue is empty, because it would otherwise wait forever.
    pub fn new(queues: impl IntoIterator<Item = campanile_domain::queue::Queue>, limit: usize) -> Self {
        let names = queues.into_iter().map(|queue| queue.to_string());
        let mut queues: BTreeMap<_, _> =
            names.map(|name| (name.clone(), Arc::new(Queue::bounded(name, limit)))).collect();
        let dead_letters = Arc::new(Queue::dead_letters());
        queues.insert(DEAD_LETTER_QUEUE.to_owned(), Arc::clone(&dead_letters));
        let losses = Mutex::new(queues.keys().cloned().collect());
        Self { queues, dead_letters, losses }
    }
}

#[async_trait]
impl Broker for InProcess {
    async fn publish(&self, queue: &str, messages: Vec<Message>) -> Result<Published, BrokerError> {
        let count = messages.len();
        let Some(known) = self.queues.get(queue) else {
            let reason = format!("the broker has no queue `{queue}`");
            return Ok(Published::Confirmed(vec![Confirm::Refused { reason }; count]));
        };
        if known.push(messages) {
            Ok(Published::Confirmed(vec![Confirm::Accepted; count]))
        } else {
            Ok(Published::Full)
        }
    }

    fn is_full(&self, queue: &str) -> bool {
        self.queues.get(queue).is_some_and(|queue| queue.is_full())
    }

    fn wait_for_capacity(&self, queue: &str) -> CapacityWait<'_> {
        match self.queues.get(queue) {
            Some(queue) => Box::pin(queue.wait_for_capacity()),
            None => Box::pin(future::pending()),
        }
    }

    async fn consume(&self, queue: &str, prefetch: usize) -> Result<Box<dyn Consumer>, BrokerError> {
        let known = self.queues.get(queue).ok_or_else(|| BrokerError::NoSuchQueue(queue.to_owned()))?;
        Ok(Box::new(InProcessConsumer::new(Arc::clone(known), Arc::clone(&self.dead_letters), prefetch)))
    }

    /// The queues can be used before they are restored: memory is lost only together with its process.
    fn losses(&self) -> Vec<String> {
        self.losses.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn restore(&self, queues: &[String]) -> Result<(), BrokerError> {
        self.losses.lock().unwrap_or_else(PoisonError::into_inner).retain(|lost| !queues.contains(lost));
        Ok(())
    }

    fn unavailable_reason(&self) -> Option<String> {
        None
    }

    fn depths(&self) -> Vec<(String, usize)> {
        self.queues.iter().map(|(name, queue)| (name.clone(), queue.depth())).collect()
    }

    fn name(&self) -> &'static str {
        "in-process"
    }
}

impl Drop for InProcess {
    fn drop(&mut self) {
        self.queues.values().for_each(|queue| queue.close());
    }
}

impl fmt::Debug for InProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InProcess").field("queues", &self.queues).finish_non_exhaustive()
    }
}
