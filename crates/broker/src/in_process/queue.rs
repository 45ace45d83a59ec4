//! One queue: its ready messages in order, and the number of messages that consumers hold.
//!
//! Consumers store what they hold; the queue only counts it. The lock is held only for moves in memory, never across an
//! await, and never together with another queue's lock.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::limit::{Demand, Limit};
use crate::{BrokerError, DEAD_LETTER_QUEUE, Message};

pub(super) struct Queue {
    name: String,
    limit: Limit,
    state: Mutex<State>,
    /// Notified when messages become ready, and when the queue closes.
    changed: Notify,
}

/// A message and its history in this queue.
pub(super) struct Entry {
    /// The position in the order of publishing. A returned message keeps it.
    sequence: u64,
    pub(super) message: Message,
    pub(super) delivery_count: u32,
}

#[derive(Default)]
struct State {
    /// Returned messages. They go before `undelivered`, whose messages were never taken and are younger.
    returned: BTreeMap<u64, Entry>,
    undelivered: VecDeque<Entry>,
    held: usize,
    demand: Demand,
    next_sequence: u64,
    closed: bool,
}

impl Queue {
    pub(super) fn bounded(name: String, limit: usize) -> Self {
        Self { name, limit: Limit::new(limit), state: Mutex::default(), changed: Notify::new() }
    }

    /// A queue without a limit: dead letters have nowhere else to go.
    pub(super) fn dead_letters() -> Self {
        Self::bounded(DEAD_LETTER_QUEUE.to_owned(), usize::MAX)
    }

    /// Adds all of the messages, or none and returns false.
    pub(super) fn push(&self, messages: Vec<Message>) -> bool {
        let mut state = self.lock();
        let depth = state.depth();
        if !self.limit.accepts(messages.len(), depth, &mut state.demand) {
            return false;
        }
        let sequences = state.next_sequence..;
        state.next_sequence += messages.len() as u64;
        let entries =
            sequences.zip(messages).map(|(sequence, message)| Entry { sequence, message, delivery_count: 0 });
        state.undelivered.extend(entries);
        drop(state);
        self.changed.notify_waiters();
        true
    }

    pub(super) fn is_full(&self) -> bool {
        let mut state = self.lock();
        let depth = state.depth();
        self.limit.is_full(depth, &mut state.demand)
    }

    /// Waits until a full queue has room again.
    pub(super) fn wait_for_capacity(&self) -> Notified<'_> {
        self.limit.wait_for_capacity()
    }

    pub(super) fn depth(&self) -> usize {
        self.lock().depth()
    }

    /// Waits until `count` messages are ready at once.
    pub(super) async fn ready(&self, count: usize) -> Result<(), BrokerError> {
        loop {
            // Created before the check, so that no change between the check and the wait is missed.
            let changed = self.changed.notified();
            if self.open()?.ready() >= count {
                return Ok(());
            }
            changed.await;
        }
    }

    /// Waits until the broker closes, and returns the error.
    pub(super) async fn closed(&self) -> BrokerError {
        loop {
            let changed = self.changed.notified();
            if let Err(closed) = self.open() {
                return closed;
            }
            changed.await;
        }
    }

    /// Removes at most `max` ready messages, possibly none.
    pub(super) fn take(&self, max: usize) -> Result<Vec<Entry>, BrokerError> {
        let mut state = self.open()?;
        let count = state.ready().min(max);
        let mut taken = Vec::with_capacity(count);
        while taken.len() < count
            && let Some((_, entry)) = state.returned.pop_first()
        {
            taken.push(entry);
        }
        let rest = count - taken.len();
        taken.extend(state.undelivered.drain(..rest));
        state.held += count;
        Ok(taken)
    }

    /// Returns messages that were taken to their positions.
    pub(super) fn put_back(&self, entries: Vec<Entry>) {
        let mut state = self.lock();
        state.held -= entries.len();
        state.returned.extend(entries.into_iter().map(|entry| (entry.sequence, entry)));
        drop(state);
        self.changed.notify_waiters();
    }

    /// Stops counting taken messages that will not be returned.
    pub(super) fn forget(&self, count: usize) {
        let mut state = self.lock();
        state.held -= count;
        let depth = state.depth();
        self.limit.depth_decreased(depth, &mut state.demand);
    }

    pub(super) fn check_open(&self) -> Result<(), BrokerError> {
        self.open().map(drop)
    }

    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_waiters();
    }

    fn open(&self) -> Result<MutexGuard<'_, State>, BrokerError> {
        let state = self.lock();
        if state.closed { Err(BrokerError::Closed) } else { Ok(state) }
    }

    /// No change panics half-way, so the state behind a poisoned lock is consistent.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn ready(&self) -> usize {
        self.returned.len() + self.undelivered.len()
    }

    fn depth(&self) -> usize {
        self.ready() + self.held
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ready, held) = {
            let state = self.lock();
            (state.ready(), state.held)
        };
        f.debug_struct("Queue")
            .field("name", &self.name)
            .field("ready", &ready)
            .field("held", &held)
            .finish_non_exhaustive()
    }
}
