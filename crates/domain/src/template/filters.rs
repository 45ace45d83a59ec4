//! The filters and functions of templates. Some are MiniJinja's own with limits on arguments and results, some replace
//! MiniJinja's, and some are additional. Each checks the deadline first. Those that depend on the reader's language are
//! in [`crate::template::localized`].

use std::borrow::Cow;
use std::fmt::{self, Display, Write};
use std::sync::LazyLock;

use minijinja::value::{Kwargs, Rest, StringInput, ValueIter, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State, Value, filters};

use super::{deadline, localized};
use crate::template::escape::Escaped;

/// The largest result of a filter. A body fits, even if every second character has to be escaped.
pub const MAX_TEXT_BYTES: usize = 128 * 1024;
/// The most items in a filter's list. An item takes 24 bytes, so a list takes no more memory than a text.
const MAX_ITEMS: usize = 5_000;
const MAX_RANGE: i64 = 1_000;

/// The largest argument of a filter or test, with texts and items. Any payload fits.
const MAX_INPUT_BYTES: usize = 1024 * 1024;
const ITEM_BYTES: usize = 24;
/// The most characters that `trim` may be given. It compares each character of the text with all of them.
const MAX_TRIMMED_CHARS: usize = 100;

/// The arguments that a filter or test accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    /// It takes the same time for any argument, or limits its arguments itself.
    Anything,
    /// At most [`MAX_INPUT_BYTES`] per argument. The result of a filter has the same limit.
    Limited,
}

impl Takes {
    pub fn check(self, given: &[Value]) -> Result<(), Error> {
        if self == Takes::Anything { Ok(()) } else { given.iter().try_for_each(check_size) }
    }
}

/// All filters: the environment starts without any.
static FILTERS: LazyLock<Vec<(&str, Takes, Value)>> = LazyLock::new(|| {
    use Takes::{Anything, Limited};
    let mut all = vec![
        ("abs", Anything, Value::from_function(filters::abs)),
        ("attr", Anything, Value::from_function(filters::attr)),
        ("bool", Anything, Value::from_function(filters::bool)),
        ("capitalize", Limited, Value::from_function(filters::capitalize)),
        ("count", Anything, Value::from_function(filters::length)),
        ("d", Anything, Value::from_function(filters::default)),
        ("default", Anything, Value::from_function(filters::default)),
        ("dictsort", Limited, Value::from_function(filters::dictsort)),
        ("e", Anything, Value::from_function(escape)),
        ("escape", Anything, Value::from_function(escape)),
        ("first", Anything, Value::from_function(filters::first)),
        ("float", Anything, Value::from_function(filters::float)),
        ("groupby", Limited, Value::from_function(filters::groupby)),
        ("int", Anything, Value::from_function(filters::int)),
        ("items", Limited, Value::from_function(filters::items)),
        ("join", Anything, Value::from_function(join)),
        ("last", Anything, Value::from_function(filters::last)),
        ("length", Anything, Value::from_function(filters::length)),
        ("lines", Limited, Value::from_function(filters::lines)),
        ("list", Limited, Value::from_function(filters::list)),
        ("lower", Limited, Value::from_function(filters::lower)),
        ("map", Anything, Value::from_function(map)),
        ("max", Limited, Value::from_function(filters::max)),
        ("min", Limited, Value::from_function(filters::min)),
        ("paragraphs", Anything, Value::from_function(paragraphs)),
        ("reject", Limited, Value::from_function(filters::reject)),
        ("rejectattr", Limited, Value::from_function(filters::rejectattr)),
        ("replace", Anything, Value::from_function(replace)),
        ("reverse", Limited, Value::from_function(filters::reverse)),
        ("round", Anything, Value::from_function(filters::round)),
        ("safe", Limited, Value::from_function(filters::safe)),
        ("select", Limited, Value::from_function(filters::select)),
        ("selectattr", Limited, Value::from_function(filters::selectattr)),
        ("sort", Limited, Value::from_function(filters::sort)),
        ("split", Limited, Value::from_function(filters::split)),
        ("string", Anything, Value::from_function(string)),
        ("sum", Anything, Value::from_function(sum)),
        ("times", Anything, Value::from_function(times)),
        ("title", Limited, Value::from_function(filters::title)),
        ("trim", Limited, Value::from_function(trim)),
        ("unique", Limited, Value::from_function(filters::unique)),
        ("upper", Limited, Value::from_function(filters::upper)),
        ("urlencode", Anything, Value::from_function(urlencode)),
    ];
    all.extend(localized::filters().map(|(name, filter)| (name, Anything, filter)));
    all
});

