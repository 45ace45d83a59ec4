//! A consumer of one queue. Its channel, with its own prefetch, ends with the connection. The consumer stays and opens
//! another.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::timeout;

use super::inbox::Inbox;
use super::load::Load;
use super::topology::broken;
use super::{Shared, State};
use crate::amqp::{Channel, Fault, Request, Table};
use crate::{BrokerError, Consumer, DEAD_LETTER_QUEUE, Delivery, Tag};

pub(super) struct RabbitMqConsumer {
    shared: Arc<Shared>,
    queue: String,
    load: Arc<Load>,
    prefetch: u16,
    lane: Option<Lane>,
    /// The highest tag that was ever handed out. The tags of a new channel begin after it.
    last_tag: u64,
}

impl RabbitMqConsumer {
    pub(super) async fn open(
        shared: &Arc<Shared>,
        queue: &str,
        load: &Arc<Load>,
        prefetch: usize,
    ) -> Result<Self, BrokerError> {
        let prefetch = u16::try_from(prefetch).unwrap_or(u16::MAX).max(1);
        let (shared, queue, load) = (Arc::clone(shared), queue.to_owned(), Arc::clone(load));
        let mut consumer = Self { shared, queue, load, prefetch, lane: None, last_tag: 0 };
        consumer.lane().await?;
        Ok(consumer)
    }

    async fn lane(&mut self) -> Result<&mut Lane, BrokerError> {
        let lane = match self.lane.take() {
            Some(lane) => lane,
            None => self.open_lane().await?,
        };
        Ok(self.lane.insert(lane))
    }

    async fn open_lane(&self) -> Result<Lane, BrokerError> {
        let link = self.shared.link_to(&self.queue)?;
        let inbox = Arc::new(Inbox::new(Arc::clone(&self.load)));
        let opened = async {
            let channel = link.consuming().channel(Arc::clone(&inbox) as _).await?;
            let lane = Lane {
                channel,
                inbox,
                load: Arc::clone(&self.load),
                base: self.last_tag,
                held: BTreeSet::new(),
            };
            lane.channel.ask(Request::Qos { prefetch: self.prefetch }).await?;
            let queue = self.shared.topology.name(&self.queue);
            lane.channel.ask(Request::Consume { queue: &queue, arguments: &Table::new() }).await?;
            Ok(lane)
        };
        opened.await.map_err(|fault| self.lost(fault))
    }

    /// Why the channel ended. If the queue is the cause, the supervisor is told at once.
    fn lost(&self, fault: Fault) -> BrokerError {
        match fault {
            Fault::Silent => self.shared.quarantine(&self.queue),
            Fault::Refused { code: crate::amqp::NOT_FOUND, .. } => self.shared.probe_now(),
            Fault::Refused { .. } | Fault::Broken(_) | Fault::NotAmqp => {}
        }
        broken(fault)
    }

    /// Settles those of the messages that this consumer holds.
    fn settle(&mut self, tags: &[Tag], fate: Fate) -> Result<(), BrokerError> {
        if matches!(*self.shared.state.borrow(), State::Closed) {
            return Err(BrokerError::Closed);
        }
        let Some(lane) = &mut self.lane else { return Ok(()) };
        if let Err(fault) = lane.settle(tags, fate) {
            self.lane = None;
            return Err(self.lost(fault));
        }
        Ok(())
    }
}

