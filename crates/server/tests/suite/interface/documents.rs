//! The commands of the README and of the guide on people and rules work when pasted in order.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use campanile_domain::people::recipient::{Entity, Recipient};
use campanile_domain::rules::row::{Audience, Preference, Route, Row, Setting, Template};
use campanile_testkit::on_both;
use serde_json::{Value, json};

use crate::interface::command::Ran;
use crate::interface::fresh::Fresh;
use crate::support::{Backend, KEY};

const GUIDE: &str = include_str!("../../../../../docs/guides/people-and-rules.md");
/// The address of the server in the documents.
pub const ADDRESS: &str = "127.0.0.1:8400";

/// The shell blocks below a heading, up to the next of its level; without a heading, of the whole document.
pub fn shell_blocks(document: &str, heading: Option<&str>) -> Vec<String> {
    blocks(document, heading, "sh")
}

/// The blocks of any language.
pub fn blocks(document: &str, heading: Option<&str>, language: &str) -> Vec<String> {
    let chapter = match heading {
        None => document,
        Some(heading) => {
            let (_, chapter) =
                document.split_once(&format!("\n## {heading}\n")).expect("the chapter is there");
            chapter.split("\n## ").next().unwrap_or_default()
        }
    };
    let begin = format!("```{language}\n");
    let blocks = chapter.split(&begin).skip(1).map(|rest| rest.split("\n```").next().unwrap_or_default());
    blocks.map(str::to_owned).collect()
}

/// A shell in the folder that finds the binary, without Campanile's variables.
pub fn shell(folder: &Path) -> Command {
    let mut shell = Command::new("bash");
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("CAMPANILE_") {
            shell.env_remove(name);
        }
    }
    let binary = Path::new(env!("CARGO_BIN_EXE_campanile")).parent().expect("the binary lies in a folder");
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap_or_default());
    shell.current_dir(folder).env("PATH", path);
    shell
}

async fn every_example_of_the_guide_on_people_and_rules_works(backend: Backend) {
    let server = Fresh::start(backend);
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("campanile-data")).unwrap();
    std::fs::write(folder.path().join("campanile-data/admin.key"), KEY).unwrap();
    let script = shell_blocks(GUIDE, None).join("\n").replace(&format!("http://{ADDRESS}"), &server.url);
    let mut shell = shell(folder.path());
    let ran = Ran::of(shell.env("CAMPANILE_URL", &server.url).args(["-euxc", &script]));
    assert_eq!(ran.code, Some(0), "{}\n{}", ran.out, ran.err);

    // The examples have the effect that the guide describes.
    let trace = server.settled("alarm-1").await;
    assert_eq!((&trace["event"]["status"], &trace["event"]["priority"]), (&json!("PROCESSED"), &Value::Null));
    let titles: Vec<&Value> =
        trace["notifications"].as_array().unwrap().iter().map(|row| &row["title"]).collect();
    assert_eq!(titles, ["Allarme in cucina"], "only Anna has a phone: {trace}");
    for (path, left) in [
        ("recipients", 3),
        ("entities", 1),
        ("audiences", 3),
        ("settings", 3),
        ("preferences", 2),
        ("templates", 2),
    ] {
        assert_eq!(server.items(&format!("/v1/{path}")).await.len(), left, "{path}");
    }
}

/// The columns of a row, from its minimal form.
fn columns<T: Row>(least: Value) -> BTreeSet<String> {
    let row: T = serde_json::from_value(least).expect("it is a row");
    let object = serde_json::to_value(row).expect("a row is JSON");
    object.as_object().expect("a row is an object").keys().cloned().collect()
}

#[test]
fn the_guide_has_every_field_and_an_example_of_each_call() {
    let user = json!({"user_type": "CUSTOMER", "user_id": 1, "channel": "SMS"});
    for (heading, path, columns) in [
        ("Recipients", "recipients", columns::<Recipient>(json!({"user_type": "CUSTOMER", "user_id": 1}))),
        ("Entities", "entities", columns::<Entity>(json!({"entity_type": "RESTAURANT", "entity_id": 1}))),
        (
            "Audiences",
            "audiences",
            columns::<Audience>(json!({"event_type": "T", "name": "n", "recipient_type": "ALL"})),
        ),
        ("Routing", "routing", columns::<Route>(json!({"channel": "SMS"}))),
        (
            "Settings of groups",
            "settings",
            columns::<Setting>(json!({"entity_type": "RESTAURANT", "channel": "SMS"})),
        ),
        ("Preferences of users", "preferences", columns::<Preference>(user)),
        ("Templates", "templates", columns::<Template>(json!({"title": "t"}))),
    ] {
        let (_, chapter) = GUIDE.split_once(&format!("\n## {heading}\n")).expect(heading);
        let chapter = chapter.split("\n## ").next().unwrap();
        for call in
            [format!("-X PUT http://{ADDRESS}/v1/{path}"), format!("-X DELETE 'http://{ADDRESS}/v1/{path}?")]
        {
            assert!(chapter.contains(&call), "`{call}` is not below {heading}");
        }
        for column in columns {
            assert!(chapter.contains(&format!("`{column}`")), "`{column}` is not below {heading}");
        }
    }
}

on_both! {
    every_example_of_the_guide_on_people_and_rules_works;
}