pub fn add(environment: &mut Environment<'_>) {
    for (name, takes, filter) in FILTERS.iter() {
        environment.add_filter(*name, move |state: &mut State, mut given: Rest<Value>, named: Kwargs| {
            deadline::check()?;
            takes.check(&given)?;
            if named.args().next().is_some() {
                given.push(Value::from(named));
            }
            let result = filter.call(state, &given)?;
            takes.check(std::slice::from_ref(&result))?;
            Ok::<_, Error>(result)
        });
    }
    environment.add_function("range", range);
}

pub fn is_known(name: &str) -> bool {
    FILTERS.iter().any(|(known, ..)| *known == name)
}

fn too_large() -> Error {
    invalid(format!("the result has more than {MAX_TEXT_BYTES} bytes"))
}

/// The error for a missing value. MiniJinja's own error names the variable, so this makes one by reading an attribute
/// of it.
pub fn missing(value: &Value) -> Error {
    value.get_attr("").err().unwrap_or_else(|| Error::from(ErrorKind::UndefinedError))
}

pub fn invalid(what: impl Into<Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidOperation, what)
}

/// Checks the size of a filter's argument or result.
fn check_size(value: &Value) -> Result<(), Error> {
    if value.as_str().is_some_and(|text| text.len() > MAX_TEXT_BYTES) {
        return Err(too_large());
    }
    if value.as_str().is_none() && value.try_iter().is_ok_and(|mut items| items.nth(MAX_ITEMS).is_some()) {
        return Err(too_many());
    }
    let mut left = MAX_INPUT_BYTES;
    take_size(value, &mut left)
}

/// Subtracts the size of a value, with everything inside it, as often as it occurs: sorting a list reads the text of
/// each item.
fn take_size(value: &Value, left: &mut usize) -> Result<(), Error> {
    let bytes = value.as_str().map_or(ITEM_BYTES, str::len);
    *left = left
        .checked_sub(bytes)
        .ok_or_else(|| invalid(format!("a value has more than {MAX_INPUT_BYTES} bytes, items included")))?;
    let Some(object) = value.as_object() else { return Ok(()) };
    if let Some(mut pairs) = object.try_iter_pairs() {
        return pairs.try_for_each(|(name, value)| {
            take_size(&name, left)?;
            take_size(&value, left)
        });
    }
    object.try_iter().into_iter().flatten().try_for_each(|item| take_size(&item, left))
}

fn too_many() -> Error {
    invalid(format!("a list has more than {MAX_ITEMS} items"))
}

/// The formatted value, if it is within the limit.
fn limited(shown: impl Display) -> Result<String, Error> {
    struct Limited(String);
    impl Write for Limited {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            if self.0.len() + text.len() > MAX_TEXT_BYTES {
                return Err(fmt::Error);
            }
            self.0.push_str(text);
            Ok(())
        }
    }
    let mut limited = Limited(String::new());
    write!(limited, "{shown}").map_err(|_| too_large())?;
    Ok(limited.0)
}

pub fn text_of(value: &Value) -> Result<String, Error> {
    if value.is_undefined() {
        return Err(missing(value));
    }
    limited(value)
}

fn items_of(value: &Value) -> Result<ValueIter, Error> {
    if value.is_undefined() {
        return Err(missing(value));
    }
    check_size(value)?;
    value.try_iter()
}

fn string(value: &Value) -> Result<Value, Error> {
    if value.as_str().is_some() { Ok(value.clone()) } else { text_of(value).map(Value::from) }
}

fn escape(value: &Value) -> Result<Value, Error> {
    if value.is_safe() {
        return Ok(value.clone());
    }
    limited(Escaped(&text_of(value)?)).map(Value::from_safe_string)
}

fn trim(value: StringInput<'_>, characters: Option<Cow<'_, str>>) -> Result<Value, Error> {
    if characters.as_ref().is_some_and(|characters| characters.chars().nth(MAX_TRIMMED_CHARS).is_some()) {
        return Err(invalid(format!("`trim` takes at most {MAX_TRIMMED_CHARS} characters")));
    }
    Ok(filters::trim(value, characters))
}

