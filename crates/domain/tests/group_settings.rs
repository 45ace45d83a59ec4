//! Which row of settings and preferences applies, and which recipients `max_recipients` of a group lets through.

#[expect(dead_code, reason = "each test file takes what it needs of the world")]
mod support;

use serde_json::{Value, json};

use campanile_domain::channel::Channel;
use campanile_domain::event::Event;
use campanile_domain::people::recipient::Recipient;
use campanile_domain::people::user_type::{UserType, UserTypes};
use campanile_domain::rules::decision::Verdict::{self, GroupOff, MaxRecipients, Role, Send, UserOff};
use campanile_domain::rules::row::{Row, Setting};

use support::{
    AFTERNOON, Told, World, admin, customer, event, first_staff_preference, manager, moment,
    restaurant_setting, staff, with,
};

const STAFF_1: &str = "RESTAURANT_USER/1";

fn order_created() -> Event {
    event("ORDER_CREATED", "RESTAURANT", "5", &json!({}))
}

fn broadcast() -> Event {
    event("ORDER_CREATED", "BROADCAST", "all", &json!({}))
}

/// A setting for e-mails to restaurants.
fn setting(key: &Value, changes: &Value) -> Value {
    with(with(json!({"entity_type": "RESTAURANT", "channel": "EMAIL"}), key), changes)
}

/// From the least to the most specific key.
fn keys() -> [Value; 6] {
    [
        json!({}),
        json!({"event_type": "ORDER_CREATED"}),
        json!({"kind": "TRATTORIA"}),
        json!({"kind": "TRATTORIA", "event_type": "ORDER_CREATED"}),
        json!({"entity_id": "5"}),
        json!({"entity_id": "5", "event_type": "ORDER_CREATED"}),
    ]
}

fn email(world: &World) -> Verdict {
    world.fan_out(&order_created(), AFTERNOON).verdict(STAFF_1, Channel::Email)
}

/// A world in which restaurant 5 is a trattoria.
fn trattoria() -> World {
    World::new().kind("RESTAURANT", "5", "TRATTORIA").person(staff("1"))
}

#[test]
fn the_most_specific_setting_wins() {
    for (index, specific) in keys().iter().enumerate() {
        for general in &keys()[..index] {
            let [on, off] = [json!({"enabled": true}), json!({"enabled": false})];
            let turned_off = trattoria().setting(setting(specific, &off)).setting(setting(general, &on));
            assert_eq!(email(&turned_off), GroupOff, "{specific} over {general}");
            let turned_on = trattoria().setting(setting(specific, &on)).setting(setting(general, &off));
            assert_eq!(email(&turned_on), Send, "{specific} over {general}");
        }
    }
}

#[test]
fn the_most_specific_setting_counts_as_a_whole() {
    let strict = json!({
        "enabled": false, "max_recipients": 0, "roles": ["MANAGER"],
        "quiet_hours_start": "08:00", "quiet_hours_end": "20:00",
    });
    for (index, specific) in keys().iter().enumerate() {
        for general in &keys()[..index] {
            let world = trattoria().setting(setting(general, &strict)).setting(setting(specific, &json!({})));
            assert_eq!(email(&world), Send, "{specific} over {general}");
        }
    }
    let only_roles = setting(&json!({"entity_id": "5"}), &json!({"roles": ["MANAGER"]}));
    let world = trattoria().setting(only_roles).setting(setting(&json!({}), &json!({"enabled": false})));
    assert_eq!(email(&world), Role);
}

#[test]
fn settings_of_others_do_not_count() {
    let others = [
        json!({"entity_id": "6"}),
        json!({"kind": "BAR"}),
        json!({"event_type": "CANCELLATION"}),
        json!({"channel": "PUSH"}),
        json!({"entity_type": "AGENCY"}),
        json!({"entity_type": "AGENCY", "entity_id": "5"}),
    ];
    for other in &others {
        let world = trattoria().setting(setting(other, &json!({"enabled": false})));
        assert_eq!(email(&world), Send, "{other}");
    }
    let kindless =
        World::new().person(staff("1")).setting(setting(&json!({"kind": "BAR"}), &json!({"enabled": false})));
    assert_eq!(email(&kindless), Send);
}

