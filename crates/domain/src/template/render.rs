//! Renders the texts, HTML and links of one event for each recipient, within limits of time and size.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};

use minijinja::value::{Serde, merge_maps};
use minijinja::{ErrorKind, Value};
use serde::Serialize;

use super::{Compiled, Needs, Templates, Text, in_words, plain_text, url};
use crate::channel::Channel;
use crate::id::{EntityId, EntityType, EventType, UserId, UserTypeName};
use crate::people::recipient::Recipient;
use crate::rules::quiet_hours::Zone;
use crate::rules::row::Selector;
use crate::template::deadline::{Deadline, too_slow, was_missed};
use crate::template::failure::describe_in;
use crate::template::localized::{DEFAULT_LOCALE, READER, Reader};
use crate::template::mjml::Html;
use crate::template::sandbox::Bounded;

pub const MAX_TITLE_BYTES: usize = 2 * 1024;
/// Multiplied by the rows in memory, this limits their size.
pub const MAX_BODY_BYTES: usize = 32 * 1024;
/// The initial buffer. Most titles and bodies fit.
const USUAL_BYTES: usize = 64;
/// HTML is rendered at the attempt, one message at a time, so it may be larger.
const MAX_HTML_BYTES: usize = 256 * 1024;

/// What a template may say of a recipient. Devices and webhooks are left out: a text must not give them away.
#[derive(Serialize)]
struct Person<'a> {
    user_type: &'a UserTypeName,
    user_id: &'a UserId,
    entity_type: Option<&'a EntityType>,
    entity_id: Option<&'a EntityId>,
    role: Option<&'a str>,
    name: Option<&'a str>,
    email: Option<&'a str>,
    phone: Option<&'a str>,
    locale: Option<&'a str>,
    time_zone: Option<&'a Zone>,
    active: bool,
}

impl<'a> Person<'a> {
    fn of(recipient: &'a Recipient) -> Self {
        Person {
            user_type: &recipient.user_type,
            user_id: &recipient.user_id,
            entity_type: recipient.entity_type.as_ref(),
            entity_id: recipient.entity_id.as_ref(),
            role: recipient.role.as_deref(),
            name: recipient.name.as_deref(),
            email: recipient.email.as_deref(),
            phone: recipient.phone.as_deref(),
            locale: recipient.locale.as_deref(),
            time_zone: recipient.time_zone.as_ref(),
            active: recipient.active,
        }
    }
}

/// Renders the texts of one event. A text that does not depend on the recipient is rendered once. One that depends only
/// on language and zone is rendered once for each of these.
#[derive(Debug)]
pub struct Renderer<'a> {
    templates: &'a Templates,
    event_type: &'a EventType,
    /// Selects the rows of this event type.
    own_rows: Selector<EventType>,
    document: Value,
    /// The text without a template, once somebody needed it.
    without_template: Option<Text>,
    pub(super) impersonal: HashMap<(&'a str, Option<Place>), Result<Text, String>>,
    /// Parts of templates that took too long, with the error. They are not rendered for the other recipients: an
    /// audience may have thousands.
    too_slow: RefCell<HashMap<String, String>>,
}

/// The names of the chosen templates, as `EVENT_TYPE/CHANNEL/LOCALE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen<'a> {
    /// The template of title and body. `None` if the event type is shown in words.
    pub text: Option<&'a str>,
    pub html: Option<&'a str>,
    /// The locale of dates and numbers.
    pub locale: String,
}

/// The language of a text and, if it matters, the reader's zone.
type Place = (String, Option<String>);

impl<'a> Renderer<'a> {
    pub fn new(templates: &'a Templates, event_type: &'a EventType, document: &serde_json::Value) -> Self {
        let document = Value::from(Serde(document));
        let own_rows = Selector::Only(event_type.clone());
        Renderer {
            templates,
            event_type,
            own_rows,
            document,
            without_template: None,
            impersonal: HashMap::new(),
            too_slow: RefCell::default(),
        }
    }

    /// Renders title and body for a channel, or for the inbox. An error names template, line and variable.
    pub fn render(&mut self, channel: Option<Channel>, recipient: &Recipient) -> Result<Text, String> {
        let Some(template) = self.templates.find(&self.own_rows, channel, recipient.locale.as_deref()) else {
            if self.without_template.is_none() {
                self.without_template = Some(self.text_of_payload());
            }
            return Ok(self.without_template.clone().unwrap_or_default());
        };
        if template.needs.person {
            return self.render_for(template, recipient);
        }
        let place = template.needs.locale.then(|| {
            let zone = recipient.time_zone.as_ref().filter(|_| template.needs.zone);
            (language(template, recipient), zone.map(|zone| zone.name().to_owned()))
        });
        let key = (template.name.as_str(), place);
        if let Some(text) = self.impersonal.get(&key) {
            return text.clone();
        }
        let text = self.render_for(template, recipient);
        self.impersonal.insert(key, text.clone());
        text
    }

    /// The text without a template: the payload's title and body, else the event type in words. It never fails.
    fn text_of_payload(&self) -> Text {
        let payload = self.document.get_attr("payload").unwrap_or_default();
        let text = |name: &str, max_bytes: usize| {
            let value = payload.get_attr(name).ok()?;
            let text = without_controls(value.as_str().filter(|text| !text.trim().is_empty())?.to_owned());
            Some(text[..text.floor_char_boundary(max_bytes)].to_owned())
        };
        Text {
            title: text("title", MAX_TITLE_BYTES).unwrap_or_else(|| in_words(self.event_type)),
            body: text("body", MAX_BODY_BYTES).unwrap_or_default(),
        }
    }

