//! Tests that no template and no `when` exceeds its time, panics the renderer, or calls an unknown filter.

use super::*;
use crate::rules::check_when;
use crate::template::{conditions, holds};

/// A payload close to the size limit.
fn large_payload() -> serde_json::Value {
    let rows: Vec<_> = (0..400).map(|n| json!({"name": format!("row {n}")})).collect();
    json!({
        "big": "x".repeat(20_000), "rows": rows, "list": vec![1; 4_900], "same": vec![1; 4_900],
    })
}

fn body(source: &str) -> Template {
    row(json!({"event_type": "ORDER_CREATED", "title": "x", "body": source}))
}

/// The result for two recipients, rendered one after the other.
fn rendered(template: Template, payload: &serde_json::Value) -> [Result<Text, String>; 2] {
    let (templates, problems) = Templates::new(vec![template]);
    assert_eq!(problems, Vec::<String>::new());
    let event_type = EventType::stored("ORDER_CREATED");
    let mut renderer = Renderer::new(&templates, &event_type, &json!({"payload": payload}));
    ["Anna", "Bruno"].map(|name| renderer.render(None, &person(&json!({"name": name}))))
}

/// Each would take minutes without exceeding its fuel.
const TOO_SLOW: [&str; 10] = [
    "{% for a in range(999) %}{% for b in range(30) %}{% if payload.list == payload.same %}{% endif %}\
     {% endfor %}{% endfor %}",
    "{% for a in range(999) %}{% for b in range(30) -%}  {%- set c = payload.list ~ b %}{% endfor %}{% endfor %}",
    "{% for a in range(999) %}{% for b in range(30) %}{% set c = payload.big[a:] %}{% endfor %}{% endfor %}",
    "{% for a in range(999) %}{% for b in range(30) if payload.list != payload.same %}{% endfor %}{% endfor %}",
    "{% for a in payload.list if a + 1 in payload.list %}{% endfor %}",
    "{% for a in range(999) %}{% for b in range(30) %}{{ (payload.big | upper | lower | title)[:0] }}\
     {% endfor %}{% endfor %}",
    "{% for a in range(999) %}{% for b in range(30) %}{{ '' if payload.rows | sort(attribute='name') }}\
     {% endfor %}{% endfor %}",
    "{% for a in range(999) %}{% for b in range(30) %}{{ '' if payload.rows | groupby('name') }}{% endfor %}\
     {% endfor %}",
    "{% for a in range(999) %}{{ '' if payload.rows | select('in', payload.list) }}{% endfor %}",
    "{% for a in range(999) %}{% for b in range(30) %}{% if payload.list is in([payload.rows]) %}{% endif %}\
     {% endfor %}{% endfor %}",
];

#[test]
fn a_template_has_a_hundred_milliseconds() {
    for source in TOO_SLOW {
        let [first, _] = rendered(body(source), &large_payload());
        let error = first.unwrap_err();
        assert!(error.starts_with("template ORDER_CREATED/*/*/body"), "{error}");
        assert!(error.contains("takes more than 100 ms"), "{source}: {error}");
    }
}

#[test]
fn what_took_too_long_for_one_person_is_not_tried_for_the_next() {
    let source = format!("{{% if recipient.name == 'Anna' %}}{}{{% endif %}}", TOO_SLOW[0]);
    let [anna, bruno] = rendered(body(&source), &large_payload());
    assert!(anna.as_ref().unwrap_err().contains("takes more than 100 ms"), "{anna:?}");
    assert_eq!(bruno, anna, "Bruno's would have been written at once");
}

#[test]
fn a_when_has_a_hundred_milliseconds() {
    let document = json!({"payload": {"names": vec!["a"; 4_900], "list": vec![1; 4_900]}});
    let when = "payload.names | select('in', payload.list)";
    assert_eq!(check_when(when), Ok(()));
    let error = holds(&conditions(), when, &document).unwrap_err();
    assert!(error.contains("takes more than 100 ms"), "{error}");
    assert_eq!(holds(&conditions(), "payload.names | length == 4900", &document), Ok(true));
}

