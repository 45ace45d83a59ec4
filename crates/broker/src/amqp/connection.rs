//! A connection with two tasks: one reads and dispatches frames, the other writes what has gathered since its last
//! write.
//!
//! A connection that ends stays ended. Its channels and [`Connection::ended`] learn the reason.

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
use super::handshake::{Login, Negotiated, negotiate};
use super::io::{BODY, Frames, HEADER, HEARTBEAT, METHOD, Wire, put_frame};
use super::method::{Request, ServerMethod};
use super::{Fault, MAX_KEPT_BODY_BYTES, io};

/// With this many bytes unwritten, publishers have to wait.
const MAX_WAITING_BYTES: usize = 512 * 1024;

/// A connection. Dropping it closes it.
pub(crate) struct Connection {
    shared: Arc<Shared>,
    reader: JoinHandle<()>,
}

impl Connection {
    pub(crate) async fn open(wire: Wire, login: Login<'_>) -> Result<Self, Fault> {
        let Negotiated { frames, write, channel_max, frame_max, heartbeat } = negotiate(wire, login).await?;
        let shared = Arc::new(Shared {
            out: Mutex::default(),
            filled: Notify::new(),
            drained: Notify::new(),
            channels: Mutex::default(),
            channel_max,
            frame_max: usize::try_from(frame_max).map_err(Fault::broken)?,
            frames_received: AtomicU64::new(0),
            fault: watch::Sender::new(None),
            blocked: watch::Sender::new(None),
        });
        tokio::spawn(run_writer(Arc::clone(&shared), write, heartbeat / 2));
        let reader = tokio::spawn(run_reader(Arc::clone(&shared), frames));
        Ok(Self { shared, reader })
    }

    pub(crate) async fn channel(&self, listener: Arc<dyn Listener>) -> Result<Channel, Fault> {
        Channel::open(&self.shared, listener).await
    }

    /// Waits until the connection ends, and returns the reason.
    pub(crate) async fn ended(&self) -> Fault {
        let mut fault = self.shared.fault.subscribe();
        let ended = fault.wait_for(Option::is_some).await;
        ended
            .ok()
            .and_then(|fault| fault.clone())
            .unwrap_or_else(|| Fault::broken("the connection was dropped"))
    }

    /// Ends the connection, even if others still hold it.
    pub(crate) fn close(&self) {
        // A connection that has ended cannot send its goodbye.
        self.shared.send(0, Request::Close).ok();
        self.shared.fail(&Fault::broken("the connection was closed"));
    }

    /// Why the broker accepts no messages at present, for example a full disk.
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

/// The state that a connection shares with its channels and tasks.
pub(super) struct Shared {
    /// Bytes that are not written yet.
    out: Mutex<Vec<u8>>,
    filled: Notify,
    drained: Notify,
    channels: Mutex<BTreeMap<u16, Arc<Slot>>>,
    channel_max: u16,
    frame_max: usize,
    /// The number of received frames, heartbeats included.
    frames_received: AtomicU64,
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

    /// Queues bytes to be written soon, in the order of the calls.
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

    /// Waits until few enough bytes are unwritten, or the connection has ended.
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

    pub(super) fn frames_received(&self) -> u64 {
        self.frames_received.load(Ordering::Relaxed)
    }

    /// Ends the connection. Only the first reason is kept.
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

