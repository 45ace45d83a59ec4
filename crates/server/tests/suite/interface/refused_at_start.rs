//! `config check` and `doctor` refuse what `serve` refuses, with the same words.

use serde_json::Value;

use crate::interface::command::Ran;
use crate::interface::configuration::{bare, file};

const SMTP: &str = "[channels.email]\nurl = \"smtp://localhost\"\nfrom = \"a@b.example\"\n";
const POSTGRES: &str = "[database]\nurl = \"postgres://127.0.0.1:1/shop\"\n";
const AMQP: &str = "[broker]\nurl = \"amqp://127.0.0.1:1/%2f\"\n";

/// A configuration, flags, and words of the refusal.
type Refused<'a> = (String, &'a [&'a str], &'a [&'a str]);

fn refused() -> Vec<Refused<'static>> {
    vec![
        (format!("{SMTP}deadline = \"70s\"\n"), &[], &["engine.lease", "60s", "EMAIL"]),
        ("[broker]\nurl = \"amqp://host/%ff\"\n".into(), &[], &["the URL of the broker", "UTF-8"]),
        (
            "[broker]\nurl = \"amqp://host/x?heartbeat=5\"\n".into(),
            &[],
            &["the URL of the broker", "query or fragment"],
        ),
        (
            "[broker]\nurl = \"amqps://host\"\nca_file = \"/dev/null\"\n".into(),
            &[],
            &["broker.ca_file", "/dev/null"],
        ),
        (format!("{AMQP}prefix = \"amq.\"\n"), &[], &["broker.prefix"]),
        (
            "[database]\nurl = \"postgres://host:port/shop\"\n".into(),
            &[],
            &["database.url", "postgres://user"],
        ),
        (
            "[database]\nurl = \"postgres://h/d?sslmode=verify-ca\"\n".into(),
            &[],
            &["database.url", "verify-full"],
        ),
        (
            format!("{POSTGRES}direct_url = \"postgres://host:port/shop\"\n"),
            &[],
            &["database.direct_url", "postgres://user"],
        ),
        (format!("{POSTGRES}ca_file = \"/dev/null\"\n"), &[], &["/dev/null", "no certificate"]),
        (
            "[auth]\nadmin_key_file = \"/no/such/file\"\n".into(),
            &[],
            &["auth.admin_key_file", "/no/such/file"],
        ),
        ("[auth]\nadmin_key_file = \"/dev/null\"\n".into(), &[], &["auth.admin_key_file", "empty"]),
        // Flags count as for `serve`.
        (String::new(), &["--roles", "api"], &["engine.roles", "this instance does not run"]),
        (String::new(), &["--broker-url", "kafka://host"], &["broker.url", "kafka"]),
        (String::new(), &["--database-url", "mysql://host/shop"], &["database.url", "mysql"]),
    ]
}

#[test]
fn what_is_refused_at_the_start_is_refused_by_checks_with_the_same_words() {
    let folder = tempfile::tempdir().unwrap();
    for (text, flags, words) in refused() {
        let file = file(folder.path(), "bad.toml", &text);
        let run = |command: &[&str]| {
            let mut bare = bare(folder.path());
            bare.env("CAMPANILE_SERVER__LISTEN", "127.0.0.1:0");
            Ran::of(bare.args(["--config", &file]).args(command).args(flags))
        };
        let check = run(&["config", "check"]);
        let said = check.err.trim().to_owned();
        check.failed(1, words);

        let doctor = run(&["--json", "doctor"]);
        assert_eq!(doctor.code, Some(1), "{text}: {doctor:?}");
        let findings: Vec<Value> = serde_json::from_str(&doctor.out).unwrap();
        let wrong: Vec<&Value> = findings.iter().filter(|finding| finding["level"] == "wrong").collect();
        assert!(wrong.len() == 1 && wrong[0]["subject"] == "configuration", "{text}: {wrong:?}");
        assert_eq!(said, format!("campanile: {}", wrong[0]["what"].as_str().unwrap()), "{text}");

        // Last, because a server that starts against expectation would keep running.
        let serve = run(&["serve"]);
        assert_eq!(serve.err.trim(), said, "{text}");
        serve.failed(1, words);
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing but the file is there");
}

#[test]
fn what_an_instance_never_uses_keeps_nobody_from_starting() {
    let folder = tempfile::tempdir().unwrap();
    let text = format!("{POSTGRES}[broker]\nurl = \"amqps://host\"\nca_file = \"/dev/null\"\n");
    let file = file(folder.path(), "api.toml", &text);
    let check = |roles: &str| {
        Ran::of(bare(folder.path()).args(["--config", &file, "config", "check", "--roles", roles]))
    };
    check("api,publish").failed(1, &["broker.ca_file"]);
    check("api,fan_out").succeeded();
}
