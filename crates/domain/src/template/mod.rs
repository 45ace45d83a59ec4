//! Templates: which one a recipient's channel uses, and its rendering within limits. The search goes by event type,
//! then channel, then locale: `it-CH`, `it`, `*`. The files below compile MJML, convert HTML to text, and format by
//! language.

mod bounds;
mod checkpoints;
mod currency;
mod deadline;
mod escape;
mod failure;
mod filters;
mod locale;
mod localized;
mod markup;
mod mjml;
mod plain_text;
mod predicates;
mod render;
mod sandbox;
mod tags;
mod url;

use std::collections::{HashMap, HashSet};

use minijinja::Environment;

use crate::channel::Channel;
use crate::id::EventType;
use crate::rules::row::{FieldError, Selector, Template};
pub(crate) use failure::describe;
use failure::{DRAFT, describe_in, in_one_line_each};
use localized::{BY_LOCALE, BY_ZONE};
use mjml::Html;
pub use render::{Chosen, Renderer};
pub(crate) use sandbox::{check_condition, conditions, holds};
use sandbox::{check_filters, environment};
use tags::{TagKind, Token};

pub const MAX_SOURCE_BYTES: usize = 256 * 1024;

/// A title and a body for a person.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Text {
    pub title: String,
    pub body: String,
}

/// All templates, compiled.
#[derive(Debug, Clone, Default)]
pub struct Templates {
    environment: Environment<'static>,
    /// By event type, channel and locale, in the order of the search.
    keys: HashMap<Selector<EventType>, HashMap<Selector<Channel>, ByLocale>>,
    /// The event types and channels with HTML in some row.
    with_html: RowGroups,
    /// The event types and channels with a link in some row.
    with_url: RowGroups,
}

/// Event types and channels.
type RowGroups = HashSet<(Selector<EventType>, Selector<Channel>)>;

/// The rows of one event type and channel.
#[derive(Debug, Clone, Default)]
struct ByLocale {
    /// By normalised language tag.
    only: HashMap<String, Compiled>,
    any: Option<Compiled>,
}

impl ByLocale {
    /// The templates for a locale, in the order of the search.
    fn fallbacks<'s>(&'s self, normal: &str) -> impl Iterator<Item = &'s Compiled> {
        locale::fallbacks(normal).filter_map(|tag| self.only.get(tag)).chain(&self.any)
    }
}

#[derive(Debug, Clone)]
struct Compiled {
    name: String,
    /// The names of title and body in the environment.
    title: String,
    body: String,
    /// The locale for dates and numbers if the reader has none.
    locale: Option<String>,
    needs: Needs,
    html: Option<Html>,
    /// The name of the link in the environment.
    url: Option<String>,
    /// The row has no title; the title is the event type in words.
    untitled: bool,
    /// The body is made from the HTML.
    body_from_html: bool,
}

impl Compiled {
    /// Whether the row is a layout: HTML for any event's title and body, without a text of its own.
    fn is_layout(&self) -> bool {
        self.untitled && self.body_from_html && self.name.starts_with("*/")
    }
}

/// The properties of a recipient that title and body depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Needs {
    person: bool,
    locale: bool,
    zone: bool,
}

impl Templates {
    /// Compiles the rows. A row that does not compile is left out and reported; only SQL can write one, because HTTP
    /// checks rows.
    pub fn new(rows: Vec<Template>) -> (Self, Vec<String>) {
        let mut templates = Templates { environment: environment(), ..Templates::default() };
        let (canonical, others): (Vec<_>, Vec<_>) = rows.into_iter().partition(has_canonical_locale);
        let add = |row: Template| match templates.of_same_language(&row) {
            Some(other) => Err(format!(
                "template {} is not used: {other} is for the same language; delete one of them",
                name(&row)
            )),
            None => templates.add(row),
        };
        let problems = canonical.into_iter().chain(others).map(add).filter_map(Result::err).collect();
        (templates, problems)
    }

    /// These templates with one row added or replaced.
    pub fn with(&self, draft: Template) -> Result<Self, String> {
        let mut templates = self.clone();
        templates.add(draft)?;
        Ok(templates)
    }

    /// A row for the same language in another spelling, which only SQL can write.
    fn of_same_language(&self, row: &Template) -> Option<&str> {
        let rows = self.keys.get(&row.event_type)?.get(&row.channel)?;
        let compiled = match &row.locale {
            Selector::Any => rows.any.as_ref(),
            Selector::Only(locale) => rows.only.get(&locale::normal(locale)),
        };
        compiled.map(|compiled| compiled.name.as_str())
    }

