//! The verdicts: each of them, their order, which row applies, and what mandatory routes override.

#[expect(dead_code, reason = "each test file takes what it needs of the world")]
mod support;

use serde_json::{Value, json};

use campanile_domain::channel::Channel;
use campanile_domain::event::Event;
use campanile_domain::people::user_type::{UserTypes, Webhook};
use campanile_domain::priority::Priority;
use campanile_domain::rules::decision::Verdict::{
    self, DeadAddress, GroupOff, LowPriority, MaxRecipients, NoAddress, NotRouted, QuietHours, Role, Send,
    Unsupported, UserOff,
};
use campanile_domain::rules::row::{Preference, Row, Setting};

use support::{
    AFTERNOON, World, customer, event, first_staff_preference, manager, restaurant_setting, staff, urgent,
    with,
};

const STAFF_1: &str = "RESTAURANT_USER/1";

fn order_created() -> Event {
    event("ORDER_CREATED", "RESTAURANT", "5", &json!({}))
}

/// Staff 1 of restaurant 5 and an e-mail that would be sent, except for the given objections.
#[derive(Debug, Clone, Default)]
struct Case {
    mandatory: bool,
    priority: Option<Priority>,
    against: Vec<Verdict>,
}

impl Case {
    fn new() -> Self {
        Case::default()
    }

    fn mandatory() -> Self {
        Case { mandatory: true, ..Case::default() }
    }

    /// Adds an objection to the e-mail.
    fn and(mut self, objection: Verdict) -> Self {
        self.against.push(objection);
        self
    }

    fn priority(self, priority: Priority) -> Self {
        Case { priority: Some(priority), ..self }
    }

    fn verdict(self) -> Verdict {
        let (mut route, mut person) = (json!({"channel": "EMAIL", "mandatory": self.mandatory}), staff("1"));
        let mut setting = restaurant_setting(Channel::Email, &json!({}));
        let mut preference = first_staff_preference(Channel::Email, &json!({}));
        let mut world = World::default();
        for objection in self.against {
            match objection {
                Send => {}
                NotRouted => route["channel"] = json!("PUSH"),
                GroupOff => setting["enabled"] = json!(false),
                UserOff => preference["enabled"] = json!(false),
                Unsupported => world.user_types = without_email(),
                NoAddress => person["email"] = Value::Null,
                DeadAddress => world = world.dead_address(Channel::Email, "1@example.com"),
                Role => setting["roles"] = json!(["MANAGER", "CHEF"]),
                LowPriority => preference["min_priority"] = json!("HIGH"),
                QuietHours => {
                    preference["quiet_hours_start"] = json!("14:00");
                    preference["quiet_hours_end"] = json!("16:00");
                }
                MaxRecipients => setting["max_recipients"] = json!(0),
            }
        }
        let world = world.route(route).setting(setting).preference(preference).person(person);
        let event = Event { priority: self.priority, ..order_created() };
        world.fan_out(&event, AFTERNOON).verdict(STAFF_1, Channel::Email)
    }
}

fn without_email() -> UserTypes {
    let mut types: Vec<_> = UserTypes::default().iter().cloned().collect();
    for user_type in &mut types {
        user_type.channels.retain(|channel| *channel != Channel::Email);
    }
    UserTypes::new(types).expect("these are user types")
}

#[test]
fn a_channel_with_nothing_against_it_is_sent() {
    assert_eq!(Case::new().verdict(), Send);
}

#[test]
fn a_channel_without_a_route_is_not_routed() {
    assert_eq!(Case::new().and(NotRouted).verdict(), NotRouted);
}

#[test]
fn a_channel_that_the_group_has_off_is_group_off() {
    assert_eq!(Case::new().and(GroupOff).verdict(), GroupOff);
}

#[test]
fn a_channel_that_the_user_has_off_is_user_off() {
    assert_eq!(Case::new().and(UserOff).verdict(), UserOff);
}

#[test]
fn a_channel_that_the_user_type_does_not_have_is_unsupported() {
    assert_eq!(Case::new().and(Unsupported).verdict(), Unsupported);
}