#[test]
fn a_panic_is_an_error_of_its_template() {
    let [first, second] = rendered(body("{% for a in [1] %}{{ loop.cycle() }}{% endfor %}"), &json!({}));
    assert_eq!(first.unwrap_err(), "template ORDER_CREATED/*/*/body: rendering it panicked");
    assert!(second.is_err());
}

/// For example an indent of 100 TB. A row written by SQL is not checked in advance and fails in the same way.
#[test]
fn only_filters_and_tests_that_have_limits_are_offered() {
    for (source, named) in [
        ("{{ ('a\nb' | indent(100000000000000)) | length }}", "filter `indent`"),
        ("{{ [1] | batch(9) }}", "filter `batch`"),
        ("{{ [1] | slice(9) }}", "filter `slice`"),
        ("{{ 'a' | center(9) }}", "filter `center`"),
        ("{{ '%9d' | format(1) }}", "filter `format`"),
        ("{{ [1] | pprint }}", "filter `pprint`"),
        ("{{ [1] | tojson }}", "filter `tojson`"),
        ("{{ [1] | chain([2]) | zip([3]) }}", "filter `chain`"),
        ("{% if 1 is nope %}{% endif %}", "test `nope`"),
        ("{% if 1 is not nope %}{% endif %}", "test `nope`"),
        ("{% if 'upper' is filter %}{% endif %}", "test `filter`"),
        ("{{ [1] | select('nope') | list }}", "test `nope`"),
        ("{{ [1] | reject('nope', 1) | list }}", "test `nope`"),
        ("{{ [{'a': 1}] | selectattr('a', 'nope') | list }}", "test `nope`"),
        ("{{ [{'a': 1}] | rejectattr('a', \"nope\", 1) | list }}", "test `nope`"),
    ] {
        let error = check(&body(source)).unwrap_err();
        assert_eq!((error.field.as_str(), error.detail), ("body", format!("line 1: there is no {named}")));
        assert!(rendered(body(source), &json!({})).iter().all(Result::is_err), "{source}");
    }
    let when = "('a\nb'|indent(100000000000000))|length > 1";
    assert!(check_when(when).unwrap_err().contains("filter `indent`"));
    assert!(holds(&conditions(), when, &json!({})).unwrap_err().contains("unknown filter"));
    assert!(check(&body("{{ [{'a': 1}] | selectattr('a', 'eq', 'nope') | select | list }}")).is_ok());
}

#[test]
fn a_when_has_eight_kilobytes() {
    let of = |bytes: usize| format!("payload.a == '{}'", "x".repeat(bytes - "payload.a == ''".len()));
    assert_eq!(check_when(&of(8 * 1024)), Ok(()));
    assert_eq!(check_when(&of(8 * 1024 + 1)), Err("must have at most 8192 bytes".to_owned()));
}

#[test]
fn large_payloads_are_compared_and_counted_as_far_as_it_makes_sense() {
    let list = json!({"list": vec![1; 30_000]});
    let [text, _] = rendered(body("{{ payload.list | length }}{{ payload.list is defined }}"), &list);
    assert_eq!(text.unwrap().body, "30000True");
    let [sorted, _] = rendered(body("{{ payload.list | sort }}"), &list);
    assert!(sorted.unwrap_err().contains("a list has more than 5000 items"));
    let characters = rendered(body("{{ payload.a | trim(payload.a) }}"), &json!({"a": "x".repeat(101)}));
    assert!(characters[0].as_ref().unwrap_err().contains("at most 100 characters"));
}

#[test]
fn a_source_that_sql_wrote_is_measured_before_it_is_compiled() {
    let html = format!("<mjml><mj-body>{}</mj-body></mjml>", "<mj-section></mj-section>".repeat(11_000));
    let (_, problems) = Templates::new(vec![row(json!({"title": "x", "html": html}))]);
    assert_eq!(problems.len(), 1);
    assert!(problems[0].starts_with("template */*/*/html must have at most 262144 bytes"), "{problems:?}");
}
