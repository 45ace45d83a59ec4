//! Standard output: the writer for all commands, the width of the screen, and text that fits it.
//!
//! `println!` panics when the reader has closed the pipe, as in `campanile tail | head`. The writer here ends the
//! command quietly instead.

use std::io::{ErrorKind, Write};

use anyhow::Context;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::escape::escaped;

/// The width when it is unknown: for pipes and files.
const DEFAULT_COLUMNS: usize = 80;
const MIN_COLUMNS: usize = 40;

/// The reader of standard output has closed it.
#[derive(Debug, Clone, Copy)]
pub struct ReaderGone;

impl std::fmt::Display for ReaderGone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("standard output was closed")
    }
}

impl std::error::Error for ReaderGone {}

/// Prints a line on standard output.
macro_rules! say {
    ($($text:tt)*) => { $crate::cli::output::write(&format!("{}\n", format_args!($($text)*))) };
}
pub(crate) use say;

/// Prints text. Control characters other than line breaks, tabs and colours are escaped. JSON escapes most of them
/// already, but not DEL and some others.
pub fn write(text: &str) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(escaped(text, &['\n', '\t', '\u{1b}']).as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(ReaderGone.into()),
        other => other.context("cannot write to standard output"),
    }
}

/// The width of the screen: `COLUMNS`, else the terminal's width, else 80.
pub fn columns() -> usize {
    let told = std::env::var("COLUMNS").ok().and_then(|text| text.trim().parse().ok()).filter(|&n| n > 0);
    let terminal = || comfy_table::Table::new().width().map(usize::from);
    told.or_else(terminal).unwrap_or(DEFAULT_COLUMNS).max(MIN_COLUMNS)
}

/// The width of a text on the screen. Chinese characters and most emoji take two columns.
pub fn width(text: &str) -> usize {
    text.width()
}

/// The text, padded with blanks to a width.
pub fn padded(text: &str, columns: usize) -> String {
    format!("{text}{:1$}", "", columns.saturating_sub(width(text)))
}

/// The text, cut with an ellipsis if it is too wide.
pub fn cut(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let (start, _) = split_at_width(text, columns.saturating_sub(1));
    format!("{start}…")
}

fn split_at_width(text: &str, columns: usize) -> (&str, &str) {
    let mut taken = 0;
    let end = text.char_indices().find(|(_, c)| {
        taken += c.width().unwrap_or_default();
        taken > columns
    });
    text.split_at(end.map_or(text.len(), |(end, _)| end))
}

/// The text in lines of at most `columns` columns, broken at blanks. The first line is indented by `first`, all others
/// by `rest`.
pub fn wrapped(text: &str, first: usize, rest: usize, columns: usize) -> String {
    let room = columns.saturating_sub(first.max(rest)).max(2);
    let words: Vec<&str> = text.split_whitespace().flat_map(|word| broken_if_wide(word, room)).collect();
    format!("{:first$}{}", "", fill(&words, " ", (first, rest), columns))
}

/// Splits a long word in a script with wide characters, which has no blanks between words. Other words, such as ids and
/// URLs, stay whole.
fn broken_if_wide(word: &str, columns: usize) -> Vec<&str> {
    if word.chars().all(|c| c.width() != Some(2)) {
        return vec![word];
    }
    let (mut pieces, mut rest) = (Vec::new(), word);
    while !rest.is_empty() {
        let (piece, behind) = split_at_width(rest, columns);
        pieces.push(piece);
        rest = behind;
    }
    pieces
}

/// Arranges pieces side by side, separated by `gap`, in lines of at most `columns` columns. A piece is never split.
pub fn fill(pieces: &[&str], gap: &str, (first, rest): (usize, usize), columns: usize) -> String {
    let mut out = String::new();
    let mut column = first;
    for (place, piece) in pieces.iter().enumerate() {
        let wide = width(piece);
        if place > 0 && column + gap.len() + wide > columns {
            out.push('\n');
            out.push_str(&" ".repeat(rest));
            column = rest;
        } else if place > 0 {
            out.push_str(gap);
            column += gap.len();
        }
        out.push_str(piece);
        column += wide;
    }
    out
}

/// Wraps the long lines of a list such as `--name  description`; they continue below the description.
pub fn hanging(text: &str, columns: usize) -> String {
    let broken = text.lines().map(|line| {
        if width(line) <= columns {
            return line.to_owned();
        }
        let words = line.trim_start();
        let first = line.len() - words.len();
        match words.find("  ") {
            None => wrapped(words, first, first, columns),
            Some(gap) => {
                let (name, what) = words.split_at(gap);
                let indent = first + gap + what.len() - what.trim_start().len();
                format!("{:first$}{name}{}", "", &wrapped(what, indent, indent, columns)[first + gap..])
            }
        }
    });
    broken.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_hangs_below_what_its_names_mean() {
        let text = "Usage\n  --a <B>  one two three\n  --c      four\nfive six seven eight nine";
        assert_eq!(
            hanging(text, 18),
            "Usage\n  --a <B>  one two\n           three\n  --c      four\nfive six seven\neight nine"
        );
    }

    #[test]
    fn widths_are_those_of_the_screen() {
        assert_eq!((width("Zoë"), width("予約"), width("🍣")), (3, 4, 2));
        assert_eq!((padded("予約", 6), padded("予約", 3)), ("予約  ".to_owned(), "予約".to_owned()));
        assert_eq!(
            (cut("予約済", 6), cut("予約済", 5), cut("予約済", 4)),
            ("予約済".into(), "予約…".into(), "予…".into())
        );
    }

    #[test]
    fn text_is_broken_at_blanks_and_words_never() {
        assert_eq!(wrapped("one two three four", 0, 2, 9), "one two\n  three\n  four");
        assert_eq!(wrapped("one two", 2, 4, 80), "  one two");
        assert_eq!(wrapped("incomprehensible ü", 0, 1, 5), "incomprehensible\n ü");
        assert_eq!(wrapped("予約が確認されました", 0, 2, 10), "予約が確\n  認されま\n  した");
        assert_eq!(fill(&["a b", "c d"], "  ", (0, 0), 8), "a b  c d");
        assert_eq!(fill(&["a b", "c d"], "  ", (0, 2), 7), "a b\n  c d");
    }
}
