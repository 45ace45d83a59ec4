//! Tests the plan of each statement: every statement can be prepared, and none scans a whole table, with or without
//! statistics. The plans are generic, in sessions like those of the pool.

use std::collections::HashMap;

use campanile_domain::status::EventStatus::{Cancelled, Failed, Pending, Published};
use serde_json::Value;
use tokio_postgres::Client;

use super::seed::seed;
use crate::event_search::EventIndex;
use crate::postgres::test_database::Database;
use crate::postgres::{connect, row, statement, trace};
use crate::{RowFilter, Table};

/// Scans that are intended, although they read a whole index or table. Each is a statement, the index or table, and the
/// reason.
const EXPECTED_SCANS: &[(&str, &str, &str)] = &[
    ("retain/begin_horizon", "event_outbox_pkey", "from the beginning, up to a thousand"),
    ("fan_out/claim_continuing", "event_outbox_continuing", "a queue: the index has only what has begun"),
    ("event/open_events", "event_outbox_continuing", "the index has only what has begun"),
    ("rule/default_settings", "entity_notification_settings_defaults", "all that the index has is asked for"),
    ("retain/delete_old_captured", "captured_message_pkey", "from the beginning, up to a limit"),
    ("queue_age/queue_ages", "publish_chunk_pkey", "from the beginning, up to a hundred"),
    ("queue_age/queue_ages", "event_outbox_open", "from the beginning, up to a thousand"),
    ("rule/rule_version", "rule_version", "it has one row"),
    ("signing_key/list_signing_keys", "signing_key_pkey", "there are few"),
    ("signing_key/insert_first_key", "signing_key_pkey", "there are few"),
    ("trace/last_event", "event_outbox_pkey", "from the end, one"),
    ("audit/delete_old_audit", "audit_pkey", "from the beginning, up to a limit"),
];

/// Names of listings begin with this. Listings read the key from its beginning and stop at their limit.
const LISTED_IN_KEY_ORDER: &str = "list ";

/// Sorts that are intended, because they sort few rows.
const EXPECTED_SORTS: &[(&str, &str)] = &[
    ("fan_out/claim_continuing", "large events that are under way: few, and they take turns"),
    ("event/open_events", "large events that are under way: few"),
    ("trace/trace_sends", "a page of users"),
    ("members", "people of one entity"),
    ("more members", "people of one entity"),
];

/// The index that each of these statements must use.
const INDEXES: &[(&str, &str)] = &[
    ("fan_out/claim_new", "event_outbox_new"),
    ("fan_out/claim_continuing", "event_outbox_continuing"),
    ("fan_out/claim_by_ids", "event_outbox_pkey"),
    ("outbox/claim_chunk", "publish_chunk_order"),
    ("send/claim_due", "send_due_pkey"),
    ("send/next_due", "send_due_pkey"),
    ("send/expired_claims", "send_claim_expiry"),
    ("event/open_events", "event_outbox_open"),
    ("queue_age/queue_ages", "event_outbox_new"),
    ("queue_age/queue_ages", "event_outbox_continuing"),
    ("queue_age/queue_ages", "publish_chunk_pkey"),
    ("queue_age/queue_ages", "outbox_pkey"),
    ("queue_age/queue_ages", "event_outbox_open"),
    ("queue_age/queue_ages", "send_due_pkey"),
    ("queue_age/queue_ages", "send_claim_expiry"),
    ("event/open_events", "event_outbox_continuing"),
    ("send_admin/list_sends_in_doubt", "send_in_doubt_pkey"),
    ("send_admin/list_due", "send_due_pkey"),
    ("send_admin/list_sends", "send_pkey"),
    ("send_admin/list_sends_of_event", "outbox_recipient"),
    ("outbox/lost_rows", "outbox_recipient"),
    ("event/close_complete", "event_outbox_pkey"),
    ("event/close_events", "event_outbox_event_id_key"),
    ("event/close_events", "outbox_recipient"),
    ("dead_letter/replay_event", "event_outbox_event_id_key"),
    ("audience/page_user", "recipient_pkey"),
    ("audience/page_entity", "recipient_walk"),
    ("audience/page_everybody", "recipient_walk"),
    ("settle/settle_send", "send_pkey"),
    ("send/receive", "outbox_pkey"),
    ("send/receive", "event_outbox_event_id_key"),
    ("send/receive_send", "send_pkey"),
    ("outbox/chunk_rows", "outbox_pkey"),
    ("outbox/confirm_rows", "outbox_pkey"),
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
        all.push((named("lock"), row::locking(description)));
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
        (EventIndex::Arrival, "event_outbox_pkey"),
        (EventIndex::Type, "event_search_type"),
        (EventIndex::Aggregate, "event_search_aggregate"),
        (EventIndex::Status(Pending), "event_outbox_new"),
        (EventIndex::Status(Pending), "event_outbox_continuing"),
        (EventIndex::Status(Published), "event_outbox_open"),
        (EventIndex::Status(Failed), "event_outbox_failed"),
        (EventIndex::Status(Cancelled), "event_outbox_cancelled"),
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

/// Opens a session like those of the pool.
async fn session(database: &Database) -> Client {
    let client = database.connect().await;
    client.batch_execute("RESET search_path").await.unwrap();
    client.batch_execute(connect::SESSION).await.unwrap();
    client
}

async fn plan(client: &Client, sql: &str) -> Value {
    let params = client.prepare(sql).await.unwrap().params().len();
    client.batch_execute(&format!("PREPARE explained AS {sql}")).await.unwrap();
    let nulls = if params == 0 { String::new() } else { format!("({})", vec!["NULL"; params].join(", ")) };
    let explained =
        client.query_one(&format!("EXPLAIN (FORMAT JSON) EXECUTE explained{nulls}"), &[]).await.unwrap();
    client.batch_execute("DEALLOCATE explained").await.unwrap();
    explained.get::<_, Value>(0)[0]["Plan"].clone()
}

/// The first column of each index, by the index's name.
async fn first_columns(client: &Client) -> HashMap<String, String> {
    let sql = "SELECT c.relname, pg_get_indexdef(c.oid, 1, true) FROM pg_class c
               WHERE c.relkind = 'i' AND c.relnamespace = 'campanile'::regnamespace";
    client.query(sql, &[]).await.unwrap().iter().map(|row| (row.get(0), row.get(1))).collect()
}

fn text<'a>(node: &'a Value, key: &str) -> &'a str {
    node[key].as_str().unwrap_or_default()
}

