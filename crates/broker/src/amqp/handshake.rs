//! The handshake of a connection: credentials, frame size, virtual host.

use std::fmt;
use std::time::Duration;

use tokio::io::{AsyncWrite, AsyncWriteExt};

use super::Fault;
use super::codec::{Table, Value};
use super::io::{Frames, MAX_FRAME_BYTES, METHOD, Wire, put_frame};
use super::method::{Request, ServerMethod};

const PROTOCOL_HEADER: &[u8] = b"AMQP\x00\x00\x09\x01";
/// A dead peer is noticed after twice this time.
const HEARTBEAT_SECS: u16 = 10;
/// Limits a single silence. The caller has a deadline for the whole connection attempt.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// AMQP requires every broker to accept frames of this size; each method fits.
const MIN_FRAME_BYTES: u32 = 4_096;
/// Each consumer takes one channel, so thousands are never needed.
const MAX_CHANNELS: u16 = 2_047;

/// What a client tells the broker about itself.
#[derive(Clone, Copy)]
pub(crate) struct Login<'a> {
    pub(crate) user: &'a str,
    pub(crate) password: &'a str,
    pub(crate) vhost: &'a str,
    /// The name of the connection in the broker's tools.
    pub(crate) name: &'a str,
}

impl fmt::Debug for Login<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Introduction")
            .field("user", &self.user)
            .field("vhost", &self.vhost)
            .finish_non_exhaustive()
    }
}

/// The result of the handshake.
pub(super) struct Negotiated {
    pub(super) frames: Frames,
    pub(super) write: Box<dyn AsyncWrite + Send + Unpin>,
    pub(super) channel_max: u16,
    pub(super) frame_max: u32,
    pub(super) heartbeat: Duration,
}

pub(super) async fn negotiate(wire: Wire, login: Login<'_>) -> Result<Negotiated, Fault> {
    let Wire { read, mut write } = wire;
    let mut frames = Frames::new(read, HANDSHAKE_TIMEOUT);
    write.write_all(PROTOCOL_HEADER).await.map_err(Fault::broken)?;
    // A greeting in another protocol may be shorter than a frame.
    if !frames.begins_with_method().await? {
        return Err(Fault::NotAmqp);
    }
    let ServerMethod::Start = next_method(&mut frames).await? else { return Err(Fault::NotAmqp) };
    let response = format!("\0{}\0{}", login.user, login.password);
    let properties = properties(login.name);
    let start = Request::StartOk { properties: &properties, response: response.as_bytes() };
    send(&mut write, start).await?;
    let ServerMethod::Tune { channel_max, frame_max, heartbeat_secs } = next_method(&mut frames).await?
    else {
        return Err(Fault::NotAmqp);
    };
    if (1..MIN_FRAME_BYTES).contains(&frame_max) {
        return Err(Fault::broken(format!(
            "it wants frames of at most {frame_max} bytes, where AMQP 0-9-1 allows no limit below {MIN_FRAME_BYTES}"
        )));
    }
    let (channel_max, frame_max) =
        (lower_limit(channel_max, MAX_CHANNELS), lower_limit(frame_max, MAX_FRAME_BYTES));
    let heartbeat_secs = lower_limit(heartbeat_secs, HEARTBEAT_SECS);
    send(&mut write, Request::TuneOk { channel_max, frame_max, heartbeat_secs }).await?;
    send(&mut write, Request::Open { vhost: login.vhost }).await?;
    let ServerMethod::OpenOk = next_method(&mut frames).await? else { return Err(Fault::NotAmqp) };
    let heartbeat = Duration::from_secs(heartbeat_secs.into());
    frames.set_read_timeout(heartbeat * 2);
    Ok(Negotiated { frames, write, channel_max, frame_max, heartbeat })
}

/// Client properties. `RabbitMQ` sends the reason of a refusal or a pause only to clients that announce support for it.
fn properties(name: &str) -> Table {
    let text = |text: &str| Value::Text(text.to_owned());
    let capabilities =
        ["authentication_failure_close", "connection.blocked", "consumer_cancel_notify", "basic.nack"]
            .map(|capability| (capability.to_owned(), Value::Flag(true)));
    Table::from([
        ("product".to_owned(), text("Campanile")),
        ("version".to_owned(), text(env!("CARGO_PKG_VERSION"))),
        ("connection_name".to_owned(), text(name)),
        ("capabilities".to_owned(), Value::Table(Table::from(capabilities))),
    ])
}

async fn send(write: &mut (impl AsyncWrite + Unpin), request: Request<'_>) -> Result<(), Fault> {
    let mut bytes = Vec::new();
    put_frame(&mut bytes, METHOD, 0, |out| request.put(out));
    write.write_all(&bytes).await.map_err(Fault::broken)?;
    write.flush().await.map_err(Fault::broken)
}

async fn next_method(frames: &mut Frames) -> Result<ServerMethod, Fault> {
    let frame = frames.next().await?;
    match ServerMethod::read(frame.payload) {
        Ok(ServerMethod::Close { code, text }) => Err(Fault::Refused { code, text }),
        Ok(received) if frame.kind == METHOD => Ok(received),
        _ => Err(Fault::NotAmqp),
    }
}

/// The lower of two limits. Zero means "no limit".
fn lower_limit<T: Ord + Default>(theirs: T, ours: T) -> T {
    if theirs == T::default() { ours } else { theirs.min(ours) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOGIN: Login<'_> = Login { user: "u", password: "p", vhost: "/", name: "n" };

    /// The frame size that is agreed with a broker that offers `frame_max`.
    async fn offered(frame_max: u32) -> Result<u32, Fault> {
        let mut said = Vec::new();
        put_frame(&mut said, METHOD, 0, |out| out.extend(*b"\0\x0a\0\x0a\0\x09\0\0\0\0\0\0\0\0\0\0\0\0"));
        put_frame(&mut said, METHOD, 0, |out| {
            out.extend(*b"\0\x0a\0\x1e\0\0");
            out.extend(frame_max.to_be_bytes());
            out.extend([0, 0]);
        });
        put_frame(&mut said, METHOD, 0, |out| out.extend(*b"\0\x0a\0\x29\0"));
        let (near, mut far) = tokio::io::duplex(64 * 1024);
        far.write_all(&said).await.map_err(Fault::broken)?;
        let (read, write) = tokio::io::split(near);
        negotiate(Wire::new(read, write), LOGIN).await.map(|agreed| agreed.frame_max)
    }

    #[tokio::test]
    async fn the_smaller_frames_are_agreed_on() {
        for (theirs, agreed) in [(0, MAX_FRAME_BYTES), (u32::MAX, MAX_FRAME_BYTES), (4_096, 4_096)] {
            assert_eq!(offered(theirs).await.expect("it is allowed"), agreed);
        }
    }

    #[tokio::test]
    async fn frames_into_which_nothing_fits_are_refused() {
        for theirs in [1, 7, 8, 4_095] {
            let fault = offered(theirs).await.expect_err("it is too small").to_string();
            assert!(fault.contains("4096"), "{fault}");
        }
    }
}
