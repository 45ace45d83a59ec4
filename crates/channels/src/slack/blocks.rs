//! The layout of a message in Slack: the title as a header, the body below it, and the event type in small print.
//!
//! Slack reads `<!channel>`, `<@U123>` and `<https://…|label>` as mentions and links. Text from an event must not
//! become one, so all of it is escaped. A plain URL becomes a link to exactly this URL.

use serde::Serialize;

use crate::Message;

/// Slack's limits in characters. Slack does not define "character", so those that UTF-16 counts twice count twice here.
const MAX_HEADER: usize = 150;
const MAX_SECTION: usize = 3_000;
/// Slack cuts longer texts itself and advises this length.
const MAX_TEXT: usize = 4_000;
const MAX_CONTEXT: usize = 300;

/// The body of a post.
#[derive(Debug, Serialize)]
pub struct Body {
    /// For notifications and screen readers, which do not show blocks.
    text: String,
    blocks: Vec<Block>,
}

#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Block {
    Header { text: Text },
    Section { text: Text },
    Context { elements: [Text; 1] },
}

#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Text {
    PlainText {
        text: String,
        emoji: bool,
    },
    Mrkdwn {
        text: String,
        /// Disables the search for names of channels and people.
        verbatim: bool,
    },
}

/// The body of a post. `None` if title and body are empty.
pub fn body(message: &Message<'_>) -> Option<Body> {
    let [title, body, event_type] = [message.title, message.body, message.event_type].map(readable);
    let text = match (title.trim(), body.trim()) {
        ("", "") => return None,
        ("", only) | (only, "") => mrkdwn(only, MAX_TEXT),
        (title, body) => mrkdwn(&format!("{title}\n{body}"), MAX_TEXT),
    };
    // Slack refuses empty blocks.
    let header = Some(title.trim()).filter(|title| !title.is_empty());
    let section = Some(body.trim()).filter(|body| !body.is_empty());
    let context = Some(event_type.trim()).filter(|event_type| !event_type.is_empty());
    let blocks = [
        header.map(|title| Block::Header { text: plain(title, MAX_HEADER) }),
        section
            .map(|body| mrkdwn(body, MAX_SECTION))
            .map(|text| Block::Section { text: Text::Mrkdwn { text, verbatim: true } }),
        context.map(|event_type| Block::Context { elements: [plain(event_type, MAX_CONTEXT)] }),
    ];
    Some(Body { text, blocks: blocks.into_iter().flatten().collect() })
}

/// Removes control characters except line breaks and tabs.
fn readable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect()
}

/// On one line, without formatting.
fn plain(text: &str, max: usize) -> Text {
    let mut line = Bounded::new(max);
    for c in text.chars() {
        line.push(if c.is_control() { ' ' } else { c }.encode_utf8(&mut [0; 4]));
    }
    Text::PlainText { text: line.text, emoji: false }
}

/// Escaped, with URLs as links.
fn mrkdwn(text: &str, max: usize) -> String {
    let mut written = Bounded::new(max);
    let mut rest = text;
    let mut is_within_a_word = false;
    while let Some(c) = rest.chars().next()
        && !written.is_cut
    {
        let url = if is_within_a_word { None } else { url_at_start(rest) };
        match url {
            Some(url) => written.push(&format!("<{}>", escaped(url))),
            None => written.push(&escaped(&rest[..c.len_utf8()])),
        }
        is_within_a_word = url.is_none() && c.is_alphanumeric();
        rest = &rest[url.map_or(c.len_utf8(), str::len)..];
    }
    written.text
}

/// The URL at the start of a text, without the punctuation that ends a sentence. A bar ends it, because it would begin
/// a label, which could say anything.
fn url_at_start(text: &str) -> Option<&str> {
    let scheme = ["https://", "http://"].into_iter().find(|scheme| text.starts_with(scheme))?;
    let ends = |c: char| c.is_whitespace() || matches!(c, '<' | '>' | '|' | '"' | '`');
    let url = &text[..text.find(ends).unwrap_or(text.len())];
    let url = url.trim_end_matches(['.', ',', ';', ':', '!', '?', ')', ']', '\'', '*', '_', '~']);
    (url.len() > scheme.len()).then_some(url)
}

/// Escapes a text by Slack's rules.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            c => escaped.push(c),
        }
    }
    escaped
}

/// A text of whole pieces, so that no entity and no link is cut in two. It ends in dots if pieces were left out.
#[derive(Debug)]
struct Bounded {
    text: String,
    max: usize,
    length: usize,
    /// The length in bytes that leaves room for the dots.
    before_dots: usize,
    is_cut: bool,
}

impl Bounded {
    fn new(max: usize) -> Self {
        Bounded { text: String::new(), max, length: 0, before_dots: 0, is_cut: false }
    }

    fn push(&mut self, piece: &str) {
        if self.is_cut {
            return;
        }
        self.length += piece.encode_utf16().count();
        if self.length > self.max {
            self.text.truncate(self.before_dots);
            self.text.push('…');
            self.is_cut = true;
            return;
        }
        self.text.push_str(piece);
        if self.length < self.max {
            self.before_dots = self.text.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_becomes_a_mention_or_a_link_to_elsewhere() {
        for (text, expected) in [
            ("<!channel> & <@U123>", "&lt;!channel&gt; &amp; &lt;@U123&gt;"),
            (
                "<https://evil.example|https://bank.example>",
                "&lt;<https://evil.example>|<https://bank.example>&gt;",
            ),
            ("https://evil.example|https://bank.example", "<https://evil.example>|<https://bank.example>"),
            ("https://a.example/><!here>", "<https://a.example/>&gt;&lt;!here&gt;"),
            ("&lt;!channel&gt;", "&amp;lt;!channel&amp;gt;"),
        ] {
            assert_eq!(mrkdwn(text, 3_000), expected);
        }
    }

    #[test]
    fn a_plain_url_is_a_link_to_where_it_says() {
        for (text, expected) in [
            ("See https://a.example/b?c=1&d=2.", "See <https://a.example/b?c=1&amp;d=2>."),
            ("(http://a.example)", "(<http://a.example>)"),
            ("*https://a.example/è*", "*<https://a.example/è>*"),
            ("https:// is none, nor xhttps://a.example", "https:// is none, nor xhttps://a.example"),
            ("javascript://a.example ftp://a.example", "javascript://a.example ftp://a.example"),
        ] {
            assert_eq!(mrkdwn(text, 3_000), expected);
        }
    }

    #[test]
    fn what_is_too_long_is_cut_between_characters_and_entities() {
        assert_eq!(mrkdwn("aaaaa", 5), "aaaaa");
        assert_eq!(mrkdwn("aaaaaa", 5), "aaaa…");
        assert_eq!(mrkdwn("aa&aaa", 6), "aa…");
        assert_eq!(mrkdwn("aa&", 7), "aa&amp;");
        assert_eq!(mrkdwn("a😀😀", 4), "a😀…");
        assert_eq!(mrkdwn("a https://a.example and more", 12), "a …", "half a URL leads elsewhere");
        assert_eq!(mrkdwn(&"&".repeat(5_000), 3_000).len(), 599 * 5 + "…".len());
    }
}
