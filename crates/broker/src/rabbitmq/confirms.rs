//! Matches confirms to messages.
//!
//! The broker numbers the messages of a channel and confirms by number: singly, in any order, or all up to one. A
//! message that no queue took is returned before its confirm. It has no number then and is recognised by its id.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Semaphore, oneshot, watch};

use crate::amqp::{Fault, Incoming, Listener};
use crate::{Confirm, Message};

/// The unconfirmed messages of one channel.
pub(super) struct Confirms {
    state: Mutex<State>,
    /// Gets back one permit per confirmed message.
    window: Arc<Semaphore>,
    /// Receives the reason when the channel ends.
    ended: Arc<watch::Sender<Option<Fault>>>,
}

#[derive(Default)]
struct State {
    batches: HashMap<u64, Batch>,
    next_batch: u64,
    /// Published and unconfirmed messages, in order. The first one has the number `first_tag`.
    pending: VecDeque<Pending>,
    first_tag: u64,
    /// Ids of returned messages, with the reasons.
    returned: Vec<(String, String)>,
}

/// The messages of one publish; their results are returned together.
struct Batch {
    messages: Arc<Vec<Message>>,
    answers: Vec<Confirm>,
    missing: usize,
    done: oneshot::Sender<Vec<Confirm>>,
}

struct Pending {
    batch: u64,
    place: usize,
    settled: bool,
}

impl Confirms {
    pub(super) fn new(window: Arc<Semaphore>, ended: Arc<watch::Sender<Option<Fault>>>) -> Self {
        let state = State { first_tag: 1, ..State::default() };
        Self { state: Mutex::new(state), window, ended }
    }

    /// Starts a batch. All messages count as accepted, except those that are refused in `answers` or later. `missing`
    /// is the number of messages that will be published.
    pub(super) fn begin(
        self: &Arc<Self>,
        messages: Arc<Vec<Message>>,
        answers: Vec<Confirm>,
        missing: usize,
    ) -> Waiting {
        let (done, answered) = oneshot::channel();
        let mut state = self.lock();
        let batch = state.next_batch;
        state.next_batch += 1;
        state.batches.insert(batch, Batch { messages, answers, missing, done });
        Waiting { confirms: Arc::clone(self), batch, answered }
    }

    /// Assigns the next number to this message.
    pub(super) fn sending(&self, batch: u64, place: usize) {
        self.lock().pending.push_back(Pending { batch, place, settled: false });
    }

    /// No change panics half-way, so the state behind a poisoned lock is consistent.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Listener for Confirms {
    fn returned(&self, reason: String, message: Incoming) {
        self.lock().returned.push((message.id, reason));
    }

    fn confirmed(&self, tag: u64, multiple: bool, taken: bool) {
        let settled = self.lock().confirmed(tag, multiple, taken);
        self.window.add_permits(settled);
    }

    fn ended(&self, fault: &Fault) {
        // Those who wait learn that no confirms will come.
        self.lock().batches.clear();
        self.window.close();
        self.ended.send_replace(Some(fault.clone()));
    }
}

impl State {
    /// Records a confirm and returns the number of messages that it settles for the first time.
    fn confirmed(&mut self, tag: u64, multiple: bool, taken: bool) -> usize {
        let Some(last) = tag.checked_sub(self.first_tag).and_then(|last| usize::try_from(last).ok()) else {
            return 0;
        };
        let mut settled = 0;
        let first = if multiple { 0 } else { last };
        for index in first..=last.min(self.pending.len().saturating_sub(1)) {
            let Some(pending) = self.pending.get_mut(index).filter(|pending| !pending.settled) else {
                continue;
            };
            pending.settled = true;
            settled += 1;
            let (batch, place) = (pending.batch, pending.place);
            self.answer(batch, place, taken);
        }
        while self.pending.front().is_some_and(|pending| pending.settled) {
            self.pending.pop_front();
            self.first_tag += 1;
        }
        if self.pending.is_empty() {
            // The remaining entries belong to batches that nobody waits for.
            self.returned.clear();
        }
        settled
    }

