//! Converts HTML to plain text: blocks become lines, links keep their addresses, and lists keep their marks. It uses
//! [`crate::template::markup`] instead of a full parser, because the output of templates is well formed and few
//! elements matter.

use crate::template::markup::{Piece, attribute, pieces};

const SILENT: [&str; 6] = ["head", "script", "style", "template", "title", "svg"];
const PARAGRAPHS: [&str; 13] =
    ["p", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "table", "pre", "blockquote", "hr"];
const LINES: [&str; 13] = [
    "address", "article", "aside", "br", "div", "dd", "dt", "footer", "header", "li", "main", "section", "tr",
];

const MAX_ENTITY_BYTES: usize = 8;

/// The text, cut with an ellipsis at `max_bytes`.
pub fn of_html(html: &str, max_bytes: usize) -> String {
    let mut writer = Writer::default();
    // The content of hidden elements is skipped until they end.
    let mut silent: Option<(&str, usize)> = None;
    for (_, piece) in pieces(html) {
        if let Some((name, depth)) = &mut silent {
            match piece {
                Piece::Open { name: inner, closed: false, .. } if inner.eq_ignore_ascii_case(name) => {
                    *depth += 1;
                }
                Piece::Close { name: inner } if inner.eq_ignore_ascii_case(name) => *depth -= 1,
                _ => {}
            }
            if *depth == 0 {
                silent = None;
            }
            continue;
        }
        match piece {
            Piece::Text(text) => writer.text(text),
            Piece::Open { name, attributes, closed } => {
                if !closed && !is_void(name) && is_silent(name, attributes) {
                    silent = Some((name, 1));
                } else {
                    writer.open(&name.to_ascii_lowercase(), attributes);
                }
            }
            Piece::Close { name } => writer.close(&name.to_ascii_lowercase()),
        }
        if writer.written.len() > max_bytes {
            break;
        }
    }
    writer.end(max_bytes)
}

fn is_void(name: &str) -> bool {
    matches!(
        name.to_ascii_lowercase().as_str(),
        "br" | "hr" | "img" | "input" | "link" | "meta" | "wbr" | "col"
    )
}

fn is_silent(name: &str, attributes: &str) -> bool {
    let style = attribute(attributes, "style").unwrap_or_default().replace(' ', "").to_ascii_lowercase();
    SILENT.iter().any(|silent| name.eq_ignore_ascii_case(silent)) || style.contains("display:none")
}

#[derive(Debug, Default)]
struct Writer {
    written: String,
    /// Line breaks and spaces to write before the next word, if there is one.
    breaks: usize,
    space: bool,
    preformatted: bool,
    /// For each open link, the position of its text and its address.
    links: Vec<(usize, String)>,
    /// For each open list, the number of the next item if it is numbered.
    lists: Vec<Option<usize>>,
}

impl Writer {
    fn open(&mut self, name: &str, attributes: &str) {
        self.break_at(name);
        match name {
            "a" => {
                let address = decoded(attribute(attributes, "href").unwrap_or_default());
                self.links.push((self.written.len(), address.trim().to_owned()));
            }
            "img" => self.text(attribute(attributes, "alt").unwrap_or_default()),
            "ul" => self.lists.push(None),
            "ol" => self.lists.push(Some(1)),
            "li" => self.item(),
            "hr" => {
                self.word("---");
                self.breaks = 2;
            }
            "td" | "th" => self.space = true,
            "pre" => self.preformatted = true,
            _ => {}
        }
    }

    fn close(&mut self, name: &str) {
        match name {
            "a" => self.link(),
            "ul" | "ol" => drop(self.lists.pop()),
            "pre" => self.preformatted = false,
            "br" => return,
            _ => {}
        }
        self.break_at(name);
    }

    fn break_at(&mut self, name: &str) {
        let nested_list = matches!(name, "ul" | "ol") && self.lists.len() > usize::from(name == "ul");
        let breaks = if PARAGRAPHS.contains(&name) && !nested_list {
            2
        } else {
            usize::from(LINES.contains(&name) || nested_list)
        };
        if name == "br" {
            self.breaks = (self.breaks + 1).min(2);
        } else {
            self.breaks = self.breaks.max(breaks);
        }
    }