fn urlencode(value: &Value) -> Result<String, Error> {
    if text_of(value)?.len() > MAX_TEXT_BYTES / 3 {
        return Err(too_large());
    }
    filters::urlencode(value)
}

fn replace(value: &Value, from: &Value, to: &Value) -> Result<String, Error> {
    let (value, from, to) = (text_of(value)?, text_of(from)?, text_of(to)?);
    let found = value.matches(from.as_str()).count();
    if value.len().saturating_add(found.saturating_mul(to.len())) > MAX_TEXT_BYTES {
        return Err(too_large());
    }
    Ok(value.replace(from.as_str(), &to))
}

/// Joins the items. If one of them is safe HTML, the others are escaped first.
fn join(state: &State, value: &Value, between: Option<&Value>) -> Result<Value, Error> {
    let items: Vec<Value> = items_of(value)?.collect();
    let between = between.cloned().unwrap_or_else(|| Value::from(""));
    let any_safe = between.is_safe() || items.iter().any(Value::is_safe);
    let safe = any_safe && !matches!(state.auto_escape(), AutoEscape::None);
    let shown = |value: &Value| {
        let text = text_of(value)?;
        if safe && !value.is_safe() { limited(Escaped(&text)) } else { Ok(text) }
    };
    let between = shown(&between)?;
    let mut joined = String::new();
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            joined.push_str(&between);
        }
        joined.push_str(&shown(item)?);
        if joined.len() > MAX_TEXT_BYTES {
            return Err(too_large());
        }
    }
    Ok(if safe { Value::from_safe_string(joined) } else { Value::from(joined) })
}

/// Supports only `map(attribute="name")`. With a filter's name or a default it could create more values than the limits
/// count.
#[expect(clippy::needless_pass_by_value, reason = "MiniJinja gives arguments away")]
fn map(value: &Value, given: Kwargs) -> Result<Vec<Value>, Error> {
    let attribute: Option<String> = given.get("attribute")?;
    given.assert_all_used()?;
    let attribute =
        attribute.ok_or_else(|| invalid("`map` takes an attribute: `map(attribute=\"name\")`"))?;
    let part = |item: Value| {
        let found = part_of(item, &attribute)?;
        if found.is_undefined() { Err(missing(&found)) } else { Ok(found) }
    };
    items_of(value)?.map(part).collect()
}

fn part_of(item: Value, path: &str) -> Result<Value, Error> {
    path.split('.').try_fold(item, |item, name| item.get_attr(name))
}

/// Sums numbers only. MiniJinja's `sum` also combines texts and lists if it starts from one.
fn sum(
    state: &State,
    value: Value,
    attribute: Option<&str>,
    start: Option<Value>,
    given: Kwargs,
) -> Result<Value, Error> {
    let named: Option<Value> = given.get("start")?;
    if start.iter().chain(&named).any(|start| !start.is_number()) {
        return Err(invalid("`sum` adds numbers, so it starts from one"));
    }
    filters::sum(state, value, attribute, start, given)
}

/// Multiplies numbers only, because `*` would also repeat texts.
fn times(value: &Value, by: &Value) -> Result<Value, Error> {
    if value.kind() != ValueKind::Number || by.kind() != ValueKind::Number {
        return Err(invalid("`times` multiplies two numbers"));
    }
    if let (Some(value), Some(by)) = (value.as_i64(), by.as_i64()) {
        return value.checked_mul(by).map(Value::from).ok_or_else(|| invalid("the number is too large"));
    }
    Ok(Value::from(f64::try_from(value.clone())? * f64::try_from(by.clone())?))
}

/// Plain text as HTML: an empty line starts a paragraph, and line breaks stay.
fn paragraphs(value: &Value) -> Result<Value, Error> {
    let text = text_of(value)?.replace('\r', "");
    let paragraph = |text: &str| {
        let lines: Vec<String> = text.lines().map(|line| Escaped(line).to_string()).collect();
        format!("<p>{}</p>", lines.join("<br>"))
    };
    let mut html = String::new();
    for text in text.split("\n\n").map(str::trim).filter(|text| !text.is_empty()) {
        html.push_str(&paragraph(text));
        if html.len() > MAX_TEXT_BYTES {
            return Err(too_large());
        }
    }
    Ok(Value::from_safe_string(html))
}

