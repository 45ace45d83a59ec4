//! Splits HTML and MJML into elements and texts, enough to check that elements are closed and to make plain text. The
//! meaning of elements is left to the callers.

const MAX_DEPTH: usize = 100;

const VOID: [&str; 14] = [
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track",
    "wbr",
];

const MJML: [&str; 36] = [
    "mj-accordion",
    "mj-accordion-element",
    "mj-accordion-text",
    "mj-accordion-title",
    "mj-all",
    "mj-attributes",
    "mj-body",
    "mj-breakpoint",
    "mj-button",
    "mj-carousel",
    "mj-carousel-image",
    "mj-class",
    "mj-column",
    "mj-divider",
    "mj-font",
    "mj-group",
    "mj-head",
    "mj-hero",
    "mj-html-attributes",
    "mj-image",
    "mj-include",
    "mj-navbar",
    "mj-navbar-link",
    "mj-preview",
    "mj-raw",
    "mj-section",
    "mj-selector",
    "mj-html-attribute",
    "mj-social",
    "mj-social-element",
    "mj-spacer",
    "mj-style",
    "mj-table",
    "mj-text",
    "mj-title",
    "mj-wrapper",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece<'a> {
    Text(&'a str),
    Open { name: &'a str, attributes: &'a str, closed: bool },
    Close { name: &'a str },
}

/// The pieces with their positions. Comments are skipped; anything that is no markup is text.
pub fn pieces(source: &str) -> Vec<(usize, Piece<'_>)> {
    let mut pieces = Vec::new();
    let mut at = 0;
    while at < source.len() {
        let rest = &source[at..];
        let length = if rest.starts_with("<!--") {
            rest.find("-->").map_or(rest.len(), |end| end + 3)
        } else if rest.starts_with("<!") || rest.starts_with("<?") {
            rest.find('>').map_or(rest.len(), |end| end + 1)
        } else if starts_element(rest) {
            let length = length_of_element(rest);
            pieces.push((at, element(&rest[..length])));
            length
        } else {
            let length =
                rest.char_indices().skip(1).find(|(_, c)| *c == '<').map_or(rest.len(), |(end, _)| end);
            pieces.push((at, Piece::Text(&rest[..length])));
            length
        };
        at += length;
    }
    pieces
}

/// The value of an element's attribute, if it has one.
pub fn attribute<'a>(attributes: &'a str, wanted: &str) -> Option<&'a str> {
    let mut rest = attributes.trim_start();
    while !rest.is_empty() {
        let end = rest.find(|c: char| c == '=' || c.is_whitespace()).unwrap_or(rest.len());
        let (name, behind) = rest.split_at(end);
        let behind = behind.trim_start();
        let Some(value) = behind.strip_prefix('=').map(str::trim_start) else {
            // A name without a value. An empty name must still advance.
            rest = if end == 0 { &rest[rest.chars().next().map_or(0, char::len_utf8)..] } else { behind };
            continue;
        };
        let (value, behind) = match value.chars().next() {
            Some(quote @ ('"' | '\'')) => value[1..].split_once(quote).unwrap_or((&value[1..], "")),
            _ => value.split_at(value.find(char::is_whitespace).unwrap_or(value.len())),
        };
        if name.eq_ignore_ascii_case(wanted) {
            return Some(value);
        }
        rest = behind.trim_start();
    }
    None
}

/// Checks that every element of an MJML source is known and closed. The compiler itself only reports an unexpected end.
pub fn check(source: &str) -> Result<(), String> {
    let line = |at| super::tags::line_of(source, at);
    let mut open: Vec<(usize, &str)> = Vec::new();
    for (at, piece) in pieces(source) {
        match piece {
            Piece::Text(_) => {}
            Piece::Open { name: "mj-include", .. } => {
                return Err(format!(
                    "line {}: `mj-include` is not supported; copy the included source into this template",
                    line(at)
                ));
            }
            Piece::Open { name, .. } if name.starts_with("mj-") && !MJML.contains(&name) => {
                return Err(format!("line {}: `{name}` is not an MJML element", line(at)));
            }
            Piece::Open { name, closed, .. } => {
                if !closed && !VOID.contains(&name) {
                    open.push((at, name));
                }
                if open.len() > MAX_DEPTH {
                    return Err(format!("line {}: more than {MAX_DEPTH} elements deep", line(at)));
                }
            }
            Piece::Close { name } if VOID.contains(&name) => {}
            Piece::Close { name } => match open.pop() {
                Some((_, opened)) if opened == name => {}
                Some((opened_at, opened)) => {
                    return Err(format!(
                        "line {}: found `</{name}>` where `<{opened}>` of line {} must be closed",
                        line(at),
                        line(opened_at)
                    ));
                }
                None => return Err(format!("line {}: `</{name}>` closes nothing", line(at))),
            },
        }
    }
    match open.last() {
        Some((at, name)) => Err(format!("line {}: `<{name}>` is not closed", line(*at))),
        None => Ok(()),
    }
}

fn starts_element(rest: &str) -> bool {
    let mut characters = rest.chars();
    characters.next() == Some('<')
        && match characters.next() {
            Some('/') => characters.next().is_some_and(|c| c.is_ascii_alphabetic()),
            Some(c) => c.is_ascii_alphabetic(),
            None => false,
        }
}

/// The length of an element with both brackets. Brackets in quotes do not count.
pub fn length_of_element(rest: &str) -> usize {
    let mut quote = None;
    for (at, c) in rest.char_indices() {
        match (quote, c) {
            (None, '>') => return at + 1,
            (None, '"' | '\'') => quote = Some(c),
            (Some(open), _) if open == c => quote = None,
            _ => {}
        }
    }
    rest.len()
}

fn element(whole: &str) -> Piece<'_> {
    let inner = whole.trim_start_matches('<').trim_end_matches('>');
    if let Some(name) = inner.strip_prefix('/') {
        return Piece::Close { name: name.trim() };
    }
    let (inner, closed) = inner.strip_suffix('/').map_or((inner, false), |inner| (inner, true));
    let end = inner.find(char::is_whitespace).unwrap_or(inner.len());
    let (name, attributes) = inner.split_at(end);
    Piece::Open { name, attributes: attributes.trim(), closed }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_falls_into_pieces() {
        let found: Vec<Piece<'_>> = pieces("<!doctype html><p class=\"a>b\">1 < 2<!-- <b> --><br/>x</p>")
            .into_iter()
            .map(|p| p.1)
            .collect();
        let open = |name, attributes, closed| Piece::Open { name, attributes, closed };
        assert_eq!(
            found,
            [
                open("p", "class=\"a>b\"", false),
                Piece::Text("1 "),
                Piece::Text("< 2"),
                open("br", "", true),
                Piece::Text("x"),
                Piece::Close { name: "p" },
            ]
        );
        for broken in ["<", "<a", "</", "<a href=\"", "<!--", "a<"] {
            pieces(broken);
        }
    }

    #[test]
    fn attributes_are_found_by_name() {
        let attributes = "disabled href='a b' STYLE = \"c\" alt=d = ";
        assert_eq!(attribute(attributes, "href"), Some("a b"));
        assert_eq!(attribute(attributes, "style"), Some("c"));
        assert_eq!(attribute(attributes, "alt"), Some("d"));
        assert_eq!(attribute(attributes, "src"), None);
        assert_eq!(attribute("=", "src"), None);
    }
}
