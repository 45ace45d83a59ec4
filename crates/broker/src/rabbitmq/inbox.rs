//! Messages that the broker has delivered to a consumer and that were not taken yet. The consumer's prefetch limits
//! their number.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::load::Load;
use crate::amqp::{Fault, Incoming, Listener, Value};
use crate::{Delivery, Message, Tag};

/// The header of a quorum queue with the number of earlier deliveries; absent the first time.
const DELIVERY_COUNT: &str = "x-delivery-count";

pub(super) struct Inbox {
    state: Mutex<State>,
    /// Notified when a message arrives, and when the channel ends.
    changed: Notify,
    load: Arc<Load>,
}

#[derive(Default)]
struct State {
    /// The tags are the channel's.
    arrived: VecDeque<Delivery>,
    ended: Option<Fault>,
}

impl Inbox {
    pub(super) fn new(load: Arc<Load>) -> Self {
        Self { state: Mutex::default(), changed: Notify::new(), load }
    }

    /// Waits until `count` messages are there at once.
    pub(super) async fn ready(&self, count: usize) -> Result<(), Fault> {
        loop {
            // Created before the check, so that no change between the check and the wait is missed.
            let changed = self.changed.notified();
            {
                let state = self.lock();
                if let Some(fault) = &state.ended {
                    return Err(fault.clone());
                }
                if state.arrived.len() >= count {
                    return Ok(());
                }
            }
            changed.await;
        }
    }

    pub(super) fn take(&self, max: usize) -> Vec<Delivery> {
        let mut state = self.lock();
        let count = state.arrived.len().min(max);
        state.arrived.drain(..count).collect()
    }

    /// Refuses further messages, and returns how many were never taken.
    pub(super) fn close(&self) -> usize {
        let mut state = self.lock();
        state.ended.get_or_insert_with(|| Fault::broken("the consumer is closed"));
        std::mem::take(&mut state.arrived).len()
    }

    /// No change panics half-way, so the state behind a poisoned lock is consistent.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Listener for Inbox {
    fn delivered(&self, tag: u64, redelivered: bool, message: Incoming) {
        let delivery_count = match message.headers.get(DELIVERY_COUNT) {
            Some(Value::Number(count)) => u32::try_from(*count).unwrap_or_default(),
            _ => 0,
        };
        let stamp = message.stamp();
        let message = Message { id: message.id, body: message.body.into(), stamp };
        let mut state = self.lock();
        if state.ended.is_some() {
            return;
        }
        state.arrived.push_back(Delivery { tag: Tag(tag), message, redelivered, delivery_count });
        self.load.arrived();
        drop(state);
        self.changed.notify_waiters();
    }

    fn ended(&self, fault: &Fault) {
        self.lock().ended.get_or_insert_with(|| fault.clone());
        self.changed.notify_waiters();
    }
}
