//! The connections to a reachable broker: one for receiving, and one publisher per queue.
//!
//! Publishers have connections of their own, for two reasons. A broker without disk or memory stops reading connections
//! that publish, but acknowledgements, which free space, must get through. And a broker that cannot keep up with one
//! channel stops reading its whole connection, so a busy queue would delay all others.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

use super::publisher::Publisher;
use super::topology::QueueProber;
use super::window::{Rank, Urgency};
use super::{QueueChange, Shared, topology};
use crate::amqp::{Connection, Fault};
use crate::{BrokerError, Confirm, Message};

/// How long a publish waits for its confirms. If they come later, the messages are delivered twice.
const CONFIRM_TIMEOUT: Duration = Duration::from_secs(20);

pub(super) struct Link {
    consuming: Connection,
    publishers: BTreeMap<String, Publisher>,
    publisher_ended: Arc<watch::Sender<Option<Fault>>>,
}

/// Connects, records the missing queues, and declares everything else. The declarations also check that what exists is
/// correct.
pub(super) async fn connect(shared: &Shared) -> Result<Link, BrokerError> {
    let topology = &shared.topology;
    let consuming = shared.address.connect("receives").await?;
    let (mut prober, mut missing) = (QueueProber::new(topology, &consuming), Vec::new());
    for (queue, load) in &shared.loads {
        if shared.is_quarantined(queue) {
            continue;
        }
        let before = load.start_probe();
        if shared.record_probe(queue, before, prober.probe(queue).await?) == QueueChange::Lost {
            missing.push(queue);
        }
    }
    let first = !shared.has_probed.swap(true, Ordering::Relaxed);
    if first && missing.len() == shared.loads.len() {
        // Nobody has used this broker before, so nothing can be lost.
        tracing::info!("no Campanile queues exist in RabbitMQ yet; declaring them");
    } else {
        for queue in missing {
            warn_of_loss(queue);
        }
    }
    let lost = shared.losses().clone();
    let wanted = |queue: &String| !lost.contains(queue) && !shared.is_quarantined(queue);
    for queue in topology.declare(&consuming, wanted, |queue| shared.quarantine(queue)).await? {
        shared.quarantine(&queue);
    }
    let (publisher_ended, urgency) = (Arc::new(watch::Sender::new(None)), Arc::<Urgency>::default());
    let mut publishers = BTreeMap::new();
    for queue in topology.queues() {
        let address = (topology.exchange(queue), topology.name(queue));
        let connection = shared.address.connect(&format!("publishes to {queue}")).await?;
        let rank = Rank::new(topology.is_urgent(queue), &urgency);
        let publisher = Publisher::open(connection, address, rank, &publisher_ended).await;
        publishers.insert(queue.clone(), publisher.map_err(topology::broken)?);
    }
    Ok(Link { consuming, publishers, publisher_ended })
}

pub(super) fn warn_of_loss(queue: &str) {
    tracing::warn!(
        queue,
        "a queue is missing in RabbitMQ; it is created again and its messages are published again"
    );
}

impl Link {
    pub(super) fn consuming(&self) -> &Connection {
        &self.consuming
    }

    /// Waits until something breaks that only a new link repairs.
    pub(super) async fn ended(&self) -> Fault {
        let mut publisher_ended = self.publisher_ended.subscribe();
        tokio::select! {
            fault = self.consuming.ended() => fault,
            Ok(fault) = publisher_ended.wait_for(Option::is_some) => {
                fault.clone().unwrap_or_else(|| Fault::broken("the broker closed a channel"))
            }
        }
    }

    /// Ends all connections, so that nobody continues with some of them.
    pub(super) fn close(&self) {
        self.publishers.values().for_each(Publisher::close);
        self.consuming.close();
    }

    /// Publishes to one of the link's queues, or says why that is impossible now.
    pub(super) async fn publish(&self, queue: &str, messages: Vec<Message>) -> Result<Vec<Confirm>, String> {
        if let Some(reason) = self.blocked() {
            return Err(reason);
        }
        let publisher =
            self.publishers.get(queue).ok_or_else(|| format!("no publisher for queue `{queue}`"))?;
        if let Ok(answered) = timeout(CONFIRM_TIMEOUT, publisher.publish(messages)).await {
            return answered.map_err(|fault| fault.to_string());
        }
        if let Some(reason) = self.blocked() {
            return Err(reason);
        }
        publisher.begin_anew().await;
        Err(format!("it did not confirm within {} seconds", CONFIRM_TIMEOUT.as_secs()))
    }

    /// Gives the queue's publisher a new channel; see `Publisher::begin_anew`.
    pub(super) async fn begin_anew(&self, queue: &str) {
        if let Some(publisher) = self.publishers.get(queue) {
            publisher.begin_anew().await;
        }
    }

    pub(super) fn blocked(&self) -> Option<String> {
        self.publishers
            .values()
            .find_map(Publisher::blocked)
            .map(|reason| format!("it is blocked and accepts no messages ({reason})"))
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("consuming", &self.consuming).finish_non_exhaustive()
    }
}
