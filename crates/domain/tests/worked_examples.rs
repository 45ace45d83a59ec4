//! The worked examples of the design, row by row, each with the exact verdict on every channel.

#[expect(dead_code, reason = "each test file takes what it needs of the world")]
mod support;

use std::collections::BTreeSet;

use serde_json::json;

use campanile_domain::channel::Channel;
use campanile_domain::event::Event;
use campanile_domain::rules::decision::Verdict::{
    self, GroupOff, NotRouted, QuietHours, Role, Send, UserOff,
};

use support::{
    AFTERNOON, World, admin, agent, customer, event, first_staff_preference, manager, restaurant_setting,
    staff, with,
};

const NIGHT: &str = "2026-01-15T23:00:00Z";

fn reservation_requested() -> Event {
    event("RESERVATION_REQUESTED", "RESTAURANT", "5", &json!({"guests": 4}))
}

/// Restaurant 5 has EMAIL, PUSH and WEBSOCKET on, and SMS off.
fn restaurant() -> World {
    Channel::ALL.into_iter().filter(|channel| *channel != Channel::Slack).fold(
        World::new(),
        |world, channel| {
            world.setting(restaurant_setting(channel, &json!({"enabled": channel != Channel::Sms})))
        },
    )
}

/// Staff 1 has enabled every channel.
fn all_on(world: World) -> World {
    Channel::ALL.into_iter().fold(world, |world, channel| {
        world.preference(first_staff_preference(channel, &json!({"enabled": true})))
    })
}

#[test]
fn a_reservation_in_the_afternoon_goes_by_what_the_group_has_on() {
    let told = all_on(restaurant().person(staff("1"))).fan_out(&reservation_requested(), AFTERNOON);
    // EMAIL, PUSH, SMS, WEBSOCKET, SLACK.
    assert_eq!(told.verdicts("RESTAURANT_USER/1"), [Send, Send, GroupOff, Send, NotRouted]);
    assert_eq!(told.rows.len(), 3);
}

#[test]
fn at_night_the_users_quiet_hours_leave_the_web_socket() {
    let night = json!({"quiet_hours_start": "22:00", "quiet_hours_end": "08:00"});
    let world = Channel::ALL.into_iter().fold(restaurant().person(staff("1")), |world, channel| {
        world.preference(first_staff_preference(channel, &night))
    });
    let verdicts = |at| world.fan_out(&reservation_requested(), at).verdicts("RESTAURANT_USER/1");
    assert_eq!(verdicts(NIGHT), [QuietHours, QuietHours, GroupOff, Send, NotRouted]);
    assert_eq!(verdicts("2026-01-15T21:59:59Z"), [Send, Send, GroupOff, Send, NotRouted]);
    assert_eq!(verdicts("2026-01-16T08:00:00Z"), [Send, Send, GroupOff, Send, NotRouted]);
}

#[test]
fn at_night_the_groups_quiet_hours_leave_the_web_socket() {
    let world = Channel::ALL.into_iter().fold(World::new().person(staff("1")), |world, channel| {
        let changes = json!({
            "enabled": channel != Channel::Sms, "quiet_hours_start": "22:00", "quiet_hours_end": "08:00",
        });
        world.setting(restaurant_setting(channel, &changes))
    });
    let told = all_on(world).fan_out(&reservation_requested(), NIGHT);
    assert_eq!(told.verdicts("RESTAURANT_USER/1"), [QuietHours, QuietHours, GroupOff, Send, NotRouted]);
}

