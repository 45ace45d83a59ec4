//! A consumer of one queue. It takes batches and holds each message until it is settled.

use std::collections::BTreeMap;
use std::fmt;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::task::consume_budget;
use tokio::time::timeout;

use super::queue::{Entry, Queue};
use crate::{BrokerError, Consumer, DELIVERY_LIMIT, Delivery, Tag};

pub(super) struct InProcessConsumer {
    queue: Arc<Queue>,
    dead_letters: Arc<Queue>,
    prefetch: usize,
    held: BTreeMap<Tag, Entry>,
    next_tag: u64,
}

impl InProcessConsumer {
    pub(super) fn new(queue: Arc<Queue>, dead_letters: Arc<Queue>, prefetch: usize) -> Self {
        Self { queue, dead_letters, prefetch: prefetch.max(1), held: BTreeMap::new(), next_tag: 1 }
    }
}

#[async_trait]
impl Consumer for InProcessConsumer {
    async fn receive(&mut self, max: usize, linger: Duration) -> Result<Vec<Delivery>, BrokerError> {
        let want = max.max(1).min(self.prefetch - self.held.len());
        if want == 0 {
            return Err(self.queue.closed().await);
        }
        loop {
            // Yields now and then, so that a queue that never empties does not block its thread for other tasks.
            consume_budget().await;
            self.queue.ready(1).await?;
            if !linger.is_zero() {
                // Nothing has been taken yet, so a call that is dropped here loses nothing.
                timeout(linger, self.queue.ready(want)).await.unwrap_or(Ok(()))?;
            }
            let taken = self.queue.take(want)?;
            // Another consumer may have been faster.
            if !taken.is_empty() {
                return Ok(self.track(taken));
            }
        }
    }

    async fn ack(&mut self, tags: &[Tag]) -> Result<(), BrokerError> {
        self.queue.check_open()?;
        let settled = self.take_held(tags);
        self.queue.forget(settled.len());
        Ok(())
    }

    async fn release(&mut self, tags: &[Tag]) -> Result<(), BrokerError> {
        self.queue.check_open()?;
        let released = self.take_held(tags);
        self.requeue(released);
        Ok(())
    }

    async fn reject(&mut self, tags: &[Tag]) -> Result<(), BrokerError> {
        self.queue.check_open()?;
        let rejected = self.take_held(tags);
        self.move_to_dead_letters(rejected);
        Ok(())
    }
}

impl InProcessConsumer {
    fn track(&mut self, entries: Vec<Entry>) -> Vec<Delivery> {
        let tags = (self.next_tag..).map(Tag);
        let deliveries: Vec<_> = tags.zip(&entries).map(|(tag, entry)| delivery(tag, entry)).collect();
        self.next_tag += entries.len() as u64;
        self.held.extend(deliveries.iter().map(|delivery| delivery.tag).zip(entries));
        deliveries
    }

    fn take_held(&mut self, tags: &[Tag]) -> Vec<Entry> {
        tags.iter().filter_map(|tag| self.held.remove(tag)).collect()
    }

    fn requeue(&self, mut entries: Vec<Entry>) {
        for entry in &mut entries {
            entry.delivery_count += 1;
        }
        let (poison, again) = entries.into_iter().partition(|entry| entry.delivery_count > DELIVERY_LIMIT);
        self.move_to_dead_letters(poison);
        self.queue.put_back(again);
    }

    /// Moves messages to the dead letters. Each is added there before it leaves its queue, so that it is always in at
    /// least one of them. A dead letter only moves to the back of its queue, as if it were new.
    fn move_to_dead_letters(&self, entries: Vec<Entry>) {
        let count = entries.len();
        if count == 0 {
            return;
        }
        self.dead_letters.push(entries.into_iter().map(|entry| entry.message).collect());
        self.queue.forget(count);
    }
}

impl Drop for InProcessConsumer {
    fn drop(&mut self) {
        let held = mem::take(&mut self.held);
        self.requeue(held.into_values().collect());
    }
}

impl fmt::Debug for InProcessConsumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InProcessConsumer")
            .field("queue", &self.queue)
            .field("prefetch", &self.prefetch)
            .field("held", &self.held.len())
            .finish_non_exhaustive()
    }
}

fn delivery(tag: Tag, entry: &Entry) -> Delivery {
    Delivery {
        tag,
        message: entry.message.clone(),
        redelivered: entry.delivery_count > 0,
        delivery_count: entry.delivery_count,
    }
}
