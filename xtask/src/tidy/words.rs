//! Refuses words in Rust sources for unfinished, silenced, skipped or sleeping code.
//!
//! xtask is left out, because it has to name them. Strings and comments may contain them, except the mark of unfinished
//! work, which lives in comments.

use super::Violation;
use super::blank::code_only;
use super::tree::File;

/// Words that code may not contain, with what to do instead.
const IN_CODE: [(&str, &str); 7] = [
    ("todo!(", "finish it"),
    ("unimplemented!(", "finish it"),
    ("dbg!(", "remove it, or log with `tracing`"),
    ("#[allow(", "fix what the lint found, or write `#[expect(…, reason = \"…\")]`"),
    ("#![allow(", "fix what the lint found, or write `#![expect(…, reason = \"…\")]`"),
    ("#[ignore", "fix or remove the test; slow tests belong in `cargo xtask soak`"),
    ("thread::sleep", "wait for what should happen instead"),
];

const UNFINISHED: &str = "FIXME";

const UNWRAP: &str = ".unwrap()";

pub fn check(file: &File) -> Vec<Violation> {
    if !file.is_rust() || file.path.starts_with("xtask/") {
        return Vec::new();
    }
    let mut violations = Vec::new();
    let mut report = |index: usize, word: &str, advice: &str| {
        violations.push(Violation::new(&file.path, index + 1, format!("`{word}` is not allowed; {advice}")));
    };
    for (index, line) in file.text.lines().enumerate() {
        if line.contains(UNFINISHED) {
            report(index, UNFINISHED, "fix it, or file an issue");
        }
    }
    let mut tests = is_all_tests(file);
    for (index, line) in code_only(&file.text).lines().enumerate() {
        for (word, advice) in IN_CODE {
            if line.contains(word) {
                report(index, word, advice);
            }
        }
        tests |= line.trim_start().starts_with("#[cfg(test)]");
        if !tests && line.contains(UNWRAP) {
            report(index, UNWRAP, "return an error, or `expect` with the reason why it cannot fail");
        }
    }
    violations
}

/// Whether the whole file is test code.
fn is_all_tests(file: &File) -> bool {
    !file.is_in("src")
        || file.is_in("tests")
        || file.path.ends_with("/tests.rs")
        || file.path.starts_with("crates/testkit/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(&File { path: path.into(), text: text.into() }).iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn every_word_is_found_where_it_stands() {
        for (word, _) in IN_CODE {
            assert_eq!(lines("crates/a/src/b.rs", &format!("fn a() {{}}\n    {word}\n")), [2], "{word}");
            assert_eq!(lines("crates/a/tests/b.rs", &format!("{word}\n")), [1], "{word}");
        }
    }

    #[test]
    fn unfinished_work_is_found_in_comments() {
        assert_eq!(lines("crates/a/src/b.rs", "//! a\n// FIXME: later\n"), [2]);
    }

    #[test]
    fn unwrap_is_for_tests() {
        let text = "//! a\na.unwrap();\n#[cfg(test)]\nmod tests {\n    b.unwrap();\n}\n";
        assert_eq!(lines("crates/a/src/b.rs", text), [2]);
        assert!(lines("crates/a/tests/b.rs", text).is_empty());
        assert!(lines("crates/a/src/b/tests.rs", text).is_empty());
    }

    #[test]
    fn words_in_strings_and_comments_do_no_harm() {
        assert!(lines("crates/a/src/b.rs", "// no .unwrap() here\nsay(\"todo!()\");\n").is_empty());
    }

    #[test]
    fn other_files_and_xtask_may_name_the_words() {
        assert!(lines("xtask/src/a.rs", "todo!()").is_empty());
        assert!(lines("docs/a.md", "todo!()").is_empty());
    }
}
