//! Names use the words that a reader would search for, not those of a dialect that the code was once written in.
//!
//! Identifiers of Rust and SQL, and names of files, are split into words: `MAX_DESK`, `DeskSize` and `desk.rs` have
//! `desk` in them. Ordinary English is refused only where it named something: as a whole identifier (`look`, but not
//! `looks_encoded`), or as a type of the pipeline (`Rest`, but not the `rest` of a slice). Comments and strings are
//! prose, which people judge.

use super::Violation;
use super::blank::code_only;
use super::tree::File;

/// Refused as a word of any identifier, each with what to say instead.
const WORDS: [(&str, &str); 13] = [
    ("rush", "burst"),
    ("crowd", "backpressure, or what there are many of"),
    ("crowds", "backpressure, or what there are many of"),
    ("patience", "a timeout named after what it bounds"),
    ("desk", "in-flight queue"),
    ("desks", "in-flight queues"),
    ("untold", "unsent or pending signals"),
    ("household", "process group"),
    ("diary", "journal"),
    ("letter", "message, dead letter or character"),
    ("letters", "messages, dead letters or characters"),
    ("places", "permits or positions"),
    ("rooms", "capacity"),
];

/// Stays: AMQP and our users call it so.
const DEAD: &str = "dead";

/// Refused as whole identifiers, written as one or as another kind of name: `ahead`, `Ahead`, `AHEAD`.
const NAMES: [(&str, &str); 22] = [
    ("look", "poll, probe or examine"),
    ("looked", "polled or probed"),
    ("look_again", "re-poll"),
    ("may_look", "may_probe"),
    ("ahead", "lookahead or offset"),
    ("turn", "permit"),
    ("turns", "permits"),
    ("run_beside", "run_urgent_worker"),
    ("run_along", "run_extra_worker"),
    ("keeps_up", "settle_capacity"),
    ("spare_signals", "suppress_notify"),
    ("tell", "notify"),
    ("hear", "subscribe"),
    ("offers", "extensions"),
    ("picture", "table or diagram"),
    ("is_there", "the state that is asked for"),
    ("sort_out", "classify"),
    ("told_already", "sent_by_other"),
    ("event_post", "send_once"),
    ("back_door", "test_database"),
    ("so_many", "count"),
    ("comes_to", "result"),
];

/// Types of the pipeline that have had better names since. Elsewhere these may mean what they say.
const TYPES: [(&str, &str); 12] = [
    ("Rest", "IdleBackoff"),
    ("Over", "OutcomeQueue"),
    ("Post", "AddressClaim"),
    ("Passed", "ClaimWatermark"),
    ("HeldEvents", "ClaimedEvents"),
    ("Fresh", "New"),
    ("Unfinished", "Continuing"),
    ("These", "ByIds"),
    ("DoubtStore", "SendAdminStore"),
    ("WaitingStore", "QueueAgeStore"),
    ("LostFrom", "RepublishCursor"),
    ("Verdict", "Resolution"),
];
const PIPELINE: [&str; 2] = ["crates/engine/", "crates/store/"];

pub fn check(file: &File) -> Vec<Violation> {
    let code = if file.is_rust() {
        code_only(&file.text)
    } else if file.is_sql() {
        sql_only(&file.text)
    } else {
        return Vec::new();
    };
    let mut violations: Vec<Violation> =
        refused(file.stem()).map(|instead| violation(file, 1, file.stem(), instead)).into_iter().collect();
    let has_types = PIPELINE.iter().any(|folder| file.path.starts_with(folder));
    for (index, line) in code.lines().enumerate() {
        for name in identifiers(line) {
            let renamed = TYPES.iter().find(|(old, _)| has_types && *old == name).map(|(_, new)| *new);
            if let Some(instead) = refused(name).or(renamed) {
                violations.push(violation(file, index + 1, name, instead));
            }
        }
    }
    violations
}

