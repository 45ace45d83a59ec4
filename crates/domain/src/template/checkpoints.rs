//! Adds checks of the deadline to a template, besides those in filters and output. One stands after each statement tag,
//! so that each turn of a loop passes one. Another stands in the condition of a loop, `{% for a in b if c %}`, which
//! may skip all items without a turn.

use crate::template::tags::{TagKind, Token, tags, tokens_at};

/// Inserted as text after a tag, and removed when the output is written. Texts never contain control characters.
pub const MARK: u8 = 1;
const MARK_TEXT: &str = "\u{1}";
/// The template function that fails after the deadline.
pub const IN_TIME: &str = "in_time";
const BEFORE_CONDITION: &str = " in_time() and (";

/// Inserts the checkpoints into a source.
pub fn insert(source: &str) -> String {
    let mut changed = String::with_capacity(source.len() + source.len() / 16);
    let mut behind = 0;
    for (at, inserted) in insertions(source) {
        changed.push_str(&source[behind..at]);
        changed.push_str(inserted);
        behind = at;
    }
    changed.push_str(&source[behind..]);
    changed
}

/// The position in the original source that corresponds to `at` in the source with checkpoints.
pub fn position_before(source: &str, at: usize) -> usize {
    let mut shift = 0;
    for (place, inserted) in insertions(source) {
        if place + shift >= at {
            break;
        }
        shift += inserted.len();
    }
    at - shift.min(at)
}

fn insertions(source: &str) -> Vec<(usize, &'static str)> {
    let mut found = Vec::new();
    for tag in tags(source).iter().filter(|tag| tag.kind == TagKind::Statement) {
        if let Some((start, end)) = condition(tag.inner) {
            let before_inner = source[tag.start..tag.end].find(tag.inner).unwrap_or_default();
            let inner_at = tag.start + before_inner;
            found.push((inner_at + start, BEFORE_CONDITION));
            found.push((inner_at + end, ")"));
        }
        // A tag that ends in `-%}` removes the white space after it, up to the next text.
        let trims = source[..tag.end].ends_with("-%}");
        let rest = &source[tag.end..];
        let white = if trims { rest.len() - rest.trim_start().len() } else { 0 };
        if tag.end + white < source.len() {
            found.push((tag.end + white, MARK_TEXT));
        }
    }
    found
}

/// The position of a loop's condition inside its tag.
fn condition(inner: &str) -> Option<(usize, usize)> {
    let tokens = tokens_at(inner);
    if tokens.first().map(|(_, token)| *token) != Some(Token::Name("for")) {
        return None;
    }
    let mut open = 0_usize;
    for (at, token) in tokens {
        match token {
            Token::Sign("(" | "[" | "{") => open += 1,
            Token::Sign(")" | "]" | "}") => open = open.saturating_sub(1),
            Token::Name("if") if open == 0 => return Some((at + "if".len(), inner.len())),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(source: &str) -> String {
        insert(source).replace(MARK_TEXT, "!")
    }

    #[test]
    fn statements_have_a_mark_and_white_space_goes_as_it_went() {
        assert_eq!(shown("a{% if b %} {{ c }}{% endif %} d"), "a{% if b %}! {{ c }}{% endif %}! d");
        assert_eq!(
            shown("{%- for a in b -%}\n  x {%- endfor -%}\n"),
            "{%- for a in b -%}\n  !x {%- endfor -%}\n"
        );
        assert_eq!(shown("{% set a = 1 %}"), "{% set a = 1 %}");
    }

    #[test]
    fn the_condition_of_a_loop_asks_for_the_time() {
        assert_eq!(
            insert("{% for a in (b if c else d) if a in e or f %}"),
            "{% for a in (b if c else d) if in_time() and ( a in e or f) %}"
        );
        assert_eq!(insert("{% for a in b -%}x"), "{% for a in b -%}\u{1}x");
        assert_eq!(insert("{% for a in [' if '] %}"), "{% for a in [' if '] %}");
    }

    #[test]
    fn positions_are_found_again() {
        let source = "{% for è in b if è %}{{ è.x }}{% endfor %}";
        let changed = insert(source);
        for part in ["b if", "{{ è.x", "{% endfor"] {
            let at = |source: &str| source.find(part).unwrap();
            assert_eq!(position_before(source, at(&changed)), at(source), "{part}");
        }
        assert_eq!(position_before(source, changed.len()), source.len());
    }
}
