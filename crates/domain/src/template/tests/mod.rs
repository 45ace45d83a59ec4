//! Which template is used, and that no template does harm.

use super::*;
use crate::people::recipient::Recipient;
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
fn a_language_is_found_however_it_is_written() {
    for (row, recipient) in
        [("it-CH", "it_CH"), ("it_CH", "it-ch"), ("pt-BR", "pt-br"), ("IT", "it-CH"), ("it", "IT_it")]
    {
        let rows =
            vec![template("ORDER_CREATED", "*", row, "mine"), template("ORDER_CREATED", "*", "*", "default")];
        assert_eq!(title(rows, None, Some(recipient)).unwrap(), "mine", "{row} for {recipient}");
    }
    let error = check(&template("ORDER_CREATED", "*", "the language", "a")).unwrap_err();
    assert_eq!(error.field, "locale");
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
    assert_eq!(title(rows[..1].to_vec(), Some(Channel::Email), Some("it")).unwrap(), "any event, mail, it");
}

#[test]
fn a_missing_variable_names_template_line_and_variable() {
    let error =
        title(vec![template("ORDER_CREATED", "*", "*", "a\nb {{ payload.chair }}")], None, None).unwrap_err();
    assert!(error.contains("ORDER_CREATED/*/*/title, line 2") && error.contains("payload.chair"), "{error}");
}

/// Each is placed at the third line. The reported line is that of the failing step.
const MISSING: [(&str, usize); 11] = [
    ("{{ payload.chair }}", 3),
    ("{{ payload.chair\n | date(\"long\") }}", 4),
    ("{{ payload.chair\n | date(\n\"long\") }}", 4),
    ("{{ payload.chair | upper\n }}", 3),
    ("{{\tpayload.chair\n ~ 'a' }}", 3),
    ("{{ payload.chair ~ 'a\nb' }}", 3),
    ("{{ payload.chair\n | currency(\"EUR\")\n | string }}", 4),
    ("{% set a = payload.chair %}\n\n{{ 'x' }}{{ a }}", 5),
    ("{{ payload.chair | plural(one='a',\n other='b') }}", 3),
    ("{{ [payload.chair,\n 2] | join }}", 4),
    ("{% for x in payload.chair\n %}{% endfor %}", 3),
];

#[test]
fn a_missing_variable_is_named_however_the_expression_is_written() {
    let mjml = |tag: &str| {
        format!(
            "<mjml><mj-body><mj-section><mj-column>{{{{\n'x' }}}}\n<mj-text>{tag}</mj-text>\n</mj-column>\
             </mj-section></mj-body></mjml>"
        )
    };
    for (tag, line) in MISSING {
        let text = format!("{{{{\n'x' }}}}\n{tag}");
        for (part, body, html) in [
            ("body", text.clone(), String::new()),
            ("html", "a".to_owned(), format!("<p>{text}</p>")),
            ("html", "a".to_owned(), mjml(tag)),
        ] {
            let rows = vec![row(
                json!({"event_type": "ORDER_CREATED", "channel": "EMAIL", "title": "a", "body": body, "html": html}),
            )];
            let error = mail(rows, &person(&json!({}))).unwrap_err();
            let start = format!("template ORDER_CREATED/EMAIL/*/{part}, line {line}: ");
            assert!(error.starts_with(&start) && error.contains("payload.chair"), "{tag:?}: {error:?}");
        }
    }
}

#[test]
fn an_endless_template_runs_out_of_fuel() {
    let source = "{% for a in range(1000) %}{% for b in range(1000) %}{% endfor %}{% endfor %}";
    let error = title(vec![template("*", "*", "*", source)], None, None).unwrap_err();
    assert!(error.starts_with("template */*/*/title") && error.contains("ran out of fuel"), "{error}");
}

#[test]
fn output_is_bounded() {
    let source = |count: usize| format!("{{% for a in range({count}) %}}xxxxxxxx{{% endfor %}}");
    assert_eq!(title(vec![template("*", "*", "*", &source(256))], None, None).unwrap().len(), 2_048);
    let error = title(vec![template("*", "*", "*", &source(257))], None, None).unwrap_err();
    assert_eq!(error, "template */*/*/title: the output has more than 2048 bytes");
}

