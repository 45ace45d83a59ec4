//! Blanks out the comments and literals of Rust source, so that a brace or a word in them does not count as code.
//!
//! Line numbers do not change. This is not a parser and never fails; what it does not recognise stays.

/// The source with spaces in place of comments, strings and characters.
pub fn code_only(source: &str) -> String {
    let mut code = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(next) = rest.chars().next() {
        let in_word = code.ends_with(is_word);
        let opaque = opaque_length(rest, in_word);
        if opaque == 0 {
            code.push(next);
            rest = &rest[next.len_utf8()..];
        } else {
            let (blanked, after) = rest.split_at(opaque);
            code.extend(blanked.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
            rest = after;
        }
    }
    code
}

/// The length of the comment or literal that the text starts with; 0 if there is none.
fn opaque_length(text: &str, in_word: bool) -> usize {
    if text.starts_with("//") {
        text.find('\n').unwrap_or(text.len())
    } else if text.starts_with("/*") {
        block_comment_length(text)
    } else if text.starts_with('"') {
        string_length(text)
    } else if text.starts_with('\'') {
        character_length(text)
    } else if !in_word && text.starts_with(['r', 'b', 'c']) {
        raw_string_length(text)
    } else {
        0
    }
}

fn block_comment_length(text: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(offset) = text[at..].find(['/', '*']) {
        at += offset;
        if text[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if text[at..].starts_with("*/") {
            depth = depth.saturating_sub(1);
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    text.len()
}

fn string_length(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// The length of a character literal. 0 for a lifetime, which starts in the same way.
fn character_length(text: &str) -> usize {
    let mut inside = text.char_indices().skip(1);
    match inside.next() {
        Some((_, '\\')) => {
            inside.next();
            inside.find(|(_, c)| *c == '\'').map_or(text.len(), |(at, _)| at + 1)
        }
        Some(_) => inside.next().filter(|(_, c)| *c == '\'').map_or(0, |(at, _)| at + 1),
        None => 0,
    }
}

fn raw_string_length(text: &str) -> usize {
    let Some(after_prefix) = ["r", "br", "cr"].iter().find_map(|prefix| text.strip_prefix(prefix)) else {
        return 0;
    };
    let content = after_prefix.trim_start_matches('#');
    if !content.starts_with('"') {
        return 0;
    }
    let hashes = after_prefix.len() - content.len();
    let end = format!("\"{}", "#".repeat(hashes));
    let start = text.len() - content.len() + 1;
    text[start..].find(&end).map_or(text.len(), |at| start + at + end.len())
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(source: &str) -> String {
        code_only(source).split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn comments_go_and_lines_stay() {
        let source = "a // {\nb /* {\n/* { */ } */ c";
        let code = code_only(source);
        assert_eq!(code.lines().map(str::trim).collect::<Vec<_>>(), ["a", "b", "c"]);
        assert_eq!(code.len(), source.len());
    }

    #[test]
    fn strings_of_every_kind_go() {
        assert_eq!(words(r#"a "{ \" {" b"#), "a b");
        assert_eq!(words(r###"a r"\" b r#"" { "# c br##" "# "## d"###), "a b c d");
        assert_eq!(words("a \"two {\n lines\" b"), "a b");
    }

    #[test]
    fn characters_go_and_lifetimes_stay() {
        assert_eq!(words(r"a '{' '\'' '\u{7b}' 'é' b"), "a b");
        assert_eq!(words("fn f<'a>(x: &'a str) {}"), "fn f<'a>(x: &'a str) {}");
    }

    #[test]
    fn words_that_end_like_a_prefix_are_no_raw_strings() {
        assert_eq!(words("r#fn for bar\"x\" br"), "r#fn for bar br");
    }

    #[test]
    fn what_never_ends_is_blank_to_the_end() {
        for unfinished in ["a \"{", "a /* {", "a r#\"{\"", "a '\\", "a //"] {
            assert_eq!(words(unfinished), "a", "{unfinished}");
        }
        assert_eq!(words("a '"), "a '");
    }
}