fn violation(file: &File, line: usize, name: &str, instead: &str) -> Violation {
    Violation::new(&file.path, line, format!("the name `{name}` is private dialect; say {instead}"))
}

/// What to say instead, if the name may not stay.
fn refused(name: &str) -> Option<&'static str> {
    let words = words(name);
    let whole = words.join("_");
    if let Some((_, instead)) = NAMES.iter().find(|(refused, _)| *refused == whole) {
        return Some(instead);
    }
    words.iter().enumerate().find_map(|(index, word)| {
        let is_dead = index.checked_sub(1).is_some_and(|before| words[before] == DEAD);
        let (_, instead) = WORDS.iter().find(|(refused, _)| refused == word)?;
        (!is_dead).then_some(*instead)
    })
}

/// The words of `SnakeCase`, `snake_case` and `SNAKE_CASE`, in lower case.
fn words(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut before = '_';
    for c in name.chars() {
        let begins = before == '_' || c.is_uppercase() && !before.is_uppercase();
        if c != '_' {
            match words.last_mut() {
                Some(word) if !begins => word.extend(c.to_lowercase()),
                _ => words.push(c.to_lowercase().collect()),
            }
        }
        before = c;
    }
    words
}

fn identifiers(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|name| !name.is_empty())
}

/// SQL without its comments and strings.
fn sql_only(source: &str) -> String {
    let mut code = String::with_capacity(source.len());
    for line in source.lines() {
        let line = line.split("--").next().unwrap_or_default();
        // Every second part is a string.
        code.extend(line.split('\'').step_by(2).flat_map(|part| [part, " "]));
        code.push('\n');
    }
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(&File { path: path.into(), text: text.into() }).iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn words_are_found_in_every_kind_of_name() {
        for name in ["MAX_DESK", "DeskSize", "in_desk", "crowd_of", "Rush", "letters", "CAPTURED_LETTER"] {
            assert_eq!(lines("crates/a/src/b.rs", &format!("\nlet a = {name};")), [2], "{name}");
        }
    }

    #[test]
    fn ordinary_english_passes() {
        for name in [
            "return",
            "lookup",
            "replaces",
            "lookahead",
            "Lookahead",
            "rest",
            "post",
            "turn_page",
            "in_place",
            "room",
            "looks_encoded",
            "take_over",
            "dead_letter",
            "DeadLetter",
            "DEAD_LETTERS",
            "brush",
            "Fresh",
            "handover",
        ] {
            assert_eq!(lines("crates/a/src/b.rs", &format!("let a = {name};")), [0; 0], "{name}");
        }
    }

    #[test]
    fn whole_names_are_refused_however_they_are_written() {
        for name in ["ahead", "Ahead", "AHEAD", "look", "may_look", "Turn"] {
            assert_eq!(lines("crates/a/src/b.rs", &format!("let a = {name};")), [1], "{name}");
        }
    }

    #[test]
    fn renamed_types_are_refused_where_they_were() {
        assert_eq!(lines("crates/store/src/claim.rs", "Claim::Fresh"), [1]);
        assert_eq!(lines("crates/server/tests/a.rs", "Fresh::start()"), [0; 0]);
    }

    #[test]
    fn prose_is_left_to_people() {
        assert_eq!(lines("crates/a/src/b.rs", "// the crowd\nlet a = \"desk\";"), [0; 0]);
        assert_eq!(lines("crates/a/src/b.sql", "-- the crowd\nSELECT 'desk'"), [0; 0]);
        assert_eq!(lines("docs/a.md", "crowd"), [0; 0]);
    }

    #[test]
    fn sql_and_names_of_files_are_read_too() {
        assert_eq!(lines("crates/a/src/b.sql", "-- a\nSELECT 'x', desk -- b\nFROM event_post"), [2, 3]);
        assert_eq!(lines("crates/a/src/letter.rs", "\nx"), [1]);
        assert_eq!(lines("crates/a/src/dead_letter.rs", "\nx"), [0; 0]);
    }
}
