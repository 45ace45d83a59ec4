//! Tests the plan of each statement: every statement can be prepared, and none scans a whole table.

use campanile_domain::status::EventStatus::{Cancelled, Failed, Pending, Published};
use rusqlite::Connection;

use super::seed::seed;
use super::{Folder, count};
use crate::event_search::EventIndex;
use crate::sqlite::{row, statement, trace};
use crate::{RowFilter, Table};

/// Scans that are intended. Each is a statement, the beginning of a line of its plan, and the reason.
const EXPECTED_SCANS: &[(&str, &str, &str)] = &[
    ("retain/begin_horizon", "SCAN event_outbox", "the first thousand of its key"),
    ("retain/begin_horizon", "SCAN first", "these"),
    ("retain/begin_horizon", "SCAN oldest", "one row"),
    ("send_admin/list_sends_in_doubt", "SCAN k", "a page of sends"),
    ("send_admin/list_due", "SCAN k", "a page of sends"),
    ("send_admin/list_sends", "SCAN k", "a page of sends"),
    ("send_admin/list_sends_of_event", "SCAN k", "a page of sends"),
    (
        "event/open_events",
        "SCAN event_outbox USING INDEX event_outbox_continuing",
        "the index has only what has begun",
    ),
    ("event/open_events", "SCAN (subquery-1)", "a page of events"),
    ("event/open_events", "SCAN (subquery-3)", "a page of events"),
    ("retain/delete_old_captured", "SCAN captured_message", "the first of its key, up to the limit"),
    ("retain/delete_old_captured", "SCAN (subquery-1)", "these"),
    ("retain/delete_dead_letters_without_event", "SCAN (subquery-1)", "up to the limit"),
    (
        "rule/default_settings",
        "SCAN s USING INDEX entity_notification_settings_defaults",
        "all that the index has is asked for",
    ),
    ("queue_age/queue_ages", "SCAN publish_chunk", "the first hundred of its key"),
    (
        "queue_age/queue_ages",
        "SCAN event_outbox USING INDEX event_outbox_open",
        "the first thousand of the index",
    ),
    ("outbox/release_chunks", "SCAN publish_chunk", "once, at start, and only what waits has a chunk"),
    ("rule/rule_version", "SCAN rule_version", "it has one row"),
    ("audit/delete_old_audit", "SCAN audit", "the first of its key, up to the limit"),
    ("trace/last_event", "SCAN event_outbox", "the last of its key"),
    ("search Status(Pending), newest first: false", "SCAN (subquery-", "a page of each lane"),
    ("search Status(Pending), newest first: true", "SCAN (subquery-", "a page of each lane"),
    ("signing_key/list_signing_keys", "SCAN signing_key", "there are few"),
    ("signing_key/insert_first_key", "SCAN signing_key", "there are few"),
    ("trace/trace_page_end", "SCAN (subquery-1)", "a page of users"),
];

/// Names of listings begin with this. Listings read the key from its beginning and stop at their limit.
const LISTED_IN_KEY_ORDER: &str = "list ";

/// Sorts that are intended, because they sort few rows.
const EXPECTED_SORTS: &[(&str, &str)] = &[
    ("fan_out/claim_by_ids", "the events that the caller named"),
    ("fan_out/claim_continuing", "large events that are under way: few, and they take turns"),
    ("send_admin/list_sends_in_doubt", "a page of sends"),
    ("send_admin/list_due", "a page of sends"),
    ("send_admin/list_sends", "a page of sends"),
    ("send_admin/list_sends_of_event", "a page of sends"),
    ("trace/trace_page_end", "a page of users"),
    ("search Status(Pending), newest first: false", "a page of each lane"),
    ("search Status(Pending), newest first: true", "a page of each lane"),
    ("event/open_events", "a page of events, and large ones that are under way"),
];