#[test]
fn a_recipient_without_an_address_has_no_address() {
    assert_eq!(Case::new().and(NoAddress).verdict(), NoAddress);
}

#[test]
fn an_address_that_a_provider_declared_dead_is_a_dead_address() {
    assert_eq!(Case::new().and(DeadAddress).verdict(), DeadAddress);
}

/// Admin 1 has a webhook, and 2 and 3 have none. A person of a type without a default has none either.
fn admins(default_webhook: &str) -> World {
    let mut types: Vec<_> = UserTypes::default().iter().cloned().collect();
    for user_type in types.iter_mut().filter(|t| t.name.as_str() == "ADMIN_USER") {
        user_type.default_webhook = Some(Webhook::new(default_webhook.to_owned()));
    }
    let admin = |id: &str, webhook: Option<&str>| {
        json!({"user_type": "ADMIN_USER", "user_id": id,
        "slack_webhook": webhook})
    };
    let world =
        World { user_types: UserTypes::new(types).expect("these are user types"), ..World::default() };
    world
        .route(json!({"channel": "SLACK"}))
        .audience(json!({"event_type": "ORDER_CREATED", "name": "ALL", "recipient_type": "ALL"}))
        .person(admin("1", Some("https://hooks.example/own")))
        .person(admin("2", None))
        .person(with(staff("1"), &json!({"slack_webhook": null})))
}

#[test]
fn who_has_no_webhook_is_told_at_that_of_their_user_type() {
    let told = admins("https://hooks.example/default").fan_out(&order_created(), AFTERNOON);
    let verdicts = ["ADMIN_USER/1", "ADMIN_USER/2", STAFF_1].map(|user| told.verdict(user, Channel::Slack));
    assert_eq!(verdicts, [Send, Send, NoAddress]);
    let mut addresses: Vec<&str> = told.rows.iter().map(|row| row.address.as_str()).collect();
    addresses.sort_unstable();
    assert_eq!(addresses, ["https://hooks.example/default", "https://hooks.example/own"]);
}

#[test]
fn a_default_webhook_that_is_dead_is_a_dead_address() {
    let world =
        admins("https://hooks.example/default").dead_address(Channel::Slack, "https://hooks.example/default");
    let told = world.fan_out(&order_created(), AFTERNOON);
    let verdicts = ["ADMIN_USER/1", "ADMIN_USER/2"].map(|user| told.verdict(user, Channel::Slack));
    assert_eq!(verdicts, [Send, DeadAddress]);
}

#[test]
fn a_role_that_the_group_leaves_out_is_refused_by_role() {
    assert_eq!(Case::new().and(Role).verdict(), Role);
}

#[test]
fn a_recipient_without_a_role_has_none_of_the_roles() {
    let world = World::new()
        .setting(restaurant_setting(Channel::Email, &json!({"roles": ["WAITER"]})))
        .person(staff("1"))
        .person(with(staff("2"), &json!({"role": null})));
    let told = world.fan_out(&order_created(), AFTERNOON);
    assert_eq!(told.verdict(STAFF_1, Channel::Email), Send);
    assert_eq!(told.verdict("RESTAURANT_USER/2", Channel::Email), Role);
}

#[test]
fn an_event_below_the_users_threshold_is_of_low_priority() {
    assert_eq!(Case::new().and(LowPriority).verdict(), LowPriority);
    let at_least_normal = first_staff_preference(Channel::Email, &json!({"min_priority": "NORMAL"}));
    let world = World::new().person(staff("1")).preference(at_least_normal);
    let email = |priority| {
        world.fan_out(&urgent(order_created(), priority), AFTERNOON).verdict(STAFF_1, Channel::Email)
    };
    assert_eq!(Priority::ALL.map(email), [LowPriority, Send, Send]);
}

