//! A connection: one task reads and hands out what it hears, another writes what has gathered since it last
//! wrote.
//!
//! Whatever ends it, ends it for good: its channels hear why, and so does [`Connection::ended`].

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::fmt;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::channel::{Channel, Listener, Slot};
use super::codec::Malformed;
use super::content::{Header, Incoming};
use super::handshake::{Agreed, Introduction, agree};
use super::io::{BODY, Frames, HEADER, HEARTBEAT, METHOD, Wire, put_frame};
use super::method::{Request, Said};
use super::{Fault, MAX_KEPT_BODY_BYTES, io};

/// How much may wait to be written before publishers have to wait.
const MAX_WAITING_BYTES: usize = 512 * 1024;

/// Dropping it closes it.
pub(crate) struct Connection {
    shared: Arc<Shared>,
    reader: JoinHandle<()>,
}

impl Connection {
    pub(crate) async fn open(wire: Wire, introduction: Introduction<'_>) -> Result<Self, Fault> {
        let Agreed { frames, write, channel_max, frame_max, heartbeat } = agree(wire, introduction).await?;
        let shared = Arc::new(Shared {
            out: Mutex::default(),
            filled: Notify::new(),
            drained: Notify::new(),
            channels: Mutex::default(),
            channel_max,
            frame_max: usize::try_from(frame_max).map_err(Fault::broken)?,
            heard: AtomicU64::new(0),
            fault: watch::Sender::new(None),
            blocked: watch::Sender::new(None),
        });
        tokio::spawn(write_until_it_ends(Arc::clone(&shared), write, heartbeat / 2));
        let reader = tokio::spawn(read_until_it_ends(Arc::clone(&shared), frames));
        Ok(Self { shared, reader })
    }

    pub(crate) async fn channel(&self, listener: Arc<dyn Listener>) -> Result<Channel, Fault> {
        Channel::open(&self.shared, listener).await
    }

    /// Waits until it ends, and says why.
    pub(crate) async fn ended(&self) -> Fault {
        let mut fault = self.shared.fault.subscribe();
        let ended = fault.wait_for(Option::is_some).await;
        ended
            .ok()
            .and_then(|fault| fault.clone())
            .unwrap_or_else(|| Fault::broken("the connection was dropped"))
    }

    /// Ends it, whoever else still has it.
    pub(crate) fn close(&self) {
        // On a connection that has ended there is nobody to take leave of.
        self.shared.say(0, Request::Close).ok();
        self.shared.fail(&Fault::broken("the connection was closed"));
    }

    /// Why the broker takes no messages at present, such as a disk that is full.
    pub(crate) fn blocked(&self) -> Option<String> {
        self.shared.blocked.borrow().clone()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.close();
        self.reader.abort();
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("fault", &*self.shared.fault.borrow()).finish_non_exhaustive()
    }
}

/// What the connection, its channels and its two tasks have in common.
pub(super) struct Shared {
    /// What is still to be written.
    out: Mutex<Vec<u8>>,
    filled: Notify,
    drained: Notify,
    channels: Mutex<BTreeMap<u16, Arc<Slot>>>,
    channel_max: u16,
    frame_max: usize,
    /// How many frames have come, heartbeats too.
    heard: AtomicU64,
    fault: watch::Sender<Option<Fault>>,
    blocked: watch::Sender<Option<String>>,
}

impl Shared {
    pub(super) fn add(&self, slot: &Arc<Slot>) -> Result<u16, Fault> {
        let mut channels = lock(&self.channels);
        let free = (1..=self.channel_max).find(|id| !channels.contains_key(id));
        let id = free.ok_or_else(|| Fault::broken("the connection has no free channel"))?;
        channels.insert(id, Arc::clone(slot));
        Ok(id)
    }

    /// Has something written soon, in the order of the calls.
    pub(super) fn put(&self, fill: impl FnOnce(&mut Vec<u8>) -> Result<(), Fault>) -> Result<(), Fault> {
        let mut out = lock(&self.out);
        if let Some(fault) = &*self.fault.borrow() {
            return Err(fault.clone());
        }
        fill(&mut out)?;
        drop(out);
        self.filled.notify_one();
        Ok(())
    }

