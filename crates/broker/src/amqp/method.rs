//! The AMQP methods that this client sends and receives, and no others.

use super::codec::{Malformed, Reader, Table, put_long_text, put_short_text, put_table};

/// A method from the client. It borrows its data, because it is written at once.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Request<'a> {
    StartOk {
        properties: &'a Table,
        response: &'a [u8],
    },
    TuneOk {
        channel_max: u16,
        frame_max: u32,
        heartbeat_secs: u16,
    },
    Open {
        vhost: &'a str,
    },
    Close,
    CloseOk,
    OpenChannel,
    CloseChannel,
    CloseChannelOk,
    FlowOk {
        active: bool,
    },
    /// Checks an exchange without creating it.
    CheckExchange {
        name: &'a str,
    },
    DeclareExchange {
        name: &'a str,
        kind: &'a str,
        arguments: &'a Table,
    },
    UnbindExchange {
        exchange: &'a str,
        from: &'a str,
        key: &'a str,
    },
    #[cfg(feature = "conformance")]
    DeleteExchange {
        name: &'a str,
    },
    /// Checks a queue without creating it.
    CheckQueue {
        name: &'a str,
    },
    DeclareQueue {
        name: &'a str,
        arguments: &'a Table,
    },
    BindQueue {
        queue: &'a str,
        exchange: &'a str,
        key: &'a str,
    },
    UnbindQueue {
        queue: &'a str,
        exchange: &'a str,
        key: &'a str,
    },
    #[cfg(feature = "conformance")]
    DeleteQueue {
        name: &'a str,
    },
    Qos {
        prefetch: u16,
    },
    Consume {
        queue: &'a str,
        arguments: &'a Table,
    },
    Publish {
        exchange: &'a str,
        key: &'a str,
    },
    Ack {
        tag: u64,
        multiple: bool,
    },
    Nack {
        tag: u64,
        multiple: bool,
    },
    Requeue {
        tag: u64,
    },
    ConfirmSelect,
}

const DURABLE: u8 = 0b10;
const PASSIVE: u8 = 0b1;
const MANDATORY: u8 = 0b1;
const REQUEUE: u8 = 0b1;
const REPLY_SUCCESS: u16 = 200;
/// `RabbitMQ` repeats the tag with each delivery and would generate one of 31 characters. Each consumer has a channel
/// of its own, so one character is enough. With a short prefix: `RabbitMQ` 59 → 53 µs per message (decision 0024).
const CONSUMER_TAG: &str = "c";

impl Request<'_> {
    pub(super) fn put(self, out: &mut Vec<u8>) {
        let (class, method) = self.id();
        out.extend(class.to_be_bytes());
        out.extend(method.to_be_bytes());
        match self {
            Self::StartOk { properties, response } => {
                put_table(out, properties);
                put_short_text(out, "PLAIN");
                put_long_text(out, response);
                put_short_text(out, "en_US");
            }
            Self::TuneOk { channel_max, frame_max, heartbeat_secs } => {
                out.extend(channel_max.to_be_bytes());
                out.extend(frame_max.to_be_bytes());
                out.extend(heartbeat_secs.to_be_bytes());
            }
            Self::Open { vhost } => {
                put_short_text(out, vhost);
                out.extend([0, 0]);
            }
            Self::Close | Self::CloseChannel => {
                out.extend(REPLY_SUCCESS.to_be_bytes());
                put_short_text(out, "goodbye");
                out.extend([0; 4]);
            }
            Self::CloseOk | Self::CloseChannelOk => {}
            Self::OpenChannel | Self::ConfirmSelect => out.push(0),
            Self::FlowOk { active } => out.push(u8::from(active)),
            Self::CheckExchange { name } => {
                put_names(out, &[name, "topic"]);
                out.push(PASSIVE);
                put_table(out, &Table::new());
            }
            Self::DeclareExchange { name, kind, arguments } => {
                put_names(out, &[name, kind]);
                out.push(DURABLE);
                put_table(out, arguments);
            }
            Self::UnbindExchange { exchange, from, key } => {
                put_names(out, &[exchange, from, key]);
                out.push(0);
                put_table(out, &Table::new());
            }
            #[cfg(feature = "conformance")]
            Self::DeleteExchange { name } | Self::DeleteQueue { name } => {
                put_names(out, &[name]);
                out.push(0);
            }
            Self::CheckQueue { name } => {
                put_names(out, &[name]);
                out.push(PASSIVE);
                put_table(out, &Table::new());
            }
            Self::DeclareQueue { name, arguments } => {
                put_names(out, &[name]);
                out.push(DURABLE);
                put_table(out, arguments);
            }
            Self::BindQueue { queue, exchange, key } => {
                put_names(out, &[queue, exchange, key]);
                out.push(0);
                put_table(out, &Table::new());
            }
            Self::UnbindQueue { queue, exchange, key } => {
                put_names(out, &[queue, exchange, key]);
                put_table(out, &Table::new());
            }
            Self::Qos { prefetch } => {
                out.extend(0_u32.to_be_bytes());
                out.extend(prefetch.to_be_bytes());
                out.push(0);
            }
            Self::Consume { queue, arguments } => {
                put_names(out, &[queue, CONSUMER_TAG]);
                out.push(0);
                put_table(out, arguments);
            }
            Self::Publish { exchange, key } => {
                put_names(out, &[exchange, key]);
                out.push(MANDATORY);
            }
            Self::Ack { tag, multiple } | Self::Nack { tag, multiple } => {
                out.extend(tag.to_be_bytes());
                out.push(u8::from(multiple));
            }
            Self::Requeue { tag } => {
                out.extend(tag.to_be_bytes());
                out.push(REQUEUE);
            }
        }
    }

    fn id(self) -> (u16, u16) {
        match self {
            Self::StartOk { .. } => (10, 11),
            Self::TuneOk { .. } => (10, 31),
            Self::Open { .. } => (10, 40),
            Self::Close => (10, 50),
            Self::CloseOk => (10, 51),
            Self::OpenChannel => (20, 10),
            Self::FlowOk { .. } => (20, 21),
            Self::CloseChannel => (20, 40),
            Self::CloseChannelOk => (20, 41),
            Self::CheckExchange { .. } | Self::DeclareExchange { .. } => (40, 10),
            Self::UnbindExchange { .. } => (40, 40),
            #[cfg(feature = "conformance")]
            Self::DeleteExchange { .. } => (40, 20),
            Self::CheckQueue { .. } | Self::DeclareQueue { .. } => (50, 10),
            Self::BindQueue { .. } => (50, 20),
            Self::UnbindQueue { .. } => (50, 50),
            #[cfg(feature = "conformance")]
            Self::DeleteQueue { .. } => (50, 40),
            Self::Qos { .. } => (60, 10),
            Self::Consume { .. } => (60, 20),
            Self::Publish { .. } => (60, 40),
            Self::Ack { .. } => (60, 80),
            Self::Requeue { .. } => (60, 90),
            Self::Nack { .. } => (60, 120),
            Self::ConfirmSelect => (85, 10),
        }
    }
}