const LAYOUT: &str = "<mjml>
  <mj-body>
    <mj-section><mj-column>
      <mj-text>{{ title }}</mj-text>
      <mj-text>{{ body | paragraphs }}</mj-text>
      {% for dish in payload.dishes %}<mj-text>{{ dish }} for {{ recipient.name }}</mj-text>{% endfor %}
    </mj-column></mj-section>
  </mj-body>
</mjml>";

fn row(fields: serde_json::Value) -> Template {
    serde_json::from_value(fields).unwrap()
}

fn person(fields: &serde_json::Value) -> Recipient {
    let mut person = json!({"user_type": "CUSTOMER", "user_id": 1, "name": "Anna & Co"});
    person.as_object_mut().unwrap().extend(fields.as_object().cloned().unwrap());
    serde_json::from_value(person).unwrap()
}

/// The text and HTML of an e-mail.
fn mail(rows: Vec<Template>, recipient: &Recipient) -> Result<(Text, Option<String>), String> {
    let (templates, problems) = Templates::new(rows);
    assert_eq!(problems, Vec::<String>::new());
    let event_type = EventType::stored("ORDER_CREATED");
    let document =
        json!({"payload": {"dishes": ["<b>", "R&D"], "at": "2026-01-21T18:30:00Z", "total": 1234.5}});
    let mut renderer = Renderer::new(&templates, &event_type, &document);
    let text = renderer.render(Some(Channel::Email), recipient)?;
    let html = renderer.html(Channel::Email, recipient, &text)?;
    assert_eq!(html.is_some(), renderer.has_html(Channel::Email, recipient.locale.as_deref()));
    Ok((text, html))
}

#[test]
fn html_is_escaped_and_texts_are_not() {
    let rows = vec![row(json!({
        "event_type": "ORDER_CREATED", "title": "{{ payload.dishes[0] }}", "body": "{{ recipient.name }}",
        "html": "<p>{{ payload.dishes[0] }} {{ recipient.name }} {{ title }} {{ body }}</p>",
    }))];
    let (text, html) = mail(rows, &person(&json!({}))).unwrap();
    assert_eq!((text.title.as_str(), text.body.as_str()), ("<b>", "Anna & Co"));
    assert_eq!(html.unwrap(), "<p>&lt;b&gt; Anna &amp; Co &lt;b&gt; Anna &amp; Co</p>");
}

#[test]
fn an_event_without_html_of_its_own_is_laid_out_as_any_event_is() {
    let layout = row(json!({"channel": "EMAIL", "title": "", "html": LAYOUT}));
    let it = row(
        json!({"event_type": "ORDER_CREATED", "locale": "it", "title": "Nuovo ordine", "body": "Uno\n\ndue"}),
    );
    let (text, html) = mail(vec![layout.clone(), it], &person(&json!({"locale": "it-CH"}))).unwrap();
    let html = html.unwrap();
    assert_eq!(text.body, "Uno\n\ndue");
    for part in ["Nuovo ordine", "<p>Uno</p><p>due</p>", "&lt;b&gt; for Anna &amp; Co", "R&amp;D for"] {
        assert!(html.contains(part), "{part} is not in {html}");
    }
    // A layout has no text: the title is the event type in words.
    let (text, html) = mail(vec![layout.clone()], &person(&json!({}))).unwrap();
    assert_eq!((text.title.as_str(), text.body.as_str()), ("Order created", ""));
    assert!(html.unwrap().contains("Order created"));
    // A row with its own HTML gets no layout, and layouts of other channels are not used.
    let own = row(json!({"event_type": "ORDER_CREATED", "title": "x", "body": "y", "html": "<i>own</i>"}));
    assert_eq!(mail(vec![layout, own], &person(&json!({}))).unwrap().1.unwrap(), "<i>own</i>");
    let sms = row(json!({"channel": "SMS", "title": "", "html": LAYOUT}));
    assert_eq!(mail(vec![sms], &person(&json!({}))).unwrap().1, None);
}

#[test]
fn html_is_told_the_language_of_the_text() {
    let rows = vec![
        row(json!({"channel": "EMAIL", "title": "", "html": "{{ locale }}"})),
        row(json!({"event_type": "ORDER_CREATED", "title": "Order", "body": "b"})),
        row(json!({"event_type": "ORDER_CREATED", "locale": "it", "title": "Ordine", "body": "b"})),
    ];
    for (reader, language) in
        [(json!("it"), "it"), (json!("it_CH"), "it-CH"), (json!("nl"), "en"), (json!(null), "en")]
    {
        let (_, html) = mail(rows.clone(), &person(&json!({"locale": reader}))).unwrap();
        assert_eq!(html.unwrap(), language, "{reader}");
    }
}

