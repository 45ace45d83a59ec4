//! A channel is named in few files: its row in the table of facts, its own folder, its section of the configuration.
//!
//! Elsewhere code asks for a fact, and SQL gets channels as parameters, so that a new channel changes no other file.
//! Tests, the benchmark and the torture name channels as they like.

use super::Violation;
use super::blank::code_only;
use super::tree::File;

/// One row per channel. The names are read from here.
const FACTS: &str = "crates/domain/src/channel/facts.rs";

/// Files that may name every channel, with the reason.
const ALLOWED: [(&str, &str); 4] = [
    (FACTS, "the table"),
    ("crates/server/src/config/channels/mod.rs", "lists the sections of the configuration"),
    ("crates/store/src/postgres/migrations/V1__first_tables.sql", "has the routing of a new database"),
    ("crates/store/src/sqlite/migrations/V1__first_tables.sql", "has the routing of a new database"),
];

/// Code that only tests run.
const TESTS: [&str; 3] = ["tests", "conformance", "fixtures"];
const TEST_CRATES: [&str; 2] = ["crates/bench/", "crates/torture/"];

pub fn check(files: &[File]) -> Vec<Violation> {
    let Some(facts) = files.iter().find(|file| file.path == FACTS) else { return Vec::new() };
    let channels = channels(&facts.text);
    if channels.is_empty() {
        return vec![Violation::new(FACTS, 1, "has no row with `channel: Channel::…` and `name: \"…\"`")];
    }
    files.iter().filter(|file| is_checked(file)).flat_map(|file| named_in(file, &channels)).collect()
}

struct Channel<'a> {
    variant: &'a str,
    name: &'a str,
}

fn channels(facts: &str) -> Vec<Channel<'_>> {
    let after = |prefix| facts.lines().filter_map(move |line| line.trim().strip_prefix(prefix));
    let variants = after("channel: Channel::").map(|text| text.trim_end_matches(','));
    let names = after("name: \"").map(|text| text.trim_end_matches("\","));
    variants.zip(names).map(|(variant, name)| Channel { variant, name }).collect()
}

fn is_checked(file: &File) -> bool {
    let is_source =
        (file.is_rust() || file.is_sql()) && file.path.starts_with("crates/") && file.is_in("src");
    let is_test = TESTS.iter().any(|folder| file.is_in(folder))
        || TEST_CRATES.iter().any(|folder| file.path.starts_with(folder))
        || ["tests", "test_database"].contains(&file.stem());
    is_source && !is_test && !ALLOWED.iter().any(|(path, _)| *path == file.path)
}

fn named_in(file: &File, channels: &[Channel<'_>]) -> Vec<Violation> {
    let code = if file.is_rust() { code_only(&file.text) } else { String::new() };
    let end = code.lines().position(|line| line.trim_start().starts_with("#[cfg(test)]"));
    let lines = file.text.lines().enumerate().take(end.unwrap_or(usize::MAX));
    let mut code = code.lines();
    let mut violations = Vec::new();
    for (index, line) in lines {
        let code = code.next().unwrap_or_default();
        if imports_channels(code) {
            violations.push(violation(file, index, "a list of channels"));
        }
        let named = |channel: &&Channel<'_>| {
            has_variant(code, channel.variant) || has_literal(uncommented(file, line), channel.name)
        };
        if let Some(channel) = channels.iter().filter(|channel| !is_own(file, channel)).find(named) {
            violations.push(violation(file, index, channel.name));
        }
    }
    violations
}

fn violation(file: &File, index: usize, named: &str) -> Violation {
    let message =
        format!("names {named}; ask for a fact of the channel ({FACTS}), or take it as a parameter");
    Violation::new(&file.path, index + 1, message)
}