    /// Records one result. If nobody waits for the batch any longer, it is gone and the result is ignored.
    fn answer(&mut self, key: u64, place: usize, taken: bool) {
        let Some(batch) = self.batches.get_mut(&key) else { return };
        if !taken {
            let reason = "the broker rejected it (nack)".to_owned();
            batch.answers[place] = Confirm::Refused { reason };
        }
        let id = &batch.messages[place].id;
        if let Some(index) = self.returned.iter().position(|(returned, _)| returned == id) {
            let (_, reason) = self.returned.swap_remove(index);
            batch.answers[place] = Confirm::Refused { reason: format!("returned as unroutable: {reason}") };
        }
        batch.missing -= 1;
        if batch.missing == 0
            && let Some(batch) = self.batches.remove(&key)
        {
            batch.done.send(batch.answers).ok();
        }
    }
}

/// Waits for the confirms of one batch. If it is dropped, later confirms are ignored.
pub(super) struct Waiting {
    confirms: Arc<Confirms>,
    batch: u64,
    answered: oneshot::Receiver<Vec<Confirm>>,
}

impl Waiting {
    pub(super) fn batch(&self) -> u64 {
        self.batch
    }

    /// The results, or `None` if the channel ended first.
    pub(super) async fn answers(&mut self) -> Option<Vec<Confirm>> {
        (&mut self.answered).await.ok()
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.confirms.lock().batches.remove(&self.batch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACCEPTED: Confirm = Confirm::Accepted;

    fn batch(confirms: &Arc<Confirms>, ids: &[&str]) -> Waiting {
        let messages: Vec<_> = ids
            .iter()
            .map(|id| Message { id: (*id).to_owned(), body: (*b"{}").into(), stamp: None })
            .collect();
        let count = messages.len();
        let waiting = confirms.begin(Arc::new(messages), vec![ACCEPTED; count], count);
        (0..count).for_each(|place| confirms.sending(waiting.batch(), place));
        waiting
    }

    fn confirms() -> Arc<Confirms> {
        Arc::new(Confirms::new(Arc::new(Semaphore::new(0)), Arc::new(watch::Sender::new(None))))
    }

    fn returned(confirms: &Confirms, id: &str) {
        confirms.returned("NO_ROUTE".to_owned(), Incoming { id: id.to_owned(), ..Incoming::default() });
    }

    #[tokio::test]
    async fn batches_are_answered_in_whatever_order_confirms_come() {
        let confirms = confirms();
        let (mut one, mut other) = (batch(&confirms, &["a", "b"]), batch(&confirms, &["c"]));
        confirms.confirmed(3, false, true);
        assert_eq!(other.answers().await, Some(vec![ACCEPTED]));
        confirms.confirmed(2, false, false);
        confirms.confirmed(2, true, true);
        let refused = Confirm::Refused { reason: "the broker rejected it (nack)".to_owned() };
        assert_eq!(one.answers().await, Some(vec![ACCEPTED, refused]));
    }

    #[tokio::test]
    async fn a_returned_message_is_refused_and_no_other() {
        let confirms = confirms();
        let mut waiting = batch(&confirms, &["a", "b", "c"]);
        returned(&confirms, "b");
        confirms.confirmed(3, true, true);
        let answers = waiting.answers().await.expect("all are confirmed");
        assert_eq!((&answers[0], &answers[2]), (&ACCEPTED, &ACCEPTED));
        assert!(matches!(&answers[1], Confirm::Refused { reason } if reason.contains("NO_ROUTE")));
    }

    #[tokio::test]
    async fn confirms_of_a_batch_that_was_dropped_are_passed_over() {
        let confirms = confirms();
        drop(batch(&confirms, &["a", "b"]));
        let mut waiting = batch(&confirms, &["c"]);
        confirms.confirmed(1, false, true);
        confirms.confirmed(9, true, true);
        assert_eq!(waiting.answers().await, Some(vec![ACCEPTED]));
        confirms.confirmed(3, false, true);
        assert_eq!(confirms.window.available_permits(), 3, "each gave back once what it took");
    }

    #[tokio::test]
    async fn whoever_waits_hears_when_the_channel_ends() {
        let confirms = confirms();
        let mut waiting = batch(&confirms, &["a"]);
        confirms.ended(&Fault::broken("gone"));
        assert_eq!(waiting.answers().await, None);
        assert!(confirms.window.acquire().await.is_err());
    }
}