#[test]
fn a_route_and_a_group_have_thresholds_too_and_the_decision_says_whose_it_was() {
    let below = json!({"min_priority": "HIGH"});
    let route = with(json!({"channel": "EMAIL"}), &below);
    let group = restaurant_setting(Channel::Email, &below);
    let user = first_staff_preference(Channel::Email, &below);
    let world = || World::default().person(staff("1"));
    let open = json!({"channel": "EMAIL"});
    for (world, rule) in [
        (world().route(route).setting(group.clone()).preference(user.clone()), "event_type_channel_routing"),
        (world().route(open.clone()).setting(group).preference(user.clone()), "entity_notification_settings"),
        (world().route(open).preference(user), "user_notification_preferences"),
    ] {
        let told = world.fan_out(&order_created(), AFTERNOON);
        assert_eq!(told.verdict(STAFF_1, Channel::Email), LowPriority, "{rule}");
        let details = &told.decision(STAFF_1).details[&Channel::Email];
        assert_eq!((&details["rule"], &details["min_priority"]), (&json!(rule), &json!("HIGH")), "{details}");
        assert_eq!(details["priority"], "NORMAL", "{details}");
        let urgently = world.fan_out(&urgent(order_created(), Priority::High), AFTERNOON);
        assert_eq!(urgently.verdict(STAFF_1, Channel::Email), Send, "{rule}");
    }
}

#[test]
fn a_threshold_of_the_route_holds_for_a_mandatory_channel_and_for_a_team() {
    let route = json!({"channel": "EMAIL", "mandatory": true, "min_priority": "HIGH"});
    let team = json!({
        "event_type": "ORDER_CREATED", "name": "team", "recipient_type": "RESTAURANT_USER", "scope": "TEAM",
    });
    let told =
        World::default().person(staff("1")).route(route).audience(team).fan_out(&order_created(), AFTERNOON);
    assert_eq!(told.verdict(STAFF_1, Channel::Email), LowPriority);
}

#[test]
fn a_channel_that_rings_is_silent_in_quiet_hours() {
    assert_eq!(Case::new().and(QuietHours).verdict(), QuietHours);
}

#[test]
fn a_recipient_beyond_the_most_that_the_group_allows_is_one_too_many() {
    assert_eq!(Case::new().and(MaxRecipients).verdict(), MaxRecipients);
}

#[test]
fn not_routed_is_said_before_group_off() {
    assert_eq!(Case::new().and(NotRouted).and(GroupOff).verdict(), NotRouted);
}

#[test]
fn group_off_is_said_before_user_off() {
    assert_eq!(Case::new().and(GroupOff).and(UserOff).verdict(), GroupOff);
}

#[test]
fn user_off_is_said_before_unsupported() {
    assert_eq!(Case::new().and(UserOff).and(Unsupported).verdict(), UserOff);
}

#[test]
fn unsupported_is_said_before_no_address() {
    assert_eq!(Case::new().and(Unsupported).and(NoAddress).verdict(), Unsupported);
}

#[test]
fn no_address_is_said_where_the_former_one_is_dead() {
    assert_eq!(Case::new().and(NoAddress).and(DeadAddress).verdict(), NoAddress);
}

#[test]
fn a_dead_address_is_said_before_the_role() {
    assert_eq!(Case::new().and(DeadAddress).and(Role).verdict(), DeadAddress);
}

#[test]
fn the_role_is_said_before_a_low_priority() {
    assert_eq!(Case::new().and(Role).and(LowPriority).verdict(), Role);
}

#[test]
fn a_low_priority_is_said_before_quiet_hours() {
    assert_eq!(Case::new().and(LowPriority).and(QuietHours).verdict(), LowPriority);
}

#[test]
fn quiet_hours_are_said_before_one_recipient_too_many() {
    assert_eq!(Case::new().and(QuietHours).and(MaxRecipients).verdict(), QuietHours);
}

#[test]
fn of_any_two_reasons_the_first_in_the_list_is_given() {
    let reasons = &Verdict::ALL[1..];
    for (index, first) in reasons.iter().enumerate() {
        for second in &reasons[index..] {
            assert_eq!(Case::new().and(*second).and(*first).verdict(), *first, "{first:?} and {second:?}");
        }
    }
}

#[test]
fn mandatory_beats_what_group_and_user_have_off() {
    assert_eq!(Case::mandatory().and(GroupOff).verdict(), Send);
    assert_eq!(Case::mandatory().and(UserOff).verdict(), Send);
    assert_eq!(Case::mandatory().and(GroupOff).and(UserOff).verdict(), Send);
}

