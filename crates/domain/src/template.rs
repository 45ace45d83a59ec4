//! Texts: which template a recipient's channel takes, and its rendering within limits.
//! Fallbacks go by event type first, then channel, then locale: `it-CH`, `it`, `*`.

use std::collections::{HashMap, HashSet};
use std::io;

use minijinja::value::Serde;
use minijinja::{Environment, UndefinedBehavior, Value, context};

use crate::channel::Channel;
use crate::id::EventType;
use crate::recipient::Recipient;
use crate::row::{Selector, Template};

const FUEL: u64 = 100_000;
pub const MAX_SOURCE_BYTES: usize = 256 * 1024;
const MAX_TITLE_BYTES: usize = 2 * 1024;
/// Times the rows that are in memory at once, this bounds what they take.
const MAX_BODY_BYTES: usize = 32 * 1024;

/// What a person reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text {
    pub title: String,
    pub body: String,
}

/// All templates, compiled.
#[derive(Debug, Default)]
pub struct Templates {
    environment: Environment<'static>,
    keys: HashMap<Key, Compiled>,
}

type Key = (Selector<EventType>, Selector<Channel>, Selector<String>);

#[derive(Debug)]
struct Compiled {
    name: String,
    personal: bool,
}

impl Templates {
    /// A row whose source does not compile is left out and named; rows are checked when written, so there should be none.
    pub fn new(rows: Vec<Template>) -> (Self, Vec<String>) {
        let mut templates = Templates { environment: environment(), keys: HashMap::new() };
        let problems = rows.into_iter().filter_map(|row| templates.add(row).err()).collect();
        (templates, problems)
    }

    fn add(&mut self, row: Template) -> Result<(), String> {
        let name = format!("{}/{}/{}", row.event_type, row.channel, row.locale);
        let mut personal = false;
        for (part, source) in [("title", row.title), ("body", row.body)] {
            let part = format!("{name}/{part}");
            self.environment.add_template_owned(part.clone(), source).map_err(|e| describe(&e))?;
            let variables: HashSet<String> =
                self.environment.get_template(&part).map_err(|e| describe(&e))?.undeclared_variables(false);
            personal |= variables.contains("recipient");
        }
        self.keys.insert((row.event_type, row.channel, row.locale), Compiled { name, personal });
        Ok(())
    }

    fn find(
        &self,
        event_type: &EventType,
        channel: Option<Channel>,
        locale: Option<&str>,
    ) -> Option<&Compiled> {
        let locales = locale_fallbacks(locale);
        let channels = channel.map(Selector::Only).into_iter().chain([Selector::Any]);
        let event_types = [Selector::Only(event_type.clone()), Selector::Any];
        for event_type in event_types {
            for channel in channels.clone() {
                for locale in &locales {
                    if let Some(found) = self.keys.get(&(event_type.clone(), channel.clone(), locale.clone()))
                    {
                        return Some(found);
                    }
                }
            }
        }
        None
    }
}

fn locale_fallbacks(locale: Option<&str>) -> Vec<Selector<String>> {
    let mut fallbacks = Vec::new();
    let mut rest = locale;
    while let Some(tag) = rest {
        fallbacks.push(Selector::Only(tag.to_owned()));
        rest = tag.rsplit_once(['-', '_']).map(|(shorter, _)| shorter);
    }
    fallbacks.push(Selector::Any);
    fallbacks
}

/// Renders the texts of one event. A text that does not speak of its recipient is rendered once.
#[derive(Debug)]
pub struct Renderer<'a> {
    templates: &'a Templates,
    event_type: &'a EventType,
    document: Value,
    impersonal: HashMap<&'a str, Result<Text, String>>,
}

impl<'a> Renderer<'a> {
    pub fn new(templates: &'a Templates, event_type: &'a EventType, document: &serde_json::Value) -> Self {
        let document = Value::from(Serde(document));
        Renderer { templates, event_type, document, impersonal: HashMap::new() }
    }

    /// The text for a channel, or for the inbox. An error names template, line and variable.
    pub fn render(&mut self, channel: Option<Channel>, recipient: &Recipient) -> Result<Text, String> {
        let Some(template) = self.templates.find(self.event_type, channel, recipient.locale.as_deref())
        else {
            return Ok(Text { title: in_words(self.event_type), body: String::new() });
        };
        if template.personal {
            return self.render_for(template, recipient);
        }
        if let Some(text) = self.impersonal.get(template.name.as_str()) {
            return text.clone();
        }
        let text = self.render_for(template, recipient);
        self.impersonal.insert(&template.name, text.clone());
        text
    }

    fn render_for(&self, template: &Compiled, recipient: &Recipient) -> Result<Text, String> {
        let person = if template.personal { Value::from(Serde(recipient)) } else { Value::UNDEFINED };
        let context = context! { recipient => person, ..self.document.clone() };
        let part = |part: &str, limit| {
            let name = format!("{}/{part}", template.name);
            let compiled = self.templates.environment.get_template(&name).map_err(|e| describe(&e))?;
            let mut output = Bounded { text: Vec::new(), limit };
            compiled.render_captured_to(context.clone(), &mut output).map_err(|e| describe(&e))?;
            String::from_utf8(output.text).map_err(|_| format!("template {name}: the output is not text"))
        };
        Ok(Text { title: part("title", MAX_TITLE_BYTES)?, body: part("body", MAX_BODY_BYTES)? })
    }
}

