//! The wire format: numbers, texts and tables.
//!
//! Reading checks the end of the frame at every step. It fails with [`Malformed`] and never panics.

use std::collections::BTreeMap;
use std::fmt;

/// The deepest nesting of tables that is read; real tables are far flatter.
const MAX_DEPTH: usize = 16;

/// Arguments and headers: AMQP's field table.
pub(crate) type Table = BTreeMap<String, Value>;

/// A table's value, as far as this crate uses it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    Flag(bool),
    Number(i64),
    Text(String),
    List(Vec<Value>),
    Table(Table),
    /// A type that this crate does not use.
    Other,
}

/// Shown to people who compare the actual with the expected value.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => write!(f, "{flag}"),
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) => f.write_str(text),
            Self::List(_) | Self::Table(_) | Self::Other => write!(f, "{self:?}"),
        }
    }
}

/// The frame ends too early or contains something that AMQP does not define.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed;

pub(super) struct Reader<'a> {
    rest: &'a [u8],
    depth: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, depth: 0 }
    }

    pub(super) fn u8(&mut self) -> Result<u8, Malformed> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_be_bytes)
    }

    pub(super) fn short_text(&mut self) -> Result<String, Malformed> {
        let length = usize::from(self.u8()?);
        self.text(length)
    }

    pub(super) fn long_text(&mut self) -> Result<String, Malformed> {
        let length = self.length()?;
        self.text(length)
    }

    pub(super) fn table(&mut self) -> Result<Table, Malformed> {
        let mut inner = self.nested()?;
        let mut table = Table::new();
        while !inner.rest.is_empty() {
            let name = inner.short_text()?;
            table.insert(name, inner.value()?);
        }
        Ok(table)
    }

    /// The types as `RabbitMQ` uses them; they differ from those of the specification.
    fn value(&mut self) -> Result<Value, Malformed> {
        Ok(match self.u8()? {
            b't' => Value::Flag(self.u8()? != 0),
            b'b' => Value::Number(i64::from(self.array().map(i8::from_be_bytes)?)),
            b'B' => Value::Number(i64::from(self.u8()?)),
            b's' | b'U' => Value::Number(i64::from(self.array().map(i16::from_be_bytes)?)),
            b'u' => Value::Number(i64::from(self.u16()?)),
            b'I' => Value::Number(i64::from(self.array().map(i32::from_be_bytes)?)),
            b'i' => Value::Number(i64::from(self.u32()?)),
            b'l' | b'L' => Value::Number(self.array().map(i64::from_be_bytes)?),
            b'S' => Value::Text(self.long_text()?),
            b'A' => Value::List(self.list()?),
            b'F' => Value::Table(self.table()?),
            b'f' => self.skip(4)?,
            b'd' | b'T' => self.skip(8)?,
            b'D' => self.skip(5)?,
            b'x' => {
                let length = self.length()?;
                self.skip(length)?
            }
            b'V' => Value::Other,
            _ => return Err(Malformed),
        })
    }

    fn list(&mut self) -> Result<Vec<Value>, Malformed> {
        let mut inner = self.nested()?;
        let mut list = Vec::new();
        while !inner.rest.is_empty() {
            list.push(inner.value()?);
        }
        Ok(list)
    }

    fn nested(&mut self) -> Result<Reader<'a>, Malformed> {
        let length = self.length()?;
        let depth = self.depth + 1;
        if depth > MAX_DEPTH { Err(Malformed) } else { Ok(Reader { rest: self.bytes(length)?, depth }) }
    }

    fn length(&mut self) -> Result<usize, Malformed> {
        usize::try_from(self.u32()?).map_err(|_| Malformed)
    }

    fn text(&mut self, length: usize) -> Result<String, Malformed> {
        self.bytes(length).map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    }

    fn skip(&mut self, length: usize) -> Result<Value, Malformed> {
        self.bytes(length).map(|_| Value::Other)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (array, rest) = self.rest.split_first_chunk().ok_or(Malformed)?;
        self.rest = rest;
        Ok(*array)
    }

    fn bytes(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or(Malformed)?;
        self.rest = rest;
        Ok(bytes)
    }
}

/// Writes a short text. Names are checked where they are configured, so nothing is ever cut here.
pub(super) fn put_short_text(out: &mut Vec<u8>, text: &str) {
    let length = text.floor_char_boundary(super::MAX_SHORT_BYTES);
    out.push(u8::try_from(length).expect("a short text is cut to what a byte can count"));
    out.extend_from_slice(&text.as_bytes()[..length]);
}

pub(super) fn put_long_text(out: &mut Vec<u8>, text: &[u8]) {
    put_sized(out, |out| out.extend_from_slice(text));
}

pub(super) fn put_table(out: &mut Vec<u8>, table: &Table) {
    put_sized(out, |out| {
        for (name, value) in table {
            put_short_text(out, name);
            put_value(out, value);
        }
    });
}

fn put_value(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Flag(flag) => out.extend([b't', u8::from(*flag)]),
        Value::Number(number) => {
            out.push(b'l');
            out.extend(number.to_be_bytes());
        }
        Value::Text(text) => {
            out.push(b'S');
            put_long_text(out, text.as_bytes());
        }
        Value::List(list) => {
            out.push(b'A');
            put_sized(out, |out| list.iter().for_each(|value| put_value(out, value)));
        }
        Value::Table(table) => {
            out.push(b'F');
            put_table(out, table);
        }
        Value::Other => out.push(b'V'),
    }
}

/// Writes what `fill` writes, with its length in front.
pub(super) fn put_sized(out: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend([0; 4]);
    fill(out);
    let length = u32::try_from(out.len() - start - 4).expect("what we write is far below 4 GiB");
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_read_as_it_was_written() {
        let inner = Table::from([("queue".to_owned(), Value::Text("a".to_owned()))]);
        let table = Table::from([
            ("x-death".to_owned(), Value::List(vec![Value::Table(inner), Value::Number(-3)])),
            ("flag".to_owned(), Value::Flag(true)),
        ]);
        let mut bytes = Vec::new();
        put_table(&mut bytes, &table);
        assert_eq!(Reader::new(&bytes).table(), Ok(table));
    }

    #[test]
    fn what_ends_too_early_is_malformed_wherever_it_ends() {
        let table = Table::from([
            ("name".to_owned(), Value::Text("value".to_owned())),
            ("list".to_owned(), Value::List(vec![Value::Number(1), Value::Other])),
        ]);
        let mut bytes = Vec::new();
        put_table(&mut bytes, &table);
        for end in 0..bytes.len() {
            assert_eq!(Reader::new(&bytes[..end]).table(), Err(Malformed), "cut at {end}");
        }
    }

    #[test]
    fn text_that_is_not_utf_8_is_read_all_the_same() {
        let bytes = [0, 0, 0, 9, 1, 0xff, b'S', 0, 0, 0, 2, b'a', 0xfe];
        let table = Reader::new(&bytes).table().expect("the table is whole");
        assert_eq!(table, Table::from([("\u{fffd}".to_owned(), Value::Text("a\u{fffd}".to_owned()))]));
    }

    #[test]
    fn tables_that_nest_without_end_are_refused() {
        let mut value = Value::Number(1);
        for _ in 0..=MAX_DEPTH {
            value = Value::Table(Table::from([(String::new(), value)]));
        }
        let mut bytes = Vec::new();
        put_table(&mut bytes, &Table::from([(String::new(), value)]));
        assert_eq!(Reader::new(&bytes).table(), Err(Malformed));
    }
}