#[test]
fn mandatory_beats_nothing_else() {
    for reason in [Unsupported, NoAddress, DeadAddress, Role, LowPriority, QuietHours, MaxRecipients] {
        assert_eq!(Case::mandatory().and(GroupOff).and(UserOff).and(reason).verdict(), reason);
    }
}

#[test]
fn high_beats_quiet_hours_and_nothing_else() {
    assert_eq!(Case::new().and(QuietHours).priority(Priority::High).verdict(), Send);
    assert_eq!(Case::new().and(LowPriority).and(QuietHours).priority(Priority::High).verdict(), Send);
    for reason in [GroupOff, UserOff, Unsupported, NoAddress, DeadAddress, Role, MaxRecipients] {
        assert_eq!(Case::new().and(reason).priority(Priority::High).verdict(), reason);
    }
}

#[test]
fn quiet_hours_leave_web_socket_and_slack_alone() {
    let day = json!({"quiet_hours_start": "08:00", "quiet_hours_end": "20:00"});
    let world = Channel::ALL.into_iter().fold(World::default().person(staff("1")), |world, channel| {
        world
            .route(json!({"channel": channel}))
            .setting(restaurant_setting(channel, &day))
            .preference(first_staff_preference(channel, &day))
    });
    let told = world.fan_out(&order_created(), AFTERNOON);
    assert_eq!(told.verdicts(STAFF_1), [QuietHours, QuietHours, QuietHours, Send, Send]);
}

/// The verdict on staff 1's e-mail at 21:30 UTC, with quiet hours from 22:00 to 08:00.
fn late_email(zone: &Value, of_user: bool) -> Verdict {
    let night = json!({"quiet_hours_start": "22:00", "quiet_hours_end": "08:00"});
    let world = World::new().person(with(staff("1"), &json!({"time_zone": zone})));
    let world = if of_user {
        world.preference(first_staff_preference(Channel::Email, &night))
    } else {
        world.setting(restaurant_setting(Channel::Email, &night))
    };
    world.fan_out(&order_created(), "2026-01-15T21:30:00Z").verdict(STAFF_1, Channel::Email)
}

#[test]
fn quiet_hours_of_user_and_group_are_those_of_the_users_zone() {
    for of_user in [true, false] {
        assert_eq!(late_email(&json!("Europe/Rome"), of_user), QuietHours);
        assert_eq!(late_email(&json!("Europe/Lisbon"), of_user), Send);
        assert_eq!(late_email(&json!("America/New_York"), of_user), Send);
        assert_eq!(late_email(&json!("Asia/Tokyo"), of_user), QuietHours);
    }
}

#[test]
fn quiet_hours_without_a_zone_are_utc() {
    for of_user in [true, false] {
        assert_eq!(late_email(&Value::Null, of_user), Send);
        assert_eq!(late_email(&json!("UTC"), of_user), Send);
    }
    let now = json!({"quiet_hours_start": "15:00", "quiet_hours_end": "15:01"});
    let world = World::new().person(staff("1")).preference(first_staff_preference(Channel::Email, &now));
    assert_eq!(world.fan_out(&order_created(), AFTERNOON).verdict(STAFF_1, Channel::Email), QuietHours);
}

#[test]
fn quiet_hours_that_end_when_they_start_are_refused() {
    let never = json!({"quiet_hours_start": "22:00", "quiet_hours_end": "22:00"});
    let half = json!({"quiet_hours_start": "22:00"});
    for hours in [never, half] {
        let setting: Setting = serde_json::from_value(restaurant_setting(Channel::Email, &hours)).unwrap();
        assert_eq!(setting.check(&UserTypes::default()).unwrap_err().field, "quiet_hours_end");
        let preference: Preference =
            serde_json::from_value(first_staff_preference(Channel::Email, &hours)).unwrap();
        assert_eq!(preference.check(&UserTypes::default()).unwrap_err().field, "quiet_hours_end");
    }
}