#[test]
fn three_staff_of_whom_one_has_push_off_make_eight_rows() {
    let off = json!({
        "user_type": "RESTAURANT_USER", "user_id": "3", "channel": "PUSH", "enabled": false,
    });
    let world = restaurant().person(staff("1")).person(staff("2")).person(staff("3")).preference(off);
    let told = world.fan_out(&reservation_requested(), AFTERNOON);
    let everything: [Verdict; 5] = [Send, Send, GroupOff, Send, NotRouted];
    assert_eq!(told.verdicts("RESTAURANT_USER/1"), everything);
    assert_eq!(told.verdicts("RESTAURANT_USER/2"), everything);
    assert_eq!(told.verdicts("RESTAURANT_USER/3"), [Send, UserOff, GroupOff, Send, NotRouted]);
    let rows =
        ["RESTAURANT_USER/1", "RESTAURANT_USER/2", "RESTAURANT_USER/3"].map(|user| told.rows_of(user).len());
    assert_eq!(rows, [3, 3, 2]);
    assert_eq!(told.rows.len(), 8);
    assert_eq!(told.summary().sends, 8);
    assert_eq!(told.notifications(), 3);
}

#[test]
fn text_messages_for_managers_only_are_refused_to_a_waiter_by_role() {
    let told = World::new()
        .setting(restaurant_setting(Channel::Email, &json!({})))
        .setting(restaurant_setting(Channel::Push, &json!({})))
        .setting(restaurant_setting(Channel::Websocket, &json!({})))
        .setting(restaurant_setting(Channel::Sms, &json!({"roles": ["MANAGER"]})))
        .person(manager("1"))
        .person(staff("2"))
        .fan_out(&reservation_requested(), AFTERNOON);
    assert_eq!(told.verdicts("RESTAURANT_USER/1"), [Send, Send, Send, Send, NotRouted]);
    assert_eq!(told.verdicts("RESTAURANT_USER/2"), [Send, Send, Role, Send, NotRouted]);
    assert_eq!(told.decision("RESTAURANT_USER/2").details[&Channel::Sms]["roles"], json!(["MANAGER"]));
}

#[test]
fn an_agency_with_push_off_is_told_by_the_rest() {
    let off = json!({"entity_type": "AGENCY", "entity_id": "10", "channel": "PUSH", "enabled": false});
    let assignment = event("PARTNER_ASSIGNMENT", "AGENCY", "10", &json!({}));
    let told = World::new().setting(off).person(agent("7")).fan_out(&assignment, AFTERNOON);
    assert_eq!(told.verdicts("AGENCY_USER/7"), [Send, GroupOff, Send, Send, NotRouted]);
    assert_eq!(told.queues(), BTreeSet::from(["notification.agency"]));
}

#[test]
fn a_customer_has_no_group_and_is_told_by_all_four() {
    let confirmed = event("RESERVATION_CONFIRMED", "CUSTOMER", "42", &json!({}));
    let told = World::new().person(customer("42")).person(customer("43")).fan_out(&confirmed, AFTERNOON);
    assert_eq!(told.considered(), ["CUSTOMER/42"]);
    assert_eq!(told.verdicts("CUSTOMER/42"), [Send, Send, Send, Send, NotRouted]);
    assert!(
        told.rows.iter().all(|row| row.entity.is_none() && row.queue.as_str() == "notification.customer")
    );
}

#[test]
fn a_chat_message_reaches_the_web_socket_of_somebody_who_has_everything_off() {
    let only = json!({"event_type": "CHAT_MESSAGE_SENT", "channel": "WEBSOCKET", "mandatory": true});
    let world = World::new().route(only).person(staff("1"));
    let world = Channel::ALL.into_iter().fold(world, |world, channel| {
        world
            .setting(restaurant_setting(channel, &json!({})))
            .preference(first_staff_preference(channel, &json!({"enabled": false})))
    });
    let chat = event("CHAT_MESSAGE_SENT", "RESTAURANT", "5", &json!({}));
    let told = world.fan_out(&chat, AFTERNOON);
    assert_eq!(told.verdicts("RESTAURANT_USER/1"), [NotRouted, NotRouted, NotRouted, Send, NotRouted]);
    assert_eq!(told.rows.len(), 1);
}

