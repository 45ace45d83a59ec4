//! Limits the size of files and functions, so that each can be read in one go.
//!
//! Functions are found by their first line and measured to their closing brace, which is exact for code formatted by
//! rustfmt.

use super::Violation;
use super::blank::code_only;
use super::tree::File;

const FILE_LINES: usize = 500;
const TEST_FILE_LINES: usize = 800;
const FUNCTION_LINES: usize = 100;

/// What may stand before `fn`, besides a visibility.
const QUALIFIERS: [&str; 5] = ["default", "const", "async", "unsafe", "extern"];

pub fn check(file: &File) -> Vec<Violation> {
    if !file.is_rust() {
        return Vec::new();
    }
    let mut violations = Vec::new();
    let lines = file.text.lines().count();
    let limit = if is_of_tests(file) { TEST_FILE_LINES } else { FILE_LINES };
    if lines > limit {
        let message = format!("the file has {lines} lines, and {limit} are allowed; split it by idea");
        violations.push(Violation::new(&file.path, limit + 1, message));
    }
    for function in functions(&code_only(&file.text)) {
        if function.lines > FUNCTION_LINES {
            let Function { name, lines, .. } = function;
            let message = format!(
                "function `{name}` has {lines} lines, and {FUNCTION_LINES} are allowed; split it into named steps"
            );
            violations.push(Violation::new(&file.path, function.first_line, message));
        }
    }
    violations
}

/// Whether the file is a test: the nearest folder of `src` and `tests` decides.
fn is_of_tests(file: &File) -> bool {
    file.folders().rev().find(|name| ["src", "tests"].contains(name)) == Some("tests")
}

#[derive(Debug, PartialEq, Eq)]
struct Function {
    name: String,
    first_line: usize,
    lines: usize,
}

fn functions(code: &str) -> Vec<Function> {
    let lines: Vec<&str> = code.lines().collect();
    let mut functions = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        if let Some(name) = function_name(line)
            && let Some(length) = lines_to_closing_brace(&lines[index..])
        {
            functions.push(Function { name: name.to_owned(), first_line: index + 1, lines: length });
        }
    }
    functions
}

fn function_name(line: &str) -> Option<&str> {
    let mut rest = without_visibility(line.trim_start());
    loop {
        if let Some(name) = rest.strip_prefix("fn ") {
            let end = name.find(|c: char| !c.is_alphanumeric() && !"_#".contains(c)).unwrap_or(name.len());
            return Some(&name[..end]);
        }
        let qualifier = QUALIFIERS.iter().find_map(|word| rest.strip_prefix(word)?.strip_prefix(' '))?;
        rest = qualifier.trim_start();
    }
}

fn without_visibility(line: &str) -> &str {
    let Some(after) = line.strip_prefix("pub") else { return line };
    let after = match after.strip_prefix('(') {
        Some(scope) => scope.split_once(')').map_or("", |(_, after)| after),
        None => after,
    };
    after.trim_start()
}

/// The lines up to the closing brace. `None` for a function without a body, or with unbalanced braces.
fn lines_to_closing_brace(lines: &[&str]) -> Option<usize> {
    let mut braces = 0_usize;
    let mut brackets = 0_usize;
    for (index, line) in lines.iter().enumerate() {
        for c in line.chars() {
            match c {
                '{' => braces += 1,
                '}' if braces <= 1 => return (braces == 1).then_some(index + 1),
                '}' => braces -= 1,
                '(' | '[' => brackets += 1,
                ')' | ']' => brackets = brackets.saturating_sub(1),
                // Inside brackets the semicolon belongs to an array's type.
                ';' if braces == 0 && brackets == 0 => return None,
                _ => {}
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(path: &str, text: String) -> Vec<String> {
        check(&File { path: path.into(), text }).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn long_files_are_named_and_tests_may_be_longer() {
        assert!(messages("crates/a/src/b.rs", "x\n".repeat(500)).is_empty());
        let found = messages("crates/a/src/b.rs", "x\n".repeat(501));
        assert_eq!(
            found,
            ["crates/a/src/b.rs:501: the file has 501 lines, and 500 are allowed; split it by idea"]
        );
        assert!(messages("crates/a/tests/support/b.rs", "x\n".repeat(800)).is_empty());
        assert_eq!(messages("crates/a/tests/b.rs", "x\n".repeat(801)).len(), 1);
        assert!(messages("docs/b.md", "x\n".repeat(2000)).is_empty());
    }

    #[test]
    fn long_functions_are_named_where_they_start() {
        let body = "    step();\n".repeat(98);
        assert!(messages("src/a.rs", format!("\nfn short() {{\n{body}}}\n")).is_empty());
        let found = messages("src/a.rs", format!("\npub(crate) async fn long() {{\n    step();\n{body}}}\n"));
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("src/a.rs:2: function `long` has 101 lines"), "{found:?}");
    }

    #[test]
    fn braces_in_strings_and_comments_do_not_count() {
        let body = "    say(\"}\"); // }\n".repeat(100);
        assert_eq!(messages("src/a.rs", format!("fn long() {{\n{body}}}\n")).len(), 1);
    }

    #[test]
    fn functions_are_recognised_by_their_first_line() {
        for line in [
            "fn a(",
            "  pub fn a<T>(",
            "pub(in crate::x) const fn a(",
            "async unsafe fn a(",
            "extern     fn a(",
        ] {
            assert_eq!(function_name(line), Some("a"), "{line}");
        }
        for line in ["", "fn", "let f: fn(u8)", "pub struct A", "pub(crate", "publish fn a(", "// fn a("] {
            assert_eq!(function_name(&code_only(line)), None, "{line}");
        }
    }

    #[test]
    fn functions_without_body_or_end_have_no_length() {
        assert_eq!(lines_to_closing_brace(&["fn a();", "fn b() {", "}"]), None);
        assert_eq!(lines_to_closing_brace(&["fn a(x: [u8; 4]) {", "}"]), Some(2));
        assert_eq!(lines_to_closing_brace(&["fn a() {", "{"]), None);
        assert_eq!(lines_to_closing_brace(&["fn a() }"]), None);
    }
}
