//! Checks that each file opens with its purpose: Rust in `//!`, SQL in `--`.
//!
//! Migrations are left out: their names describe them, and their text must never change.

use super::Violation;
use super::tree::File;

pub fn check(file: &File) -> Option<Violation> {
    let (mark, advice) = if file.is_rust() {
        ("//!", "what the file does, and what it leaves to others")
    } else if file.is_sql() && !file.is_in("migrations") {
        ("--", "why the statement is as it is: its locks, its index")
    } else {
        return None;
    };
    let first = file.text.lines().find(|line| !line.trim().is_empty());
    if first.is_some_and(|line| line.trim_start().starts_with(mark)) {
        return None;
    }
    Some(Violation::new(&file.path, 1, format!("does not start with `{mark}`; describe there {advice}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passes(path: &str, text: &str) -> bool {
        check(&File { path: path.into(), text: text.into() }).is_none()
    }

    #[test]
    fn rust_opens_with_a_module_comment() {
        assert!(passes("src/a.rs", "\n//! Claims events.\nuse x;"));
        assert!(!passes("src/a.rs", "use x;\n//! Claims events."));
        assert!(!passes("src/a.rs", "// Claims events."));
        assert!(!passes("src/a.rs", ""));
    }

    #[test]
    fn sql_opens_with_a_comment_unless_it_is_a_migration() {
        assert!(passes("src/sqlite/claim.sql", "-- Takes the oldest.\nSELECT 1"));
        assert!(!passes("src/sqlite/claim.sql", "SELECT 1 -- one"));
        assert!(passes("src/sqlite/migrations/V1__events.sql", "CREATE TABLE event (id)"));
    }

    #[test]
    fn other_files_open_as_they_like() {
        assert!(passes("README.md", "# Campanile"));
    }
}