fn range(first: i64, end: Option<i64>, step: Option<i64>) -> Result<Vec<i64>, Error> {
    deadline::check()?;
    let (start, end) = end.map_or((0, first), |end| (first, end));
    let step = step.unwrap_or(1);
    if step == 0 {
        return Err(invalid("a range with steps of 0 has no end"));
    }
    let count = (i128::from(end) - i128::from(start)) / i128::from(step);
    if count > i128::from(MAX_RANGE) {
        return Err(invalid(format!("a range has at most {MAX_RANGE} numbers")));
    }
    let inside = |number: &i64| if step > 0 { *number < end } else { *number > end };
    let next = |number: &i64| number.checked_add(step);
    Ok(std::iter::successors(Some(start), next).take_while(inside).collect())
}

#[cfg(test)]
mod tests {
    use super::super::predicates;
    use super::*;
    use minijinja::{UndefinedBehavior, context};

    fn render(source: &str) -> Result<String, String> {
        let mut environment = Environment::empty();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.set_auto_escape_callback(|_| AutoEscape::Html);
        add(&mut environment);
        predicates::add(&mut environment);
        let big = "&".repeat(60_000);
        let rows = vec![context! { n => "a<" }, context! { n => "b" }];
        let context = context! { big, rows, list => vec!["x"; 30_000] };
        environment.render_str(source, context).map_err(|error| error.to_string())
    }

    #[track_caller]
    fn gives(source: &str, text: &str) {
        assert_eq!(render(source).unwrap(), text, "{source}");
    }

    #[test]
    fn filters_that_could_blow_up_have_a_limit() {
        for source in [
            "{{ big | replace('', big) }}",
            "{{ big | replace('&', big) }}",
            "{{ list | join(big) }}",
            "{{ big | e }}",
            "{{ big | paragraphs }}",
            "{{ big | list }}",
            "{{ big | split('') }}",
            "{{ list | sort }}",
            "{{ list | map(attribute='x') }}",
            "{{ list | join }}",
            "{{ (list + list) | select('string') | list }}",
            "{{ list | map('default', big, true) }}",
            "{{ list | map(attribute='x', default=big) }}",
            "{{ ['a', 'b'] | sum(start='') }}",
            "{{ [[1], [2]] | sum(none, []) }}",
            "{{ ['a'] | sum }}",
            "{{ range(1000000000) }}",
            "{{ range(0, 1000000000, 1) }}",
            "{{ range(0, 1, 0) }}",
            "{{ 'a' | times(1000000000) }}",
            "{{ 9223372036854775807 | times(2) }}",
            "{{ 'a' | indent(1000000000) }}",
            "{{ '%1000000000d' | format(1) }}",
            "{{ [1] | batch(1000000000, 1) }}",
            "{{ [1] | slice(1000000000) }}",
            "{% set ns = namespace(x='a') %}",
            "{{ debug() }}",
        ] {
            assert!(render(source).is_err(), "{source}");
        }
    }

    #[test]
    fn they_do_what_their_names_say() {
        gives("{{ rows | map(attribute='n') | join(', ') }}", "a&lt;, b");
        gives("{{ ['<', '<b>' | safe] | join('<br>' | safe) }}", "&lt;<br><b>");
        gives("{{ 'a-b' | replace('-', '<') }}", "a&lt;b");
        gives("{{ 3 | times(2) }} {{ 1.5 | times(3) }}", "6 4.5");
        gives("{{ [1, 2.5] | sum }} {{ [{'n': 2}, {}] | sum(attribute='n', start=1) }}", "3.5 3");
        gives(
            "{% for i in range(3) %}{{ i }}{% endfor %}{% for i in range(5, 1, -2) %}{{ i }}{% endfor %}",
            "01253",
        );
        gives("{{ 'a b&c' | urlencode }}", "a%20b%26c");
        gives("{{ 'b,a,a' | split(',') | unique | sort(reverse=true) | join }}", "ba");
        gives("{{ rows | selectattr('n', 'eq', 'b') | list | length }}{{ 'ab' | reverse }}", "1ba");
        gives("{{ 'a <b>\nc\n\n\nd' | paragraphs }}", "<p>a &lt;b&gt;<br>c</p><p>d</p>");
    }

    #[test]
    fn what_is_missing_is_missing_for_them_too() {
        for source in
            ["{{ nothing | join }}", "{{ nothing | string }}", "{{ rows | map(attribute='x') | join }}"]
        {
            assert!(render(source).unwrap_err().contains("undefined"), "{source}");
        }
    }
}
