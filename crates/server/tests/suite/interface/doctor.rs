//! `campanile doctor`: it finds problems, says what to do, continues, and changes nothing.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use campanile_store::conformance::TestDatabase;
use campanile_store::postgres::test_database::Database;
use campanile_store::sqlite::Clock;
use campanile_store::sqlite::test_database::File;
use serde_json::Value;

use crate::interface::command::Ran;
use crate::support::home::{campanile, in_shell};
use crate::support::{Backend, Home, KEY, Server, reservation, staff, until};

/// An address where nothing listens.
const NOWHERE: &str = "http://127.0.0.1:1";

fn doctor(command: &mut Command, arguments: &[&str]) -> Ran {
    Ran::of(command.args(["doctor", "--url", NOWHERE]).args(arguments))
}

/// The sign of a part and its finding, with the remedy if there is one.
#[track_caller]
fn finding(ran: &Ran, subject: &str) -> (String, String) {
    let lines: Vec<&str> = ran.out.lines().collect();
    let at = lines
        .iter()
        .position(|line| line.get(7..).is_some_and(|rest| rest.starts_with(&format!("{subject}  "))))
        .unwrap_or_else(|| panic!("nothing is said of {subject}:\n{}", ran.out));
    let remedies = lines[at + 1..].iter().take_while(|line| line.starts_with("       "));
    let what: Vec<&str> = std::iter::once(&lines[at][7 + subject.len()..]).chain(remedies.copied()).collect();
    (lines[at][..7].trim().to_owned(), what.join("\n"))
}

/// Asserts the sign of a part and words of its finding.
#[track_caller]
fn assert_found(ran: &Ran, subject: &str, sign: &str, words: &[&str]) {
    let (found, what) = finding(ran, subject);
    assert_eq!(found, sign, "{subject}:\n{}", ran.out);
    for word in words {
        assert!(what.contains(word), "`{word}` is not in: {what}");
    }
}

#[track_caller]
fn assert_well(ran: &Ran) {
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let is_wrong = ran.out.lines().any(|line| line.starts_with("WRONG"));
    assert!(!is_wrong && ran.err.is_empty(), "{ran:?}");
}

#[track_caller]
fn assert_unwell(ran: &Ran, count: usize) {
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert_eq!(ran.out.lines().filter(|line| line.starts_with("WRONG")).count(), count, "{}", ran.out);
    assert!(ran.err.starts_with("campanile: ") && ran.err.contains("found"), "{ran:?}");
    // Whatever is down, everything else is examined.
    for subject in ["configuration", "data folder", "broker", "channels", "server"] {
        finding(ran, subject);
    }
}