#[test]
fn a_setting_for_an_entity_and_a_kind_at_once_is_refused() {
    let both = json!({"entity_id": "5", "kind": "TRATTORIA"});
    let row: Setting = serde_json::from_value(setting(&both, &json!({}))).unwrap();
    assert_eq!(row.check(&UserTypes::default()).unwrap_err().field, "kind");
}

#[test]
fn the_preference_for_the_event_type_counts_as_a_whole() {
    let of_type = json!({"event_type": "ORDER_CREATED"});
    let strict = json!({
        "enabled": false, "min_priority": "HIGH", "quiet_hours_start": "08:00", "quiet_hours_end": "20:00",
    });
    let preference = |changes: &Value| first_staff_preference(Channel::Email, changes);
    let world = trattoria().preference(preference(&of_type)).preference(preference(&strict));
    assert_eq!(email(&world), Send);
    let world =
        trattoria().preference(preference(&with(strict, &of_type))).preference(preference(&json!({})));
    assert_eq!(email(&world), UserOff);
    let other = json!({"event_type": "CANCELLATION", "enabled": false});
    assert_eq!(email(&trattoria().preference(preference(&other))), Send);
}

/// The recipients that got the channel, in order.
fn sent(told: &Told, channel: Channel) -> Vec<String> {
    told.considered().into_iter().filter(|user| told.verdict(user, channel) == Send).collect()
}

/// A world in which at most `max` staff of restaurant 5 may get an e-mail.
fn at_most(max: u32) -> World {
    World::new().setting(restaurant_setting(Channel::Email, &json!({"max_recipients": max})))
}

#[test]
fn managers_come_first_and_then_user_ids_in_the_order_of_their_bytes() {
    let world = at_most(3)
        .person(staff("9"))
        .person(staff("10"))
        .person(with(staff("1"), &json!({"role": null})))
        .person(with(staff("2"), &json!({"role": "ADMIN"})))
        .person(manager("99"));
    let told = world.fan_out(&order_created(), AFTERNOON);
    assert_eq!(
        sent(&told, Channel::Email),
        ["RESTAURANT_USER/99", "RESTAURANT_USER/1", "RESTAURANT_USER/10"]
    );
    assert_eq!(told.verdict("RESTAURANT_USER/2", Channel::Email), MaxRecipients);
    assert_eq!(told.verdict("RESTAURANT_USER/9", Channel::Email), MaxRecipients);
    assert_eq!(sent(&told, Channel::Push).len(), 5);
    assert_eq!(
        told.decision("RESTAURANT_USER/9").details[&Channel::Email],
        json!({
            "rule": "entity_notification_settings", "entity_type": "RESTAURANT", "entity_id": "5",
            "kind": "*", "event_type": "*", "max_recipients": 3,
        })
    );
}

#[test]
fn only_who_would_get_the_channel_is_counted() {
    let world = at_most(1)
        .person(manager("1"))
        .preference(first_staff_preference(Channel::Email, &json!({"enabled": false})))
        .person(with(manager("2"), &json!({"email": null})))
        .person(with(manager("3"), &json!({"active": false})))
        .person(staff("4"))
        .person(staff("5"));
    let told = world.fan_out(&order_created(), AFTERNOON);
    assert_eq!(sent(&told, Channel::Email), ["RESTAURANT_USER/4"]);
}

#[test]
fn each_entity_counts_for_itself() {
    let world = World::new()
        .setting(setting(&json!({}), &json!({"max_recipients": 1})))
        .person(staff("1"))
        .person(staff("2"))
        .person(with(staff("3"), &json!({"entity_id": "6"})))
        .person(with(staff("4"), &json!({"entity_id": "6"})))
        .person(with(staff("5"), &json!({"entity_type": null, "entity_id": null})))
        .person(with(staff("6"), &json!({"entity_type": null, "entity_id": null})));
    let expected = ["RESTAURANT_USER/5", "RESTAURANT_USER/6", "RESTAURANT_USER/1", "RESTAURANT_USER/3"];
    assert_eq!(sent(&world.fan_out(&broadcast(), AFTERNOON), Channel::Email), expected);
    for room in 1..=7 {
        let told = world.fan_out_by(room, &broadcast(), moment(AFTERNOON));
        assert_eq!(sent(&told, Channel::Email), expected, "{room} at a time");
    }
}

