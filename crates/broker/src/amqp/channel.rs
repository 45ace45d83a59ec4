//! One AMQP channel: requests that are answered in order, and what the broker sends unasked.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

use super::connection::Shared;
use super::content::{Incoming, Outgoing};
use super::io::{BODY, FRAME_OVERHEAD_BYTES, HEADER, METHOD, put_frame};
use super::{Fault, Request};

/// A broker that sends nothing for this long, not even a heartbeat, counts as gone. If frames arrive but a request gets
/// no answer, the trouble concerns only what the request is about.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);

/// Receives what the broker sends unasked. It is called by the reader of the connection, so it must return quickly.
pub(crate) trait Listener: Send + Sync {
    fn delivered(&self, _tag: u64, _redelivered: bool, _message: Incoming) {}

    /// No queue took this message. Its confirm comes later.
    fn returned(&self, _reason: String, _message: Incoming) {}

    /// These messages were accepted or rejected.
    fn confirmed(&self, _tag: u64, _multiple: bool, _taken: bool) {}

    /// Nothing more comes, because the channel ended or its queue was deleted.
    fn ended(&self, _fault: &Fault) {}
}

/// For channels that are used only for requests.
impl Listener for () {}

/// A channel. Dropping it closes it, and the broker gives what it held to other consumers.
pub(crate) struct Channel {
    id: u16,
    slot: Arc<Slot>,
    shared: Arc<Shared>,
}

impl Channel {
    pub(super) async fn open(shared: &Arc<Shared>, listener: Arc<dyn Listener>) -> Result<Self, Fault> {
        let slot = Arc::new(Slot { listener, is_closing: AtomicBool::new(false), answers: Mutex::default() });
        let id = shared.add(&slot)?;
        let channel = Self { id, slot, shared: Arc::clone(shared) };
        channel.ask(Request::OpenChannel).await?;
        Ok(channel)
    }

    /// Sends a request and waits for the answer: the number of ready messages for a queue, else zero.
    ///
    /// If the call is dropped, its answer is discarded and later answers keep their order.
    pub(crate) async fn ask(&self, request: Request<'_>) -> Result<u32, Fault> {
        let (answer, answered) = oneshot::channel();
        let frames_received = self.shared.frames_received();
        self.shared.put(|out| {
            self.slot.expect(answer)?;
            put_frame(out, METHOD, self.id, |out| request.put(out));
            Ok(())
        })?;
        match timeout(ANSWER_TIMEOUT, answered).await {
            Ok(answer) => answer.map_err(|_| Fault::broken("the connection was dropped"))?,
            Err(_) if self.shared.frames_received() > frames_received => Err(Fault::Silent),
            Err(_) => {
                let fault = Fault::broken("the broker does not answer");
                self.shared.fail(&fault);
                Err(fault)
            }
        }
    }

    /// Sends a request that has no answer.
    pub(crate) fn send(&self, request: Request<'_>) -> Result<(), Fault> {
        self.shared.put(|out| {
            self.slot.check()?;
            put_frame(out, METHOD, self.id, |out| request.put(out));
            Ok(())
        })
    }

    /// Publishes messages in order, as fast as the connection accepts them. `sending` is called with the index of each
    /// message before the broker can see it.
    pub(crate) async fn publish(
        &self,
        exchange: &str,
        key: &str,
        messages: &[Outgoing<'_>],
        mut sending: impl FnMut(usize),
    ) -> Result<(), Fault> {
        let mut indexes = 0..messages.len();
        while !indexes.is_empty() {
            self.shared.writable().await;
            self.shared.put(|out| {
                self.slot.check()?;
                while Shared::is_writable(out)
                    && let Some(index) = indexes.next()
                {
                    sending(index);
                    self.put_message(out, exchange, key, messages[index]);
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    fn put_message(&self, out: &mut Vec<u8>, exchange: &str, key: &str, message: Outgoing<'_>) {
        put_frame(out, METHOD, self.id, |out| Request::Publish { exchange, key }.put(out));
        put_frame(out, HEADER, self.id, |out| message.put_header(out));
        for part in message.body.chunks(self.shared.frame_max() - FRAME_OVERHEAD_BYTES) {
            put_frame(out, BODY, self.id, |out| out.extend_from_slice(part));
        }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        let closed = self.shared.put(|out| {
            self.slot.check()?;
            self.slot.is_closing.store(true, Ordering::Release);
            put_frame(out, METHOD, self.id, |out| Request::CloseChannel.put(out));
            Ok(())
        });
        // If the channel has ended, nothing is left to close.
        closed.ok();
    }
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel").field("id", &self.id).finish_non_exhaustive()
    }
}

/// A channel as the connection's reader sees it.
pub(super) struct Slot {
    listener: Arc<dyn Listener>,
    /// Set once the channel was dropped, until the broker confirms that it is closed.
    is_closing: AtomicBool,
    answers: Mutex<Answers>,
}

type Answer = oneshot::Sender<Result<u32, Fault>>;

#[derive(Default)]
struct Answers {
    expected: VecDeque<Answer>,
    fault: Option<Fault>,
}

impl Slot {
    /// The listener, unless the channel is being closed.
    pub(super) fn listener(&self) -> Option<&dyn Listener> {
        (!self.is_closing.load(Ordering::Acquire)).then_some(&*self.listener)
    }

    pub(super) fn answer(&self, ready: u32) {
        if let Some(answer) = self.lock().expected.pop_front() {
            // The caller may have gone.
            answer.send(Ok(ready)).ok();
        }
    }

    /// Refuses all further requests.
    pub(super) fn refuse(&self, fault: &Fault) {
        self.lock().fault.get_or_insert_with(|| fault.clone());
    }

    pub(super) fn end(&self, fault: &Fault) {
        self.refuse(fault);
        let expected = std::mem::take(&mut self.lock().expected);
        for answer in expected {
            answer.send(Err(fault.clone())).ok();
        }
        if let Some(listener) = self.listener() {
            listener.ended(fault);
        }
    }

    fn expect(&self, answer: Answer) -> Result<(), Fault> {
        let mut answers = self.lock();
        if let Some(fault) = &answers.fault {
            return Err(fault.clone());
        }
        answers.expected.push_back(answer);
        Ok(())
    }

    fn check(&self) -> Result<(), Fault> {
        self.lock().fault.clone().map_or(Ok(()), Err)
    }

    /// No change panics half-way, so the state behind a poisoned lock is consistent.
    fn lock(&self) -> MutexGuard<'_, Answers> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