/// Writes an obsolete field, then names.
fn put_names(out: &mut Vec<u8>, names: &[&str]) {
    out.extend([0, 0]);
    for name in names {
        put_short_text(out, name);
    }
}

/// A method from the broker.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ServerMethod {
    Start,
    Tune {
        channel_max: u16,
        frame_max: u32,
        heartbeat_secs: u16,
    },
    OpenOk,
    Close {
        code: u16,
        text: String,
    },
    CloseOk,
    Blocked {
        reason: String,
    },
    Unblocked,
    CloseChannel {
        code: u16,
        text: String,
    },
    CloseChannelOk,
    Flow {
        active: bool,
    },
    /// The answer to a request. `ready` is the number of messages for a queue, else zero.
    Answer {
        ready: u32,
    },
    /// A consumer's queue was deleted.
    Cancel,
    Deliver {
        tag: u64,
        redelivered: bool,
    },
    Return {
        code: u16,
        text: String,
    },
    Ack {
        tag: u64,
        multiple: bool,
    },
    Nack {
        tag: u64,
        multiple: bool,
    },
}

impl ServerMethod {
    pub(super) fn read(payload: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(payload);
        Ok(match (reader.u16()?, reader.u16()?) {
            (10, 10) => Self::Start,
            (10, 30) => Self::Tune {
                channel_max: reader.u16()?,
                frame_max: reader.u32()?,
                heartbeat_secs: reader.u16()?,
            },
            (10, 41) => Self::OpenOk,
            (10, 50) => Self::Close { code: reader.u16()?, text: reader.short_text()? },
            (10, 51) => Self::CloseOk,
            (10, 60) => Self::Blocked { reason: reader.short_text()? },
            (10, 61) => Self::Unblocked,
            (20, 20) => Self::Flow { active: reader.u8()? & 1 == 1 },
            (20, 40) => Self::CloseChannel { code: reader.u16()?, text: reader.short_text()? },
            (20, 41) => Self::CloseChannelOk,
            (50, 11) => {
                reader.short_text()?;
                Self::Answer { ready: reader.u32()? }
            }
            (20 | 40 | 60 | 85, 11) | (40 | 50 | 60, 21) | (50, 41) | (40 | 50, 51) => {
                Self::Answer { ready: 0 }
            }
            (60, 30) => Self::Cancel,
            (60, 50) => Self::Return { code: reader.u16()?, text: reader.short_text()? },
            (60, 60) => {
                reader.short_text()?;
                Self::Deliver { tag: reader.u64()?, redelivered: reader.u8()? & 1 == 1 }
            }
            (60, 80) => Self::Ack { tag: reader.u64()?, multiple: reader.u8()? & 1 == 1 },
            (60, 120) => Self::Nack { tag: reader.u64()?, multiple: reader.u8()? & 1 == 1 },
            _ => return Err(Malformed),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_said_is_read_or_refused() {
        for (class, method) in (0..100_u16).flat_map(|class| (0..130_u16).map(move |method| (class, method)))
        {
            for length in 0..24 {
                for byte in [0x00, 0x01, 0xff] {
                    let payload =
                        [&class.to_be_bytes()[..], &method.to_be_bytes(), &vec![byte; length]].concat();
                    ServerMethod::read(&payload).ok();
                }
            }
        }
        assert_eq!(ServerMethod::read(&[0, 60]), Err(Malformed));
        assert_eq!(ServerMethod::read(&[0, 99, 0, 99]), Err(Malformed));
    }

    #[test]
    fn a_reason_is_read_with_its_code() {
        let said = ServerMethod::read(b"\x00\x14\x00\x28\x01\x94\x09NOT_FOUND\x00\x32\x00\x0a");
        assert_eq!(said, Ok(ServerMethod::CloseChannel { code: 404, text: "NOT_FOUND".to_owned() }));
    }
}