    /// Adds a row, or replaces the row of its language.
    fn add(&mut self, row: Template) -> Result<(), String> {
        let name = name(&row);
        // Checked before MJML is compiled, too.
        for (part, source) in sources(&row) {
            check_length(source).map_err(|error| format!("template {name}/{part} {error}"))?;
        }
        let written = row.html.as_deref().filter(|html| !html.trim().is_empty());
        let html = written.map(mjml::compile).transpose();
        let html = html.map_err(|error| format!("template {name}/html: {error}"))?;
        let untitled = row.title.trim().is_empty();
        let body_from_html = row.body.trim().is_empty() && html.is_some();
        let mut needs = Needs::default();
        let html_source = html.as_ref().map(|html| html.source.clone());
        let url = row.url.filter(|url| !url.trim().is_empty());
        let url_part = url.is_some().then(|| format!("{name}/url"));
        for (part, source) in
            [("title", Some(row.title)), ("body", Some(row.body)), ("html", html_source), ("url", url)]
        {
            let Some(source) = source else { continue };
            let part_name = format!("{name}/{part}");
            bounds::check(&source).map_err(|error| format!("template {part_name}, {error}"))?;
            let source = checkpoints::insert(&in_one_line_each(&source));
            self.environment.add_template_owned(part_name.clone(), source).map_err(|e| describe(&e))?;
            if matches!(part, "title" | "body") || (part == "html" && body_from_html) {
                needs.add(&self.environment, &part_name)?;
            }
        }
        let locale = match row.locale {
            Selector::Any => None,
            Selector::Only(locale) => Some(locale),
        };
        let key = locale.as_deref().map(locale::normal);
        if html.is_some() {
            self.with_html.insert((row.event_type.clone(), row.channel.clone()));
        }
        if url_part.is_some() {
            self.with_url.insert((row.event_type.clone(), row.channel.clone()));
        }
        let (title, body) = (format!("{name}/title"), format!("{name}/body"));
        let compiled =
            Compiled { name, title, body, locale, needs, html, url: url_part, untitled, body_from_html };
        let by_locale = self.keys.entry(row.event_type).or_default().entry(row.channel).or_default();
        match key {
            None => by_locale.any = Some(compiled),
            Some(key) => drop(by_locale.only.insert(key, compiled)),
        }
        Ok(())
    }

    /// Whether messages of this event type and channel may have HTML, in any language.
    pub fn has_html(&self, event_type: &EventType, channel: Channel) -> bool {
        is_among(&self.with_html, event_type, channel)
    }

    /// Whether messages of this event type and channel may have a link, in any language.
    pub fn has_url(&self, event_type: &EventType, channel: Channel) -> bool {
        is_among(&self.with_url, event_type, channel)
    }

    /// The template for title and body.
    fn find(
        &self,
        event_type: &Selector<EventType>,
        channel: Option<Channel>,
        locale: Option<&str>,
    ) -> Option<&Compiled> {
        self.closest([event_type, &Selector::Any], channel, locale, |compiled| !compiled.is_layout())
    }

    /// The template for HTML: that of the text, else a layout. The HTML of any other row belongs to that row's text.
    fn find_html<'s>(
        &'s self,
        text: Option<&'s Compiled>,
        channel: Channel,
        locale: Option<&str>,
    ) -> Option<&'s Compiled> {
        text.filter(|text| text.html.is_some())
            .or_else(|| self.closest([&Selector::Any], Some(channel), locale, Compiled::is_layout))
    }

    fn closest<'t>(
        &self,
        event_types: impl IntoIterator<Item = &'t Selector<EventType>>,
        channel: Option<Channel>,
        locale: Option<&str>,
        fits: impl Fn(&Compiled) -> bool,
    ) -> Option<&Compiled> {
        let channels = channel.map(Selector::Only).into_iter().chain([Selector::Any]);
        let normal = locale.map(locale::normal).unwrap_or_default();
        for of_type in event_types.into_iter().filter_map(|event_type| self.keys.get(event_type)) {
            for of_channel in channels.clone().filter_map(|channel| of_type.get(&channel)) {
                let found = of_channel.fallbacks(&normal).find(|found| fits(found));
                if found.is_some() {
                    return found;
                }
            }
        }
        None
    }
}