/// Every statement with its name, from files and from the descriptions of tables.
fn statements() -> Vec<(String, String)> {
    let mut all: Vec<_> =
        statement::ALL.iter().map(|(name, sql)| ((*name).to_owned(), (*sql).to_owned())).collect();
    for table in Table::ALL {
        let description = table.description();
        let named = |verb: &str| format!("{verb} {}", table.path());
        all.push((named("put"), row::upsert(description)));
        all.push((named("delete"), row::deletion(description)));
        all.push((named("find"), row::by_key(description)));
        all.push((named("list"), listing(table, &[], false)));
        all.push((named("go on with"), listing(table, &[], true)));
        for column in table.filters() {
            all.push((format!("list {} by {column}", table.path()), listing(table, &[column], false)));
        }
    }
    all.extend(searches().into_iter().map(|(name, sql, _)| (name, sql)));
    all.push(("members".to_owned(), listing(Table::Recipients, &["entity_type", "entity_id"], false)));
    all.push(("more members".to_owned(), listing(Table::Recipients, &["entity_type", "entity_id"], true)));
    all
}

/// Every search for events, with the index that it must use.
fn searches() -> Vec<(String, String, &'static str)> {
    let indexes = [
        (EventIndex::Arrival, "INTEGER PRIMARY KEY"),
        (EventIndex::Type, "event_outbox_type (event_type=? AND id"),
        (EventIndex::Aggregate, "event_outbox_aggregate (aggregate_type=? AND aggregate_id=? AND id"),
        (EventIndex::Status(Pending), "event_outbox_new (lane=? AND id"),
        (EventIndex::Status(Pending), "event_outbox_continuing (lane=? AND id"),
        (EventIndex::Status(Published), "event_outbox_open (id"),
        (EventIndex::Status(Failed), "event_outbox_failed (id"),
        (EventIndex::Status(Cancelled), "event_outbox_cancelled (id"),
    ];
    let search = |(index, uses)| {
        [false, true].map(|newest_first| {
            let name = format!("search {index:?}, newest first: {newest_first}");
            (name, trace::search(index, newest_first), uses)
        })
    };
    indexes.into_iter().flat_map(search).collect()
}

fn listing(table: Table, by: &[&'static str], goes_on: bool) -> String {
    let value = || "x".to_owned();
    let columns = by.iter().map(|column| (*column, value())).collect();
    let after = goes_on.then(|| table.key().iter().map(|_| value()).collect());
    row::listing(table.description(), &RowFilter { columns, after, limit: 1 }).0
}

fn plan(connection: &Connection, sql: &str) -> Vec<String> {
    let mut explained = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    let mut rows = explained.raw_query();
    let mut lines = Vec::new();
    while let Some(row) = rows.next().unwrap() {
        lines.push(row.get("detail").unwrap());
    }
    lines
}

/// The parts of a plan that are not intended.
fn objections(name: &str, plan: &[String]) -> Vec<String> {
    let scan = |line: &&String| {
        line.starts_with("SCAN ") && !line.contains("VIRTUAL TABLE") && !line.starts_with("SCAN CONSTANT ROW")
    };
    let meant = |line: &String| {
        name.starts_with(LISTED_IN_KEY_ORDER)
            || EXPECTED_SCANS
                .iter()
                .any(|(statement, start, _)| *statement == name && line.starts_with(start))
    };
    let sort = |line: &&String| {
        let small = EXPECTED_SORTS.iter().any(|(statement, _)| *statement == name);
        line.starts_with("USE TEMP B-TREE") && !small && !name.starts_with(LISTED_IN_KEY_ORDER)
    };
    let scans = plan.iter().filter(scan).filter(|line| !meant(line));
    scans.chain(plan.iter().filter(sort)).map(|line| format!("{name}: {line}")).collect()
}

fn all_objections(folder: &Folder) -> Vec<String> {
    let connection = folder.connect();
    statements().iter().flat_map(|(name, sql)| objections(name, &plan(&connection, sql))).collect()
}

#[test]
fn every_statement_prepares() {
    let folder = Folder::new();
    let _store = folder.open();
    let connection = folder.connect();
    for (name, sql) in statements() {
        if let Err(error) = connection.prepare(&sql) {
            panic!("{name}: {error}");
        }
    }
}

#[test]
fn every_sql_file_is_a_statement() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/sqlite/sql");
    let mut files: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|noun| noun.unwrap())
        .flat_map(|noun| {
            let folder = noun.file_name().into_string().unwrap();
            let verbs = std::fs::read_dir(noun.path()).unwrap();
            verbs.map(move |verb| format!("{folder}/{}", verb.unwrap().path().file_stem().unwrap().display()))
        })
        .collect();
    let mut names: Vec<&str> = statement::ALL.iter().map(|(name, _)| *name).collect();
    files.sort();
    names.sort_unstable();
    assert_eq!(files, names);
}

