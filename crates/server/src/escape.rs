//! Escapes text from others for terminals and logs. A control character may clear the screen or forge a line, and a
//! bidirectional override may reverse the text. Such characters are shown as in JSON: `\u001b`.

use std::borrow::Cow;
use std::fmt::{Debug, Write};
use std::io;

use serde_json::Value;
use tracing::field::Field;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::{Writer, debug_fn};

/// Fields that may contain line breaks. In all others a line break is shown as `\u000a`, so that nobody can forge a
/// line of a table.
const TEXTS_WITH_LINES: [&str; 8] =
    ["title", "body", "html", "url", "detail", "error", "last_error", "payload"];

/// Control characters, and characters that change the direction or the line of the following text.
fn is_harmful(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The text with harmful characters escaped, except those in `keep`.
pub fn escaped<'a>(text: &'a str, keep: &[char]) -> Cow<'a, str> {
    let escape = |c: &char| is_harmful(*c) && !keep.contains(c);
    if !text.chars().any(|c| escape(&c)) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if escape(&c) {
            // All harmful characters are in the BMP, so four digits are enough.
            let _ = write!(out, "\\u{:04x}", u32::from(c));
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

/// Escapes every text of a response for display.
pub fn for_people(answer: &mut Value) {
    match answer {
        Value::Object(fields) => {
            for (name, value) in fields.iter_mut() {
                match value {
                    Value::String(text) if TEXTS_WITH_LINES.contains(&name.as_str()) => {
                        *text = escaped(text, &['\n', '\t']).into_owned();
                    }
                    other => for_people(other),
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(for_people),
        Value::String(text) => *text = escaped(text, &[]).into_owned(),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Formats the fields of log lines for people. Each value is escaped before the line is coloured.
pub fn log_fields() -> impl for<'a> FormatFields<'a> + 'static {
    let field = |writer: &mut Writer<'_>, field: &Field, value: &dyn Debug| {
        let text = format!("{value:?}");
        match field.name() {
            "message" => write!(writer, "{}", escaped(&text, &[])),
            name => write!(writer, "{name}={}", escaped(&text, &[])),
        }
    };
    debug_fn(field).delimited(" ")
}

/// The destination of log lines. Each line is one write, so its end is its only line break.
#[derive(Debug)]
pub struct Lines<W> {
    pub out: W,
    /// Whether lines are coloured. Their own escape sequences are then kept; [`log_fields`] escapes all others.
    pub coloured: bool,
}

impl<W: io::Write> io::Write for Lines<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        let (text, end) = text.strip_suffix('\n').map_or((&*text, ""), |text| (text, "\n"));
        let keep: &[char] = if self.coloured { &['\u{1b}'] } else { &[] };
        self.out.write_all(format!("{}{end}", escaped(text, keep)).as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tracing_subscriber::fmt::MakeWriter;

    use super::*;

    const HARMFUL: &str = "a\u{1b}[2J\u{9b}31m\u{7f}\r\n\u{202e}b";

    #[test]
    fn only_what_is_harmful_is_escaped() {
        assert_eq!(escaped(HARMFUL, &[]), r"a\u001b[2J\u009b31m\u007f\u000d\u000a\u202eb");
        assert!(matches!(escaped("Übung 🔔 \"quoted\" \\ שלום", &[]), Cow::Borrowed(_)));
        let mut answer = json!({"event_id": "a\nb", "items": ["\u{9b}"], "error": "503\nbusy\u{1b}", "n": 1});
        for_people(&mut answer);
        let shown =
            json!({"event_id": "a\\u000ab", "items": ["\\u009b"], "error": "503\nbusy\\u001b", "n": 1});
        assert_eq!(answer, shown);
    }

    /// What a subscriber writes for an event with harmful fields and a harmful message.
    fn logged(coloured: bool, as_json: bool) -> String {
        #[derive(Clone, Default)]
        struct Kept(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);
        impl io::Write for Kept {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0.lock().unwrap().extend_from_slice(bytes);
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        impl<'a> MakeWriter<'a> for Kept {
            type Writer = Lines<Kept>;
            fn make_writer(&'a self) -> Lines<Kept> {
                Lines { out: self.clone(), coloured: false }
            }
        }
        let kept = Kept::default();
        let out = kept.clone();
        let logs = tracing_subscriber::fmt().with_ansi(false);
        let log = || {
            tracing::warn!(shown = %HARMFUL, debugged = ?HARMFUL, text = HARMFUL, "message {HARMFUL}");
        };
        if as_json {
            tracing::subscriber::with_default(logs.json().with_writer(kept).finish(), log);
        } else if coloured {
            let writer = move || Lines { out: kept.clone(), coloured };
            tracing::subscriber::with_default(
                logs.with_ansi(true).fmt_fields(log_fields()).with_writer(writer).finish(),
                log,
            );
        } else {
            tracing::subscriber::with_default(logs.fmt_fields(log_fields()).with_writer(kept).finish(), log);
        }
        let bytes = out.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_log_line_is_one_line_without_anything_harmful() {
        for as_json in [false, true] {
            let line = logged(false, as_json);
            let line = line.strip_suffix('\n').unwrap();
            assert!(!line.chars().any(is_harmful), "{line:?}");
            if as_json {
                let read: Value = serde_json::from_str(line).unwrap();
                assert_eq!(read["fields"]["shown"], HARMFUL);
            }
        }
        let coloured = logged(true, false);
        assert!(coloured.contains("\u{1b}[") && !coloured.contains("\u{1b}[2J"), "{coloured:?}");
        assert_eq!(coloured.lines().count(), 1, "{coloured:?}");
    }
}
