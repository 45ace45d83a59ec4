//! Finds the tags of a Jinja source and their tokens, for placeholders and limits that apply before MiniJinja compiles
//! it. MiniJinja checks whether a tag is valid.

/// `{{ … }}`, `{% … %}` or `{# … #}`, with its position in the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tag<'a> {
    pub kind: TagKind,
    pub start: usize,
    pub end: usize,
    /// The content without brackets and white-space marks.
    pub inner: &'a str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TagKind {
    Output,
    Statement,
    Comment,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Token<'a> {
    Name(&'a str),
    Text(&'a str),
    Number,
    Sign(&'a str),
}

/// The tags in order. An unclosed tag ends with the source.
pub fn tags(source: &str) -> Vec<Tag<'_>> {
    let mut tags = Vec::new();
    let mut at = 0;
    while let Some((start, kind)) = next_opening(source, at) {
        let end = end_of_tag(source, start + 2, kind);
        let inner = source[start + 2..end].strip_suffix(closing(kind)).unwrap_or(&source[start + 2..end]);
        let inner = inner.strip_prefix(['-', '+']).unwrap_or(inner);
        let inner = inner.strip_suffix(['-', '+']).unwrap_or(inner).trim();
        tags.push(Tag { kind, start, end, inner });
        at = end;
        if kind == TagKind::Statement && inner == "raw" {
            at = end_of_raw(source, end);
        }
    }
    tags
}

/// What replaces a line break inside a tag before MiniJinja gets the source.
pub const LINE_BREAK_IN_TAG: char = '\u{c}';

pub fn line_of(source: &str, at: usize) -> usize {
    source.as_bytes().iter().take(at).filter(|byte| ends_line(**byte)).count() + 1
}

/// The line of each tag, found in one pass.
pub fn lines_of(source: &str, tags: &[Tag<'_>]) -> Vec<usize> {
    let (mut line, mut counted) = (1, 0);
    let mut line_of_next = |tag: &Tag<'_>| {
        line += source.as_bytes()[counted..tag.start].iter().filter(|byte| ends_line(**byte)).count();
        counted = tag.start;
        line
    };
    tags.iter().map(&mut line_of_next).collect()
}

fn ends_line(byte: u8) -> bool {
    byte == b'\n' || char::from(byte) == LINE_BREAK_IN_TAG
}

pub fn tokens(inner: &str) -> Vec<Token<'_>> {
    tokens_at(inner).into_iter().map(|(_, token)| token).collect()
}

/// The tokens with their positions.
pub fn tokens_at(inner: &str) -> Vec<(usize, Token<'_>)> {
    let mut tokens = Vec::new();
    let mut rest = inner;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '\'' | '"' => length_of_text(rest),
            c if c.is_alphabetic() || c == '_' => {
                rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len())
            }
            c if c.is_ascii_digit() => {
                rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len())
            }
            _ if ["**", "//", "==", "!=", "<=", ">="].iter().any(|sign| rest.starts_with(sign)) => 2,
            c => c.len_utf8(),
        };
        let (word, behind) = rest.split_at(length);
        let at = inner.len() - rest.len();
        match first {
            '\'' | '"' => tokens.push((at, Token::Text(word.trim_matches(first)))),
            c if c.is_alphabetic() || c == '_' => tokens.push((at, Token::Name(word))),
            c if c.is_ascii_digit() => tokens.push((at, Token::Number)),
            c if c.is_whitespace() => {}
            _ => tokens.push((at, Token::Sign(word))),
        }
        rest = behind;
    }
    tokens
}

fn next_opening(source: &str, from: usize) -> Option<(usize, TagKind)> {
    let bytes = source.as_bytes();
    (from..bytes.len().saturating_sub(1)).find_map(|at| match (bytes[at], bytes[at + 1]) {
        (b'{', b'{') => Some((at, TagKind::Output)),
        (b'{', b'%') => Some((at, TagKind::Statement)),
        (b'{', b'#') => Some((at, TagKind::Comment)),
        _ => None,
    })
}

fn closing(kind: TagKind) -> &'static str {
    match kind {
        TagKind::Output => "}}",
        TagKind::Statement => "%}",
        TagKind::Comment => "#}",
    }
}

/// The position after the closing brackets. Brackets in texts and braces of mappings do not count.
fn end_of_tag(source: &str, from: usize, kind: TagKind) -> usize {
    let closing = closing(kind);
    let mut at = from;
    let mut open_brackets = 0_usize;
    while let Some(rest) = source.get(at..).filter(|rest| !rest.is_empty()) {
        if rest.starts_with(closing) && (open_brackets == 0 || kind != TagKind::Output) {
            return at + closing.len();
        }
        let first = rest.chars().next().unwrap_or_default();
        at += match first {
            '\'' | '"' if kind != TagKind::Comment => length_of_text(rest),
            other => other.len_utf8(),
        };
        match first {
            '{' => open_brackets += 1,
            '}' => open_brackets = open_brackets.saturating_sub(1),
            _ => {}
        }
    }
    source.len()
}

/// The length of a text with both quotes.
pub fn length_of_text(rest: &str) -> usize {
    let quote = rest.chars().next();
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        if escaped {
            escaped = false;
        } else if c == '\\' {
            escaped = true;
        } else if Some(c) == quote {
            return at + c.len_utf8();
        }
    }
    rest.len()
}

fn end_of_raw(source: &str, from: usize) -> usize {
    let mut at = from;
    while let Some(found) = source[at..].find("{%") {
        let inner = source[at + found + 2..].trim_start_matches(['-', '+']).trim_start();
        if inner.starts_with("endraw") {
            return at + found;
        }
        at += found + 2;
    }
    source.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inners(source: &str) -> Vec<&str> {
        tags(source).into_iter().map(|tag| tag.inner).collect()
    }

    #[test]
    fn tags_end_where_minijinja_ends_them() {
        assert_eq!(inners("a {{ b }} {%- if c -%}d{% endif %}{# e #}"), ["b", "if c", "endif", "e"]);
        assert_eq!(inners("{{ '}}' }}{{ \"\\\"}}\" }}"), ["'}}'", "\"\\\"}}\""]);
        assert_eq!(inners("{{ {'a': {'b': 1}} }}x{{ y }}"), ["{'a': {'b': 1}}", "y"]);
        assert_eq!(inners("{% raw %}{{ a }}{% b %}{% endraw %}{{ c }}"), ["raw", "endraw", "c"]);
        assert_eq!(inners("{{ a"), ["a"]);
        assert_eq!(inners("{% raw %}{"), ["raw"]);
        assert_eq!(inners("{#' it''s #}{{ è }}"), ["' it''s", "è"]);
    }

    #[test]
    fn lines_are_counted_once_for_all() {
        let source = "{{ a }}\n\n{{ b\n}}{{ c }}\n{{ d }}";
        let tags = tags(source);
        let each: Vec<usize> = tags.iter().map(|tag| line_of(source, tag.start)).collect();
        assert_eq!((lines_of(source, &tags), each), (vec![1, 3, 4, 5], vec![1, 3, 4, 5]));
    }

    #[test]
    fn tokens_tell_names_from_texts() {
        let found = tokens("a.b | date('x|y', n=1.5) ~ c ** 2");
        let names: Vec<&str> = found
            .iter()
            .filter_map(|token| match token {
                Token::Name(name) => Some(*name),
                Token::Text(_) | Token::Number | Token::Sign(_) => None,
            })
            .collect();
        assert_eq!(names, ["a", "b", "date", "n", "c"]);
        assert!(found.contains(&Token::Text("x|y")) && found.contains(&Token::Sign("**")));
    }
}
