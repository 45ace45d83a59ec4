//! The README's first steps, pasted in order: a server, an own recipient, an own event, and what became of it.

use std::net::TcpListener;

use serde_json::Value;

use crate::command::{Ran, Watched};
use crate::documents::{ADDRESS, shell, shell_blocks};
use crate::fresh::client;
use crate::support::until;

const README: &str = include_str!("../../../../README.md");

#[tokio::test]
async fn the_first_event_is_delivered_by_what_the_readme_says() {
    let folder = tempfile::tempdir().unwrap();
    // Free a moment ago, and so it is when the server comes.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
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

    // The person who looks a little later sees both events with Anna.
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

#[test]
fn the_two_commands_that_everybody_knows_stay() {
    for command in ["\n```\ncargo run --release -- demo\n```\n", "\n```\ncargo xtask test\n```\n"] {
        assert!(README.contains(command), "{command}");
    }
}