    /// Waits until little enough is waiting to be written, or until it no longer matters.
    pub(super) async fn writable(&self) {
        loop {
            let drained = self.drained.notified();
            if Self::is_writable(&lock(&self.out)) || self.fault.borrow().is_some() {
                return;
            }
            drained.await;
        }
    }

    pub(super) fn is_writable(out: &[u8]) -> bool {
        out.len() < MAX_WAITING_BYTES
    }

    pub(super) fn frame_max(&self) -> usize {
        self.frame_max
    }

    pub(super) fn heard(&self) -> u64 {
        self.heard.load(Ordering::Relaxed)
    }

    /// Ends the connection; only the first reason counts.
    pub(super) fn fail(&self, fault: &Fault) {
        let first = self.fault.send_if_modified(|known| {
            let first = known.is_none();
            known.get_or_insert_with(|| fault.clone());
            first
        });
        if !first {
            return;
        }
        for slot in mem::take(&mut *lock(&self.channels)).into_values() {
            slot.end(fault);
        }
        self.filled.notify_one();
        self.drained.notify_waiters();
    }

    fn slot(&self, channel: u16) -> Option<Arc<Slot>> {
        lock(&self.channels).get(&channel).cloned()
    }

    fn remove(&self, channel: u16) -> Option<Arc<Slot>> {
        lock(&self.channels).remove(&channel)
    }

    fn say(&self, channel: u16, request: Request<'_>) -> Result<(), Fault> {
        self.put(|out| {
            put_frame(out, METHOD, channel, |out| request.put(out));
            Ok(())
        })
    }
}

/// Writes all that gathered at once, and a heartbeat when there is nothing else to say.
async fn write_until_it_ends(
    shared: Arc<Shared>,
    mut write: Box<dyn AsyncWrite + Send + Unpin>,
    heartbeat_every: Duration,
) {
    let mut batch = Vec::new();
    loop {
        mem::swap(&mut *lock(&shared.out), &mut batch);
        if batch.is_empty() {
            if shared.fault.borrow().is_some() {
                break;
            }
            if timeout(heartbeat_every, shared.filled.notified()).await.is_ok() {
                continue;
            }
            put_frame(&mut batch, HEARTBEAT, 0, |_| {});
        }
        let ended = shared.fault.subscribe();
        let written = async {
            write.write_all(&batch).await?;
            write.flush().await
        };
        // The last words are given a moment, and no more: the other end may not be reading any longer.
        let written = tokio::select! {
            written = written => written,
            () = long_after_the_end(ended) => break,
        };
        if let Err(error) = written {
            shared.fail(&Fault::broken(error));
            break;
        }
        batch.clear();
        shared.drained.notify_waiters();
    }
    write.shutdown().await.ok();
}

async fn long_after_the_end(mut fault: watch::Receiver<Option<Fault>>) {
    fault.wait_for(Option::is_some).await.ok();
    tokio::time::sleep(Duration::from_secs(1)).await;
}

async fn read_until_it_ends(shared: Arc<Shared>, mut frames: Frames) {
    let mut reader = Reader { shared: &shared, half_read: HashMap::new() };
    let fault = loop {
        match frames.next().await {
            Ok(frame) => {
                shared.heard.fetch_add(1, Ordering::Relaxed);
                if let Err(fault) = reader.hear(&frame) {
                    break fault;
                }
            }
            Err(fault) => break fault,
        }
    };
    shared.fail(&fault);
}

/// Puts messages together, and hands out what it hears.
struct Reader<'a> {
    shared: &'a Shared,
    half_read: HashMap<u16, HalfRead>,
}

/// A message of which not all has arrived.
struct HalfRead {
    said: Said,
    /// Of the body as it was published, whether or not they are kept.
    missing_bytes: usize,
    message: Incoming,
}

