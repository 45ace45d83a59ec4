//! `campanile demo`: the whole pipeline in one command, repeatedly, next to another demo, and with its port in use.

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use reqwest::Method;

use crate::interface::command::{Ran, Watched};
use crate::interface::fresh::{Answer, client};
use crate::support::home::campanile;
use crate::support::{Backend, Home};

/// Runs as a person would, without a configured key.
fn demo(folder: &Path) -> Command {
    let mut command = campanile(folder);
    command.env_remove("CAMPANILE_AUTH__ADMIN_KEY").arg("demo");
    command
}

/// Asserts that the tables have the important rows.
fn assert_shows_everything(said: &str) {
    let row = |parts: &[&str]| {
        let found = said.lines().any(|line| parts.iter().all(|part| line.contains(part)));
        assert!(found, "no line has {parts:?}:\n{said}");
    };
    row(&["RESERVATION_REQUESTED", "Trattoria da Anna", "EMAIL", "PUSH", "SMS", "WEBSOCKET", "SLACK"]);
    row(&["Anna Rossi", "MANAGER", "RESTAURANT_USER 1", "sent"]);
    row(&["Bruno Conti", "user off", "only MANAGER"]);
    row(&["Carla Greco", "only MANAGER"]);
    row(&["Davide Sala", "no address"]);
    row(&["RESERVATION_CONFIRMED", "CUSTOMER 42"]);
    row(&["John Doe", "sent"]);
    row(&["ORDER_CREATED", "O Marinheiro"]);
    row(&["Rui Costa", "beyond max 1", "only HIGH"]);
    row(&["PARTNER_ASSIGNMENT", "Bella Vista Travel"]);
    row(&["Elena Ferri", "group off"]);
    row(&["USER_REGISTERED"]);
    row(&["Giulia Bianchi", "unsupported"]);
    // Carla's quiet hours cover all but one minute of the day.
    let (quiet, awake) = (["28 sent", "17 suppressed"], ["29 sent", "16 suppressed"]);
    row(&if said.contains("quiet 00:00-23:59") { quiet } else { awake });
    row(&["6 events", "captured locally, not delivered", "16 held for the inbox"]);
    for word in ["failed", "waiting", "\u{1b}", "Fabio Neri"] {
        assert!(!said.contains(word), "`{word}` in:\n{said}");
    }
}

#[test]
fn it_ends_well_and_works_again_in_the_same_folder() {
    let folder = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        assert_shows_everything(&Ran::of(demo(folder.path()).arg("--exit")).succeeded());
    }
    // It creates its own folder and leaves the data folder alone.
    let made: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(made, ["demo"]);
}

#[test]
fn it_runs_on_servers_too_and_again_in_the_same_database() {
    let home = Home::new(Backend::Servers);
    let (database, broker) = (home.database.as_ref().unwrap(), home.broker.as_ref().unwrap());
    for _ in 0..2 {
        let mut demo = demo(home.path());
        demo.args(["--exit", "--database-url", &database.url, "--broker-url", &broker.url]);
        let said = Ran::of(demo.env("CAMPANILE_BROKER__PREFIX", &broker.prefix)).succeeded();
        assert_shows_everything(&said);
    }
}

#[test]
fn a_taken_port_is_no_reason_not_to_see_it_unless_it_was_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let said =
        Ran::of(demo(folder.path()).arg("--exit").env("CAMPANILE_SERVER__LISTEN", &address)).succeeded();
    assert_shows_everything(&said);
    let asked = Ran::of(demo(folder.path()).args(["--exit", "--listen", &address]));
    asked.failed(1, &[&address, "cannot listen on"]);
}

#[tokio::test]
async fn it_stays_up_and_another_one_runs_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = Watched::start(demo(folder.path()).env("COLUMNS", "80"));
    let line = first.line(&["Running at http://"]).await;
    let url = line.split([' ', ';']).find(|word| word.starts_with("http://")).unwrap().to_owned();
    assert!(first.lines().iter().all(|line| line.chars().count() <= 80), "{:?}", first.lines());

    assert_shows_everything(&Ran::of(demo(folder.path()).arg("--exit")).succeeded());
    let alive = client().request(Method::GET, format!("{url}/healthz"));
    assert_eq!(Answer::to(alive).await.status, 200);

    // The proposed commands work when pasted, even those that were too long for the screen.
    let lines = first.lines();
    let proposed = lines.iter().skip_while(|line| !line.contains("from another terminal")).skip(1);
    let proposed = proposed.map(String::as_str).collect::<Vec<_>>().join("\n");
    assert_eq!(proposed.matches("campanile ").count(), 3, "trace, explain and emit: {proposed}");
    assert!(proposed.lines().all(|line| line.chars().count() <= 80), "{proposed}");
    let binary = Path::new(env!("CARGO_BIN_EXE_campanile")).parent().unwrap();
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap_or_default());
    let mut shell = Command::new("sh");
    shell.current_dir(folder.path()).env("PATH", path).args(["-euc", &proposed]);
    let said = Ran::of(&mut shell).succeeded();
    for part in ["Anna Rossi", "Bruno Conti", "accepted", "\"items\""] {
        assert!(said.contains(part), "`{part}` is not in\n{said}");
    }
    assert!(first.terminate().success());
}
