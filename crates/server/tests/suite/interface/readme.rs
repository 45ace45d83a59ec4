//! The README's commands, pasted in order: a server, a recipient, an event, and its result. Also instances on servers,
//! with a service that writes its events by SQL.

use std::net::TcpListener;

use campanile_store::conformance::TestDatabase;
use serde_json::Value;

use crate::interface::command::{Ran, Watched};
use crate::interface::documents::{ADDRESS, blocks, shell, shell_blocks};
use crate::interface::fresh::client;
use crate::support::{Backend, Home, until};

const README: &str = include_str!("../../../../../README.md");

#[tokio::test]
async fn the_first_event_is_delivered_by_what_the_readme_says() {
    let folder = tempfile::tempdir().unwrap();
    let address = free_address();
    let mut blocks = shell_blocks(README, Some("Your first event"));
    assert_eq!(blocks.remove(0), "campanile serve", "the first terminal");

    let mut serve = shell(folder.path());
    serve.env("CAMPANILE_SERVER__LISTEN", &address).args(["-euc", "exec campanile serve"]);
    let mut server = Watched::start(&mut serve);
    server.line(&["listens on", &address]).await;

    let script = blocks.join("\n").replace(ADDRESS, &address);
    let mut second = shell(folder.path());
    let ran = Ran::of(second.env("CAMPANILE_SERVER__LISTEN", &address).args(["-euxc", &script]));
    assert_eq!(ran.code, Some(0), "{}\n{}", ran.out, ran.err);
    for part in [
        "{\"written\":1}",
        "accepted order-7-ready",
        "Order 7 is ready",
        "Anna",
        "\"created\":true",
        "rows written",
        "chiede un tavolo",
    ] {
        assert!(ran.out.contains(part), "`{part}` is not in\n{}", ran.out);
    }
    assert!(ran.out.lines().all(|line| line.starts_with('{') || line.chars().count() <= 80), "{}", ran.out);

    // A person who checks a little later sees both events with Anna.
    let key = std::fs::read_to_string(folder.path().join("campanile-data/admin.key")).unwrap();
    let captured = until("both e-mails are captured", async || {
        let asked = client().get(format!("http://{address}/v1/captured")).bearer_auth(key.trim());
        let text = asked.send().await.ok()?.text().await.ok()?;
        let page: Value = serde_json::from_str(&text).ok()?;
        let items = page["items"].as_array()?.clone();
        (items.len() >= 2).then_some(items)
    })
    .await;
    let mut events: Vec<&str> = captured.iter().map(|item| item["event_id"].as_str().unwrap()).collect();
    events.sort_unstable();
    assert_eq!(events, ["order-7-ready", "order-8-ready"]);
    assert!(captured.iter().all(|item| item["address"] == "anna@example.com"), "{captured:?}");
    assert!(server.terminate().success());
}

/// An address that was free a moment ago.
fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// Replaces the quoted value of `name=` in the script.
fn with_value(script: &str, name: &str, value: &str) -> String {
    let (before, rest) = script.split_once(&format!("{name}='")).unwrap_or_else(|| panic!("{name} is set"));
    let (_, after) = rest.split_once('\'').expect("the value is quoted");
    format!("{before}{name}='{value}'{after}")
}

#[tokio::test]
async fn instances_on_servers_work_as_the_readme_says() {
    let home = Home::new(Backend::Servers);
    let (database, broker) = (home.database.as_ref().unwrap(), home.broker.as_ref().unwrap());
    let block = shell_blocks(README, Some("On PostgreSQL and RabbitMQ")).remove(0);
    let block = with_value(&block, "CAMPANILE_DATABASE__URL", &database.url);
    let block = with_value(&block, "CAMPANILE_BROKER__URL", &broker.url);
    let (servers, commands): (Vec<&str>, Vec<&str>) =
        block.lines().partition(|line| line.starts_with("campanile serve"));
    let in_shell = |script: &str, address: &str| {
        let mut shell = shell(home.path());
        shell.env("CAMPANILE_BROKER__PREFIX", &broker.prefix).env("CAMPANILE_SERVER__LISTEN", address);
        shell.args(["-euc", script]);
        shell
    };
    let ran = Ran::of(&mut in_shell(&commands.join("\n"), &free_address())).succeeded();
    assert!(ran.contains("is up to date") && ran.contains("none pending"), "{ran}");

    let exports: Vec<&str> = commands.into_iter().filter(|line| line.starts_with("export ")).collect();
    let mut instances = Vec::new();
    assert_eq!(servers.len(), 2, "{servers:?}");
    for server in servers {
        let (script, address) = (format!("{}\nexec {server}", exports.join("\n")), free_address());
        let instance = Watched::start(&mut in_shell(&script, &address));
        instance.line(&["listens on", &address]).await;
        instances.push((instance, address));
    }

    // A service that shares the database emits as in the README.
    database.execute(&blocks(README, Some("Emit from your own transaction"), "sql").remove(0)).await;
    let key = std::fs::read_to_string(home.path().join("campanile-data/admin.key")).unwrap();
    for event in ["order-7-created", "order-8-created"] {
        for (_, address) in &instances {
            let url = format!("http://{address}/v1/events/{event}");
            let trace = until("the event is taken on", async || {
                let answer = client().get(&url).bearer_auth(key.trim()).send().await.ok()?;
                let trace: Value = serde_json::from_str(&answer.text().await.ok()?).ok()?;
                (trace["event"]["status"] != "PENDING").then_some(trace)
            })
            .await;
            assert_eq!(trace["event"]["event_type"], "ORDER_CREATED", "{trace}");
        }
    }
    for (mut instance, _) in instances {
        assert!(instance.terminate().success());
    }
}

#[test]
fn the_two_commands_that_everybody_knows_stay() {
    for command in ["\n```\ncargo run --release -- demo\n```\n", "\n```\ncargo xtask test\n```\n"] {
        assert!(README.contains(command), "{command}");
    }
}