/// Admins 1 and 2, staff 50 of restaurant 5 and customer 456; and others with the same ids, who are in no audience.
fn three_audiences() -> World {
    let elsewhere = json!({"entity_id": "6"});
    World::new()
        .audience(json!({
            "event_type": "CANCELLATION", "name": "admins", "recipient_type": "ADMIN_USER",
            "when": "payload.total > 100",
        }))
        .audience(json!({
            "event_type": "CANCELLATION", "name": "staff", "recipient_type": "RESTAURANT_USER",
            "entity_path": "/payload/restaurantId", "scope": "TEAM", "shared_read": true,
            "when": "payload.initiated_by == \"CUSTOMER\"",
        }))
        .audience(json!({
            "event_type": "CANCELLATION", "name": "customer", "recipient_type": "CUSTOMER",
            "entity_path": "/payload/customerId",
            "when": "payload.customerId is defined",
        }))
        .audience(json!({
            "event_type": "CANCELLATION", "name": "agency", "recipient_type": "AGENCY_USER",
            "entity_path": "/payload/agencyId", "when": "payload.initiated_by == \"AGENCY\"",
        }))
        .person(admin("1"))
        .person(admin("2"))
        .person(staff("50"))
        .person(customer("456"))
        .person(customer("1"))
        .person(customer("50"))
        .person(with(staff("456"), &elsewhere))
        .person(with(staff("1"), &elsewhere))
        .person(agent("50"))
}

#[test]
fn three_audiences_make_four_notifications_over_three_queues() {
    let payload = json!({"total": 120, "initiated_by": "CUSTOMER", "restaurantId": 5, "customerId": 456});
    let told = three_audiences().fan_out(&event("CANCELLATION", "RESERVATION", "900", &payload), AFTERNOON);
    assert_eq!(told.considered(), ["RESTAURANT_USER/50", "ADMIN_USER/1", "ADMIN_USER/2", "CUSTOMER/456"]);
    assert_eq!(told.notifications(), 4);
    assert_eq!(
        told.queues(),
        BTreeSet::from(["notification.admin", "notification.customer", "notification.restaurant"])
    );
    let by_web_socket_and_mail = [Send, Verdict::Unsupported, Verdict::Unsupported, Send, NotRouted];
    assert_eq!(told.verdicts("ADMIN_USER/1"), by_web_socket_and_mail);
    assert_eq!(told.verdicts("ADMIN_USER/2"), by_web_socket_and_mail);
    assert_eq!(told.verdicts("RESTAURANT_USER/50"), [Send, Send, Send, Send, NotRouted]);
    assert_eq!(told.verdicts("CUSTOMER/456"), [Send, Send, Send, Send, NotRouted]);
    let queues = |user| told.rows_of(user).iter().map(|row| row.queue.to_string()).collect::<BTreeSet<_>>();
    assert_eq!(queues("RESTAURANT_USER/50"), BTreeSet::from(["notification.restaurant".to_owned()]));
    assert_eq!(queues("CUSTOMER/456"), BTreeSet::from(["notification.customer".to_owned()]));
}

#[test]
fn a_user_with_the_same_id_but_another_type_is_somebody_else() {
    let payload = json!({"initiated_by": "CUSTOMER", "restaurantId": "5", "customerId": "50", "total": 1});
    let off = json!({"user_type": "CUSTOMER", "user_id": "50", "channel": "EMAIL", "enabled": false});
    let world = three_audiences().preference(off);
    let told = world.fan_out(&event("CANCELLATION", "RESERVATION", "900", &payload), AFTERNOON);
    assert_eq!(told.considered(), ["RESTAURANT_USER/50", "CUSTOMER/50"]);
    assert_eq!(told.verdict("RESTAURANT_USER/50", Channel::Email), Send);
    assert_eq!(told.verdict("CUSTOMER/50", Channel::Email), UserOff);
    assert_eq!(told.notifications(), 2);
}
