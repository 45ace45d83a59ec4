//! Describes a template's error in one line: the template, the line as its author counts, and the variable. MiniJinja
//! names the variable only if the expression is on one line. So line breaks inside tags are replaced by another white
//! space, which counts as a line break here.

use crate::template::checkpoints;
use crate::template::mjml::Html;
use crate::template::tags::{LINE_BREAK_IN_TAG, TagKind, length_of_text, line_of, tags};

/// The name of a source that is only checked and has no name yet.
pub const DRAFT: &str = "draft";
const MAX_SHOWN_CHARS: usize = 80;

/// The source as MiniJinja gets it: of the same length, with each tag on one line. Texts inside tags do not change.
pub fn in_one_line_each(source: &str) -> String {
    let mut changed = String::with_capacity(source.len());
    let mut behind = 0;
    for tag in tags(source).iter().filter(|tag| tag.kind != TagKind::Comment) {
        changed.push_str(&source[behind..tag.start]);
        let mut rest = &source[tag.start..tag.end];
        while let Some(first) = rest.chars().next() {
            let length = if matches!(first, '\'' | '"') { length_of_text(rest) } else { first.len_utf8() };
            match first {
                '\n' => changed.push(LINE_BREAK_IN_TAG),
                _ => changed.push_str(&rest[..length]),
            }
            rest = &rest[length..];
        }
        behind = tag.end;
    }
    changed.push_str(&source[behind..]);
    changed
}

pub fn describe(error: &minijinja::Error) -> String {
    describe_in(error, None)
}

/// Describes an error. The line is that of the written source, not of the HTML that was compiled from it.
pub fn describe_in(error: &minijinja::Error, html: Option<&Html>) -> String {
    let mut text = match error.detail() {
        Some(detail) => format!("{}: {}", error.kind(), without_lines(detail)),
        None => error.kind().to_string(),
    };
    let source = error.template_source();
    let expression = error.range().and_then(|range| source?.get(range));
    if let Some(expression) = expression {
        let words: Vec<&str> = expression.split_whitespace().collect();
        text = format!("{text} (`{}`)", words.join(" ").chars().take(MAX_SHOWN_CHARS).collect::<String>());
    }
    let at = error.range().map(|range| range.start).or_else(|| Some(start_of_line(source?, error.line()?)));
    let line = match (html, at, source) {
        (Some(html), Some(at), _) => Some(html.line(checkpoints::position_before(&html.source, at))),
        (Some(_), None, _) => None,
        (None, Some(at), Some(source)) => Some(line_of(source, at)),
        (None, _, _) => error.line(),
    };
    match (error.name().filter(|name| *name != DRAFT), line) {
        (Some(name), Some(line)) => format!("template {name}, line {line}: {text}"),
        (Some(name), None) => format!("template {name}: {text}"),
        (None, Some(line)) if error.name() == Some(DRAFT) => format!("line {line}: {text}"),
        (None, _) => text,
    }
}

/// Removes the line numbers of MiniJinja's details, which are not those of the written source.
fn without_lines(detail: &str) -> String {
    let mut kept = detail.to_owned();
    for (from, end) in [(" (from line ", ")"), (", from line ", "")] {
        let Some(start) = kept.find(from) else { continue };
        let number = &kept[start + from.len()..];
        let digits = number.len() - number.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        kept.replace_range(start..start + from.len() + digits + end.len(), "");
    }
    kept
}

fn start_of_line(source: &str, line: usize) -> usize {
    source.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_get_one_line_and_texts_stay() {
        let source = "a\n{{ b\n | c('d\ne') }}\n{# f\ng #}{% if h\n%}";
        let changed = in_one_line_each(source);
        assert_eq!(changed, "a\n{{ b\u{c} | c('d\ne') }}\n{# f\ng #}{% if h\u{c}%}");
        assert_eq!(line_of(&changed, changed.len()), line_of(source, source.len()));
    }

    #[test]
    fn lines_that_nobody_sees_are_not_told() {
        assert_eq!(without_lines("`a` is undefined (from line 12)"), "`a` is undefined");
        assert_eq!(without_lines("x (`a` is undefined, from line 1)"), "x (`a` is undefined)");
        assert_eq!(without_lines("x"), "x");
    }
}
