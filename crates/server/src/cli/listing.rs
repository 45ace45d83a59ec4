//! Formats rows as a table if it fits the screen, else each row as a few lines, like `psql` with `\x auto`.

use std::fmt::Write;

use super::output::{cut, fill, padded, width, wrapped};

/// The narrowest last column of a table.
const MIN_NOTE_COLUMNS: usize = 30;
/// Longer notes are cut.
const MAX_NOTE_COLUMNS: usize = 400;

/// One row: its cells, a note such as an error, which gets the remaining width, and an optional line below.
#[derive(Debug, Default)]
pub struct Row {
    pub cells: Vec<String>,
    pub note: String,
    pub below: String,
}

/// The rows below their header, in lines of at most `columns` columns.
pub fn listing(header: &[&str], note: &str, rows: &[Row], columns: usize) -> String {
    let widths: Vec<usize> = (0..header.len())
        .map(|column| {
            let cells = rows.iter().map(|row| width(&row.cells[column]));
            cells.chain([width(header[column])]).max().unwrap_or_default()
        })
        .collect();
    let taken: usize = widths.iter().map(|width| width + 2).sum();
    let longest = rows.iter().map(|row| width(&row.note)).max().unwrap_or_default();
    let needed = longest.clamp(if longest == 0 { 0 } else { note.len() }, MIN_NOTE_COLUMNS);
    let out = if taken + needed <= columns + usize::from(longest == 0) * 2 {
        let room = columns.saturating_sub(taken);
        table(header, if longest == 0 { "" } else { note }, rows, &widths, (room, columns))
    } else {
        rows.iter().map(|row| block(header, row, columns)).collect()
    };
    if out.contains('…') {
        format!("{out}text ending in … is truncated; --json shows all of it\n")
    } else {
        out
    }
}

fn table(
    header: &[&str],
    note: &str,
    rows: &[Row],
    widths: &[usize],
    (room, columns): (usize, usize),
) -> String {
    let line = |cells: &mut dyn Iterator<Item = &str>, note: &str| {
        let cells: Vec<String> = cells.zip(widths).map(|(cell, width)| padded(cell, *width)).collect();
        format!("{}\n", format!("{}  {note}", cells.join("  ")).trim_end())
    };
    let mut out = line(&mut header.iter().copied(), note);
    for row in rows {
        out += &line(&mut row.cells.iter().map(String::as_str), &cut(&row.note, room));
        out += &below(row, columns);
    }
    out
}

fn below(row: &Row, columns: usize) -> String {
    if row.below.is_empty() { String::new() } else { format!("{}\n", wrapped(&row.below, 2, 2, columns)) }
}

/// A row as lines: the non-empty cells with their names, and the note below.
fn block(header: &[&str], row: &Row, columns: usize) -> String {
    let named = header.iter().zip(&row.cells).filter(|(_, cell)| *cell != "-");
    let pieces: Vec<String> = named.map(|(name, cell)| format!("{name} {cell}")).collect();
    let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
    let mut out = format!("{}\n", fill(&pieces, "  ", (0, 2), columns));
    out += &below(row, columns);
    if !row.note.is_empty() {
        let _ = writeln!(out, "{}", wrapped(&cut(&row.note, MAX_NOTE_COLUMNS), 2, 2, columns));
    }
    out
}

/// The text, or a dash if it is empty.
pub fn or_dash(text: &str) -> String {
    if text.is_empty() { "-".to_owned() } else { text.to_owned() }
}

/// The text with control characters replaced by blanks.
pub fn one_line(text: &str) -> String {
    text.split(|c: char| c.is_control()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: [&str; 3] = ["ID", "STATUS", "EVENT"];

    fn row(id: &str, event: &str, note: &str) -> Row {
        Row { cells: [id, "SENT", event].map(or_dash).to_vec(), note: note.to_owned(), ..Row::default() }
    }

    #[test]
    fn rows_that_fit_are_a_table_whose_last_column_is_cut() {
        let rows = [row("1", "evt-1", &"ü".repeat(60)), row("2", "", "busy")];
        let shown = listing(&HEADER, "ERROR", &rows, 60);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines[0], "ID  STATUS  EVENT  ERROR");
        assert!(lines[1].starts_with("1   SENT    evt-1  üü") && lines[1].ends_with("ü…"), "{shown}");
        assert_eq!(lines[1].chars().count(), 60);
        assert_eq!(lines[2], "2   SENT    -      busy");
        assert_eq!(lines[3], "text ending in … is truncated; --json shows all of it");
        assert!(!listing(&HEADER, "ERROR", &rows, 100).contains('…'));
    }

    #[test]
    fn rows_that_do_not_fit_are_shown_field_by_field() {
        let rows = [row("0197-long-long-long-id", "", "the server hung up"), row("2", "evt-1", "")];
        assert_eq!(
            listing(&HEADER, "ERROR", &rows, 40),
            "ID 0197-long-long-long-id  STATUS SENT\n  the server hung up\nID 2  STATUS SENT  EVENT evt-1\n"
        );
    }

    #[test]
    fn a_line_below_belongs_to_its_row() {
        let with_below = || Row { below: "MESSAGE-ID a@b".to_owned(), ..row("1", "e", "busy") };
        let shown = listing(&HEADER, "ERROR", &[with_below(), row("2", "e", "")], 80);
        assert_eq!(
            shown,
            "ID  STATUS  EVENT  ERROR\n1   SENT    e      busy\n  MESSAGE-ID a@b\n2   SENT    e\n"
        );
        let shown = listing(&HEADER, "ERROR", &[with_below()], 20);
        assert_eq!(shown, "ID 1  STATUS SENT\n  EVENT e\n  MESSAGE-ID a@b\n  busy\n");
    }

    #[test]
    fn without_a_note_there_is_no_column_for_it() {
        assert_eq!(listing(&HEADER, "ERROR", &[row("1", "e", "")], 80), "ID  STATUS  EVENT\n1   SENT    e\n");
    }
}