/// `RESERVATION_REQUESTED` → `Reservation requested`.
pub fn in_words(event_type: &EventType) -> String {
    let words = event_type.as_str().replace(['_', '-', '.'], " ").to_lowercase();
    let mut letters = words.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// Whether a template's source can be used at all.
pub fn check(source: &str) -> Result<(), String> {
    if source.len() > MAX_SOURCE_BYTES {
        return Err(format!("must have at most {MAX_SOURCE_BYTES} bytes, has {}", source.len()));
    }
    environment().template_from_named_str("template", source).map(drop).map_err(|e| describe(&e))
}

fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_fuel(Some(FUEL));
    environment.set_debug(true);
    environment
}

/// One line with the template, the line in it, and the variable where there is one.
pub(crate) fn describe(error: &minijinja::Error) -> String {
    let mut text = match error.detail() {
        Some(detail) => format!("{}: {detail}", error.kind()),
        None => error.kind().to_string(),
    };
    let variable = error.range().and_then(|range| error.template_source()?.get(range).map(str::to_owned));
    if let Some(variable) = variable {
        text = format!("{text} (`{}`)", variable.chars().take(80).collect::<String>());
    }
    match (error.name(), error.line()) {
        (Some(name), Some(line)) => format!("template {name}, line {line}: {text}"),
        _ => text,
    }
}

#[derive(Debug)]
struct Bounded {
    text: Vec<u8>,
    limit: usize,
}

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.text.len() + bytes.len() > self.limit {
            return Err(io::Error::other(format!("the output has more than {} bytes", self.limit)));
        }
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn template(event_type: &str, channel: &str, locale: &str, title: &str) -> Template {
        serde_json::from_value(json!({
            "event_type": event_type, "channel": channel, "locale": locale, "title": title
        }))
        .unwrap()
    }

    fn title(rows: Vec<Template>, channel: Option<Channel>, locale: Option<&str>) -> Result<String, String> {
        let (templates, problems) = Templates::new(rows);
        assert_eq!(problems, Vec::<String>::new());
        let event_type = EventType::stored("ORDER_CREATED");
        let document = json!({"event_type": "ORDER_CREATED", "payload": {"table": 4}});
        let recipient: Recipient = serde_json::from_value(
            json!({"user_type": "CUSTOMER", "user_id": 1, "name": "Anna", "locale": locale}),
        )
        .unwrap();
        Renderer::new(&templates, &event_type, &document).render(channel, &recipient).map(|text| text.title)
    }

    #[test]
    fn without_a_template_the_title_is_the_event_type_in_words() {
        assert_eq!(title(vec![], Some(Channel::Email), None).unwrap(), "Order created");
    }

    #[test]
    fn the_locale_falls_back_to_its_language_and_then_to_the_default() {
        let rows = vec![
            template("ORDER_CREATED", "*", "*", "default"),
            template("ORDER_CREATED", "*", "it", "italiano"),
        ];
        assert_eq!(title(rows.clone(), None, Some("it-CH")).unwrap(), "italiano");
        assert_eq!(title(rows.clone(), None, Some("pt")).unwrap(), "default");
        assert_eq!(title(rows, None, None).unwrap(), "default");
    }

    #[test]
    fn the_event_type_counts_before_the_channel_and_the_channel_before_the_locale() {
        let rows = vec![
            template("*", "EMAIL", "it", "any event, mail, it"),
            template("ORDER_CREATED", "*", "it", "order, any, it"),
            template("ORDER_CREATED", "EMAIL", "*", "order, mail, any"),
        ];
        assert_eq!(title(rows.clone(), Some(Channel::Email), Some("it")).unwrap(), "order, mail, any");
        assert_eq!(title(rows[..2].to_vec(), Some(Channel::Email), Some("it")).unwrap(), "order, any, it");
        assert_eq!(
            title(rows[..1].to_vec(), Some(Channel::Email), Some("it")).unwrap(),
            "any event, mail, it"
        );
    }

    #[test]
    fn a_missing_variable_names_template_line_and_variable() {
        let error = title(vec![template("ORDER_CREATED", "*", "*", "a\nb {{ payload.chair }}")], None, None)
            .unwrap_err();
        assert!(
            error.contains("ORDER_CREATED/*/*/title, line 2") && error.contains("payload.chair"),
            "{error}"
        );
    }

    #[test]
    fn an_endless_template_runs_out_of_fuel() {
        let source = "{% for a in range(9999) %}{% for b in range(9999) %}{{ b }}{% endfor %}{% endfor %}";
        assert!(title(vec![template("*", "*", "*", source)], None, None).is_err());
    }

    #[test]
    fn output_is_bounded() {
        let source = "{% for a in range(5000) %}xxxxxxxx{% endfor %}";
        assert!(title(vec![template("*", "*", "*", source)], None, None).is_err());
    }
}
