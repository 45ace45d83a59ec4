//! Compiles MJML to HTML, once per template and not per e-mail.
//!
//! Jinja tags may stand in texts, in attributes and between elements. Placeholders replace them during the compilation,
//! so the compiler need not understand them. The line of each tag in the source is kept for error messages.

use mrml::prelude::parser::{Error, ParserOptions};
use mrml::prelude::render::RenderOptions;

use crate::template::markup::{self, Piece};
use crate::template::tags::{Tag, line_of, lines_of, tags};

const MAX_HTML_BYTES: usize = 1024 * 1024;

/// HTML that still contains its Jinja tags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Html {
    pub source: String,
    /// For compiled MJML: the position in `source` and the original line of each tag, in order.
    lines: Option<Vec<(usize, usize)>>,
}

impl Html {
    /// The line in the written source for a position in the HTML.
    pub fn line(&self, at: usize) -> usize {
        let Some(lines) = &self.lines else { return line_of(&self.source, at) };
        let before = lines.partition_point(|(start, _)| *start <= at);
        let Some((start, line)) = before.checked_sub(1).and_then(|index| lines.get(index)) else { return 1 };
        line + self.source.get(*start..at).map_or(0, |within| within.matches('\n').count())
    }
}

/// Compiles a source that starts with `<mjml`; any other source is HTML already.
pub fn compile(source: &str) -> Result<Html, String> {
    if !source.trim_start().starts_with("<mjml") {
        return Ok(Html { source: source.to_owned(), lines: None });
    }
    let mark = unused_word(source)?;
    let tags = tags(source);
    let marked = take_out(source, &tags, &mark, Breaks::Stay);
    markup::check(&marked)?;
    if !marked.contains("<mj-body") {
        return Err("has no `<mj-body>`".to_owned());
    }
    let options = ParserOptions::default();
    mrml::parse_with_options(&marked, &options).map_err(|error| describe(&error, &marked))?;
    // Replaces the tags again, without their line breaks. The first replacement kept these for the line numbers of
    // errors.
    let harmless = harmless(&take_out(source, &tags, &mark, Breaks::Go));
    let document =
        mrml::parse_with_options(&harmless, &options).map_err(|error| describe(&error, &harmless))?.element;
    // No web fonts: opening an e-mail must not contact a third party.
    let options = RenderOptions { fonts: std::collections::HashMap::new(), ..RenderOptions::default() };
    let html = document.render(&options).map_err(|error| format!("is not valid MJML: {error}"))?;
    if html.len() > MAX_HTML_BYTES {
        return Err(format!("compiled it has more than {MAX_HTML_BYTES} bytes: use fewer elements"));
    }
    put_back(source, &tags, &mark, &html)
}

/// A placeholder that does not occur in the source.
fn unused_word(source: &str) -> Result<String, String> {
    let mut words = (0..100).map(|number| format!("jinja{number}x"));
    let unused = words.find(|word| !source.contains(word));
    unused.ok_or_else(|| "contains every placeholder from `jinja0x` to `jinja99x`; remove one".to_owned())
}

/// Whether line breaks inside tags stay next to the placeholder, so that lines keep their numbers, or go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Breaks {
    Stay,
    Go,
}