#[test]
fn no_statement_goes_through_a_table() {
    let folder = Folder::new();
    let _store = folder.open();
    assert_eq!(all_objections(&folder), [""; 0]);
}

#[test]
fn no_statement_goes_through_a_large_table_whose_statistics_are_known() {
    let folder = Folder::new();
    let _store = folder.open();
    folder.connect().execute_batch(&seed(3_000)).unwrap();
    folder.connect().execute_batch("ANALYZE").unwrap();
    assert_eq!(all_objections(&folder), [""; 0]);
}

#[test]
fn a_small_file_that_is_opened_again_is_not_taken_for_small() {
    let folder = Folder::new();
    drop(folder.open());
    folder.connect().execute_batch(&seed(2)).unwrap();
    drop(folder.open());
    let _store = folder.open();
    let connection = folder.connect();
    assert_eq!(count(&connection, "SELECT count(*) FROM sqlite_schema WHERE name LIKE 'sqlite_stat%'"), 0);
    assert_eq!(all_objections(&folder), [""; 0]);
}

#[test]
fn every_search_for_events_uses_its_index() {
    let folder = Folder::new();
    let _store = folder.open();
    let connection = folder.connect();
    for (name, sql, index) in searches() {
        let plan = plan(&connection, &sql);
        assert!(plan.iter().any(|line| line.contains(index)), "{name}: {plan:?} without {index}");
    }
}

#[test]
fn every_exception_is_still_needed() {
    let folder = Folder::new();
    let _store = folder.open();
    let connection = folder.connect();
    let plans: Vec<_> = statements().into_iter().map(|(name, sql)| (name, plan(&connection, &sql))).collect();
    for (statement, start, _) in EXPECTED_SCANS {
        let (_, plan) = plans.iter().find(|(name, _)| name == statement).unwrap();
        assert!(plan.iter().any(|line| line.starts_with(start)), "{statement} has no {start}: {plan:?}");
    }
}

/// The tables' checks run for every written row, so they must be cheap. For a list of more than two values, SQLite
/// builds a b-tree at each execution.
#[test]
fn no_check_of_a_written_row_builds_a_b_tree() {
    let folder = Folder::new();
    let _store = folder.open();
    let connection = folder.connect();
    for name in [
        "fan_out/finish_event",
        "fan_out/insert_outbox",
        "fan_out/write_processed",
        "send/receive_send",
        "send/start_send",
        "settle/upsert_send_address",
        "settle/settle_send",
    ] {
        let (_, sql) = statement::ALL.iter().find(|(statement, _)| *statement == name).unwrap();
        let mut explained = connection.prepare(&format!("EXPLAIN {sql}")).unwrap();
        let mut rows = explained.raw_query();
        while let Some(row) = rows.next().unwrap() {
            let opcode: String = row.get("opcode").unwrap();
            assert!(!["OpenEphemeral", "OpenAutoindex"].contains(&opcode.as_str()), "{name}: {opcode}");
        }
    }
}