    fn item(&mut self) {
        let indent = "  ".repeat(self.lists.len().saturating_sub(1).min(10));
        let mark = match self.lists.last_mut() {
            Some(Some(number)) => {
                *number += 1;
                format!("{indent}{}. ", *number - 1)
            }
            _ => format!("{indent}- "),
        };
        self.word(&mark);
        self.space = false;
    }

    fn link(&mut self) {
        let Some((start, address)) = self.links.pop() else { return };
        let text = self.written.get(start..).unwrap_or_default().trim();
        let bare = address.strip_prefix("mailto:").or(address.strip_prefix("tel:")).unwrap_or(&address);
        let says_nothing = bare.is_empty() || bare.starts_with('#') || text == bare;
        if says_nothing {
            return;
        }
        let shown = if text.is_empty() { bare.to_owned() } else { format!("({bare})") };
        self.space = true;
        self.word(&shown);
    }

    fn text(&mut self, text: &str) {
        let text = decoded(text);
        if self.preformatted {
            return self.word(&text);
        }
        let is_space = |c: char| c.is_whitespace() && c != '\u{a0}';
        self.space |= text.starts_with(is_space);
        for word in text.split(is_space).filter(|word| !word.is_empty()) {
            self.word(word);
            self.space = true;
        }
        self.space = if text.trim().is_empty() { self.space } else { text.ends_with(is_space) };
    }

    fn word(&mut self, word: &str) {
        if self.written.is_empty() {
            // At the start nothing is needed.
        } else if self.breaks > 0 {
            self.written.extend(std::iter::repeat_n('\n', self.breaks));
        } else if self.space && !self.written.ends_with(' ') {
            self.written.push(' ');
        }
        self.breaks = 0;
        self.space = false;
        self.written
            .extend(word.chars().filter(|c| !is_invisible(*c)).map(|c| if c == '\u{a0}' { ' ' } else { c }));
    }

    fn end(self, max_bytes: usize) -> String {
        let mut written = self.written.trim().to_owned();
        if written.len() > max_bytes {
            let end = written.floor_char_boundary(max_bytes.saturating_sub('…'.len_utf8()));
            written.truncate(end);
            written.push('…');
        }
        written
    }
}

/// Whether the character is invisible, such as padding of previews or a hint for breaking a word. `&zwnj;` is kept,
/// because Persian spelling needs it.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{34f}' | '\u{200b}' | '\u{2060}' | '\u{feff}')
}

/// Replaces entities; anything that is no entity stays.
fn decoded(text: &str) -> String {
    let mut decoded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        decoded.push_str(&rest[..at]);
        rest = &rest[at..];
        // Searches only as far as an entity's name may reach. Otherwise a text of many `&` would take quadratic time.
        let end = rest.bytes().take(MAX_ENTITY_BYTES + 2).position(|byte| byte == b';');
        let entity = end.and_then(|end| rest.get(1..end));
        if let Some((name, c)) = entity.and_then(|name| Some((name, character(name)?))) {
            decoded.push(c);
            rest = &rest[name.len() + 2..];
        } else {
            decoded.push('&');
            rest = &rest[1..];
        }
    }
    decoded.push_str(rest);
    decoded
}

