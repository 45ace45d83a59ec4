//! What templates can call beside MiniJinja's own: filters that have a limit where MiniJinja's have none, and some that are
//! missing. Those that speak a language are in [`super::localized`].

use std::fmt::{self, Display, Write};

use minijinja::value::{Kwargs, Rest, ValueIter, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, HtmlEscape, State, Value, filters};

/// What one filter may answer. A body fits, even where every second letter of it has to be escaped.
pub const MAX_TEXT_BYTES: usize = 128 * 1024;
/// Of a list that a filter makes. An item takes 24 bytes, so such a list takes no more than a text may.
const MAX_ITEMS: usize = 5_000;
const MAX_RANGE: i64 = 1_000;

/// Replaces what has no limit, and takes away what can't have one or is nobody's business.
pub fn add(environment: &mut Environment<'_>) {
    for name in ["batch", "chain", "format", "indent", "pprint", "slice", "zip"] {
        environment.remove_filter(name);
    }
    for name in ["debug", "dict", "namespace"] {
        environment.remove_global(name);
    }
    for (name, filter) in [
        ("dictsort", Value::from_function(filters::dictsort)),
        ("groupby", Value::from_function(filters::groupby)),
        ("lines", Value::from_function(filters::lines)),
        ("list", Value::from_function(filters::list)),
        ("reject", Value::from_function(filters::reject)),
        ("rejectattr", Value::from_function(filters::rejectattr)),
        ("reverse", Value::from_function(filters::reverse)),
        ("select", Value::from_function(filters::select)),
        ("selectattr", Value::from_function(filters::selectattr)),
        ("sort", Value::from_function(filters::sort)),
        ("split", Value::from_function(filters::split)),
        ("unique", Value::from_function(filters::unique)),
    ] {
        environment.add_filter(name, move |state: &mut State, mut given: Rest<Value>, named: Kwargs| {
            given.first().map_or(Ok(()), check_size)?;
            if named.args().next().is_some() {
                given.push(Value::from(named));
            }
            let result = filter.call(state, &given)?;
            check_size(&result)?;
            Ok::<_, Error>(result)
        });
    }
    environment.add_filter("escape", escape);
    environment.add_filter("e", escape);
    environment.add_filter("join", join);
    environment.add_filter("map", map);
    environment.add_filter("paragraphs", paragraphs);
    environment.add_filter("replace", replace);
    environment.add_filter("string", string);
    environment.add_filter("sum", sum);
    environment.add_filter("times", times);
    environment.add_filter("urlencode", urlencode);
    environment.add_function("range", range);
}

fn too_large() -> Error {
    invalid(format!("the result has more than {MAX_TEXT_BYTES} bytes"))
}

/// MiniJinja's own error names the variable that is missing; it makes one where a part of nothing is asked for.
pub fn missing(value: &Value) -> Error {
    value.get_attr("").err().unwrap_or_else(|| Error::from(ErrorKind::UndefinedError))
}

pub fn invalid(what: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidOperation, what)
}

/// Before a list is made of it, and of the list: a text of many letters is a list that is many times as large.
fn check_size(value: &Value) -> Result<(), Error> {
    match value.as_str() {
        Some(text) if text.len() > MAX_TEXT_BYTES => Err(too_large()),
        None if value.try_iter().is_ok_and(|mut items| items.nth(MAX_ITEMS).is_some()) => Err(too_many()),
        _ => Ok(()),
    }
}

fn too_many() -> Error {
    invalid(format!("a list has more than {MAX_ITEMS} items"))
}

/// What is shown, as long as it fits.
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

fn escape(state: &mut State, value: &Value) -> Result<Value, Error> {
    if !value.is_safe() {
        limited(HtmlEscape(&text_of(value)?))?;
    }
    filters::escape(state, value)
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

/// Safe texts stay safe: the others are escaped before they are joined to one of them.
fn join(state: &State, value: &Value, between: Option<&Value>) -> Result<Value, Error> {
    let items: Vec<Value> = items_of(value)?.collect();
    let between = between.cloned().unwrap_or_else(|| Value::from(""));
    let any_safe = between.is_safe() || items.iter().any(Value::is_safe);
    let safe = any_safe && !matches!(state.auto_escape(), AutoEscape::None);
    let shown = |value: &Value| {
        let text = text_of(value)?;
        if safe && !value.is_safe() { limited(HtmlEscape(&text)) } else { Ok(text) }
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

/// `map(attribute="name")` only: by the name of a filter, or with a default, it would make more of each item than anybody counts.
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

/// From a number only: MiniJinja's puts texts and lists together, too, if it starts from one.
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

/// Numbers only; `*` would repeat texts, too.
fn times(value: &Value, by: &Value) -> Result<Value, Error> {
    if value.kind() != ValueKind::Number || by.kind() != ValueKind::Number {
        return Err(invalid("`times` multiplies two numbers"));
    }
    if let (Some(value), Some(by)) = (value.as_i64(), by.as_i64()) {
        return value.checked_mul(by).map(Value::from).ok_or_else(|| invalid("the number is too large"));
    }
    Ok(Value::from(f64::try_from(value.clone())? * f64::try_from(by.clone())?))
}

/// A plain text as HTML: empty lines part paragraphs, line breaks stay.
fn paragraphs(value: &Value) -> Result<Value, Error> {
    let text = text_of(value)?.replace('\r', "");
    let paragraph = |text: &str| {
        let lines: Vec<String> = text.lines().map(|line| HtmlEscape(line).to_string()).collect();
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
    use super::*;
    use minijinja::{UndefinedBehavior, context};

    fn render(source: &str) -> Result<String, String> {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.set_auto_escape_callback(|_| AutoEscape::Html);
        add(&mut environment);
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
