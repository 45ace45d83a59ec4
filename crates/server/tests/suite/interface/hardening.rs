//! What stalling, numerous or crashing clients must not do to a server, and that its files are private.

use std::fs::Permissions;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};

use crate::interface::command::{Ran, Watched};
use crate::interface::fresh::{Answer, Fresh, event};
use crate::support::home::campanile;
use crate::support::{Backend, Home, KEY, Server, until};

const MIB: usize = 1024 * 1024;

/// A client that announces a body, sends one byte of it, and stalls.
fn stalled(server: &Server, bytes: usize) -> TcpStream {
    let address = server.url.strip_prefix("http://").expect("an address");
    let mut stream = TcpStream::connect(address).expect("the server listens");
    let head = format!(
        "POST /v1/events HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {KEY}\r\nContent-Length: {bytes}\r\n\r\n["
    );
    stream.write_all(head.as_bytes()).expect("the server reads");
    stream
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).expect("it is there").permissions().mode() & 0o777
}

#[tokio::test]
async fn a_stalled_client_does_not_hold_up_the_end() {
    let home = Home::new(Backend::Embedded);
    let mut server = Server::start(&home);
    let mut client = stalled(&server, 100);
    // Accepted after the stalled one, so this is being served when the server is told to stop.
    server.emit(&event("evt-1", "ECLIPSE", "MOON", 1)).await;
    let begun = Instant::now();
    let status = server.terminate();
    assert_eq!(status.code(), Some(0));
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    client.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    assert!(!matches!(client.read(&mut [0; 100]), Ok(1..)), "it was cut off without an answer");
}

#[tokio::test]
async fn many_large_bodies_are_refused_until_memory_is_free() {
    let server = Fresh::start(Backend::Embedded);
    // At most 64 MiB of bodies are accepted at the same time.
    let clients: Vec<TcpStream> = (0..28).map(|_| stalled(&server, 8 * MIB)).collect();
    let empty = async || server.post("/v1/events", &json!([])).await;
    let turned_away = until("the clients are served", async || {
        let answer = empty().await;
        (answer.status != 202).then_some(answer)
    })
    .await;
    turned_away.assert_problem(503, "unavailable").assert_says(&["too many", "try again"]);
    assert_eq!(turned_away.header("retry-after"), "5");
    // Requests without a body, health checks, and requests without a key are still answered.
    assert_eq!(server.try_get("/v1/events").await.status, 200);
    assert_eq!(Answer::to(server.request(Method::GET, "/healthz")).await.status, 200);
    assert_eq!(Answer::to(server.request(Method::GET, "/v1/events")).await.status, 401);
    drop(clients);
    until("there is room", async || (empty().await.status == 202).then_some(())).await;
}

#[tokio::test]
async fn what_a_server_makes_is_its_owners_alone() {
    let parent = Home::new(Backend::Embedded);
    let folder = parent.path().join("a/b");
    let data_dir = folder.to_str().unwrap();
    let without_key = [("CAMPANILE_AUTH__ADMIN_KEY", ""), ("CAMPANILE_DATA_DIR", data_dir)];
    let server = Server::start_with(&parent, &without_key);
    assert_eq!((mode(&parent.path().join("a")), mode(&folder)), (0o700, 0o700));
    assert_eq!(mode(&folder.join("admin.key")), 0o600);
    drop(server);
    let key = || std::fs::read_to_string(folder.join("admin.key")).unwrap();
    let first = key();
    assert!(first.starts_with("cmp_") && first.trim().len() == 68, "{first}");
    let names = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name());
    let keys = names.filter(|name| name.to_string_lossy().starts_with("admin.key")).count();
    assert_eq!(keys, 1, "no draft is left");
    // A draft that a crash left is no obstacle, and an existing key stays.
    std::fs::write(folder.join("admin.key.00000000"), "").unwrap();
    drop(Server::start_with(&parent, &without_key));
    assert_eq!(key(), first);
    std::fs::remove_file(folder.join("admin.key")).unwrap();
    drop(Server::start_with(&parent, &without_key));
    assert_ne!(key(), first);

    let migrated = parent.path().join("migrated");
    Ran::of(campanile(&migrated).arg("migrate")).succeeded();
    assert_eq!(mode(&migrated), 0o700);
}

#[tokio::test]
async fn the_database_is_its_owners_also_in_a_folder_that_is_open_to_all() {
    let home = Home::new(Backend::Embedded);
    std::fs::set_permissions(home.path(), Permissions::from_mode(0o755)).unwrap();
    let server = Server::start(&home);
    server.emit(&event("evt-1", "ECLIPSE", "MOON", 1)).await;
    assert_eq!(mode(home.path()), 0o755);
    for name in ["campanile.db", "campanile.db-wal", "campanile.db-shm", "campanile.lock"] {
        assert_eq!(mode(&home.path().join(name)), 0o600, "{name}");
    }
}

#[tokio::test]
async fn readiness_tells_of_queues_and_loops() {
    let server = Fresh::start(Backend::Embedded);
    let ready = Answer::to(server.request(Method::GET, "/readyz")).await.body;
    assert_eq!(ready["components"]["engine"], "ok", "{ready}");
    let queues = ready["undelivered"].as_object().expect("queues by name");
    assert!(queues.contains_key("notification.dlq") && queues.len() > 1, "{ready}");
    assert!(queues.values().all(Value::is_u64), "{ready}");
}

/// Events wait a minute before they are decided, so the oldest stays open behind more than a page of others.
#[tokio::test]
async fn tail_shows_what_comes_behind_a_page_of_open_events_and_ends_when_told() {
    let server = Fresh::start_with(Backend::Embedded, &[("CAMPANILE_FAN_OUT__INITIAL_DELAY", "60s")]);
    let mut command = campanile(server.folder());
    server.emit(&event("first", "ECLIPSE", "MOON", 1)).await;
    let mut tail = Watched::start(command.args(["--url", &server.url, "tail"]));
    tail.line(&["PENDING", "first"]).await;
    for page in 0..3 {
        let events: Vec<Value> =
            (0..1_000).map(|n| event(&format!("evt-{page}-{n}"), "ECLIPSE", "MOON", 1)).collect();
        server.emit(&json!(events)).await;
    }
    tail.line(&["PENDING", "evt-2-999"]).await;
    assert_eq!(tail.lines().len(), 3_001, "each is shown once");
    let begun = Instant::now();
    assert_eq!(tail.terminate().code(), Some(0));
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
}

/// Like `tail | less` without scrolling.
#[tokio::test]
async fn tail_ends_when_told_although_nobody_reads_it() {
    let server = Fresh::start_with(Backend::Embedded, &[("CAMPANILE_FAN_OUT__INITIAL_DELAY", "60s")]);
    let events: Vec<Value> = (0..1_000).map(|n| event(&format!("evt-{n}"), "ECLIPSE", "MOON", 1)).collect();
    server.emit(&json!(events)).await;
    let mut command = campanile(server.folder());
    command.args(["--url", &server.url, "tail", "-n", "1000"]).stdout(std::process::Stdio::piped());
    let mut child = command.spawn().expect("the binary was built");
    let out = child.stdout.take();
    // A pipe holds fewer than a thousand lines; nothing shows when it is full.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let pid = child.id().to_string();
    assert!(std::process::Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    let ended = until("it ends", async || child.try_wait().ok().flatten()).await;
    assert_eq!(ended.code(), Some(0));
    drop(out);
}