fn character(entity: &str) -> Option<char> {
    if let Some(number) = entity.strip_prefix('#') {
        let code = match number.strip_prefix(['x', 'X']) {
            Some(hex) => u32::from_str_radix(hex, 16),
            None => number.parse(),
        };
        return code.ok().and_then(char::from_u32).filter(|c| !c.is_control() || *c == '\n');
    }
    Some(match entity {
        "amp" => '&',
        "lt" => '<',
        "gt" => '>',
        "quot" => '"',
        "apos" => '\'',
        "nbsp" => '\u{a0}',
        "shy" => '\u{ad}',
        "zwnj" => '\u{200c}',
        "euro" => '€',
        "pound" => '£',
        "yen" => '¥',
        "cent" => '¢',
        "copy" => '©',
        "reg" => '®',
        "trade" => '™',
        "deg" => '°',
        "middot" => '·',
        "bull" => '•',
        "hellip" => '…',
        "ndash" => '–',
        "mdash" => '—',
        "lsquo" => '‘',
        "rsquo" => '’',
        "ldquo" => '“',
        "rdquo" => '”',
        "laquo" => '«',
        "raquo" => '»',
        "times" => '×',
        "larr" => '←',
        "rarr" => '→',
        "agrave" => 'à',
        "aacute" => 'á',
        "acirc" => 'â',
        "atilde" => 'ã',
        "ccedil" => 'ç',
        "egrave" => 'è',
        "eacute" => 'é',
        "ecirc" => 'ê',
        "igrave" => 'ì',
        "iacute" => 'í',
        "ntilde" => 'ñ',
        "ograve" => 'ò',
        "oacute" => 'ó',
        "ocirc" => 'ô',
        "otilde" => 'õ',
        "ugrave" => 'ù',
        "uacute" => 'ú',
        "uuml" => 'ü',
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn reads(html: &str, text: &str) {
        assert_eq!(of_html(html, 1_000), text, "{html}");
    }

    #[test]
    fn blocks_become_lines_and_white_space_falls_together() {
        reads(
            "<h1>Hello</h1>\n  <p>You  are\nright,<b> Anna</b>.</p><p>Bye</p>",
            "Hello\n\nYou are right, Anna.\n\nBye",
        );
        reads("<div>a</div><div><div>b</div></div>c<br>d<br><br>e", "a\nb\nc\nd\n\ne");
        reads("<pre>a\n  b</pre>", "a\n  b");
        reads("a<hr>b", "a\n\n---\n\nb");
    }

    #[test]
    fn links_keep_their_addresses() {
        reads(
            "<a href=\"https://a.example/?x=1&amp;y=2\">See <b>it</b></a>.",
            "See it (https://a.example/?x=1&y=2).",
        );
        reads("<a href='https://a.example'>https://a.example</a>", "https://a.example");
        reads("<a href=\"mailto:a@b.example\">Write</a> <a href=\"#top\">up</a>", "Write (a@b.example) up");
        reads("<a href=\"https://a.example\"><img alt=\"Logo\" src=\"x\"></a>", "Logo (https://a.example)");
    }

    #[test]
    fn lists_and_tables_can_be_read() {
        reads(
            "<ul><li>a</li><li>b<ol><li>c</li><li>d</li></ol></li></ul><p>e</p>",
            "- a\n- b\n  1. c\n  2. d\n\ne",
        );
        reads(
            "<table><tr><th>Dish</th><th>Price</th></tr><tr><td>Soup</td><td>4&nbsp;&euro;</td></tr></table>",
            "Dish Price\nSoup 4 €",
        );
    }

    #[test]
    fn what_is_not_shown_is_not_read() {
        reads("<head><title>t</title></head><style>p{}</style><script>x</script><p>a</p><!-- b -->", "a");
        reads("<div style=\"display: none; color:red\">pre <div>view</div></div><p>a</p>", "a");
        reads("a&#847;&shy;&#8203;b", "ab");
        reads("می‌خواهم می&zwnj;خواهم", "می‌خواهم می‌خواهم");
    }

    #[test]
    fn entities_are_characters_and_the_rest_stays() {
        reads(
            "&lt;b&gt; &amp;amp; &#8364; &#x20AC; &egrave; R&D &unknown; &#0; &",
            "<b> &amp; € € è R&D &unknown; &#0; &",
        );
        reads("&è; &;", "&è; &;");
    }

    #[test]
    fn a_long_text_is_cut() {
        let text = of_html(&"<p>è</p>".repeat(1_000), 100);
        assert!(text.len() <= 100 && text.ends_with('…'), "{text}");
        for broken in ["<", "<p", "<a href=", "&", "&#", "</a>", "</ul>", "<div style='display:none'>"] {
            of_html(broken, 10);
        }
    }
}
