//! Texts: which template a recipient's channel takes, and its rendering within limits.
//! Fallbacks go by event type first, then channel, then locale: `it-CH`, `it`, `*`. How MJML becomes HTML, and HTML a text,
//! and what languages ask for, is told in the files below this one.

mod bounds;
mod currency;
mod failure;
mod filters;
mod locale;
mod localized;
mod markup;
mod mjml;
mod plain_text;
mod sandbox;
mod tags;
mod url;

use std::collections::{BTreeMap, HashMap, HashSet};

use minijinja::value::{Serde, merge_maps};
use minijinja::{Environment, ErrorKind, Value};

use crate::channel::Channel;
use crate::id::EventType;
use crate::quiet_hours::Zone;
use crate::recipient::Recipient;
use crate::row::{FieldError, Selector, Template};
pub(crate) use bounds::check_expression as check_bounds;
pub(crate) use failure::describe;
use failure::{DRAFT, describe_in, in_one_line_each};
use localized::{BY_LOCALE, BY_ZONE, DEFAULT_LOCALE, READER, Reader};
use mjml::Html;
use sandbox::{Bounded, check_filters, environment};
pub(crate) use sandbox::{check_condition, conditions};
use tags::{TagKind, Token};

pub const MAX_SOURCE_BYTES: usize = 256 * 1024;
const MAX_TITLE_BYTES: usize = 2 * 1024;
/// Times the rows that are in memory at once, this bounds what they take.
const MAX_BODY_BYTES: usize = 32 * 1024;
/// Most titles and bodies fit, and need no larger place.
const USUAL_BYTES: usize = 64;
/// Rendered when it is sent, one at a time.
const MAX_HTML_BYTES: usize = 256 * 1024;

/// What a person reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text {
    pub title: String,
    pub body: String,
}

/// All templates, compiled.
#[derive(Debug, Clone, Default)]
pub struct Templates {
    environment: Environment<'static>,
    /// By event type, channel and locale, in the order in which they are looked for.
    keys: HashMap<Selector<EventType>, HashMap<Selector<Channel>, ByLocale>>,
    /// The event types and channels for which a row has HTML.
    with_html: RowGroups,
    /// The same of links.
    with_url: RowGroups,
}

/// Event types and channels.
type RowGroups = HashSet<(Selector<EventType>, Selector<Channel>)>;

/// The rows of one event type and channel.
#[derive(Debug, Clone, Default)]
struct ByLocale {
    /// By the language in its normal form.
    only: HashMap<String, Compiled>,
    any: Option<Compiled>,
}

impl ByLocale {
    /// In the order in which they are looked for.
    fn fallbacks<'s>(&'s self, normal: &str) -> impl Iterator<Item = &'s Compiled> {
        locale::fallbacks(normal).filter_map(|tag| self.only.get(tag)).chain(&self.any)
    }
}

#[derive(Debug, Clone)]
struct Compiled {
    name: String,
    /// What its parts are called in the environment.
    title: String,
    body: String,
    /// What a reader without a locale gets dates and numbers in.
    locale: Option<String>,
    needs: Needs,
    html: Option<Html>,
    /// What its link is called in the environment.
    url: Option<String>,
    /// Without a title of its own; the event type in words is its title.
    untitled: bool,
    /// Its body is what its HTML says.
    body_from_html: bool,
}

impl Compiled {
    /// HTML for any event's title and body, and no text itself.
    fn is_layout(&self) -> bool {
        self.untitled && self.body_from_html && self.name.starts_with("*/")
    }
}

/// What of a recipient the title and the body depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Needs {
    person: bool,
    locale: bool,
    zone: bool,
}

impl Templates {
    /// A row whose source does not compile is left out and named; rows are checked when written, so there should be none.
    pub fn new(rows: Vec<Template>) -> (Self, Vec<String>) {
        let mut templates = Templates { environment: environment(), ..Templates::default() };
        let problems = rows.into_iter().filter_map(|row| templates.add(row).err()).collect();
        (templates, problems)
    }

    /// As if this row were one of them.
    pub fn with(&self, draft: Template) -> Result<Self, String> {
        let mut templates = self.clone();
        templates.add(draft)?;
        Ok(templates)
    }

    fn add(&mut self, row: Template) -> Result<(), String> {
        let name = format!("{}/{}/{}", row.event_type, row.channel, row.locale);
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
            let source = in_one_line_each(&source);
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

    /// Whether a message about such an event may have HTML, in some language.
    pub fn has_html(&self, event_type: &EventType, channel: Channel) -> bool {
        is_among(&self.with_html, event_type, channel)
    }

    /// Whether a message about such an event may have a link, in some language.
    pub fn has_url(&self, event_type: &EventType, channel: Channel) -> bool {
        is_among(&self.with_url, event_type, channel)
    }

    /// Whose title and body are taken.
    fn find(
        &self,
        event_type: &Selector<EventType>,
        channel: Option<Channel>,
        locale: Option<&str>,
    ) -> Option<&Compiled> {
        self.closest([event_type, &Selector::Any], channel, locale, |compiled| !compiled.is_layout())
    }

    /// Whose HTML is taken: the text's own, else a layout. What any other row has goes with that row's text, and says what it says.
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
                // Texts, too: some filters take the name of another.
                let (Token::Name(word) | Token::Text(word)) = token else { continue };
                self.locale |= BY_LOCALE.contains(&word);
                self.zone |= BY_ZONE.contains(&word);
            }
        }
        Ok(())
    }
}