#[test]
fn html_that_says_something_is_no_layout_of_other_texts() {
    let generic =
        row(json!({"channel": "EMAIL", "title": "News", "body": "b", "html": "<p>Something happened</p>"}));
    let own = row(json!({"event_type": "ORDER_CREATED", "title": "An order", "body": "y"}));
    let (text, html) = mail(vec![generic.clone(), own.clone()], &person(&json!({}))).unwrap();
    assert_eq!((text.title.as_str(), html), ("An order", None));
    let layout = row(json!({"channel": "*", "title": "", "html": "<b>{{ title }}</b>"}));
    let (_, html) = mail(vec![generic.clone(), own, layout], &person(&json!({}))).unwrap();
    assert_eq!(html.unwrap(), "<b>An order</b>");
    assert_eq!(mail(vec![generic], &person(&json!({}))).unwrap().1.unwrap(), "<p>Something happened</p>");
}

#[test]
fn html_that_is_blank_is_none() {
    let layout = row(json!({"channel": "EMAIL", "title": "", "html": "<p>{{ body }}</p>"}));
    for blank in ["", " \n"] {
        let own = row(json!({"event_type": "ORDER_CREATED", "title": "x", "body": "y", "html": blank}));
        assert_eq!(mail(vec![own.clone()], &person(&json!({}))).unwrap().1, None);
        assert_eq!(mail(vec![own, layout.clone()], &person(&json!({}))).unwrap().1.unwrap(), "<p>y</p>");
    }
}

#[test]
fn html_in_another_language_is_not_mixed_with_a_text() {
    let rows = vec![
        row(
            json!({"event_type": "ORDER_CREATED", "channel": "EMAIL", "title": "en", "html": "<p>English</p>"}),
        ),
        row(
            json!({"event_type": "ORDER_CREATED", "channel": "EMAIL", "locale": "it", "title": "it", "body": "testo"}),
        ),
    ];
    assert_eq!(mail(rows, &person(&json!({"locale": "it"}))).unwrap().1, None);
}

#[test]
fn a_body_that_is_not_given_is_read_from_the_html() {
    let rows = vec![row(json!({
        "event_type": "ORDER_CREATED", "title": "Order", "html":
        "<mjml><mj-head><mj-preview>Preview</mj-preview></mj-head><mj-body><mj-section><mj-column>
          <mj-text><h1>{{ title }}</h1><p>Dear {{ recipient.name }},</p><ul>{% for dish in payload.dishes %}\
          <li>{{ dish }}</li>{% endfor %}</ul></mj-text>
          <mj-button href=\"https://a.example/?a=1&amp;b=2\">See it</mj-button><mj-text>{{ body }}</mj-text>
        </mj-column></mj-section></mj-body></mjml>",
    }))];
    let (text, html) = mail(rows, &person(&json!({}))).unwrap();
    let expected = "Order\n\nDear Anna & Co,\n\n- <b>\n- R&D\n\nSee it (https://a.example/?a=1&b=2)";
    assert_eq!(text.body, expected);
    // A body that was made from the HTML is not inserted into it.
    assert_eq!(html.unwrap().matches("Dear").count(), 1);
}

#[test]
fn an_error_in_html_names_the_line_that_was_written() {
    let source = LAYOUT.replace("recipient.name", "recipient.nickname");
    let rows = vec![row(json!({"event_type": "ORDER_CREATED", "title": "a", "body": "b", "html": source}))];
    let error = mail(rows, &person(&json!({}))).unwrap_err();
    assert!(
        error.contains("ORDER_CREATED/*/*/html, line 6") && error.contains("recipient.nickname"),
        "{error}"
    );
}

