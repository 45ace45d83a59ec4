//! Frames over a byte stream, plain or encrypted.

use std::fmt;
use std::io::ErrorKind;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::time::timeout;

use super::Fault;
use super::codec::put_sized;

pub(super) const METHOD: u8 = 1;
pub(super) const HEADER: u8 = 2;
pub(super) const BODY: u8 = 3;
pub(super) const HEARTBEAT: u8 = 8;
const FRAME_END: u8 = 0xce;
/// Kind, channel and length, in front of the payload.
const HEAD_BYTES: usize = 7;
/// The bytes around a payload.
pub(super) const FRAME_OVERHEAD_BYTES: usize = HEAD_BYTES + 1;
/// The largest frame that this client agrees to.
pub(super) const MAX_FRAME_BYTES: u32 = 128 * 1024;
const READ_BYTES: usize = 64 * 1024;

/// Both directions of a stream.
pub(crate) struct Wire {
    pub(super) read: Box<dyn AsyncRead + Send + Unpin>,
    pub(super) write: Box<dyn AsyncWrite + Send + Unpin>,
}

impl Wire {
    pub(crate) fn new(
        read: impl AsyncRead + Send + Unpin + 'static,
        write: impl AsyncWrite + Send + Unpin + 'static,
    ) -> Self {
        Self { read: Box::new(read), write: Box::new(write) }
    }
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wire").finish_non_exhaustive()
    }
}

/// Writes a frame whose payload is what `fill` writes.
pub(super) fn put_frame(out: &mut Vec<u8>, kind: u8, channel: u16, fill: impl FnOnce(&mut Vec<u8>)) {
    out.push(kind);
    out.extend(channel.to_be_bytes());
    put_sized(out, fill);
    out.push(FRAME_END);
}

pub(super) struct Frame<'a> {
    pub(super) kind: u8,
    pub(super) channel: u16,
    pub(super) payload: &'a [u8],
}

/// Reads frames from a stream.
pub(super) struct Frames {
    read: Box<dyn AsyncRead + Send + Unpin>,
    buffer: Vec<u8>,
    /// Bytes before this position were returned already.
    start: usize,
    /// The longest silence of the other end.
    read_timeout: Duration,
}

impl Frames {
    pub(super) fn new(read: Box<dyn AsyncRead + Send + Unpin>, read_timeout: Duration) -> Self {
        Self { read, buffer: Vec::with_capacity(READ_BYTES), start: 0, read_timeout }
    }

    pub(super) fn set_read_timeout(&mut self, read_timeout: Duration) {
        self.read_timeout = read_timeout;
    }

    /// Waits for the first byte, and returns whether it may begin a method frame.
    pub(super) async fn begins_with_method(&mut self) -> Result<bool, Fault> {
        self.fill(1).await?;
        Ok(self.buffer[self.start] == METHOD)
    }

    pub(super) async fn next(&mut self) -> Result<Frame<'_>, Fault> {
        self.fill(HEAD_BYTES).await?;
        let head = &self.buffer[self.start..];
        let (kind, channel) = (head[0], u16::from_be_bytes([head[1], head[2]]));
        let length = u32::from_be_bytes([head[3], head[4], head[5], head[6]]);
        if length > MAX_FRAME_BYTES {
            return Err(Fault::NotAmqp);
        }
        let length = usize::try_from(length).map_err(Fault::broken)?;
        self.fill(length + FRAME_OVERHEAD_BYTES).await?;
        let payload = self.start + HEAD_BYTES..self.start + HEAD_BYTES + length;
        if self.buffer[payload.end] != FRAME_END {
            return Err(Fault::NotAmqp);
        }
        self.start = payload.end + 1;
        Ok(Frame { kind, channel, payload: &self.buffer[payload] })
    }

    /// Reads until this many bytes are buffered.
    async fn fill(&mut self, bytes: usize) -> Result<(), Fault> {
        if self.buffer.len() - self.start >= bytes {
            return Ok(());
        }
        self.buffer.drain(..self.start);
        self.start = 0;
        while self.buffer.len() < bytes {
            self.buffer.reserve(READ_BYTES);
            match timeout(self.read_timeout, self.read.read_buf(&mut self.buffer)).await {
                Ok(Ok(0)) => return Err(Fault::broken("the broker closed the connection")),
                Ok(Ok(_)) => {}
                Ok(Err(error)) if error.kind() == ErrorKind::Interrupted => {}
                Ok(Err(error)) => return Err(Fault::broken(error)),
                Err(_) => return Err(Fault::broken("no heartbeat from the broker")),
            }
        }
        Ok(())
    }
}