fn children(node: &Value) -> impl Iterator<Item = &Value> {
    node["Plans"].as_array().into_iter().flatten()
}

/// The node and all its descendants.
fn nodes(node: &Value) -> Vec<&Value> {
    let mut all = vec![node];
    all.extend(children(node).flat_map(nodes));
    all
}

fn input(node: &Value) -> Option<&Value> {
    children(node).find(|child| ["Outer", "Subquery"].contains(&text(child, "Parent Relationship")))
}

/// Whether a node has few input rows: rows of the call, rows found by those, or rows within a limit.
fn is_small(node: &Value) -> bool {
    is_per_call(node) || text(node, "Node Type") == "Limit" || input(node).is_some_and(is_small)
}

/// Whether the rows come from the call, or from a part of the statement that the call's rows feed.
fn is_per_call(node: &Value) -> bool {
    ["Function Scan", "CTE Scan", "Result", "ProjectSet"].contains(&text(node, "Node Type"))
}

/// Whether a condition names this column, and not a column of the same name in another table.
fn names(condition: &str, column: &str) -> bool {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    condition.match_indices(column).any(|(start, _)| {
        let before = condition[..start].chars().next_back();
        let after = condition[start + column.len()..].chars().next();
        !before.is_some_and(|c| word(c) || c == '.') && !after.is_some_and(word)
    })
}

struct Plans {
    plans: Vec<(String, Value)>,
    first_columns: HashMap<String, String>,
}

impl Plans {
    async fn of(database: &Database) -> Self {
        let client = session(database).await;
        let mut plans = Vec::new();
        for (name, sql) in statements() {
            let plan = plan(&client, &sql).await;
            plans.push((name, plan));
        }
        Plans { plans, first_columns: first_columns(&client).await }
    }

    /// The parts of the plans that are not intended.
    fn objections(&self) -> Vec<String> {
        let all = self.plans.iter().flat_map(|(name, plan)| nodes(plan).into_iter().map(move |n| (name, n)));
        all.filter_map(|(name, node)| self.objection(name, node).map(|o| format!("{name}: {o}"))).collect()
    }

    fn objection(&self, name: &str, node: &Value) -> Option<String> {
        let listed = name.starts_with(LISTED_IN_KEY_ORDER);
        match text(node, "Node Type") {
            kind @ ("Index Scan" | "Index Only Scan" | "Bitmap Index Scan") => {
                let index = text(node, "Index Name");
                let condition = text(node, "Index Cond");
                let narrow = self.first_columns.get(index).is_none_or(|first| names(condition, first));
                let fine = narrow || listed || is_expected_scan(name, index);
                (!fine).then(|| format!("{kind} of all of {index}, where {condition}"))
            }
            "Seq Scan" => {
                let table = text(node, "Relation Name");
                (!is_expected_scan(name, table)).then(|| format!("goes through {table}"))
            }
            "Sort" | "Incremental Sort" => {
                let small = EXPECTED_SORTS.iter().any(|(statement, _)| *statement == name);
                let fine = small || listed || input(node).is_some_and(is_small);
                (!fine).then(|| format!("sorts by {}", node["Sort Key"]))
            }
            "Nested Loop" => {
                let inner = children(node).find(|child| text(child, "Parent Relationship") == "Inner")?;
                // The stored result of one index lookup is small.
                let kept_whole = text(inner, "Node Type") == "Materialize"
                    && nodes(inner).iter().all(|node| text(node, "Index Cond").is_empty());
                let again = is_per_call(inner) || kept_whole;
                let fine = !again || ONE_ROW.contains(&text(inner, "CTE Name")) || of_the_outer_row(inner);
                (!fine).then(|| format!("reads {} again and again", text(inner, "Alias")))
            }
            _ => None,
        }
    }

