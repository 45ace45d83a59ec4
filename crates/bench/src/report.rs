//! The results: tables for people as they come, and JSON for programs at the end.

use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use comfy_table::{CellAlignment, Table};
use serde_json::{Map, Value, json};

#[derive(Debug, Default)]
pub struct Report {
    parts: Map<String, Value>,
}

impl Report {
    /// Prints a table, whose first column names the rows, and keeps it for the JSON.
    pub fn add(&mut self, name: &str, title: &str, columns: &[&str], rows: &[Vec<String>], kept: Value) {
        println!("\n{title}");
        let mut table = Table::new();
        table.load_style(UTF8_HORIZONTAL_ONLY).set_header(columns);
        for row in rows {
            table.add_row(row);
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        println!("{table}");
        self.parts.insert(name.to_owned(), kept);
    }

    /// Prints a note below a table.
    pub fn remark(text: &str) {
        println!("{text}");
    }

    pub fn json(self, about: &Value) -> Value {
        json!({ "about": about, "parts": self.parts })
    }
}

/// A rate with thousands separators.
pub fn per_second(rate: f64) -> String {
    grouped(&format!("{rate:.0}"))
}

pub fn count(rows: usize) -> String {
    grouped(&rows.to_string())
}

fn grouped(digits: &str) -> String {
    let grouped: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().filter_map(|group| std::str::from_utf8(group).ok()).collect();
    grouped.join(",")
}

pub fn percent(share: f64) -> String {
    format!("{:.0}%", share * 100.0)
}

pub fn number(value: f64) -> String {
    if value >= 100.0 { per_second(value) } else { format!("{value:.1}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_for_people() {
        assert_eq!(
            [per_second(7.4), per_second(1_234.0), per_second(1_234_567.0)],
            ["7", "1,234", "1,234,567"]
        );
        assert_eq!(count(1_000_000), "1,000,000");
        assert_eq!(percent(0.623), "62%");
        assert_eq!([number(3.25), number(1_234.5)], ["3.2", "1,234"]);
    }
}