    fn send(&self, channel: u16, request: Request<'_>) -> Result<(), Fault> {
        self.put(|out| {
            put_frame(out, METHOD, channel, |out| request.put(out));
            Ok(())
        })
    }
}

/// Writes everything that has gathered, and a heartbeat when there is nothing else to write.
async fn run_writer(
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
        // Waits only briefly for the last bytes, since the other end may have stopped reading.
        let written = tokio::select! {
            written = written => written,
            () = shutdown_grace_period(ended) => break,
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

async fn shutdown_grace_period(mut fault: watch::Receiver<Option<Fault>>) {
    fault.wait_for(Option::is_some).await.ok();
    tokio::time::sleep(Duration::from_secs(1)).await;
}

async fn run_reader(shared: Arc<Shared>, mut frames: Frames) {
    let mut reader = Reader { shared: &shared, partial: HashMap::new() };
    let fault = loop {
        match frames.next().await {
            Ok(frame) => {
                shared.frames_received.fetch_add(1, Ordering::Relaxed);
                if let Err(fault) = reader.handle(&frame) {
                    break fault;
                }
            }
            Err(fault) => break fault,
        }
    };
    shared.fail(&fault);
}

/// Assembles messages from frames and dispatches what the broker sends.
struct Reader<'a> {
    shared: &'a Shared,
    partial: HashMap<u16, PartialMessage>,
}

/// A message that has arrived only in part.
struct PartialMessage {
    received: ServerMethod,
    /// Bytes of the body that have not arrived. Bytes that are not kept count, too.
    missing_bytes: usize,
    message: Incoming,
}

impl Reader<'_> {
    fn handle(&mut self, frame: &io::Frame<'_>) -> Result<(), Fault> {
        match frame.kind {
            METHOD => self.method(frame.channel, ServerMethod::read(frame.payload)?),
            HEADER => self.header(frame.channel, Header::read(frame.payload)?),
            BODY => self.body(frame.channel, frame.payload),
            HEARTBEAT => Ok(()),
            _ => Err(Malformed.into()),
        }
    }

    fn method(&mut self, channel: u16, received: ServerMethod) -> Result<(), Fault> {
        match received {
            ServerMethod::Close { code, text } => {
                self.shared.send(0, Request::CloseOk)?;
                return Err(Fault::Refused { code, text });
            }
            ServerMethod::Blocked { reason } => drop(self.shared.blocked.send_replace(Some(reason))),
            ServerMethod::Unblocked => drop(self.shared.blocked.send_replace(None)),
            ServerMethod::CloseChannel { code, text } => {
                self.partial.remove(&channel);
                return self.close_channel(channel, &Fault::Refused { code, text });
            }
            ServerMethod::CloseChannelOk => drop(self.shared.remove(channel)),
            ServerMethod::Flow { active } => self.shared.send(channel, Request::FlowOk { active })?,
            ServerMethod::Answer { ready } => {
                if let Some(slot) = self.shared.slot(channel) {
                    slot.answer(ready);
                }
            }
            ServerMethod::Deliver { .. } | ServerMethod::Return { .. } => {
                let message = Incoming::default();
                self.partial.insert(channel, PartialMessage { received, missing_bytes: 0, message });
            }
            ServerMethod::Cancel => {
                let gone = "its queue was deleted".to_owned();
                self.listener(channel, |listener| {
                    listener.ended(&Fault::Refused { code: super::NOT_FOUND, text: gone });
                });
            }
            ServerMethod::Ack { tag, multiple } => {
                self.listener(channel, |listener| listener.confirmed(tag, multiple, true));
            }
            ServerMethod::Nack { tag, multiple } => {
                self.listener(channel, |listener| listener.confirmed(tag, multiple, false));
            }
            ServerMethod::Start
            | ServerMethod::Tune { .. }
            | ServerMethod::OpenOk
            | ServerMethod::CloseOk => return Err(Malformed.into()),
        }
        Ok(())
    }

    /// Closes a channel at the broker's request. Once the answer is queued, nothing more may be sent on the channel.
    /// Its number is free only after the answer.
    fn close_channel(&self, channel: u16, fault: &Fault) -> Result<(), Fault> {
        let Some(slot) = self.shared.slot(channel) else { return Err(Malformed.into()) };
        self.shared.put(|out| {
            slot.refuse(fault);
            put_frame(out, METHOD, channel, |out| Request::CloseChannelOk.put(out));
            Ok(())
        })?;
        // If our side dropped the channel at the same time, the broker still has to answer that.
        if slot.listener().is_some() {
            self.shared.remove(channel);
        }
        slot.end(fault);
        Ok(())
    }

    fn header(&mut self, channel: u16, header: Header) -> Result<(), Fault> {
        let partial = self.partial.get_mut(&channel).ok_or(Malformed)?;
        partial.missing_bytes = usize::try_from(header.body_bytes).map_err(Fault::broken)?;
        let body = Vec::with_capacity(partial.missing_bytes.min(MAX_KEPT_BODY_BYTES));
        partial.message = Incoming { id: header.id, headers: header.headers, body };
        self.deliver_when_complete(channel);
        Ok(())
    }

    fn body(&mut self, channel: u16, part: &[u8]) -> Result<(), Fault> {
        let partial = self.partial.get_mut(&channel).ok_or(Malformed)?;
        partial.missing_bytes = partial.missing_bytes.checked_sub(part.len()).ok_or(Malformed)?;
        let space = MAX_KEPT_BODY_BYTES.saturating_sub(partial.message.body.len());
        partial.message.body.extend_from_slice(&part[..part.len().min(space)]);
        self.deliver_when_complete(channel);
        Ok(())
    }

    fn deliver_when_complete(&mut self, channel: u16) {
        if self.partial.get(&channel).is_none_or(|partial| partial.missing_bytes > 0) {
            return;
        }
        let Some(PartialMessage { received, message, .. }) = self.partial.remove(&channel) else { return };
        self.listener(channel, |listener| match received {
            ServerMethod::Deliver { tag, redelivered } => listener.delivered(tag, redelivered, message),
            ServerMethod::Return { code, text } => listener.returned(format!("{text} ({code})"), message),
            _ => {}
        });
    }

    fn listener(&self, channel: u16, notify: impl FnOnce(&dyn Listener)) {
        if let Some(slot) = self.shared.slot(channel)
            && let Some(listener) = slot.listener()
        {
            notify(listener);
        }
    }
}

impl From<Malformed> for Fault {
    fn from(_: Malformed) -> Self {
        Self::broken("the broker sent an invalid AMQP 0-9-1 frame")
    }
}

/// No change panics half-way, so the state behind a poisoned lock is consistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