fn audience(name: &str, recipient_type: &str, changes: &Value) -> Value {
    with(json!({"event_type": "ORDER_CREATED", "name": name, "recipient_type": recipient_type}), changes)
}

#[test]
fn two_audiences_of_one_entity_are_counted_together() {
    let team = json!({"entity_path": "/aggregate_id", "scope": "TEAM", "roles": ["MANAGER"]});
    let world = at_most(1)
        .person(manager("1"))
        .person(staff("2"))
        .audience(audience("managers", "RESTAURANT_USER", &team))
        .audience(audience("staff", "RESTAURANT_USER", &json!({"entity_path": "/aggregate_id"})));
    for room in 1..=3 {
        let told = world.fan_out_by(room, &order_created(), moment(AFTERNOON));
        assert_eq!(sent(&told, Channel::Email), [STAFF_1], "{room} at a time");
    }
}

#[test]
fn a_broadcast_remembers_whom_another_audience_of_the_event_has_told() {
    let team = json!({"entity_path": "/aggregate_id", "scope": "TEAM", "roles": ["MANAGER"]});
    let world = at_most(1)
        .person(manager("1"))
        .person(staff("2"))
        .person(admin("3"))
        .audience(audience("managers", "RESTAURANT_USER", &team))
        .audience(audience("town", "ALL", &json!({})));
    let told = world.fan_out(&order_created(), AFTERNOON);
    assert_eq!(sent(&told, Channel::Email), [STAFF_1, "ADMIN_USER/3"]);
}

#[test]
fn an_audience_behind_a_broadcast_counts_the_same_in_steps_of_any_size() {
    let world = at_most(1)
        .person(manager("1"))
        .person(staff("2"))
        .audience(audience("a town of managers", "ALL", &json!({"roles": ["MANAGER"]})))
        .audience(audience("b staff", "RESTAURANT_USER", &json!({"entity_path": "/aggregate_id"})));
    for room in [1_000, 1, 2, 3] {
        let told = world.fan_out_by(room, &order_created(), moment(AFTERNOON));
        assert_eq!(sent(&told, Channel::Email), [STAFF_1], "{room} at a time");
    }
}

#[test]
fn a_broadcast_counts_two_user_types_of_one_entity_together() {
    let mut world = World::new();
    let mut types: Vec<UserType> = world.user_types.iter().cloned().collect();
    let owner = json!({
        "name": "OWNER", "queue": "notification.owner", "entity_type": "RESTAURANT", "channels": ["EMAIL"],
    });
    types.push(serde_json::from_value(owner).unwrap());
    world.user_types = UserTypes::new(types).unwrap();
    let world = world
        .setting(restaurant_setting(Channel::Email, &json!({"max_recipients": 1})))
        .person(with(staff("1"), &json!({"user_type": "OWNER"})))
        .person(with(staff("2"), &json!({"user_type": "OWNER", "entity_id": "6"})))
        .person(staff("3"));
    for room in [1, 2, 3, 1_000] {
        let told = world.fan_out_by(room, &broadcast(), moment(AFTERNOON));
        assert_eq!(sent(&told, Channel::Email), ["OWNER/1", "OWNER/2"], "{room} at a time");
    }
}

#[test]
fn a_user_whose_type_has_no_entities_belongs_to_none() {
    let row = with(customer("1"), &json!({"entity_type": "RESTAURANT", "entity_id": "5"}));
    let row: Recipient = serde_json::from_value(row).unwrap();
    assert_eq!(row.check(&UserTypes::default()).unwrap_err().field, "entity_type");
}

/// A setting for SMS to all customers.
fn of_customers(changes: &Value) -> Value {
    with(json!({"entity_type": "CUSTOMER", "entity_id": "*", "channel": "SMS"}), changes)
}

