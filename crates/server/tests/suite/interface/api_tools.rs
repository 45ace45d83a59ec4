//! Tools that read the API's document: a generated client, the reference page in a browser, and Schemathesis, which
//! tries what the document permits and what it does not.

use std::path::Path;
use std::process::{Command, Output};

use campanile_testkit::on_both;
use campanile_testkit::token::{Algorithm, Issuer};
use serde_json::{Value, json};

use crate::interface::fresh::Fresh;
use crate::interface::permissions::{claims, start, trusting};
use crate::support::{Backend, KEY, staff};

/// `cargo xtask test` installs the tools and names them.
fn tool(variable: &str) -> String {
    std::env::var(variable)
        .unwrap_or_else(|_| panic!("{variable} is not set; run the tests with `cargo xtask test`"))
}

/// A folder with these scripts, in which Node finds its packages.
fn node_folder(scripts: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("there is room");
    std::os::unix::fs::symlink(tool("CAMPANILE_TEST_NODE_MODULES"), folder.path().join("node_modules"))
        .expect("there is room");
    std::fs::write(folder.path().join("package.json"), r#"{ "type": "module" }"#).expect("there is room");
    for (name, text) in scripts {
        std::fs::write(folder.path().join(name), text).expect("there is room");
    }
    folder
}

#[track_caller]
fn run(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().expect("the tool is there");
    let (said, warned) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{command:?}: {status}\n{said}\n{warned}");
    said.into_owned()
}

fn node(folder: &Path, program: &str, arguments: &[&str]) -> String {
    run(Command::new("node").arg(program).args(arguments).current_dir(folder))
}

#[tokio::test]
async fn a_client_that_is_generated_from_the_document_compiles_and_emits_an_event() {
    let server = Fresh::start(Backend::Embedded);
    server.put("/v1/recipients", staff()).await;
    let folder = node_folder(&[("emit.ts", include_str!("../../web/emit.ts"))]);
    let document = server.get("/openapi.json").await;
    std::fs::write(folder.path().join("openapi.json"), document.to_string()).expect("there is room");
    node(
        folder.path(),
        "node_modules/openapi-typescript/bin/cli.js",
        &["openapi.json", "--output", "schema.ts"],
    );
    let options = ["--strict", "--target", "es2022", "--module", "nodenext", "--skipLibCheck"];
    node(folder.path(), "node_modules/typescript/bin/tsc", &[&options[..], &["emit.ts"]].concat());
    let said = node(folder.path(), "emit.js", &[&server.url, KEY]);
    let said: Value = serde_json::from_str(&said).expect("it prints JSON");
    assert_eq!(said["accepted"], json!({ "event_id": "from-typescript", "created": true }));
    let trace = server.settled("from-typescript").await;
    assert_eq!(trace["event"]["payload"]["title"], "Order 7 is ready");
}

#[tokio::test]
async fn the_reference_page_shows_every_call_and_asks_no_other_host() {
    let server = Fresh::start(Backend::Embedded);
    let folder = node_folder(&[("docs_page.mjs", include_str!("../../web/docs_page.mjs"))]);
    let mut arguments = vec![server.url.clone(), tool("CAMPANILE_TEST_CHROMIUM")];
    arguments.extend(std::env::var("CAMPANILE_TEST_SCREENSHOT"));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let said = node(folder.path(), "docs_page.mjs", &arguments);
    let seen: Value = serde_json::from_str(&said).expect("it prints JSON");
    let requested = seen["requested"].as_array().expect("it is a list");
    let foreign: Vec<&Value> = requested
        .iter()
        .filter(|url| {
            let url = url.as_str().unwrap_or_default();
            !url.starts_with(&format!("{}/", server.url)) && !url.starts_with("data:")
        })
        .collect();
    assert!(!requested.is_empty() && foreign.is_empty(), "{foreign:?}");
    assert_eq!(seen["complaints"], json!([]));
    let text = seen["text"].as_str().expect("there is text");
    for call in ["Emit events", "Read the trace of an event", "Create an API key"] {
        assert!(text.contains(call), "{call}: {text}");
    }
}

async fn schemathesis_finds_nothing(backend: Backend) {
    let folder = tempfile::tempdir().expect("there is room");
    let issuer = Issuer::new();
    let server = start(backend, &trusting(&issuer, folder.path()));
    server.put("/v1/recipients", staff()).await;
    let seconds = std::env::var("CAMPANILE_TEST_SCHEMATHESIS_SECONDS").unwrap_or_else(|_| "30".to_owned());
    let configuration = include_str!("../../web/schemathesis.toml");
    std::fs::write(folder.path().join("schemathesis.toml"), configuration).expect("there is room");
    let said = run(Command::new(tool("CAMPANILE_TEST_SCHEMATHESIS"))
        .current_dir(folder.path())
        .args(["run", "--checks", "all", "--seed", "1", "--no-color", "--max-time", &seconds])
        .env("API_KEY", KEY)
        .env("USER_TOKEN", issuer.token(Algorithm::Es256, &claims("RESTAURANT_USER", "1")))
        .arg(format!("{}/openapi.json", server.url)));
    assert!(said.contains("passed"), "{said}");
    assert_eq!(server.logged(&["panicked"]), [""; 0]);
}

on_both! {
    schemathesis_finds_nothing;
}
