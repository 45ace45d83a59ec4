//! Keeps the link: makes it, notices when it breaks or when a queue goes missing, and makes it again.
//!
//! Consumers and publishers are not restored one by one; they find the new link, and begin anew on it.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::{MissedTickBehavior, interval, sleep};

use super::link::{self, Link};
use super::topology::{self, look};
use super::{Shared, State};
use crate::BrokerError;

/// How often it is checked which queues are due for a look.
const TICK: Duration = Duration::from_millis(100);
const MIN_BACKOFF: Duration = Duration::from_millis(200);
const MAX_BACKOFF: Duration = Duration::from_secs(10);

pub(super) async fn run(shared: Arc<Shared>, first: Result<Link, BrokerError>) {
    let mut connected = first;
    let mut backoff = MIN_BACKOFF;
    loop {
        let error = match connected {
            Ok(link) => {
                tracing::info!(broker = %shared.address, "connected to RabbitMQ");
                let (link, since) = (Arc::new(link), Instant::now());
                let error = tend(&shared, &link).await;
                link.close();
                // One that breaks as soon as it is made is no reason to hurry.
                if since.elapsed() > MAX_BACKOFF {
                    backoff = MIN_BACKOFF;
                }
                error
            }
            Err(error) => error,
        };
        let reason = match error {
            BrokerError::Unreachable(reason) => reason,
            other => other.to_string(),
        };
        // It may be away for hours, and is tried every few seconds: only what is new is worth a line.
        let known = matches!(&*shared.state.borrow(), State::Down(known) if *known == reason);
        if !known {
            tracing::warn!(broker = %shared.address, reason, "RabbitMQ cannot be used; it is tried again and again");
        }
        shared.enter(State::Down(reason));
        sleep(jittered(backoff)).await;
        backoff = (backoff * 2).min(MAX_BACKOFF);
        connected = link::connect(&shared).await;
    }
}

/// Watches over a link until it ends, and says why it did.
async fn tend(shared: &Shared, link: &Arc<Link>) -> BrokerError {
    shared.enter(State::Up(Arc::clone(link)));
    // Whoever waits for room has something to publish.
    shared.room.notify_waiters();
    let mut tick = interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let looked = tokio::select! {
            fault = link.ended() => return topology::broken(fault),
            () = shared.look_now.notified() => look_at_queues(shared, link, true).await,
            _ = tick.tick() => look_at_queues(shared, link, false).await,
        };
        if let Err(error) = looked {
            return error;
        }
    }
}

/// A queue that is gone is a loss; it is made again when the caller says so.
async fn look_at_queues(shared: &Shared, link: &Link, all: bool) -> Result<(), BrokerError> {
    for (queue, load) in &shared.loads {
        let Some(before) = (if all { Some(load.look()) } else { load.look_if_due() }) else { continue };
        let found = look(link.consuming(), &shared.topology.name(queue)).await.map_err(topology::broken)?;
        load.looked(before, found.unwrap_or_default());
        shared.found(queue, found.is_some());
    }
    Ok(())
}

/// Between half and one and a half of it, so that instances that lost the broker together do not return
/// together.
fn jittered(delay: Duration) -> Duration {
    let random = RandomState::new().hash_one(delay) % 1_000;
    delay / 2 + delay.mul_f64(f64::from(u32::try_from(random).unwrap_or_default()) / 1_000.0)
}