    pub(super) fn render_for(&self, template: &Compiled, recipient: &Recipient) -> Result<Text, String> {
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

    /// Whether [`Renderer::html`] returns anything.
    pub fn has_html(&self, channel: Channel, locale: Option<&str>) -> bool {
        let text = self.templates.find(&self.own_rows, Some(channel), locale);
        self.templates.find_html(text, channel, locale).is_some()
    }

    /// Renders the HTML that belongs to a text of [`Renderer::render`], if a template has HTML. The template can use
    /// `title` and `body`.
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

    /// Renders the link of the template that the title comes from, if it has one.
    pub fn url(&self, channel: Option<Channel>, recipient: &Recipient) -> Result<Option<String>, String> {
        let template = self.templates.find(&self.own_rows, channel, recipient.locale.as_deref());
        let Some((template, part)) = template.and_then(|found| Some((found, found.url.as_deref()?))) else {
            return Ok(None);
        };
        let context = self.context(template, Needs::EVERYTHING, recipient, &[]);
        let written = self.part(part, None, context, url::MAX_BYTES)?;
        url::checked(&written).map_err(|error| format!("template {part}: {error}"))
    }

    /// Whether a template took too long for some recipient.
    pub fn was_too_slow(&self) -> bool {
        !self.too_slow.borrow().is_empty()
    }

    /// The chosen templates, for display.
    pub fn chosen(&self, channel: Option<Channel>, locale: Option<&str>) -> Chosen<'a> {
        let text = self.templates.find(&self.own_rows, channel, locale);
        let html = channel.and_then(|channel| self.templates.find_html(text, channel, locale));
        Chosen {
            text: text.map(|text| text.name.as_str()),
            html: html.map(|html| html.name.as_str()),
            locale: text
                .or(html)
                .map_or_else(|| DEFAULT_LOCALE.to_owned(), |chosen| language_for(chosen, locale)),
        }
    }

    fn html_for(
        &self,
        template: &Compiled,
        of_text: &Compiled,
        recipient: &Recipient,
        text: &Text,
    ) -> Result<String, String> {
        // A body that was made from the HTML is not inserted into it.
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
            variables.insert("recipient", Value::from(Serde(Person::of(recipient))));
        }
        if needs.locale {
            let zone = recipient.time_zone.clone().unwrap_or_else(Zone::utc);
            let reader = Reader::new(&language(template, recipient), zone.tz().clone());
            variables.insert(READER, Value::from_object(reader));
        }
        if variables.is_empty() {
            return self.document.clone();
        }
        merge_maps([Value::from(variables), self.document.clone()])
    }

    /// Renders one part of a template. `html` is the compiled HTML if the part is HTML.
    fn part(&self, name: &str, html: Option<&Html>, context: Value, limit: usize) -> Result<String, String> {
        if let Some(reason) = self.too_slow.borrow().get(name) {
            return Err(reason.clone());
        }
        let _deadline = Deadline::begin();
        let written = catch_unwind(AssertUnwindSafe(|| self.write_part(name, html, context, limit)));
        let written = written.unwrap_or_else(|_| Err(format!("template {name}: rendering it panicked")));
        match written {
            Err(reason) if was_missed() => {
                self.too_slow.borrow_mut().insert(name.to_owned(), reason.clone());
                Err(reason)
            }
            written => written.map(without_controls),
        }
    }

    fn write_part(
        &self,
        name: &str,
        html: Option<&Html>,
        context: Value,
        limit: usize,
    ) -> Result<String, String> {
        let describe = |error: minijinja::Error| describe_in(&error, html);
        let compiled = self.templates.environment.get_template(name).map_err(describe)?;
        let mut output = Bounded::new(Vec::with_capacity(USUAL_BYTES), limit);
        compiled.render_captured_to(context, &mut output).map_err(|error| match error.kind() {
            // MiniJinja reports neither the place nor the reason of a write error.
            ErrorKind::WriteFailure if output.too_late => format!("template {name}: {}", too_slow()),
            ErrorKind::WriteFailure => format!("template {name}: the output has more than {limit} bytes"),
            _ => describe(error),
        })?;
        String::from_utf8(output.text).map_err(|_| format!("template {name}: the output is not text"))
    }
}

/// The language of a text. A reader of Dutch without a Dutch template gets the default language, also for dates. A
/// template for a language is used with the reader's tag, which may be more specific: `it-CH`.
fn language(of_text: &Compiled, recipient: &Recipient) -> String {
    language_for(of_text, recipient.locale.as_deref())
}

fn language_for(of_text: &Compiled, reader: Option<&str>) -> String {
    let reader = reader.filter(|_| of_text.locale.is_some());
    reader.or(of_text.locale.as_deref()).unwrap_or(DEFAULT_LOCALE).replace('_', "-")
}

/// Removes control characters except `\n` and `\t`: databases, terminals and mail servers handle them badly. A carriage
/// return becomes a line break.
fn without_controls(text: String) -> String {
    let stays = |c: char| !c.is_control() || matches!(c, '\n' | '\t');
    if text.chars().all(stays) {
        return text;
    }
    text.replace("\r\n", "\n").replace('\r', "\n").chars().filter(|c| stays(*c)).collect()
}