fn name(row: &Template) -> String {
    format!("{}/{}/{}", row.event_type, row.channel, row.locale)
}

fn has_canonical_locale(row: &Template) -> bool {
    match &row.locale {
        Selector::Any => true,
        Selector::Only(tag) => locale::canonical(tag) == *tag,
    }
}

fn is_among(groups: &RowGroups, event_type: &EventType, channel: Channel) -> bool {
    let event_types = [Selector::Only(event_type.clone()), Selector::Any];
    let of = |event_type: &Selector<EventType>, channel: Selector<Channel>| {
        groups.contains(&(event_type.clone(), channel))
    };
    !groups.is_empty()
        && event_types.iter().any(|one| of(one, Selector::Only(channel)) || of(one, Selector::Any))
}

impl Needs {
    const EVERYTHING: Needs = Needs { person: true, locale: true, zone: true };

    fn add(&mut self, environment: &Environment<'_>, part: &str) -> Result<(), String> {
        let template = environment.get_template(part).map_err(|e| describe(&e))?;
        let variables = template.undeclared_variables(false);
        self.person |= variables.contains("recipient");
        self.locale |= variables.contains("locale");
        for tag in tags::tags(template.source()).iter().filter(|tag| tag.kind != TagKind::Comment) {
            for token in tags::tokens(tag.inner) {
                // Texts count, too: some filters take the name of another filter as an argument.
                let (Token::Name(word) | Token::Text(word)) = token else { continue };
                self.locale |= BY_LOCALE.contains(&word);
                self.zone |= BY_ZONE.contains(&word);
            }
        }
        Ok(())
    }
}

/// `RESERVATION_REQUESTED` → `Reservation requested`.
pub fn in_words(event_type: &EventType) -> String {
    let words = event_type.as_str().replace(['_', '-', '.'], " ").to_lowercase();
    let mut characters = words.chars();
    characters.next().map_or_else(String::new, |first| first.to_uppercase().chain(characters).collect())
}

/// Whether the text is a language tag: `it`, `pt-BR`, `zh_Hant_HK`.
pub fn is_locale(text: &str) -> bool {
    locale::is_tag(text)
}

/// The spelling in which templates are stored: `it_ch` → `it-CH`.
pub fn canonical_locale(tag: &str) -> String {
    locale::canonical(tag)
}

/// Checks whether a row can be used.
pub fn check(row: &Template) -> Result<(), FieldError> {
    if let Selector::Only(locale) = &row.locale
        && !is_locale(locale)
    {
        let detail = "is not a language tag such as `it` or `pt-BR`, nor `*` for any language";
        return Err(FieldError::new("locale", detail));
    }
    for (field, source) in sources(row) {
        check_source(field, source).map_err(|error| FieldError::new(field, error))?;
    }
    Ok(())
}

/// The sources of a row with their fields: title, body, HTML and link.
fn sources(row: &Template) -> impl Iterator<Item = (&'static str, &String)> {
    let fields = [
        ("title", Some(&row.title)),
        ("body", Some(&row.body)),
        ("html", row.html.as_ref()),
        ("url", row.url.as_ref()),
    ];
    fields.into_iter().filter_map(|(field, source)| Some((field, source?)))
}

/// Refuses NUL, which PostgreSQL's `text` cannot store.
pub(crate) fn check_no_nul(source: &str) -> Result<(), String> {
    if source.contains('\0') { Err("has a NUL character: leave it out".to_owned()) } else { Ok(()) }
}

fn check_length(source: &str) -> Result<(), String> {
    if source.len() > MAX_SOURCE_BYTES {
        return Err(format!("must have at most {MAX_SOURCE_BYTES} bytes, has {}", source.len()));
    }
    Ok(())
}

fn check_source(field: &str, source: &str) -> Result<(), String> {
    check_length(source)?;
    check_no_nul(source)?;
    // Compiles the source as written first, so that errors have the author's line numbers.
    let environment = environment();
    bounds::check(source)?;
    environment.template_from_named_str(DRAFT, source).map_err(|e| describe(&e))?;
    check_filters(source)?;
    if field == "html" {
        let html = mjml::compile(source)?;
        let compiled = environment.template_from_named_str(DRAFT, &html.source);
        compiled.map_err(|error| describe_in(&error, Some(&html)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