    fn uses(&self, statement: &str, index: &str) -> bool {
        let of_it = self.plans.iter().filter(|(name, _)| name == statement);
        of_it.flat_map(|(_, plan)| nodes(plan)).any(|node| text(node, "Index Name") == index)
    }
}

/// Parts of statements that return at most one row.
const ONE_ROW: &[&str] = &["claimed"];

fn is_expected_scan(name: &str, what: &str) -> bool {
    EXPECTED_SCANS.iter().any(|(statement, meant, _)| *statement == name && *meant == what)
}

/// Whether the node is a function of the outer row, such as the elements of its array. Nothing is read twice then.
fn of_the_outer_row(node: &Value) -> bool {
    text(node, "Function Name").starts_with("json_array_elements")
}

/// Creates a database with this many rows in every table, and with statistics.
async fn grown(rows: usize) -> Database {
    let database = Database::new().await;
    let client = database.connect().await;
    client.batch_execute(&seed(rows)).await.unwrap();
    client.batch_execute("ANALYZE").await.unwrap();
    database
}

#[tokio::test]
async fn every_statement_prepares() {
    let database = Database::new().await;
    let client = session(&database).await;
    for (name, sql) in statements() {
        if let Err(error) = client.prepare(&sql).await {
            panic!("{name}: {:?}", error.as_db_error());
        }
    }
}

#[test]
fn every_sql_file_is_a_statement() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/postgres/sql");
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

#[tokio::test]
async fn no_statement_goes_through_a_table_without_statistics() {
    let plans = Plans::of(&Database::new().await).await;
    assert_eq!(plans.objections(), [""; 0]);
    check_indexes(&plans);
}

#[tokio::test]
async fn no_statement_goes_through_a_large_table_whose_statistics_are_known() {
    let plans = Plans::of(&grown(20_000).await).await;
    assert_eq!(plans.objections(), [""; 0]);
    check_indexes(&plans);
}

/// The planner uses the statistics of a small table until the table is analysed again.
#[tokio::test]
async fn no_statement_goes_through_a_table_that_was_small_when_it_was_analysed() {
    let plans = Plans::of(&grown(20).await).await;
    assert_eq!(plans.objections(), [""; 0]);
    check_indexes(&plans);
}

/// With a backlog, almost every event is open, every row is in a chunk, and few rows seem to be lost.
#[tokio::test]
async fn no_statement_goes_through_a_backlog() {
    let database = Database::new().await;
    let client = database.connect().await;
    client.batch_execute(&seed(20_000)).await.unwrap();
    let backlog = "UPDATE event_outbox SET status = 'PUBLISHED', fan_out_cursor = NULL;
        UPDATE outbox SET chunk_id = 1 + (hashtext(event_id) & 15), queue = 'queue 1'; DELETE FROM publish_chunk
            WHERE id > 16;
        DELETE FROM send WHERE notification_id > lpad('ff', 32, '0')::uuid; ANALYZE";
    client.batch_execute(backlog).await.unwrap();
    let plans = Plans::of(&database).await;
    assert_eq!(plans.objections(), [""; 0]);
    check_indexes(&plans);
}

fn check_indexes(plans: &Plans) {
    for (statement, index) in INDEXES {
        assert!(plans.uses(statement, index), "{statement} does not use {index}");
    }
}

#[tokio::test]
async fn every_search_for_events_uses_its_index() {
    for database in [Database::new().await, grown(20).await, grown(20_000).await] {
        let plans = Plans::of(&database).await;
        for (name, _, index) in searches() {
            assert!(plans.uses(&name, index), "{name} does not use {index}");
        }
    }
}

#[tokio::test]
async fn every_exception_is_still_needed() {
    let plans = Plans::of(&grown(20_000).await).await;
    for (statement, what, _) in EXPECTED_SCANS {
        let here = plans.plans.iter().filter(|(name, _)| name == statement).flat_map(|(_, plan)| nodes(plan));
        let found = here.filter(|n| [text(n, "Index Name"), text(n, "Relation Name")].contains(what)).count();
        assert!(found > 0, "{statement} has no {what}");
    }
    for (statement, _) in EXPECTED_SORTS {
        let mut here =
            plans.plans.iter().filter(|(name, _)| name == statement).flat_map(|(_, plan)| nodes(plan));
        assert!(here.any(|node| text(node, "Node Type") == "Sort"), "{statement} sorts nothing");
    }
}