/// A home whose database was closed in order, without a journal.
async fn at_rest() -> Home {
    let home = Home::new(Backend::Embedded);
    set_mode(home.path(), 0o700);
    Ran::of(home.campanile().arg("migrate")).succeeded();
    let path = home.path().join("campanile.db");
    File { path, clock: Clock::default() }.execute("DELETE FROM dead_letter").await;
    assert!(!files(home.path()).contains("campanile.db-wal"));
    home
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn files(folder: &Path) -> BTreeSet<String> {
    let names = std::fs::read_dir(folder).unwrap();
    names.map(|file| file.unwrap().file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn nothing_is_there_yet_and_nothing_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let mut command = campanile(&data);
    let ran = doctor(command.env_remove("CAMPANILE_AUTH__ADMIN_KEY"), &[]);
    assert_well(&ran);
    for subject in ["data folder", "admin key", "database"] {
        assert_found(&ran, subject, "note", &["does not exist yet", "serve --listen 127.0.0.1:1`"]);
    }
    assert_found(&ran, "disk", "ok", &["free"]);
    assert_found(&ran, "channels", "note", &["EMAIL", "SLACK", "captured, not sent"]);
    assert_found(&ran, "server", "note", &["no server is running", NOWHERE, "serve --listen 127.0.0.1:1`"]);
    assert!(!data.exists());
}

#[tokio::test]
async fn a_file_is_well_whether_an_instance_runs_on_it_or_not() {
    let home = at_rest().await;
    let before = files(home.path());
    let ran = doctor(&mut home.campanile(), &[]);
    assert_well(&ran);
    assert_found(&ran, "configuration", "ok", &[]);
    assert_found(&ran, "environment", "ok", &["CAMPANILE_AUTH__ADMIN_KEY, CAMPANILE_DATA_DIR"]);
    assert!(!ran.out.contains(KEY), "{}", ran.out);
    assert_found(&ran, "data folder", "ok", &[home.path().to_str().unwrap(), "700"]);
    assert_found(&ran, "admin key", "ok", &["configuration"]);
    assert_found(&ran, "database", "ok", &["SQLite", "campanile.db"]);
    assert_found(&ran, "instance", "ok", &["no instance"]);
    for subject in ["integrity", "tables", "events", "publishing", "dead letters", "sends in doubt", "broker"]
    {
        assert_found(&ran, subject, "ok", &[]);
    }
    assert_eq!(files(home.path()), before, "looking leaves nothing behind");

    let server = Server::start(&home);
    server.emit(&reservation("evt-1")).await;
    server.settled("evt-1").await;
    let ran = Ran::of(home.campanile().args(["--url", &server.url, "doctor"]));
    assert_well(&ran);
    assert_found(&ran, "instance", "ok", &[&server.pid().to_string()]);
    assert_found(&ran, "server", "ok", &[&server.url, "ready"]);
    assert_found(
        &ran,
        "dead letters",
        "note",
        &["1 not replayed", &format!("campanile --url {}", server.url), "dead-letters list"],
    );
    server.put("/v1/recipients", staff()).await;
    server.emit(&reservation("evt-2")).await;
    assert_eq!(server.settled("evt-2").await["event"]["status"], "PROCESSED", "nobody was disturbed");
}

#[test]
fn programs_are_told_the_same() {
    let home = Home::new(Backend::Embedded);
    let ran =
        doctor(&mut home.campanile(), &["--json", "--broker-url", "amqp://anna:secret@127.0.0.1:1/%2f"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let findings: Vec<Value> = serde_json::from_str(&ran.out).unwrap();
    let of = |subject: &str| findings.iter().find(|finding| finding["subject"] == subject).unwrap();
    assert_eq!((&of("configuration")["level"], &of("configuration")["remedy"]), (&"ok".into(), &Value::Null));
    assert_eq!(of("channels")["level"], "note");
    assert_eq!(of("broker")["level"], "wrong");
    for word in ["what", "remedy"] {
        assert!(of("broker")[word].as_str().is_some_and(|text| text.len() > 20), "{findings:?}");
    }
    assert!(!ran.out.contains("secret"), "{}", ran.out);
}

#[tokio::test]
async fn a_disk_that_takes_no_writes_is_told() {
    let home = at_rest().await;
    let before = files(home.path());
    assert_found(&doctor(&mut home.campanile(), &[]), "writes", "ok", &[home.path().to_str().unwrap()]);
    // No file can be written, as on a full disk.
    let limited = "trap '' XFSZ; ulimit -f 0; exec \"$0\" \"$@\"";
    let ran = doctor(&mut in_shell(limited, &home.campanile()), &[]);
    assert_unwell(&ran, 1);
    assert_found(
        &ran,
        "writes",
        "WRONG",
        &[home.path().to_str().unwrap(), "can't be written", "free disk space"],
    );
    assert_eq!(files(home.path()), before, "trying leaves nothing behind");

    let nowhere = Path::new("/proc/campanile");
    let ran = doctor(&mut campanile(nowhere), &[]);
    assert_found(&ran, "writes", "WRONG", &["/proc can't be written"]);
}

#[tokio::test]
async fn what_others_may_read_and_what_is_damaged_is_told() {
    let home = at_rest().await;
    let keyless = || {
        let mut command = home.campanile();
        command.env_remove("CAMPANILE_AUTH__ADMIN_KEY");
        command
    };
    let key = home.path().join("admin.key");
    std::fs::write(&key, "cmp_1\n").unwrap();
    set_mode(&key, 0o644);
    set_mode(home.path(), 0o755);
    // As earlier releases left it.
    set_mode(&home.path().join("campanile.db"), 0o644);
    let ran = doctor(&mut keyless(), &[]);
    assert_unwell(&ran, 1);
    assert_found(&ran, "admin key", "WRONG", &["644", "chmod 600"]);
    assert_found(&ran, "data folder", "note", &["755", "chmod 700"]);
    assert_found(&ran, "permissions", "note", &["campanile.db", "chmod 600"]);
    set_mode(&key, 0o600);
    set_mode(home.path(), 0o700);
    let ran = doctor(&mut keyless(), &[]);
    assert_well(&ran);
    assert_found(&ran, "admin key", "ok", &["600"]);

    let file = home.path().join("campanile.db");
    let mut bytes = std::fs::read(&file).unwrap();
    // A leaf page of some index: without a page of the schema no query would work.
    let page = bytes.chunks_mut(4096).rfind(|page| page[0] == 0x0a).unwrap();
    page.fill(7);
    std::fs::write(&file, &bytes).unwrap();
    let ran = doctor(&mut home.campanile(), &[]);
    assert_unwell(&ran, 1);
    assert_found(&ran, "integrity", "WRONG", &["damaged", "restore a backup"]);

    std::fs::write(&file, "this is no database, whatever its name says".repeat(100)).unwrap();
    let ran = doctor(&mut home.campanile(), &[]);
    assert_unwell(&ran, 1);
    assert_found(&ran, "database", "WRONG", &["campanile.db", "not a database", "backup"]);
}

#[test]
fn a_configuration_that_is_wrong_is_told() {
    let home = Home::new(Backend::Embedded);
    let mut command = home.campanile();
    let ran = doctor(command.env("CAMPANILE_FAN_OUT__BATCH", "many"), &[]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert_found(&ran, "configuration", "WRONG", &["fan_out.batch", "config print --reference"]);
}

#[tokio::test]
async fn who_else_listens_at_the_address_is_told() {
    let (home, other) = (at_rest().await, at_rest().await);
    let server = Server::start(&other);
    let examine = |url: &str| Ran::of(home.campanile().args(["--url", url, "doctor"]));
    let ran = examine(&server.url);
    assert_unwell(&ran, 1);
    assert_found(&ran, "server", "WRONG", &[&server.url, "a different database", "--data-dir"]);
    assert_well(&Ran::of(other.campanile().args(["--url", &server.url, "doctor"])));

    let database = &Home::new(Backend::Mixed).database;
    let url = &database.as_ref().unwrap().url;
    let elsewhere = ["--url", &server.url, "doctor", "--database-url", url];
    assert_found(&Ran::of(other.campanile().args(elsewhere)), "server", "WRONG", &["a different database"]);

    // The system accepts connections, and nothing answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let ran = examine(&url);
    assert_unwell(&ran, 1);
    assert_found(
        &ran,
        "server",
        "WRONG",
        &[&url, "did not respond", "check with `ss -ltnp` that Campanile listens there"],
    );
}

#[tokio::test]
async fn servers_are_well() {
    let home = Home::new(Backend::Servers);
    let server = Server::start(&home);
    // A server is up before its queues exist: they are created once it is known that nothing was lost.
    let ran = until("the queues are made", async || {
        let ran = Ran::of(home.campanile().args(["--url", &server.url, "doctor"]));
        ran.out.contains("all 13 queues").then_some(ran)
    })
    .await;
    assert_well(&ran);
    let database = home.database.as_ref().unwrap();
    let place = database.url.rsplit('@').next().unwrap();
    assert_found(&ran, "database", "ok", &[place, "answers"]);
    assert_found(&ran, "PostgreSQL", "ok", &["UTF8"]);
    assert_found(&ran, "grants", "ok", &["every required privilege"]);
    assert_found(&ran, "recipients", "ok", &["table"]);
    assert_found(&ran, "transactions", "ok", &["5 min"]);
    assert_found(&ran, "broker", "ok", &["RabbitMQ", "accepts the connection"]);
    assert_found(&ran, "permissions", "ok", &["may configure"]);
    assert_found(&ran, "topology", "ok", &["all 13 queues", "0 messages"]);
    for subject in [
        "encryption",
        "clock",
        "writes",
        "tables",
        "events",
        "publishing",
        "dead letters",
        "sends in doubt",
        "server",
    ] {
        assert_found(&ran, subject, "ok", &[]);
    }
    assert!(!ran.out.contains("guest:") && !ran.out.contains("://postgres"), "{}", ran.out);
}

#[tokio::test]
async fn what_waits_in_a_database_is_told() {
    let home = Home::new(Backend::Mixed);
    let database = home.database.as_ref().unwrap();
    database
        .execute(
            "INSERT INTO event_outbox (event_id, event_type, aggregate_type, aggregate_id, created_at)
             VALUES ('old', 'T', 'RESTAURANT', '5', now() - interval '3 hours'), ('new', 'T', 'RESTAURANT', '5', now());
             INSERT INTO dead_letter (stage, reason, error, created_at, replayed_at)
             VALUES ('receive', 'POISON', 'POISON: {', now(), NULL), ('receive', 'POISON', 'POISON: {', now(), now());
             INSERT INTO send (notification_id, channel, recipient_address, status, created_at)
             SELECT gen_random_uuid(), 'SMS', '+39', 'SENDING', now() FROM generate_series(1, 3);
             UPDATE send SET status = 'IN_DOUBT';
             INSERT INTO publish_chunk (queue, lane, first_id, last_id, lease_until)
             VALUES ('notification.customer', 1, '0190163d-8694-739b-aea5-966c26f8ad91',
                 '0190163d-8694-739b-aea5-966c26f8ad91', NULL),
                    ('notification.customer', 1, gen_random_uuid(), gen_random_uuid(), now() + interval '1 hour');
             INSERT INTO lease VALUES ('in-process broker', 'shop-1', now() + interval '15 s');
             INSERT INTO schema_history (version, name) VALUES (99, 'from_the_future')",
        )
        .await;
    let ran = doctor(&mut home.campanile(), &[]);
    assert_well(&ran);
    assert_found(&ran, "events", "note", &["pending for 3 h", "fan_out"]);
    assert_found(&ran, "publishing", "note", &["1 batch waits for the broker", "days", "role publish"]);
    assert_found(&ran, "dead letters", "note", &["1 not replayed"]);
    assert_found(&ran, "sends in doubt", "note", &["3; it is unknown whether"]);
    assert_found(&ran, "instance", "ok", &["shop-1", "in-process broker"]);
    assert_found(&ran, "tables", "note", &["newer", "V99"]);
}

#[tokio::test]
async fn a_database_without_tables_is_told_and_left_so() {
    let database = Database::empty().await;
    let home = Home::new(Backend::Embedded);
    let ran = doctor(&mut home.campanile(), &["--database-url", &database.url]);
    assert_well(&ran);
    assert_found(&ran, "tables", "note", &["not created yet", "migrate`"]);
    assert!(!ran.out.contains("grants") && !ran.out.contains("dead letters"), "{}", ran.out);
    let url = as_role(&database, "nobody_may_create").await;
    let ran = doctor(&mut home.campanile(), &["--database-url", &url.url]);
    assert_unwell(&ran, 1);
    assert_found(&ran, "tables", "WRONG", &["not created yet", "GRANT CREATE ON DATABASE", &url.role]);
    url.drop_role(&database).await;
    let made = "SELECT count(*) FROM pg_catalog.pg_namespace WHERE nspname = 'campanile'";
    database
        .connect()
        .await
        .query_one(made, &[])
        .await
        .map(|row| assert_eq!(row.get::<_, i64>(0), 0))
        .unwrap();
}

/// A database role for one test.
struct Role {
    role: String,
    url: String,
}

async fn as_role(database: &Database, name: &str) -> Role {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros();
    let role = format!("{name}_{now}");
    database.execute(&format!("CREATE ROLE {role} LOGIN PASSWORD 'pass'")).await;
    let (scheme, rest) = database.url.split_once("://").unwrap();
    let place = rest.rsplit('@').next().unwrap();
    Role { url: format!("{scheme}://{role}:pass@{place}"), role }
}

impl Role {
    async fn drop_role(self, database: &Database) {
        let Role { role, .. } = self;
        database.execute(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await;
    }
}

#[tokio::test]
async fn a_user_without_grants_is_told_which_and_they_are_enough() {
    let home = Home::new(Backend::Mixed);
    let database = home.database.as_ref().unwrap();
    let poor = as_role(database, "poor").await;
    let examine = || doctor(&mut home.campanile(), &["--database-url", &poor.url]);
    let ran = examine();
    assert_unwell(&ran, 1);
    assert_found(&ran, "grants", "WRONG", &[&poor.role, "no privileges on the tables", "as the owner"]);
    assert!(!ran.out.contains("pass@"), "{}", ran.out);

    let statements = |ran: &Ran| {
        let lines = ran.out.lines().filter_map(|line| line.find("GRANT ").map(|at| line[at..].to_owned()));
        lines.collect::<Vec<_>>().join("\n")
    };
    database.execute(&statements(&ran)).await;
    let ran = examine();
    assert_well(&ran);
    assert_found(&ran, "grants", "ok", &[&poor.role]);

    database.execute(&format!("REVOKE UPDATE, DELETE ON send FROM {}", poor.role)).await;
    let ran = examine();
    assert_unwell(&ran, 1);
    assert_found(&ran, "grants", "WRONG", &["lacks UPDATE, DELETE on campanile.send"]);
    database.execute(&statements(&ran)).await;
    assert_well(&examine());

    // These permissions are sufficient for an instance.
    let mut server = Server::start_with(&home, &[("CAMPANILE_DATABASE__URL", &poor.url)]);
    server.put("/v1/recipients", staff()).await;
    server.emit(&reservation("evt-1")).await;
    assert_eq!(server.settled("evt-1").await["event"]["status"], "PROCESSED");
    server.kill();
    poor.drop_role(database).await;
}

#[tokio::test]
async fn a_view_of_recipients_is_looked_through() {
    let home = Home::new(Backend::Mixed);
    let database = home.database.as_ref().unwrap();
    database
        .execute("ALTER TABLE recipient RENAME TO people; CREATE VIEW recipient AS SELECT * FROM people")
        .await;
    let ran = doctor(&mut home.campanile(), &[]);
    assert_well(&ran);
    assert_found(&ran, "recipients", "ok", &["view", "change its rows in the tables behind it"]);
    database
        .execute("DROP VIEW recipient; CREATE VIEW recipient AS SELECT user_type, user_id, email FROM people")
        .await;
    let ran = doctor(&mut home.campanile(), &[]);
    assert_unwell(&ran, 1);
    assert_found(&ran, "recipients", "WRONG", &["lacks entity_type", "time_zone, active", "create a view"]);
    database.execute("DROP VIEW recipient").await;
    assert_found(&doctor(&mut home.campanile(), &[]), "recipients", "WRONG", &["missing"]);
}

#[tokio::test]
async fn what_can_not_be_reached_is_told_without_its_password() {
    let home = Home::new(Backend::Embedded);
    let database = Database::empty().await;
    let place = database.url.rsplit('@').next().unwrap();
    let server = place.split('/').next().unwrap();
    let wrong_user = format!("postgres://nobody_here:secret@{place}");
    let no_database = format!("{}_and_not", database.url);
    for (url, words) in [
        (
            "postgres://anna:secret@127.0.0.1:1/shop",
            ["127.0.0.1:1/shop", "refused", "check that it is running"],
        ),
        (&wrong_user, [server, "refuses user `nobody_here`", "pg_hba.conf"]),
        (&no_database, [server, "does not exist", "CREATE DATABASE"]),
    ] {
        let ran = doctor(&mut home.campanile(), &["--database-url", url]);
        assert_unwell(&ran, 1);
        assert_found(&ran, "database", "WRONG", &words);
        assert!(!ran.out.contains("secret"), "{}", ran.out);
    }
    let both = [
        "--database-url",
        "postgres://anna:secret@127.0.0.1:1/shop",
        "--broker-url",
        "amqp://anna:secret@127.0.0.1:1",
    ];
    let ran = doctor(&mut home.campanile(), &both);
    assert_unwell(&ran, 2);
    assert_found(&ran, "broker", "WRONG", &["127.0.0.1:1", "refused", "broker.url"]);
    assert!(!ran.out.contains("secret"), "{}", ran.out);
}