#[test]
fn what_is_rendered_once_is_rendered_for_each_language_and_zone() {
    let rows = ["it", "*"].map(|locale| {
        row(json!({
            "event_type": "ORDER_CREATED", "locale": locale, "title": "{{ payload.total | number }}",
            "body": "{{ payload.at | time }}",
        }))
    });
    let (templates, _) = Templates::new(rows.into());
    let event_type = EventType::stored("ORDER_CREATED");
    let document = json!({"payload": {"at": "2026-01-21T18:30:00Z", "total": 1234.5}});
    let mut renderer = Renderer::new(&templates, &event_type, &document);
    let mut text = |fields: serde_json::Value| {
        let text = renderer.render(None, &person(&fields)).unwrap();
        format!("{} {}", text.title, text.body)
    };
    for _ in 0..2 {
        assert_eq!(text(json!({"locale": "it", "time_zone": "Europe/Rome"})), "1234,5 19:30");
        assert_eq!(text(json!({"locale": "it", "time_zone": "Europe/London"})), "1234,5 18:30");
        assert_eq!(text(json!({"locale": "en", "time_zone": "Europe/Rome"})), "1,234.5 7:30 PM");
        assert_eq!(text(json!({})), "1,234.5 6:30 PM");
        // A reader of German without a German template gets English, also for dates.
        assert_eq!(text(json!({"locale": "de", "time_zone": "Europe/Rome"})), "1,234.5 7:30 PM");
    }
    assert_eq!(renderer.impersonal.len(), 4, "English is rendered once for each zone");
}

#[test]
fn of_two_spellings_of_a_language_the_usual_one_counts_and_the_other_is_named() {
    let rows =
        ["IT", "it", "it_CH", "it-CH", "it-ch"].map(|locale| template("ORDER_CREATED", "*", locale, locale));
    let (templates, problems) = Templates::new(rows.into());
    let event_type = EventType::stored("ORDER_CREATED");
    let mut renderer = Renderer::new(&templates, &event_type, &json!({}));
    for (locale, text) in [("it", "it"), ("IT-CH", "it-CH")] {
        assert_eq!(renderer.render(None, &person(&json!({"locale": locale}))).unwrap().title, text);
    }
    let named = |locale: &str, other: &str| {
        format!(
            "template ORDER_CREATED/*/{locale} is not used: ORDER_CREATED/*/{other} is for the same language; \
             delete one of them"
        )
    };
    assert_eq!(problems, [named("IT", "it"), named("it_CH", "it-CH"), named("it-ch", "it-CH")]);
    // A draft replaces the row of its language.
    let drafted = templates.with(template("ORDER_CREATED", "*", "IT", "draft")).unwrap();
    let mut renderer = Renderer::new(&drafted, &event_type, &json!({}));
    assert_eq!(renderer.render(None, &person(&json!({"locale": "it"}))).unwrap().title, "draft");
}

#[test]
fn the_language_is_that_of_the_text_for_html_and_previews_too() {
    let rows = vec![
        row(
            json!({"event_type": "ORDER_CREATED", "title": "x", "html": "{{ payload.at | date }} {{ locale }}"}),
        ),
        row(json!({"event_type": "ORDER_CREATED", "locale": "it", "title": "{{ 1.5 | number }}"})),
    ];
    let (templates, _) = Templates::new(rows.clone());
    let event_type = EventType::stored("ORDER_CREATED");
    let renderer = Renderer::new(&templates, &event_type, &json!({"payload": {"at": "2026-01-21"}}));
    let german = person(&json!({"locale": "de"}));
    let text = Text { title: "x".to_owned(), body: String::new() };
    assert_eq!(renderer.html(Channel::Email, &german, &text).unwrap().unwrap(), "Jan 21, 2026 en");
    for (locale, language) in [(Some("de"), "en"), (Some("it_CH"), "it-CH"), (None, "en")] {
        assert_eq!(renderer.chosen(Some(Channel::Email), locale).locale, language);
    }
}

#[test]
fn without_a_template_an_event_says_what_its_payload_says() {
    let said = |payload: serde_json::Value| {
        let templates = Templates::default();
        let event_type = EventType::stored("ORDER_READY");
        let mut renderer = Renderer::new(&templates, &event_type, &json!({"payload": payload}));
        let text = renderer.render(Some(Channel::Push), &person(&json!({}))).unwrap();
        (text.title, text.body)
    };
    let pair = |title: &str, body: &str| (title.to_owned(), body.to_owned());
    assert_eq!(said(json!({"title": "Order 7 is ready", "body": "a\nb"})), pair("Order 7 is ready", "a\nb"));
    assert_eq!(said(json!({"title": " ", "body": "b"})), pair("Order ready", "b"));
    assert_eq!(said(json!({"title": 7, "body": ["b"]})), pair("Order ready", ""));
    assert_eq!(said(json!(null)), pair("Order ready", ""));
    assert_eq!(said(json!({"title": "a\u{0}b{{ c }}"})), pair("ab{{ c }}", ""));
    let (title, body) = said(json!({"title": "è".repeat(2_000), "body": format!("x{}", "è".repeat(20_000))}));
    assert_eq!((title.len(), body.len()), (2_048, 32 * 1024 - 1), "cut between letters");
}

