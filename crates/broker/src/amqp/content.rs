//! Messages with their properties: those that we publish, and those that arrive.

use super::codec::{Malformed, Reader, Table, put_short_text};

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

/// A persistent JSON message to be published.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outgoing<'a> {
    pub(crate) id: &'a str,
    pub(crate) body: &'a [u8],
}

impl Outgoing<'_> {
    pub(super) fn put_header(self, out: &mut Vec<u8>) {
        out.extend(BASIC_CLASS.to_be_bytes());
        out.extend([0, 0]);
        out.extend((self.body.len() as u64).to_be_bytes());
        out.extend((CONTENT_TYPE | DELIVERY_MODE | MESSAGE_ID).to_be_bytes());
        put_short_text(out, "application/json");
        out.push(PERSISTENT);
        put_short_text(out, self.id);
    }
}

/// A message that the broker delivers or returns.
#[derive(Debug, Default)]
pub(crate) struct Incoming {
    /// Empty when its publisher gave it none.
    pub(crate) id: String,
    pub(crate) headers: Table,
    /// Cut off after [`MAX_KEPT_BODY_BYTES`](super::MAX_KEPT_BODY_BYTES).
    pub(crate) body: Vec<u8>,
}

/// What stands before a body: how long it is, and what it is like.
#[derive(Default)]
pub(super) struct Header {
    pub(super) body_bytes: u64,
    pub(super) id: String,
    pub(super) headers: Table,
}

impl Header {
    /// Properties that cannot be read are left out: that is between the message and whoever receives it, and
    /// must not end the connection.
    pub(super) fn read(payload: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(payload);
        reader.u32()?;
        let body_bytes = reader.u64()?;
        let (id, headers) = properties(&mut reader).unwrap_or_default();
        Ok(Self { body_bytes, id, headers })
    }
}

/// Reads as far as the message id; what comes behind it concerns nobody here.
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
        Outgoing { id: "message-1", body: b"{}" }.put_header(&mut bytes);
        let header = Header::read(&bytes).expect("the header is whole");
        assert_eq!((header.body_bytes, header.id.as_str()), (2, "message-1"));
    }

    #[test]
    fn properties_that_cannot_be_read_leave_a_message_without_id() {
        let mut bytes = Vec::new();
        Outgoing { id: "message-1", body: b"{}" }.put_header(&mut bytes);
        bytes.truncate(bytes.len() - 1);
        let header = Header::read(&bytes).expect("the length of the body is there");
        assert_eq!((header.body_bytes, header.id.as_str()), (2, ""));
    }
}