/// Whether the file is in the channel's folder, or is its section of the configuration.
fn is_own(file: &File, channel: &Channel<'_>) -> bool {
    let name = channel.name.to_lowercase();
    let folder = format!("crates/channels/src/{name}");
    [format!("{folder}.rs"), format!("crates/server/src/config/channels/{name}.rs")].contains(&file.path)
        || file.path.starts_with(&format!("{folder}/"))
}

/// `use Channel::{…}` or `use Channel::*`, after which variants stand alone.
fn imports_channels(code: &str) -> bool {
    code.contains("Channel::{") || code.contains("Channel::*")
}

fn has_variant(code: &str, variant: &str) -> bool {
    let path = format!("Channel::{variant}");
    code.match_indices(&path).any(|(at, _)| {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let (before, after) = (&code[..at], &code[at + path.len()..]);
        !before.ends_with(is_word) && !after.starts_with(is_word)
    })
}

/// Whether the line has the name as a whole text of Rust or SQL.
fn has_literal(line: &str, name: &str) -> bool {
    [format!("\"{name}\""), format!("\\\"{name}\\\""), format!("'{name}'")]
        .iter()
        .any(|text| line.contains(text))
}

fn uncommented<'a>(file: &File, line: &'a str) -> &'a str {
    line.split(if file.is_sql() { "--" } else { "//" }).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "//! a\n    channel: Channel::Email,\n    name: \"EMAIL\",\n    \
        channel: Channel::Sms,\n    name: \"SMS\",\n";

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let file = |path: &str, text: &str| File { path: path.into(), text: text.into() };
        let found = check(&[file(FACTS, TABLE), file(path, text)]);
        found.iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn a_channel_is_found_as_a_variant_and_as_a_text() {
        for line in [
            "if channel == Channel::Email {",
            "channel::Channel::Sms",
            "use Channel::{Email, Sms};",
            "row(\"EMAIL\")",
            "execute(\"channel = 'SMS'\")",
            "say(\"{\\\"channel\\\": \\\"SMS\\\"}\")",
        ] {
            assert_eq!(lines("crates/a/src/b.rs", &format!("//! a\n{line}\n")), [2], "{line}");
        }
        assert_eq!(lines("crates/a/src/sql/b.sql", "-- a\nWHERE channel = 'EMAIL'\n"), [2]);
    }

    #[test]
    fn other_words_and_comments_do_no_harm() {
        for line in [
            "Channel::Emails",
            "MyChannel::Email",
            "say(\"EMAILS\")",
            "say(\"add EMAIL\")",
            "// Channel::Email and \"EMAIL\"",
            "Channel::ALL",
        ] {
            assert_eq!(lines("crates/a/src/b.rs", line), [0; 0], "{line}");
        }
        assert_eq!(lines("crates/a/src/sql/b.sql", "-- as for 'EMAIL'\nSELECT 1"), [0; 0]);
    }

    #[test]
    fn a_channels_own_files_name_that_channel_and_no_other() {
        for path in ["crates/channels/src/email/mod.rs", "crates/server/src/config/channels/email.rs"] {
            assert_eq!(lines(path, "Channel::Email\nChannel::Sms"), [2], "{path}");
        }
    }

    #[test]
    fn tests_and_the_allowed_files_name_channels() {
        for path in [
            "crates/a/tests/b.rs",
            "crates/store/src/conformance/b.rs",
            "crates/a/src/b/tests.rs",
            "crates/bench/src/b.rs",
            "crates/server/src/config/channels/mod.rs",
            "docs/b.md",
        ] {
            assert_eq!(lines(path, "Channel::Email \"EMAIL\""), [0; 0], "{path}");
        }
        assert_eq!(lines("crates/a/src/b.rs", "a\n#[cfg(test)]\nmod tests { Channel::Sms }"), [0; 0]);
    }

    #[test]
    fn an_unreadable_table_is_a_problem() {
        let table = File { path: FACTS.into(), text: "//! a".into() };
        assert_eq!(check(&[table]).len(), 1);
    }
}
