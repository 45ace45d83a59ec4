//! Mutations of JSON documents and texts that tend to find unexpected cases.

use serde_json::{Map, Value};

use crate::random::Random;

/// Texts that have broken other programs.
const TEXTS: &[&str] = &[
    "",
    " ",
    "*",
    ".",
    "..",
    "../../etc/passwd",
    "a\u{0}b",
    "\u{0}",
    "a\nb\r\nc: d",
    "\u{1b}[31mred",
    "\u{202e}right to left",
    "\u{feff}",
    "e\u{301}\u{1f468}\u{200d}\u{1f469}\u{200d}\u{1f467}",
    "\u{fffd}\u{ffff}\u{10ffff}",
    "'; DROP TABLE event_outbox; --",
    "$1 $2 ?1 :x %s %n",
    "<script>alert(1)</script>",
    "<!channel> <@U1> &amp;",
    "=?utf-8?B?aGVsbG8=?=",
    "a@b@c",
    "Anna <a@b.c>",
    "a@b.c\r\nBcc: x@y.z",
    "+39055123456",
    "+1 (500) 555-0006",
    "0000-00-00T00:00:00Z",
    "9999-12-31T23:59:60Z",
    "-0001-01-01T00:00:00Z",
    "2026-02-30T00:00:00Z",
    "24:00",
    "23:59",
    "Europe/Rome",
    "Mars/Olympus",
    "it",
    "IT",
    "it_CH@euro",
    "/",
    "/payload",
    "/payload/~2",
    "/payload/restaurantId /payload/x",
    "payload.x == 1",
    "true",
    "1e400",
    "NaN",
    "-1",
    "99999999999999999999999999",
    "10s",
    "http://[::1",
    "https://hooks.slack.com/services/T/B/x",
    "RESTAURANT",
    "RESTAURANT_USER",
    "EMAIL",
    "HIGH",
    "PENDING",
    "TEAM",
    "[]",
    "{}",
    "null",
    "[\"a\\u0000\",\"b\"]",
];

/// Expensive templates and expressions.
const TEMPLATES: &[&str] = &[
    "{{ payload }}",
    "{{ payload.a.b.c }}",
    "{{ ('a\nb'|indent(100000000000000))|length }}",
    "('a\nb'|indent(100000000000000))|length > 1",
    "{{ 'a' * 100000000000 }}",
    "{{ range(100000000000)|list }}",
    "{% for a in range(1000) %}{% for b in range(1000) %}{{ payload|upper }}{% endfor %}{% endfor %}",
    "{% set x = 'aaaaaaaaaa' %}{% for i in range(1000) %}{% set x = x ~ x %}{% endfor %}{{ x }}",
    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "{% include 'x' %}",
    "{% for x in payload recursive %}{{ loop(x) }}{% endfor %}",
    "{{ payload|tojson|upper|replace('', 'aaaaaaaaaaaaaaaaaaaaaaaaaa') }}",
    "{{ payload|nope }}",
    "{{ 1 is nope }}",
    "{{ 'x'|date }} {{ 1e308|currency('XXX') }}",
    "{{",
    "{% if %}",
    "<mjml><mj-body><mj-section><mj-column><mj-text>{{ body }}</mj-text></mj-column></mj-section></mj-body></mjml>",
    "<mjml><mj-include path='/etc/passwd'/></mjml>",
    "<mjml>",
];

/// A random text: a difficult one, a template, a long one, or random characters.
pub fn text(random: &mut Random) -> String {
    match random.below(10) {
        0..5 => (*random.pick(TEXTS).unwrap_or(&"")).to_owned(),
        5..7 => (*random.pick(TEMPLATES).unwrap_or(&"")).to_owned(),
        7 if random.percent(50) => text(random) + "\0",
        7 => "x".repeat(usize::try_from(random.below(100_000)).unwrap_or(0)),
        8 => (0..random.below(40)).filter_map(|_| any_char(random)).collect(),
        _ => text(random) + &text(random),
    }
}

fn any_char(random: &mut Random) -> Option<char> {
    let limit = if random.percent(50) { 0x80 } else { 0x11_0000 };
    char::from_u32(u32::try_from(random.below(limit)).ok()?)
}