#[test]
fn users_without_an_entity_have_the_settings_of_their_user_type() {
    let sms = |changes: &Value| {
        let world = World::new().person(customer("1")).setting(of_customers(changes));
        let told = world.fan_out(&event("ORDER_CREATED", "CUSTOMER", "1", &json!({})), AFTERNOON);
        told.verdict("CUSTOMER/1", Channel::Sms)
    };
    assert_eq!(sms(&json!({})), Send);
    assert_eq!(sms(&json!({"enabled": false})), GroupOff);
    assert_eq!(sms(&json!({"enabled": false, "event_type": "CANCELLATION"})), Send);
    assert_eq!(sms(&json!({"roles": ["VIP"]})), Role);
    assert_eq!(sms(&json!({"min_priority": "HIGH"})), Verdict::LowPriority);
    assert_eq!(sms(&json!({"quiet_hours_start": "14:00", "quiet_hours_end": "16:00"})), Verdict::QuietHours);
    assert_eq!(sms(&json!({"max_recipients": 0})), MaxRecipients);
}

#[test]
fn the_settings_of_a_user_type_count_for_no_other() {
    let world = World::new()
        .person(staff("1"))
        .person(admin("1"))
        .person(customer("1"))
        .setting(with(of_customers(&json!({"enabled": false})), &json!({"channel": "EMAIL"})));
    let told = world.fan_out(&broadcast(), AFTERNOON);
    assert_eq!(told.verdict("CUSTOMER/1", Channel::Email), GroupOff);
    assert_eq!(told.verdict("ADMIN_USER/1", Channel::Email), Send);
    assert_eq!(told.verdict(STAFF_1, Channel::Email), Send);
}

#[test]
fn max_recipients_of_a_user_type_holds_over_all_steps_of_a_broadcast() {
    let people = (10..20).fold(World::new(), |world, id| world.person(customer(&id.to_string())));
    let world = people.person(staff("1")).setting(of_customers(&json!({"max_recipients": 3})));
    for room in [2, 100] {
        let told = world.fan_out_by(room, &broadcast(), moment(AFTERNOON));
        assert_eq!(
            sent(&told, Channel::Sms),
            ["CUSTOMER/10", "CUSTOMER/11", "CUSTOMER/12", STAFF_1],
            "in steps of {room}"
        );
    }
}

#[test]
fn a_setting_of_a_user_type_is_for_all_of_its_users() {
    let field = |changes: Value| {
        let row: Setting = serde_json::from_value(of_customers(&changes)).unwrap();
        let error = row.check(&UserTypes::default()).unwrap_err();
        (error.field, error.detail)
    };
    assert_eq!(field(json!({"entity_id": "42"})).0, "entity_id");
    assert_eq!(field(json!({"kind": "VIP"})).0, "kind");
    let (name, detail) = field(json!({"entity_type": "RESTAURANT_USER"}));
    assert!(name == "entity_type" && detail.contains("`RESTAURANT`"), "{detail}");
    let (name, detail) = field(json!({"entity_type": "MOON"}));
    assert!(
        name == "entity_type" && detail.contains("ADMIN_USER, AGENCY, CUSTOMER, GUEST, RESTAURANT"),
        "{detail}"
    );
}

#[test]
fn a_user_type_without_an_entity_has_not_the_name_of_an_entity_type() {
    let mut types: Vec<UserType> = UserTypes::default().iter().cloned().collect();
    types[2].name = "AGENCY".parse().unwrap();
    assert!(UserTypes::new(types).unwrap_err().contains("`AGENCY`"));
}

/// The longest cursor of a fan-out over 300 restaurants with two staff each.
fn longest_cursor(world: World, event: &Event) -> usize {
    let of = |user: u32| with(staff(&user.to_string()), &json!({"entity_id": user / 2}));
    let world = (0..600).fold(world, |world, user| world.person(of(user)));
    let world = world.setting(setting(&json!({}), &json!({"max_recipients": 1})));
    let told = world.fan_out_by(7, event, moment(AFTERNOON));
    assert_eq!(sent(&told, Channel::Email).len(), 300);
    told.cursors.iter().map(String::len).max().unwrap_or_default()
}

#[test]
fn the_cursor_of_a_broadcast_stays_small_however_many_entities_it_has_passed() {
    assert!(longest_cursor(World::new(), &broadcast()) < 2_000);
}

#[test]
fn the_cursor_of_an_audience_without_a_path_stays_small_however_many_entities_it_has_passed() {
    let world = World::new().audience(audience("all staff", "RESTAURANT_USER", &json!({})));
    assert!(longest_cursor(world, &order_created()) < 2_000);
}
