//! Lines are short enough to be read side by side.
//!
//! Rust, SQL, TOML and the prose of documents. Rows of tables can't be broken, neither in documents nor in comments;
//! blocks of code in documents show what others print; and an address stays whole.

use super::Violation;
use super::tree::File;

const MAX_CHARACTERS: usize = 120;

pub fn check(file: &File) -> Vec<Violation> {
    let is_prose = file.has_extension("md");
    if !(is_prose || file.is_rust() || file.is_sql() || file.has_extension("toml")) {
        return Vec::new();
    }
    let mut violations = Vec::new();
    let mut in_block = false;
    for (index, line) in file.text.lines().enumerate() {
        in_block ^= is_prose && line.trim_start().starts_with("```");
        let may_be_long = in_block || is_row(line) || is_prose && has_link(line);
        let length = line.chars().count();
        if length > MAX_CHARACTERS && !may_be_long {
            let message =
                format!("the line has {length} characters, and {MAX_CHARACTERS} are allowed; break it");
            violations.push(Violation::new(&file.path, index + 1, message));
        }
    }
    violations
}

/// Of a table, in a document or in a comment of Rust.
fn is_row(line: &str) -> bool {
    let line = line.trim_start();
    ["|", "//! |", "/// |"].iter().any(|begin| line.starts_with(begin))
}

fn has_link(line: &str) -> bool {
    line.contains("](") || line.contains("://")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(&File { path: path.into(), text: text.into() }).iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn long_lines_are_found_and_characters_counted() {
        let (fits, long) = ("ü".repeat(120), "x".repeat(121));
        for path in ["src/a.rs", "sql/a.sql", "Cargo.toml", "docs/a.md"] {
            assert_eq!(lines(path, &format!("{fits}\n{long}\n")), [2], "{path}");
        }
        for path in ["a.json", "Cargo.lock", "a.mjml"] {
            assert!(lines(path, &long).is_empty(), "{path}");
        }
    }

    #[test]
    fn tables_blocks_and_links_may_be_longer() {
        let long = "x".repeat(121);
        let text = format!("| {long} |\n```\n{long}\n```\n[a](https://example.org/{long})\n{long}");
        assert_eq!(lines("docs/a.md", &text), [6]);
        assert_eq!(lines("src/a.rs", &format!("//! | {long} |\n    /// | {long} |\n// | {long} |\n")), [3]);
        assert_eq!(lines("src/a.rs", &format!("// https://example.org/{long}\n")), [1]);
    }
}