/// Renders the texts of one event. A text that does not speak of its recipient is rendered once, and one that depends on
/// their language and zone only, once for each of these.
#[derive(Debug)]
pub struct Renderer<'a> {
    templates: &'a Templates,
    event_type: &'a EventType,
    /// The rows that are for it alone.
    own_rows: Selector<EventType>,
    document: Value,
    /// The event type in words, once somebody needed them.
    words: Option<String>,
    impersonal: HashMap<(&'a str, Option<Place>), Result<Text, String>>,
}

/// Templates by the name `EVENT_TYPE/CHANNEL/LOCALE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen<'a> {
    /// Whose title and body are taken; none where the event type is told in words.
    pub text: Option<&'a str>,
    pub html: Option<&'a str>,
    /// What dates and numbers are written in.
    pub locale: String,
}

/// Where a text is read: locale and zone, as far as it depends on them.
type Place = (Option<String>, Option<String>);

impl<'a> Renderer<'a> {
    pub fn new(templates: &'a Templates, event_type: &'a EventType, document: &serde_json::Value) -> Self {
        let document = Value::from(Serde(document));
        let own_rows = Selector::Only(event_type.clone());
        Renderer { templates, event_type, own_rows, document, words: None, impersonal: HashMap::new() }
    }

    /// The text for a channel, or for the inbox. An error names template, line and variable.
    pub fn render(&mut self, channel: Option<Channel>, recipient: &Recipient) -> Result<Text, String> {
        let Some(template) = self.templates.find(&self.own_rows, channel, recipient.locale.as_deref()) else {
            let words = self.words.get_or_insert_with(|| in_words(self.event_type));
            return Ok(Text { title: words.clone(), body: String::new() });
        };
        if template.needs.person {
            return self.render_for(template, recipient);
        }
        let place = template.needs.locale.then(|| {
            let zone = recipient.time_zone.as_ref().filter(|_| template.needs.zone);
            (recipient.locale.clone(), zone.map(|zone| zone.name().to_owned()))
        });
        let key = (template.name.as_str(), place);
        if let Some(text) = self.impersonal.get(&key) {
            return text.clone();
        }
        let text = self.render_for(template, recipient);
        self.impersonal.insert(key, text.clone());
        text
    }

    fn render_for(&self, template: &Compiled, recipient: &Recipient) -> Result<Text, String> {
        let context = self.context(template, template.needs, recipient, &[]);
        let title = if template.untitled {
            in_words(self.event_type)
        } else {
            self.part(&template.title, None, context.clone(), MAX_TITLE_BYTES)?
        };
        let body = if template.body_from_html {
            let text = Text { title: title.clone(), body: String::new() };
            plain_text::of_html(&self.html_for(template, template, recipient, &text)?, MAX_BODY_BYTES)
        } else {
            self.part(&template.body, None, context, MAX_BODY_BYTES)?
        };
        Ok(Text { title, body })
    }

    /// Whether [`Renderer::html`] would answer anything.
    pub fn has_html(&self, channel: Channel, locale: Option<&str>) -> bool {
        let text = self.templates.find(&self.own_rows, Some(channel), locale);
        self.templates.find_html(text, channel, locale).is_some()
    }

    /// The HTML beside a text that [`Renderer::render`] made; nothing where no template has any. It can write `title` and `body`.
    pub fn html(
        &self,
        channel: Channel,
        recipient: &Recipient,
        text: &Text,
    ) -> Result<Option<String>, String> {
        let locale = recipient.locale.as_deref();
        let of_text = self.templates.find(&self.own_rows, Some(channel), locale);
        let Some(of_html) = self.templates.find_html(of_text, channel, locale) else { return Ok(None) };
        self.html_for(of_html, of_text.unwrap_or(of_html), recipient, text).map(Some)
    }

    /// Where a click leads, by the row whose title is taken; nothing where that says nothing.
    pub fn url(&self, channel: Option<Channel>, recipient: &Recipient) -> Result<Option<String>, String> {
        let template = self.templates.find(&self.own_rows, channel, recipient.locale.as_deref());
        let Some((template, part)) = template.and_then(|found| Some((found, found.url.as_deref()?))) else {
            return Ok(None);
        };
        let context = self.context(template, Needs::EVERYTHING, recipient, &[]);
        let written = self.part(part, None, context, url::MAX_BYTES)?;
        url::checked(&written).map_err(|error| format!("template {part}: {error}"))
    }