#[async_trait]
impl Consumer for RabbitMqConsumer {
    async fn receive(&mut self, max: usize, linger: Duration) -> Result<Vec<Delivery>, BrokerError> {
        let (prefetch, mut state) = (usize::from(self.prefetch), self.shared.state.subscribe());
        let lane = self.lane().await?;
        let want = max.max(1).min(prefetch.saturating_sub(lane.held.len()));
        let ready = async {
            // While the whole prefetch is held, nothing can become ready. Then this only notices the end of the
            // channel.
            lane.inbox.ready(if want == 0 { usize::MAX } else { 1 }).await?;
            if !linger.is_zero() {
                // Nothing has been taken yet, so a call that is dropped here loses nothing.
                timeout(linger, lane.inbox.ready(want)).await.unwrap_or(Ok(()))?;
            }
            Ok(())
        };
        let ready = tokio::select! {
            biased;
            _ = state.wait_for(|state| matches!(state, State::Closed)) => return Err(BrokerError::Closed),
            ready = ready => ready,
        };
        match ready {
            Ok(()) => {
                let deliveries = lane.hand_out(want);
                self.last_tag = deliveries.last().map_or(self.last_tag, |delivery| delivery.tag.0);
                Ok(deliveries)
            }
            Err(fault) => {
                self.lane = None;
                Err(self.lost(fault))
            }
        }
    }

    async fn ack(&mut self, tags: &[Tag]) -> Result<(), BrokerError> {
        self.settle(tags, Fate::Done)
    }

    async fn release(&mut self, tags: &[Tag]) -> Result<(), BrokerError> {
        self.settle(tags, Fate::Again)
    }

    /// Rejects messages. A dead letter has nowhere else to go, so it is requeued.
    async fn reject(&mut self, tags: &[Tag]) -> Result<(), BrokerError> {
        self.settle(tags, if self.queue == DEAD_LETTER_QUEUE { Fate::Again } else { Fate::Dead })
    }
}

impl fmt::Debug for RabbitMqConsumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RabbitMqConsumer")
            .field("queue", &self.queue)
            .field("prefetch", &self.prefetch)
            .field("held", &self.lane.as_ref().map(|lane| lane.held.len()))
            .finish_non_exhaustive()
    }
}

/// How a message is settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Done,
    Again,
    Dead,
}

/// A consumer's channel and the messages that it holds. Dropping it returns all of them.
struct Lane {
    channel: Channel,
    inbox: Arc<Inbox>,
    load: Arc<Load>,
    /// The offset from the channel's tags, which start at 1 on every channel, to the consumer's tags.
    base: u64,
    /// The channel's tags of messages that were handed out and not settled. Messages that were not handed out have
    /// higher tags.
    held: BTreeSet<u64>,
}

impl Lane {
    fn hand_out(&mut self, max: usize) -> Vec<Delivery> {
        let mut deliveries = self.inbox.take(max);
        for delivery in &mut deliveries {
            self.held.insert(delivery.tag.0);
            delivery.tag.0 += self.base;
        }
        deliveries
    }

    fn settle(&mut self, tags: &[Tag], fate: Fate) -> Result<(), Fault> {
        let tags = tags.iter().filter_map(|tag| tag.0.checked_sub(self.base));
        let tags: BTreeSet<u64> = tags.filter(|tag| self.held.contains(tag)).collect();
        if fate == Fate::Again {
            // One by one and not by nack: since RabbitMQ 4.3 only this counts towards the delivery limit.
            tags.iter().try_for_each(|&tag| self.channel.send(Request::Requeue { tag }))?;
        } else {
            // An acknowledgement of "all up to this tag" covers the tags up to the first one that is left out.
            let whole = self.held.iter().zip(&tags).take_while(|(held, tag)| held == tag).count();
            let last = whole.checked_sub(1).and_then(|last| tags.iter().nth(last)).copied();
            let singly = tags.iter().skip(whole).map(|&tag| (tag, false));
            for (tag, multiple) in last.map(|tag| (tag, true)).into_iter().chain(singly) {
                self.channel.send(match fate {
                    Fate::Dead => Request::Nack { tag, multiple },
                    Fate::Done | Fate::Again => Request::Ack { tag, multiple },
                })?;
            }
        }
        self.held.retain(|tag| !tags.contains(tag));
        match fate {
            Fate::Again => self.load.came_back(tags.len()),
            Fate::Done | Fate::Dead => self.load.left(tags.len()),
        }
        Ok(())
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.load.came_back(self.inbox.close() + self.held.len());
    }
}
