//! How PostgreSQL goes about each statement: it prepares, and no statement goes through a whole table, with statistics or
//! without. Plans are generic ones, in sessions like those of the pool.

use campanile_domain::status::EventStatus::{Cancelled, Failed, Pending, Processed, Published};
use serde_json::Value;
use tokio_postgres::Client;

use super::seed::seed;
use crate::postgres::back_door::Database;
use crate::postgres::{connect, row, statement, trace};
use crate::{RowFilter, Table};

/// Every statement with its name: those of files, and those that are made from the descriptions of tables.
fn statements() -> Vec<(String, String)> {
    let mut all: Vec<_> =
        statement::ALL.iter().map(|(name, sql)| ((*name).to_owned(), (*sql).to_owned())).collect();
    for table in Table::ALL {
        let description = table.description();
        let columns: Vec<&str> = description.columns.iter().map(|(name, _)| *name).collect();
        let named = |verb: &str| format!("{verb} {}", table.path());
        all.push((named("put"), row::upsert(description, &columns)));
        all.push((named("put sparse"), row::upsert(description, description.key)));
        all.push((named("delete"), row::deletion(description)));
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

/// Every search for events, with the index that it has to use.
fn searches() -> Vec<(String, String, &'static str)> {
    let mut all = Vec::new();
    for status in [None, Some(Pending), Some(Published), Some(Processed), Some(Failed), Some(Cancelled)] {
        for (of_type, newest_first) in [(false, false), (false, true), (true, false), (true, true)] {
            let index = match status {
                Some(Failed) => "event_outbox_failed",
                Some(Cancelled) => "event_outbox_cancelled",
                Some(Published) if !of_type => "event_outbox_open",
                _ if of_type => "event_outbox_type",
                None | Some(Pending | Published | Processed) => "event_outbox_pkey",
            };
            let name = format!("search {status:?}, of a type: {of_type}, newest first: {newest_first}");
            all.push((name, trace::listing(status, of_type, newest_first), index));
        }
    }
    all
}

fn listing(table: Table, by: &[&'static str], goes_on: bool) -> String {
    let value = || "x".to_owned();
    let columns = by.iter().map(|column| (*column, value())).collect();
    let after = goes_on.then(|| table.key().iter().map(|_| value()).collect());
    row::listing(table.description(), &RowFilter { columns, after, limit: 1 }).0
}

/// A session as the pool makes them.
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

#[tokio::test]
async fn dump() {
    let database = Database::new().await;
    if std::env::var("SEED").is_ok() {
        let t = std::time::Instant::now();
        let client = database.connect().await;
        client.batch_execute(&seed(20_000)).await.unwrap();
        client.batch_execute("ANALYZE").await.unwrap();
        println!("seeded {:?}", t.elapsed());
    }
    let client = session(&database).await;
    for (name, sql) in statements() {
        let params = client.prepare(&sql).await.unwrap().params().len();
        client.batch_execute(&format!("PREPARE explained AS {sql}")).await.unwrap();
        let nulls =
            if params == 0 { String::new() } else { format!("({})", vec!["NULL"; params].join(", ")) };
        println!("=== {name}");
        for row in client.query(&format!("EXPLAIN EXECUTE explained{nulls}"), &[]).await.unwrap() {
            println!("{}", row.get::<_, String>(0));
        }
        client.batch_execute("DEALLOCATE explained").await.unwrap();
    }
}