impl Reader<'_> {
    fn hear(&mut self, frame: &io::Frame<'_>) -> Result<(), Fault> {
        match frame.kind {
            METHOD => self.method(frame.channel, Said::read(frame.payload)?),
            HEADER => self.header(frame.channel, Header::read(frame.payload)?),
            BODY => self.body(frame.channel, frame.payload),
            HEARTBEAT => Ok(()),
            _ => Err(Malformed.into()),
        }
    }

    fn method(&mut self, channel: u16, said: Said) -> Result<(), Fault> {
        match said {
            Said::Close { code, text } => {
                self.shared.say(0, Request::CloseOk)?;
                return Err(Fault::Refused { code, text });
            }
            Said::Blocked { reason } => drop(self.shared.blocked.send_replace(Some(reason))),
            Said::Unblocked => drop(self.shared.blocked.send_replace(None)),
            Said::CloseChannel { code, text } => {
                self.half_read.remove(&channel);
                return self.close_channel(channel, &Fault::Refused { code, text });
            }
            Said::CloseChannelOk => drop(self.shared.remove(channel)),
            Said::Flow { active } => self.shared.say(channel, Request::FlowOk { active })?,
            Said::Answer { ready } => {
                if let Some(slot) = self.shared.slot(channel) {
                    slot.answer(ready);
                }
            }
            Said::Deliver { .. } | Said::Return { .. } => {
                let message = Incoming::default();
                self.half_read.insert(channel, HalfRead { said, missing_bytes: 0, message });
            }
            Said::Cancel => {
                let gone = "its queue was deleted".to_owned();
                self.listener(channel, |listener| {
                    listener.ended(&Fault::Refused { code: super::NOT_FOUND, text: gone });
                });
            }
            Said::Ack { tag, multiple } => {
                self.listener(channel, |listener| listener.confirmed(tag, multiple, true));
            }
            Said::Nack { tag, multiple } => {
                self.listener(channel, |listener| listener.confirmed(tag, multiple, false));
            }
            Said::Start | Said::Tune { .. } | Said::OpenOk | Said::CloseOk => return Err(Malformed.into()),
        }
        Ok(())
    }

    /// From the moment at which the answer stands in line, nothing more may be said on the channel, and its
    /// number is free only behind the answer.
    fn close_channel(&self, channel: u16, fault: &Fault) -> Result<(), Fault> {
        let Some(slot) = self.shared.slot(channel) else { return Err(Malformed.into()) };
        self.shared.put(|out| {
            slot.refuse(fault);
            put_frame(out, METHOD, channel, |out| Request::CloseChannelOk.put(out));
            Ok(())
        })?;
        // One that was dropped on our side at the same time is still owed an answer to that.
        if slot.listener().is_some() {
            self.shared.remove(channel);
        }
        slot.end(fault);
        Ok(())
    }

    fn header(&mut self, channel: u16, header: Header) -> Result<(), Fault> {
        let half_read = self.half_read.get_mut(&channel).ok_or(Malformed)?;
        half_read.missing_bytes = usize::try_from(header.body_bytes).map_err(Fault::broken)?;
        let body = Vec::with_capacity(half_read.missing_bytes.min(MAX_KEPT_BODY_BYTES));
        half_read.message = Incoming { id: header.id, headers: header.headers, body };
        self.hand_out_when_whole(channel);
        Ok(())
    }

    fn body(&mut self, channel: u16, part: &[u8]) -> Result<(), Fault> {
        let half_read = self.half_read.get_mut(&channel).ok_or(Malformed)?;
        half_read.missing_bytes = half_read.missing_bytes.checked_sub(part.len()).ok_or(Malformed)?;
        let space = MAX_KEPT_BODY_BYTES.saturating_sub(half_read.message.body.len());
        half_read.message.body.extend_from_slice(&part[..part.len().min(space)]);
        self.hand_out_when_whole(channel);
        Ok(())
    }

    fn hand_out_when_whole(&mut self, channel: u16) {
        if self.half_read.get(&channel).is_none_or(|half_read| half_read.missing_bytes > 0) {
            return;
        }
        let Some(HalfRead { said, message, .. }) = self.half_read.remove(&channel) else { return };
        self.listener(channel, |listener| match said {
            Said::Deliver { tag, redelivered } => listener.delivered(tag, redelivered, message),
            Said::Return { code, text } => listener.returned(format!("{text} ({code})"), message),
            _ => {}
        });
    }

    fn listener(&self, channel: u16, tell: impl FnOnce(&dyn Listener)) {
        if let Some(slot) = self.shared.slot(channel)
            && let Some(listener) = slot.listener()
        {
            tell(listener);
        }
    }
}

impl From<Malformed> for Fault {
    fn from(_: Malformed) -> Self {
        Self::broken("the broker sent an invalid AMQP 0-9-1 frame")
    }
}

/// Nothing panics half-way through a change, so what a poisoned lock guards is whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
