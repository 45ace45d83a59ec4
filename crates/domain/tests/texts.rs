//! The texts of each channel's row and of the inbox, and which rows a failing template affects.

#[expect(dead_code, reason = "each test file takes what it needs of the world")]
mod support;

use serde_json::{Value, json};

use campanile_domain::channel::Channel;
use campanile_domain::fan_out::OutboxRow;

use support::{AFTERNOON, World, event, staff};

/// The rows of one person over WEBSOCKET, EMAIL and SMS.
fn rows(templates: &[Value]) -> Vec<OutboxRow> {
    let channels = ["WEBSOCKET", "EMAIL", "SMS"];
    let world = channels
        .iter()
        .fold(World::default(), |world, channel| world.route(json!({"channel": channel, "mandatory": true})));
    let world = templates.iter().fold(world, |world, row| world.template(row.clone()));
    let order = event("ORDER_CREATED", "RESTAURANT", "5", &json!({"table": 4}));
    world.person(staff("1")).fan_out(&order, AFTERNOON).rows
}

fn row(rows: &[OutboxRow], channel: Channel) -> &OutboxRow {
    rows.iter().find(|row| row.key.channel == channel).expect("the channel has a row")
}

fn failure(rows: &[OutboxRow], channel: Channel) -> Option<String> {
    row(rows, channel).failure.as_ref().map(ToString::to_string)
}

#[test]
fn the_inbox_goes_with_a_row_where_it_says_something_else() {
    let rows = rows(&[
        json!({"event_type": "ORDER_CREATED", "title": "Inbox {{ payload.table }}"}),
        json!({"event_type": "ORDER_CREATED", "channel": "EMAIL", "title": "Mail"}),
    ]);
    assert_eq!(row(&rows, Channel::Websocket).title, "Inbox 4");
    assert_eq!(row(&rows, Channel::Websocket).inbox, None);
    let mail = row(&rows, Channel::Email);
    assert_eq!(mail.title, "Mail");
    assert_eq!(mail.inbox.as_ref().map(|text| text.title.as_str()), Some("Inbox 4"));
}

#[test]
fn a_template_of_the_inbox_that_fails_fails_only_the_rows_that_take_their_text_from_it() {
    let rows = rows(&[
        json!({"event_type": "ORDER_CREATED", "title": "Inbox {{ payload.chair }}"}),
        json!({"event_type": "ORDER_CREATED", "channel": "EMAIL", "title": "Mail"}),
        json!({"event_type": "ORDER_CREATED", "channel": "SMS", "title": "Text"}),
    ]);
    let error = failure(&rows, Channel::Websocket).expect("the web socket has no text of its own");
    assert!(error.contains("ORDER_CREATED/*/*/title, line 1") && error.contains("payload.chair"), "{error}");
    let (mail, text) = (row(&rows, Channel::Email), row(&rows, Channel::Sms));
    assert_eq!((&mail.failure, &text.failure), (&None, &None));
    assert_eq!((mail.title.as_str(), text.title.as_str()), ("Mail", "Text"));
    // The inbox text is the same, whichever row comes first.
    let inbox = |row: &OutboxRow| row.inbox.as_ref().map_or(row.title.clone(), |text| text.title.clone());
    assert_eq!(inbox(mail), inbox(text));
}

#[test]
fn a_template_of_a_channel_that_fails_fails_that_channel() {
    let rows = rows(&[
        json!({"event_type": "ORDER_CREATED", "title": "Inbox"}),
        json!({"event_type": "ORDER_CREATED", "channel": "SMS", "title": "{{ payload.chair }}"}),
    ]);
    assert!(failure(&rows, Channel::Sms).is_some_and(|error| error.contains("ORDER_CREATED/SMS/*")));
    assert_eq!((failure(&rows, Channel::Email), failure(&rows, Channel::Websocket)), (None, None));
}