    /// Which templates are taken, to tell it to people.
    pub fn chosen(&self, channel: Option<Channel>, locale: Option<&str>) -> Chosen<'a> {
        let text = self.templates.find(&self.own_rows, channel, locale);
        let html = channel.and_then(|channel| self.templates.find_html(text, channel, locale));
        let of_text = text.or(html).and_then(|template| template.locale.as_deref());
        Chosen {
            text: text.map(|text| text.name.as_str()),
            html: html.map(|html| html.name.as_str()),
            locale: locale.or(of_text).unwrap_or(DEFAULT_LOCALE).to_owned(),
        }
    }

    fn html_for(
        &self,
        template: &Compiled,
        of_text: &Compiled,
        recipient: &Recipient,
        text: &Text,
    ) -> Result<String, String> {
        // What was made from the HTML is not written into it again.
        let body = if template.body_from_html && template.name == of_text.name { "" } else { &text.body };
        let own = [
            ("title", Value::from(text.title.as_str())),
            ("body", Value::from(body)),
            ("locale", Value::from(language(of_text, recipient))),
        ];
        let context = self.context(of_text, Needs::EVERYTHING, recipient, &own);
        self.part(&format!("{}/html", template.name), template.html.as_ref(), context, MAX_HTML_BYTES)
    }

    fn context(
        &self,
        template: &Compiled,
        needs: Needs,
        recipient: &Recipient,
        own: &[(&'static str, Value)],
    ) -> Value {
        let mut variables: BTreeMap<&'static str, Value> = own.iter().cloned().collect();
        if needs.person {
            variables.insert("recipient", Value::from(Serde(recipient)));
        }
        if needs.locale {
            let zone = recipient.time_zone.clone().unwrap_or_else(Zone::utc);
            let locale = recipient.locale.as_deref().or(template.locale.as_deref());
            variables.insert(READER, Value::from_object(Reader::new(locale, zone.tz().clone())));
        }
        if variables.is_empty() {
            return self.document.clone();
        }
        merge_maps([Value::from(variables), self.document.clone()])
    }

    /// `html` is what the part was compiled from, if it is HTML.
    fn part(&self, name: &str, html: Option<&Html>, context: Value, limit: usize) -> Result<String, String> {
        let describe = |error: minijinja::Error| describe_in(&error, html);
        let compiled = self.templates.environment.get_template(name).map_err(describe)?;
        let mut output = Bounded { text: Vec::with_capacity(USUAL_BYTES), limit };
        compiled.render_captured_to(context, &mut output).map_err(|error| match error.kind() {
            // MiniJinja tells neither where nor why it could not write.
            ErrorKind::WriteFailure => format!("template {name}: the output has more than {limit} bytes"),
            _ => describe(error),
        })?;
        String::from_utf8(output.text).map_err(|_| format!("template {name}: the output is not text"))
    }
}

/// What a text is in, so that the HTML around it can be in the same: who reads Dutch where there is no Dutch reads the default. A
/// row for a language was found by the reader's, which may say more: `it-CH`.
fn language(of_text: &Compiled, recipient: &Recipient) -> String {
    let reader = recipient.locale.as_deref().filter(|_| of_text.locale.is_some());
    reader.or(of_text.locale.as_deref()).unwrap_or(DEFAULT_LOCALE).replace('_', "-")
}

/// `RESERVATION_REQUESTED` → `Reservation requested`.
pub fn in_words(event_type: &EventType) -> String {
    let words = event_type.as_str().replace(['_', '-', '.'], " ").to_lowercase();
    let mut letters = words.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// Whether this has the form of a language tag: `it`, `pt-BR`, `zh_Hant_HK`.
pub fn is_locale(text: &str) -> bool {
    locale::is_tag(text)
}

/// Whether a row can be used at all.
pub fn check(row: &Template) -> Result<(), FieldError> {
    if let Selector::Only(locale) = &row.locale
        && !is_locale(locale)
    {
        let detail = "is no language tag such as `it` or `pt-BR`, nor `*` for any language";
        return Err(FieldError::new("locale", detail));
    }
    for (field, source) in [
        ("title", Some(&row.title)),
        ("body", Some(&row.body)),
        ("html", row.html.as_ref()),
        ("url", row.url.as_ref()),
    ] {
        if let Some(source) = source {
            check_source(field, source).map_err(|error| FieldError::new(field, error))?;
        }
    }
    Ok(())
}

fn check_source(field: &str, source: &str) -> Result<(), String> {
    if source.len() > MAX_SOURCE_BYTES {
        return Err(format!("must have at most {MAX_SOURCE_BYTES} bytes, has {}", source.len()));
    }
    // As it was written first, so that an error names the line that its author sees.
    let environment = environment();
    bounds::check(source)?;
    environment.template_from_named_str(DRAFT, source).map_err(|e| describe(&e))?;
    check_filters(&environment, source)?;
    if field == "html" {
        let html = mjml::compile(source)?;
        let compiled = environment.template_from_named_str(DRAFT, &html.source);
        compiled.map_err(|error| describe_in(&error, Some(&html)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