#[test]
fn control_characters_are_left_out() {
    let source = "a\u{1}\u{7f}b\tc{{ '\\u0000' }}{{ payload.guest }}\u{85}";
    let rows =
        vec![row(json!({"event_type": "ORDER_CREATED", "title": source, "body": source, "html": source}))];
    let (templates, _) = Templates::new(rows);
    let event_type = EventType::stored("ORDER_CREATED");
    let document = json!({"payload": {"guest": "d\u{0}\r\ne\rf\u{1b}[31m"}});
    let mut renderer = Renderer::new(&templates, &event_type, &document);
    let text = renderer.render(Some(Channel::Email), &person(&json!({}))).unwrap();
    let clean = "ab\tcd\ne\nf[31m";
    assert_eq!((text.title.as_str(), text.body.as_str()), (clean, clean));
    assert_eq!(renderer.html(Channel::Email, &person(&json!({})), &text).unwrap().unwrap(), clean);
}

#[test]
fn a_link_in_html_stays_a_link() {
    let html = "<a href=\"{{ payload.url }}\">{{ payload.url }}</a> {{ [payload.url] | join | e }}";
    let rows = vec![row(json!({"event_type": "ORDER_CREATED", "title": "x", "html": html}))];
    let (templates, _) = Templates::new(rows);
    let event_type = EventType::stored("ORDER_CREATED");
    let document = json!({"payload": {"url": "https://a.example/?a='1'&b=\"2\""}});
    let renderer = Renderer::new(&templates, &event_type, &document);
    let text = Text { title: "x".to_owned(), body: String::new() };
    let url = "https://a.example/?a=&#x27;1&#x27;&amp;b=&quot;2&quot;";
    let expected = format!("<a href=\"{url}\">{url}</a> {url}");
    assert_eq!(renderer.html(Channel::Email, &person(&json!({})), &text).unwrap().unwrap(), expected);
}

#[test]
fn what_speaks_no_language_is_rendered_once_for_all() {
    let (templates, _) = Templates::new(vec![template("*", "*", "*", "{{ payload.dates }}")]);
    let event_type = EventType::stored("ORDER_CREATED");
    let document = json!({"payload": {"dates": 1}});
    let mut renderer = Renderer::new(&templates, &event_type, &document);
    for locale in ["it", "en", "pt"] {
        renderer.render(None, &person(&json!({"locale": locale}))).unwrap();
    }
    assert_eq!(renderer.impersonal.len(), 1);
}

#[test]
fn a_reader_without_a_locale_gets_the_templates() {
    let it =
        row(json!({"event_type": "ORDER_CREATED", "locale": "it", "title": "{{ payload.total | number }}"}));
    let (templates, _) = Templates::new(vec![it]);
    let compiled =
        templates.keys.values().flat_map(HashMap::values).flat_map(|rows| rows.only.values()).next().unwrap();
    let event_type = EventType::stored("ORDER_CREATED");
    let renderer = Renderer::new(&templates, &event_type, &json!({"payload": {"total": 12345.5}}));
    assert_eq!(renderer.render_for(compiled, &person(&json!({}))).unwrap().title, "12.345,5");
}

#[test]
fn a_row_that_can_not_be_used_is_refused_by_field_and_line() {
    let refused = |fields| check(&row(fields)).unwrap_err();
    let error = refused(json!({"title": "{{ a", "body": ""}));
    assert_eq!(error.field, "title");
    let error = refused(json!({"title": "a", "body": "x\n{{ a | nofilter }}"}));
    assert_eq!((error.field.as_str(), error.detail.contains("line 2")), ("body", true), "{error}");
    for html in
        ["\n<mjml>\n<mj-body>\n<mj-sect></mj-sect></mj-body></mjml>", "\n\n\n{% if a %}", "\n\n\n{{ a * 2 }}"]
    {
        let error = refused(json!({"title": "a", "html": html}));
        assert_eq!((error.field.as_str(), error.detail.contains("line 4")), ("html", true), "{error}");
    }
    let error = refused(json!({"title": "a", "html": LAYOUT.replace("{% endfor %}", "{% endif %}")}));
    assert!(error.detail.contains("line 6"), "{error}");
    assert!(check(&row(json!({"title": "a", "html": LAYOUT}))).is_ok());
    let error = refused(json!({"title": "a", "body": "x\n{% if %}"}));
    assert!(error.detail.starts_with("line 2: "), "{error}");
}