fn take_out(source: &str, tags: &[Tag<'_>], mark: &str, breaks: Breaks) -> String {
    let mut marked = String::with_capacity(source.len());
    let mut behind = 0;
    for (number, tag) in tags.iter().enumerate() {
        marked.push_str(&source[behind..tag.start]);
        marked.extend([mark, number.to_string().as_str(), "q"]);
        if breaks == Breaks::Stay {
            marked.extend(source[tag.start..tag.end].chars().filter(|c| *c == '\n'));
        }
        behind = tag.end;
    }
    marked.push_str(&source[behind..]);
    marked
}

/// Replaces characters in attributes that the compiler would escape as Rust does. Mail programs do not understand `\n`
/// or `\u{fe0f}`. White space or a character reference takes their place.
fn harmless(marked: &str) -> String {
    let mut changed = String::with_capacity(marked.len());
    let mut behind = 0;
    for (at, piece) in markup::pieces(marked) {
        let Piece::Open { .. } = piece else { continue };
        let end = at + markup::length_of_element(&marked[at..]);
        changed.push_str(&marked[behind..at]);
        let mut quote = None;
        for c in marked[at..end].chars() {
            match (quote, c) {
                (_, '\n' | '\r' | '\t') => changed.push(' '),
                (None, _) | (Some(_), '\'') => changed.push(c),
                (Some(open), _) if open == c => changed.push(c),
                (Some(_), '"') => changed.push_str("&quot;"),
                (Some(_), _) if c.escape_debug().len() == 1 => changed.push(c),
                (Some(_), _) => changed.extend(["&#", &u32::from(c).to_string(), ";"]),
            }
            quote = match (quote, c) {
                (None, '"' | '\'') => Some(c),
                (Some(open), _) if open == c => None,
                (open, _) => open,
            };
        }
        behind = end;
    }
    changed.push_str(&marked[behind..]);
    changed
}

fn put_back(source: &str, tags: &[Tag<'_>], mark: &str, html: &str) -> Result<Html, String> {
    let mut whole = String::with_capacity(html.len() + source.len());
    let written = lines_of(source, tags);
    let mut lines = Vec::with_capacity(tags.len());
    let mut kept = vec![false; tags.len()];
    let mut parts = html.split(mark);
    whole.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let (number, behind) = part.split_once('q').unwrap_or((part, ""));
        let found = number.parse::<usize>().ok().and_then(|number| Some((number, tags.get(number)?)));
        let (number, tag) = found.ok_or("MJML changed a Jinja tag: put it into a text or an attribute")?;
        kept[number] = true;
        lines.push((whole.len(), written[number]));
        whole.push_str(&source[tag.start..tag.end]);
        whole.push_str(behind);
    }
    match tags.iter().zip(&kept).find(|(_, kept)| !**kept) {
        None => Ok(Html { source: whole, lines: Some(lines) }),
        Some((tag, _)) => Err(format!(
            "line {}: MJML drops `{}` at this position; move it into a text, an attribute, \
             or between elements of the body",
            line_of(source, tag.start),
            source[tag.start..tag.end].chars().take(80).collect::<String>(),
        )),
    }
}

fn describe(error: &Error, marked: &str) -> String {
    // The reported position includes white space before the error.
    let place = |at: usize| {
        let rest = marked.get(at..).unwrap_or_default();
        format!("line {}", line_of(marked, at + rest.len() - rest.trim_start().len()))
    };
    match error {
        Error::UnexpectedElement { position, .. } => {
            format!("{}: this element can't stand here", place(position.start))
        }
        Error::UnexpectedToken { position, .. } => {
            format!("{}: this can't stand here", place(position.start))
        }
        Error::MissingAttribute { name, position, .. } => {
            format!("{}: the attribute `{name}` is missing", place(position.start))
        }
        Error::InvalidAttribute { position, .. } => {
            format!("{}: this attribute can't be used", place(position.start))
        }
        Error::InvalidFormat { position, .. } => format!("{}: this can't be read", place(position.start)),
        Error::ParserError { source, .. } => format!("is not valid MJML: {source}"),
        other @ (Error::EndOfStream { .. }
        | Error::SizeLimit { .. }
        | Error::NoRootNode
        | Error::IncludeLoaderError { .. }) => format!("is not valid MJML: {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(inside: &str) -> String {
        format!("<mjml>\n<mj-body>\n{inside}\n</mj-body>\n</mjml>")
    }

    #[track_caller]
    fn compiled(source: &str) -> Html {
        compile(source).unwrap()
    }

    #[test]
    fn html_that_is_no_mjml_stays_as_it_is() {
        assert_eq!(compiled("<p>{{ a }}</p>").source, "<p>{{ a }}</p>");
        assert!(compiled(" \n<mjml><mj-body></mj-body></mjml>").source.starts_with("<!doctype html>"));
    }

    #[test]
    fn tags_survive_in_texts_attributes_and_between_elements() {
        let source = body(
            "{% if a < 3 %}<mj-section background-color=\"{{ colour | default(\"red\") }}\">
               {% if b %}<mj-column>{% for c in d %}<mj-text>{{ c > 1 }} &amp; {# note #}</mj-text>{% endfor %}
               <mj-table>{% for row in rows %}<tr><td>{{ row }}</td></tr>{% endfor %}</mj-table>
               <mj-button href=\"{{ url }}?a={% if b %}1{% endif %}\">{{ label }}</mj-button></mj-column>{% endif %}
             </mj-section>{% else %}<mj-section></mj-section>{% endif %}",
        );
        let html = compiled(&source).source;
        for tag in [
            "{% for row in rows %}<tr><td>{{ row }}</td></tr>{% endfor %}",
            "{{ c > 1 }} &amp; {# note #}",
            "href=\"{{ url }}?a={% if b %}1{% endif %}\"",
            "{{ colour | default(\"red\") }}",
            "{{ label }}",
        ] {
            assert!(html.contains(tag), "{tag} is not in {html}");
        }
        let order = ["{% if a < 3 %}", "{% if b %}", "{% for c in d %}", "{% endfor %}", "{% else %}"];
        let positions: Vec<Option<usize>> = order.iter().map(|tag| html.find(tag)).collect();
        assert!(!positions.contains(&None) && positions.is_sorted(), "{positions:?}");
        assert!(!html.contains("jinja"), "{html}");
    }

    #[test]
    fn head_parts_take_tags_in_their_texts() {
        let source = "<mjml><mj-head><mj-title>{{ title }}</mj-title><mj-preview>{{ body }}</mj-preview>
            <mj-style>a { color: {{ colour }} }</mj-style></mj-head><mj-body></mj-body></mjml>";
        let html = compiled(source).source;
        assert!(
            html.contains("<title>{{ title }}</title>") && html.contains("{ color: {{ colour }} }"),
            "{html}"
        );
        let between = source.replace("<mj-style>", "{% if a %}<mj-style>");
        let error = compile(&between).unwrap_err();
        assert!(error.contains("line 2"), "{error}");
    }

    #[test]
    fn attributes_come_out_as_they_were_meant() {
        let source = body(
            "<mj-section\n\tbackground-color=\"red\"><mj-column>
               <mj-image src=\"https://a.example/x.png\" alt=\"Grazie ❤️ 10\u{a0}€ 👩‍🍳 é\" />
               <mj-text><a\n href=\"{{ payload.url\n | string }}\" title='Say \"hi\", it&apos;s C:\\temp'>a</a>\
               <b style=\"color: red;\n  margin: 0;\r\n\">b\nc</b></mj-text>
             </mj-column></mj-section>\n{{ a }}",
        );
        let html = compiled(&source);
        for part in [
            "alt=\"Grazie ❤&#65039; 10&#160;€ 👩&#8205;🍳 é\"",
            "href=\"{{ payload.url\n | string }}\"",
            "title=\"Say &quot;hi&quot;, it&apos;s C:&#92;temp\"",
            "style=\"color: red;   margin: 0;  \"",
            ">b\nc</b>",
            "background-color:red",
        ] {
            assert!(html.source.contains(part), "{part} is not in {}", html.source);
        }
        for left in ["\\n", "\\u{", "\\\"", "\\\\", "\\t"] {
            assert!(!html.source.contains(left), "{left} is in {}", html.source);
        }
        assert_eq!(
            html.line(html.source.find("{{ a }}").unwrap()),
            line_of(&source, source.find("{{ a }}").unwrap())
        );
    }

    #[test]
    fn many_tags_and_words_take_no_time() {
        let tags = body(&"<mj-raw>{{ a }}</mj-raw>".repeat(9_000));
        assert_eq!(compiled(&tags).source.matches("{{ a }}").count(), 9_000);
        assert!(compile(&body(&format!("<mj-raw>jinja{}</mj-raw>", "x".repeat(200_000)))).is_ok());
        let words = (0..100).fold(String::new(), |words, n| format!("{words} jinja{n}x"));
        assert!(compile(&body(&words)).unwrap_err().contains("jinja"));
    }

    #[test]
    fn what_stands_in_the_html_is_found_in_the_source() {
        let source =
            body("<mj-section><mj-column>\n<mj-text>{{ a }}\n{{\n  b }}</mj-text></mj-column></mj-section>");
        let html = compiled(&source);
        let line = |what: &str| html.line(html.source.find(what).unwrap());
        assert_eq!((line("a }}"), line("b }}")), (4, 6));
        assert_eq!(compiled("x\n{{ y }}").line(3), 2);
    }

    #[test]
    fn what_can_not_be_compiled_names_its_line() {
        for (inside, words) in [
            ("<mj-include path=\"./other.mjml\" />", ["line 3", "mj-include"]),
            ("<mj-section>\n</mj-column>", ["line 4", "mj-section"]),
            ("<mj-sectio></mj-sectio>", ["line 3", "mj-sectio"]),
            ("<mj-section><mj-column><mj-text>a</mj-text>", ["line 4", "</mj-body>"]),
            ("<mj-section", ["line 3", "<mj-section"]),
        ] {
            let error = compile(&body(inside)).unwrap_err();
            assert!(words.iter().all(|word| error.contains(word)), "{inside}: {error}");
        }
        assert!(compile("<mjml>").is_err() && compile("<mjml></mjml>").is_err());
        let deep = body(&format!("<mj-text>{}</mj-text>", "<b>".repeat(50_000)));
        assert!(compile(&deep).unwrap_err().contains("deep"));
        let number = "<mjml><mj-body><mj-section><mj-column width=\"{{ w }}\"></mj-column></mj-section>\
            </mj-body></mjml>";
        let error = compile(number).unwrap_err();
        assert!(error.contains("line 1") && error.contains("{{ w }}"), "{error}");
    }
}
