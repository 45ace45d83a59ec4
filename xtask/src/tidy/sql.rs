//! Checks that every statement exists for both databases, in files of the same name.
//!
//! Migrations are left out: each database has its own. So are a few statements that one database does not need.

use std::collections::BTreeSet;

use super::Violation;
use super::tree::File;

const SQLITE: &str = "crates/store/src/sqlite/";
const POSTGRES: &str = "crates/store/src/postgres/";

/// Statements without a twin, with the reason.
const ALONE: [(&str, &str); 24] = [
    (
        "sql/send/expire_leases.sql",
        "one engine owns a SQLite file, so at its start nobody else holds a lease",
    ),
    (
        "sql/named_lease/release_leases.sql",
        "one engine owns a SQLite file, so at its start nobody else holds a lease",
    ),
    (
        "sql/outbox/release_chunks.sql",
        "one engine owns a SQLite file, so at its start nobody else holds a chunk",
    ),
    ("sql/send/insert_claim.sql", "PostgreSQL claims in the statement that receives or takes"),
    ("sql/send/fill_claim.sql", "PostgreSQL claims in the statement that receives or takes"),
    ("sql/fan_out/insert_new_event_notification.sql", "SQLite searches a key once either way"),
    ("sql/fan_out/insert_new_outbox.sql", "SQLite searches a key once either way"),
    ("sql/fan_out/insert_new_processed.sql", "SQLite searches a key once either way"),
    ("sql/send/notification_of.sql", "PostgreSQL asks in the statement that receives"),
    ("sql/send/receive.sql", "SQLite has a statement for each table and row"),
    ("sql/send/receive_new.sql", "SQLite has a statement for each table and row"),
    ("sql/send/receive_notification.sql", "PostgreSQL writes it in the statement that receives"),
    ("sql/send/start_send.sql", "PostgreSQL starts in the statement that takes"),
    ("sql/send/send_job.sql", "PostgreSQL starts in the statement that takes"),
    ("sql/event/lock_close.sql", "SQLite has one writer"),
    ("sql/dead_letter/lock_replay.sql", "SQLite has one writer"),
    ("sql/outbox/lock_republish.sql", "SQLite has one writer"),
    ("sql/retain/lock_retain.sql", "SQLite has one writer"),
    ("sql/row/lock_writes.sql", "SQLite has one writer"),
    ("sql/signing_key/lock_signing_keys.sql", "SQLite has one writer"),
    ("sql/signal/lock_suppress_notify.sql", "SQLite notifies nobody"),
    ("sql/database/now.sql", "SQLite has no clock of its own"),
    ("sql/rule/recipient_relation.sql", "only PostgreSQL may have a view in the place of the table"),
    ("sql/signal/notify.sql", "SQLite has no other instances"),
];

pub fn check_twins(files: &[File]) -> Vec<Violation> {
    if !files.iter().any(|file| file.path.starts_with(POSTGRES)) {
        return Vec::new();
    }
    let mut violations = lonely(files, SQLITE, POSTGRES);
    violations.extend(lonely(files, POSTGRES, SQLITE));
    violations
}

fn lonely(files: &[File], of: &str, twins_in: &str) -> Vec<Violation> {
    let twins = statements(files, twins_in);
    statements(files, of)
        .difference(&twins)
        .filter(|name| !ALONE.iter().any(|(alone, _)| alone == *name))
        .map(|name| {
            let message = format!("has no counterpart; write {twins_in}{name}, or remove this file");
            Violation::new(format!("{of}{name}"), 1, message)
        })
        .collect()
}

fn statements<'a>(files: &'a [File], folder: &str) -> BTreeSet<&'a str> {
    files
        .iter()
        .filter(|file| file.is_sql() && !file.is_in("migrations"))
        .filter_map(|file| file.path.strip_prefix(folder))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(paths: &[&str]) -> Vec<String> {
        let file = |path: &&str| File { path: (*path).to_owned(), text: String::new() };
        let files: Vec<File> = paths.iter().map(file).collect();
        check_twins(&files).into_iter().map(|violation| violation.path).collect()
    }

    #[test]
    fn statement_without_a_twin_is_found_in_both_directions() {
        let sqlite = "crates/store/src/sqlite/event/claim.sql";
        let postgres = "crates/store/src/postgres/event/claim.sql";
        let other = "crates/store/src/postgres/claim.sql";
        assert!(found(&[sqlite, postgres]).is_empty());
        assert_eq!(found(&[sqlite, "crates/store/src/postgres/mod.rs"]), [sqlite]);
        assert_eq!(found(&[sqlite, other]), [sqlite, other]);
    }

    #[test]
    fn migrations_have_no_twins() {
        assert!(found(&["crates/store/src/postgres/migrations/V1__events.sql"]).is_empty());
    }

    #[test]
    fn one_database_alone_has_no_twins() {
        assert!(found(&["crates/store/src/sqlite/claim.sql"]).is_empty());
    }
}