#[test]
fn the_events_priority_counts_before_the_routes() {
    let routed = |route: Option<Priority>, event: Option<Priority>| {
        let world =
            World::default().route(json!({"channel": "WEBSOCKET", "priority": route})).person(staff("1"));
        let told = world.fan_out(&Event { priority: event, ..order_created() }, AFTERNOON);
        told.rows[0].priority
    };
    assert_eq!(routed(Some(Priority::High), Some(Priority::Low)), Priority::Low);
    assert_eq!(routed(Some(Priority::Low), Some(Priority::High)), Priority::High);
    assert_eq!(routed(Some(Priority::High), None), Priority::High);
    assert_eq!(routed(None, Some(Priority::Low)), Priority::Low);
    assert_eq!(routed(None, None), Priority::Normal);
}

#[test]
fn the_routes_priority_is_what_quiet_hours_and_thresholds_see() {
    let strict = json!({
        "min_priority": "HIGH", "quiet_hours_start": "14:00", "quiet_hours_end": "16:00",
    });
    let world = World::default()
        .route(json!({"channel": "EMAIL", "priority": "HIGH"}))
        .person(staff("1"))
        .preference(first_staff_preference(Channel::Email, &strict));
    let email = |event| world.fan_out(&event, AFTERNOON).verdict(STAFF_1, Channel::Email);
    assert_eq!(email(order_created()), Send);
    assert_eq!(email(urgent(order_created(), Priority::Normal)), LowPriority);
}

#[test]
fn routes_of_the_event_type_replace_the_defaults_altogether() {
    let world = World::new()
        .route(json!({"event_type": "ORDER_CREATED", "channel": "SLACK"}))
        .route(json!({"event_type": "CANCELLATION", "channel": "EMAIL", "mandatory": true}))
        .person(staff("1"));
    let verdicts = |event| world.fan_out(&event, AFTERNOON).verdicts(STAFF_1);
    assert_eq!(verdicts(order_created()), [NotRouted, NotRouted, NotRouted, NotRouted, Send]);
    let other = event("TABLE_FREED", "RESTAURANT", "5", &json!({}));
    assert_eq!(verdicts(other), [Send, Send, Send, Send, NotRouted]);
}

#[test]
fn living_push_tokens_are_kept_and_dead_ones_left_out() {
    let tokens = json!({"push_tokens": ["phone", "tablet", "watch"]});
    let world = World::new().person(with(staff("1"), &tokens)).dead_address(Channel::Push, "tablet");
    let address = |world: &World| {
        let told = world.fan_out(&order_created(), AFTERNOON);
        let rows = told.rows_of(STAFF_1);
        rows.iter().find(|row| row.key.channel == Channel::Push).map(|row| row.address.clone())
    };
    assert_eq!(address(&world), Some("phone watch".to_owned()));
    let world = world.dead_address(Channel::Push, "phone").dead_address(Channel::Push, "watch");
    assert_eq!(address(&world), None);
    assert_eq!(world.fan_out(&order_created(), AFTERNOON).verdict(STAFF_1, Channel::Push), DeadAddress);
}

#[test]
fn an_address_is_dead_on_its_own_channel_only() {
    let world = World::new()
        .person(with(customer("1"), &json!({"email": "1@example.com", "push_tokens": ["1@example.com"]})))
        .dead_address(Channel::Push, "1@example.com");
    let told = world.fan_out(&event("ORDER_CREATED", "CUSTOMER", "1", &json!({})), AFTERNOON);
    assert_eq!(told.verdict("CUSTOMER/1", Channel::Push), DeadAddress);
    assert_eq!(told.verdict("CUSTOMER/1", Channel::Email), Send);
}

#[test]
fn an_address_that_is_empty_is_none() {
    let mut world = World::default().person(manager("1"));
    for channel in Channel::ALL {
        world = world.route(json!({"channel": channel}));
    }
    let person = &mut world.recipients[0];
    // A view over a foreign user table may contain such values.
    person.email = Some(String::new());
    person.phone = Some(String::new());
    person.push_tokens = vec![String::new()];
    person.slack_webhook = Some(String::new());
    let told = world.fan_out(&order_created(), AFTERNOON);
    assert_eq!(told.verdicts(STAFF_1), [NoAddress, NoAddress, NoAddress, Send, NoAddress]);
}
