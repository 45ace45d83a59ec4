//! Messages with their properties, published and received.

use super::codec::{Malformed, Reader, Table, Value, put_short_text, put_sized};
use crate::Stamp;

const BASIC_CLASS: u16 = 60;
const PERSISTENT: u8 = 2;

const CONTENT_TYPE: u16 = 1 << 15;
const CONTENT_ENCODING: u16 = 1 << 14;
const HEADERS: u16 = 1 << 13;
const DELIVERY_MODE: u16 = 1 << 12;
const PRIORITY: u16 = 1 << 11;
const CORRELATION_ID: u16 = 1 << 10;
const REPLY_TO: u16 = 1 << 9;
const EXPIRATION: u16 = 1 << 8;
const MESSAGE_ID: u16 = 1 << 7;

const PUBLISHED_BY: &str = "published_by";
const PUBLISHED_AT: &str = "published_at_ms";

/// A persistent JSON message to be published.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outgoing<'a> {
    pub(crate) id: &'a str,
    pub(crate) body: &'a [u8],
    pub(crate) stamp: Option<Stamp>,
}

impl Outgoing<'_> {
    pub(super) fn put_header(self, out: &mut Vec<u8>) {
        out.extend(BASIC_CLASS.to_be_bytes());
        out.extend([0, 0]);
        out.extend((self.body.len() as u64).to_be_bytes());
        let headers = if self.stamp.is_some() { HEADERS } else { 0 };
        out.extend((CONTENT_TYPE | headers | DELIVERY_MODE | MESSAGE_ID).to_be_bytes());
        put_short_text(out, "application/json");
        if let Some(stamp) = self.stamp {
            put_sized(out, |out| put_stamp(out, stamp));
        }
        out.push(PERSISTENT);
        put_short_text(out, self.id);
    }
}

/// Writes two headers, as signed integers of 32 and 64 bits.
fn put_stamp(out: &mut Vec<u8>, stamp: Stamp) {
    put_short_text(out, PUBLISHED_BY);
    out.push(b'I');
    out.extend(stamp.instance.to_be_bytes());
    put_short_text(out, PUBLISHED_AT);
    out.push(b'l');
    out.extend(stamp.at_ms.to_be_bytes());
}

/// A message that the broker delivers or returns.
#[derive(Debug, Default)]
pub(crate) struct Incoming {
    /// Empty if the publisher set no id.
    pub(crate) id: String,
    pub(crate) headers: Table,
    /// Cut off after [`MAX_KEPT_BODY_BYTES`](super::MAX_KEPT_BODY_BYTES).
    pub(crate) body: Vec<u8>,
}

impl Incoming {
    /// The publisher's stamp. `None` if one of the two headers is missing or is no number.
    pub(crate) fn stamp(&self) -> Option<Stamp> {
        match (self.headers.get(PUBLISHED_BY), self.headers.get(PUBLISHED_AT)) {
            (Some(Value::Number(instance)), Some(Value::Number(at_ms))) => {
                Some(Stamp { instance: i32::try_from(*instance).ok()?, at_ms: *at_ms })
            }
            _ => None,
        }
    }
}

/// The frame before a body: its length and its properties.
#[derive(Default)]
pub(super) struct Header {
    pub(super) body_bytes: u64,
    pub(super) id: String,
    pub(super) headers: Table,
}

impl Header {
    /// Reads a header. Unreadable properties are left out: they concern the receiver of this message and must not end
    /// the connection.
    pub(super) fn read(payload: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(payload);
        reader.u32()?;
        let body_bytes = reader.u64()?;
        let (id, headers) = properties(&mut reader).unwrap_or_default();
        Ok(Self { body_bytes, id, headers })
    }
}

/// Reads up to the message id; later properties are not used.
fn properties(reader: &mut Reader<'_>) -> Result<(String, Table), Malformed> {
    let flags = reader.u16()?;
    let has = |property| flags & property != 0;
    for property in [CONTENT_TYPE, CONTENT_ENCODING] {
        if has(property) {
            reader.short_text()?;
        }
    }
    let headers = if has(HEADERS) { reader.table()? } else { Table::new() };
    for property in [DELIVERY_MODE, PRIORITY] {
        if has(property) {
            reader.u8()?;
        }
    }
    for property in [CORRELATION_ID, REPLY_TO, EXPIRATION] {
        if has(property) {
            reader.short_text()?;
        }
    }
    let id = if has(MESSAGE_ID) { reader.short_text()? } else { String::new() };
    Ok((id, headers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_are_read_as_they_were_written() {
        let mut bytes = Vec::new();
        Outgoing { id: "message-1", body: b"{}", stamp: None }.put_header(&mut bytes);
        let header = Header::read(&bytes).expect("the header is whole");
        assert_eq!((header.body_bytes, header.id.as_str()), (2, "message-1"));
    }

    #[test]
    fn properties_that_cannot_be_read_leave_a_message_without_id() {
        let mut bytes = Vec::new();
        Outgoing { id: "message-1", body: b"{}", stamp: None }.put_header(&mut bytes);
        bytes.truncate(bytes.len() - 1);
        let header = Header::read(&bytes).expect("the length of the body is there");
        assert_eq!((header.body_bytes, header.id.as_str()), (2, ""));
    }

    #[test]
    fn a_stamp_is_read_as_it_was_written_and_what_is_none_is_left_out() {
        let written = Stamp { instance: 7, at_ms: 1_789_000_000_123 };
        let mut bytes = Vec::new();
        Outgoing { id: "message-1", body: b"{}", stamp: Some(written) }.put_header(&mut bytes);
        let header = Header::read(&bytes).expect("the header is whole");
        assert_eq!(header.id, "message-1");
        let mut incoming = Incoming { headers: header.headers, ..Incoming::default() };
        assert_eq!(incoming.stamp(), Some(written));
        incoming.headers.insert(PUBLISHED_BY.to_owned(), Value::Number(i64::MAX));
        assert_eq!(incoming.stamp(), None);
        incoming.headers.insert(PUBLISHED_BY.to_owned(), Value::Text("7".to_owned()));
        assert_eq!(incoming.stamp(), None);
        incoming.headers.remove(PUBLISHED_BY);
        assert_eq!(incoming.stamp(), None);
    }
}