#[test]
fn no_template_hurts() {
    let doubling = "{% set a = a ~ a %}".repeat(40);
    for source in [
        "{% for a in range(999) %}{% for b in range(999) %}{{ b }}{% endfor %}{% endfor %}".to_owned(),
        "{% for a in payload.dishes %}{{ range(10**9) }}{% endfor %}".to_owned(),
        "{{ range(1000000000) }}".to_owned(),
        "{{ 'x' * 10**9 }}".to_owned(),
        format!("{{% set a = 'xxxx' %}}{doubling}{{{{ a }}}}"),
        "{% macro m(x) %}{{ m(x ~ x) }}{% endmacro %}{{ m('x') }}".to_owned(),
        "{% include 'ORDER_CREATED/*/*/title' %}".to_owned(),
        format!("{}{}", "{% if true %}".repeat(200), "{% endif %}".repeat(200)),
        format!("{{{{ {}1{} }}}}", "(".repeat(5_000), ")".repeat(5_000)),
        format!("{{{{ {}1 }}}}", "-".repeat(50_000)),
        format!("{{{{ {}a{} }}}}", "[".repeat(50_000), "]".repeat(50_000)),
        format!("{}{}", "{% for a in b %}".repeat(5_000), "{% endfor %}".repeat(5_000)),
        format!("{{% if a %}}{}{{% endif %}}", "{% elif a %}".repeat(10_000)),
        format!("{{{{ a{} }}}}", ".b".repeat(50_000)),
        format!("{{{{ {}a }}}}", "not ".repeat(50_000)),
        format!("{{{{ a{} }}}}", " if a else a".repeat(10_000)),
        "{{ payload }}".repeat(20_000),
        "{% set a = range(1000) | map(attribute='x', default='x' ~ payload) | sum(start='') %}\
         {{ a | length }}"
            .to_owned(),
        "{% set a = [payload.dishes[0], payload.dishes[1]] | sum(start='') %}{{ a | length }}".to_owned(),
    ] {
        let rows = vec![row(json!({"event_type": "ORDER_CREATED", "title": "x", "html": source}))];
        let usable = check(&rows[0]).is_ok();
        let rendered = usable && mail(rows, &person(&json!({}))).is_ok();
        assert!(!rendered, "{}", source.chars().take(80).collect::<String>());
    }
}

#[test]
fn a_link_is_that_of_the_row_whose_title_is_taken() {
    let rows = vec![
        row(json!({"event_type": "ORDER_CREATED", "title": "a",
                "url": "https://example.org/{{ payload.table }}?to={{ recipient.name }}"})),
        row(json!({"event_type": "ORDER_CREATED", "locale": "it", "title": "b"})),
        row(
            json!({"event_type": "ORDER_CREATED", "locale": "pt", "title": "c", "url": "{{ payload.table }}"}),
        ),
    ];
    let (templates, problems) = Templates::new(rows);
    assert_eq!(problems, Vec::<String>::new());
    let event_type = EventType::stored("ORDER_CREATED");
    let document = json!({"event_type": "ORDER_CREATED", "payload": {"table": 4}});
    let renderer = Renderer::new(&templates, &event_type, &document);
    let url =
        |locale: &str| renderer.url(Some(Channel::Push), &person(&json!({"name": "Anna", "locale": locale})));
    assert_eq!(url("en"), Ok(Some("https://example.org/4?to=Anna".to_owned())));
    assert_eq!(url("it"), Ok(None));
    let error = url("pt").unwrap_err();
    assert!(error.starts_with("template ORDER_CREATED/*/pt/url: `4` has no scheme"), "{error}");
    assert!(templates.has_url(&event_type, Channel::Push) && !templates.has_html(&event_type, Channel::Push));
}

mod limits;