/// Any JSON value, small or absurd.
pub fn value(random: &mut Random) -> Value {
    match random.below(12) {
        0 => Value::Null,
        1 => Value::Bool(random.percent(50)),
        2 => (random.below(2_000).cast_signed() - 1_000).into(),
        3 => Value::from(*random.pick(&[u64::MAX, i64::MAX as u64, 1 << 53, 1 << 63]).unwrap_or(&0)),
        4 => Value::from(*random.pick(&[1e308, -1e308, 5e-324, 0.1, -0.0]).unwrap_or(&0.0)),
        5..9 => Value::String(text(random)),
        9 => (0..random.below(5)).map(|_| value(random)).collect(),
        10 => (0..random.below(5)).map(|_| (text(random), value(random))).collect::<Map<_, _>>().into(),
        _ => nested(random.between(1, 3_000)),
    }
}

fn nested(depth: u64) -> Value {
    (0..depth.min(120)).fold(Value::Null, |inner, _| Value::Array(vec![inner]))
}

/// Changes one place of a document: a value replaced, a key added, removed or renamed, an item repeated.
pub fn document(document: &mut Value, random: &mut Random) {
    let inside = random.percent(80);
    match document {
        Value::Object(fields) if inside && !fields.is_empty() => {
            let keys: Vec<String> = fields.keys().cloned().collect();
            let Some(key) = random.pick(&keys) else { return };
            match random.below(10) {
                0 => drop(fields.remove(key)),
                1 => drop(fields.insert(text(random), value(random))),
                _ => {
                    if let Some(field) = fields.get_mut(key) {
                        self::document(field, random);
                    }
                }
            }
        }
        Value::Array(items) if inside && !items.is_empty() => {
            let index = usize::try_from(random.below(items.len() as u64)).unwrap_or(0);
            match random.below(10) {
                0 => drop(items.remove(index)),
                1 => items.push(items[index].clone()),
                _ => self::document(&mut items[index], random),
            }
        }
        other => *other = value(random),
    }
}

/// Changes the text of a document in ways that no serialiser would.
pub fn bytes(mut text: Vec<u8>, random: &mut Random) -> Vec<u8> {
    let at = usize::try_from(random.below(text.len() as u64 + 1)).unwrap_or(0);
    match random.below(8) {
        0 => text.truncate(at),
        1 => text.insert(at, 0),
        2 => drop(text.splice(at..at, [0xff, 0xfe, 0xc0, 0x80])),
        3 => drop(text.splice(at..at, b"1e400".iter().copied())),
        4 => drop(text.splice(at..at, "[".repeat(3_000).into_bytes())),
        5 => return with_key_twice(&text),
        6 => {
            if let Some(byte) = text.get_mut(at) {
                *byte = u8::try_from(random.below(256)).unwrap_or(0);
            }
        }
        _ => drop(text.splice(at..at, br"\ud800\u0000".iter().copied())),
    }
    text
}

/// Repeats the first field of an object, so that a key occurs twice.
fn with_key_twice(text: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(text);
    let Some(open) = text.find('{') else { return text.into_owned().into_bytes() };
    let first = text[open + 1..].split([',', '}']).next().unwrap_or_default();
    format!("{}{{{first},{}", &text[..open], &text[open + 1..]).into_bytes()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_key_is_there_twice() {
        assert_eq!(with_key_twice(br#"[{"a": 1, "b": 2}]"#), br#"[{"a": 1,"a": 1, "b": 2}]"#);
        assert_eq!(with_key_twice(b"[]"), b"[]");
    }

    #[test]
    fn most_values_of_documents_are_changed_sooner_or_later() {
        let original = json!({ "a": { "b": [1, 2] }, "c": "d" });
        let mut random = Random::new(1, "mutate");
        let mut changed = [false; 3];
        for _ in 0..300 {
            let mut copy = original.clone();
            document(&mut copy, &mut random);
            changed[0] |= copy["a"]["b"] != original["a"]["b"] && copy["a"].is_object();
            changed[1] |= copy["c"] != original["c"];
            changed[2] |= !copy.is_object();
        }
        assert_eq!(changed, [true; 3]);
    }
}
