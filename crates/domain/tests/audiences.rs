//! The audience of an event: conditions, fallbacks by aggregate type, scopes, roles and queues.

#[expect(dead_code, reason = "each test file takes what it needs of the world")]
mod support;

use std::collections::BTreeSet;

use serde_json::{Value, json};

use campanile_domain::channel::Channel;
use campanile_domain::event::Event;
use campanile_domain::people::user_type::UserTypes;
use campanile_domain::priority::Priority;
use campanile_domain::rules::decision::Verdict::{
    self, GroupOff, LowPriority, MaxRecipients, QuietHours, Role, Send,
};
use campanile_domain::rules::row::{Audience, Row};
use campanile_domain::rules::{NO_AUDIENCE, NO_RECIPIENTS, RuleRows, Rules, check_when};

use support::{
    AFTERNOON, Told, World, admin, agent, customer, entity, event, first_staff_preference, manager,
    restaurant_setting, staff, urgent, with,
};

fn audience(name: &str, recipient_type: &str, changes: &Value) -> Value {
    with(json!({"event_type": "ORDER_CREATED", "name": name, "recipient_type": recipient_type}), changes)
}

/// An audience with the staff of the restaurant that the payload names.
fn of_restaurant(name: &str, changes: &Value) -> Value {
    with(audience(name, "RESTAURANT_USER", &json!({"entity_path": "/payload/restaurantId"})), changes)
}

/// An event with an aggregate type that implies no audience.
fn order(payload: &Value) -> Event {
    event("ORDER_CREATED", "BASKET", "77", payload)
}

fn order_of_restaurant_5() -> Event {
    order(&json!({"restaurantId": "5"}))
}

/// One person of each kind, and staff of another restaurant.
fn town() -> World {
    World::new()
        .person(admin("1"))
        .person(agent("1"))
        .person(customer("1"))
        .person(json!({"user_type": "GUEST", "user_id": "1"}))
        .person(staff("1"))
        .person(with(staff("2"), &json!({"entity_id": "6"})))
}

fn considered(world: &World, aggregate: (&str, &str), payload: &Value) -> Vec<String> {
    world.fan_out(&event("ORDER_CREATED", aggregate.0, aggregate.1, payload), AFTERNOON).considered()
}

#[test]
fn an_audience_is_told_when_its_condition_holds() {
    let world = town().audience(audience("admins", "ADMIN_USER", &json!({"when": "payload.total > 100"})));
    let told = world.fan_out(&order(&json!({"total": 101})), AFTERNOON);
    assert_eq!(told.considered(), ["ADMIN_USER/1"]);
    assert_eq!(told.decision("ADMIN_USER/1").audience, "admins");
}

#[test]
fn a_condition_that_does_not_hold_leaves_the_audience_out() {
    let world = town()
        .audience(audience("admins", "ADMIN_USER", &json!({"when": "payload.total > 100"})))
        .audience(audience("agents", "AGENCY_USER", &json!({"when": "payload.total <= 100"})));
    let told = world.fan_out(&order(&json!({"total": 100})), AFTERNOON);
    assert_eq!(told.considered(), ["AGENCY_USER/1"]);
    assert_eq!(told.summary().empty_audiences, Vec::<String>::new());
}

#[test]
fn a_condition_on_something_that_the_event_lacks_does_not_hold() {
    let when = json!({"when": "payload.initiated_by == \"CUSTOMER\""});
    let world = town().audience(audience("admins", "ADMIN_USER", &when));
    assert_eq!(world.fan_out(&order(&json!({})), AFTERNOON).failure().code, NO_AUDIENCE);
}

#[test]
fn when_no_condition_holds_the_aggregate_type_decides() {
    let world = town().audience(audience("admins", "ADMIN_USER", &json!({"when": "payload.total > 100"})));
    assert_eq!(considered(&world, ("RESTAURANT", "5"), &json!({"total": 1})), ["RESTAURANT_USER/1"]);
}

#[test]
fn a_condition_that_is_no_expression_is_refused_when_written() {
    for when in ["payload.total >", "{{ payload }}", "if x", "", &"x".repeat(9_000)] {
        let row: Audience =
            serde_json::from_value(audience("a", "ADMIN_USER", &json!({"when": when}))).unwrap();
        assert_eq!(row.check(&UserTypes::default()).unwrap_err().field, "when", "{when}");
        assert!(check_when(when).is_err());
    }
}

#[test]
fn a_condition_that_breaks_on_an_event_fails_it_and_names_the_audience() {
    let deep = json!({"when": "payload.guest.name.first == \"Anna\""});
    let world = town().audience(audience("vip", "ADMIN_USER", &deep));
    let told = world.fan_out(&order(&json!({})), AFTERNOON);
    assert_eq!(told.failure().code, "WHEN_ERROR");
    assert!(told.failure().detail.contains("`vip`"), "{}", told.failure());
    assert!(told.rows.is_empty());
}

#[test]
fn each_aggregate_type_has_an_audience_to_fall_back_to() {
    let none = json!({});
    assert_eq!(considered(&town(), ("RESTAURANT", "5"), &none), ["RESTAURANT_USER/1"]);
    assert_eq!(considered(&town(), ("RESTAURANT", "6"), &none), ["RESTAURANT_USER/2"]);
    assert_eq!(considered(&town(), ("AGENCY", "10"), &none), ["AGENCY_USER/1"]);
    assert_eq!(considered(&town(), ("CUSTOMER", "1"), &none), ["CUSTOMER/1"]);
    assert_eq!(considered(&town(), ("ADMIN", "9"), &none), ["ADMIN_USER/1"]);
    let by_payload = json!({"restaurantId": "6"});
    assert_eq!(considered(&town(), ("RESERVATION", "5"), &by_payload), ["RESTAURANT_USER/2"]);
    assert_eq!(considered(&town(), ("ORDER", "5"), &by_payload), ["RESTAURANT_USER/2"]);
    let by_payload = json!({"restaurant_id": "6"});
    assert_eq!(considered(&town(), ("RESERVATION", "5"), &by_payload), ["RESTAURANT_USER/2"]);
    assert_eq!(considered(&town(), ("ORDER", "5"), &by_payload), ["RESTAURANT_USER/2"]);
    assert_eq!(
        considered(&town(), ("BROADCAST", "x"), &none),
        ["ADMIN_USER/1", "AGENCY_USER/1", "CUSTOMER/1", "GUEST/1", "RESTAURANT_USER/1", "RESTAURANT_USER/2"]
    );
}

#[test]
fn fallbacks_to_an_entity_share_what_is_read_and_others_do_not() {
    let shared = |aggregate: (&str, &str)| {
        let event = event("ORDER_CREATED", aggregate.0, aggregate.1, &json!({"restaurantId": "5"}));
        let told = town().fan_out(&event, AFTERNOON);
        told.rows.iter().map(|row| row.shared_read).collect::<BTreeSet<_>>()
    };
    for aggregate in [("RESTAURANT", "5"), ("AGENCY", "10"), ("RESERVATION", "1"), ("ORDER", "1")] {
        assert_eq!(shared(aggregate), BTreeSet::from([true]), "{aggregate:?}");
    }
    for aggregate in [("CUSTOMER", "1"), ("ADMIN", "1"), ("BROADCAST", "1")] {
        assert_eq!(shared(aggregate), BTreeSet::from([false]), "{aggregate:?}");
    }
}

#[test]
fn the_shared_part_is_announced_for_each_entity_that_is_told() {
    let entities = |world: &World, event: &Event| Vec::from_iter(world.fan_out(event, AFTERNOON).entities);
    let by_restaurant = event("ORDER_CREATED", "RESTAURANT", "5", &json!({}));
    assert_eq!(entities(&town(), &by_restaurant), [(entity("RESTAURANT", "5"), true)]);
    assert!(entities(&town(), &event("ORDER_CREATED", "CUSTOMER", "1", &json!({}))).is_empty());
    let own = town().audience(of_restaurant("staff", &json!({"shared_read": false})));
    assert_eq!(entities(&own, &order_of_restaurant_5()), [(entity("RESTAURANT", "5"), false)]);
}

#[test]
fn users_without_an_entity_share_by_their_user_type() {
    let shared =
        town().person(admin("2")).audience(audience("admins", "ADMIN_USER", &json!({"shared_read": true})));
    let told = shared.fan_out(&order_of_restaurant_5(), AFTERNOON);
    assert_eq!(Vec::from_iter(told.entities.clone()), [(entity("ADMIN_USER", "*"), true)]);
    assert_eq!(told.considered(), ["ADMIN_USER/1", "ADMIN_USER/2"]);
    // Each row names the group that shares it.
    for row in &told.rows {
        assert_eq!((row.shared_read, &row.entity), (true, &Some(entity("ADMIN_USER", "*"))));
    }
    let own = town().audience(audience("admins", "ADMIN_USER", &json!({})));
    let told = own.fan_out(&order_of_restaurant_5(), AFTERNOON);
    assert!(told.entities.is_empty() && told.rows.iter().all(|row| row.entity.is_none()));
}

#[test]
fn an_audience_of_everybody_shares_nothing() {
    let row = audience("all", "ALL", &json!({"shared_read": true}));
    let row: Audience = serde_json::from_value(row).unwrap();
    assert_eq!(row.check(&UserTypes::default()).unwrap_err().field, "shared_read");
    // A row written by SQL has an effect, but is not shared.
    let mut world = town();
    world.audiences.push(row);
    let told = world.fan_out(&order_of_restaurant_5(), AFTERNOON);
    assert!(told.entities.is_empty() && told.rows.iter().all(|row| !row.shared_read));
    let (_, problems) = Rules::new(
        UserTypes::default(),
        RuleRows { audiences: world.audiences.clone(), ..RuleRows::default() },
    );
    assert!(
        problems.len() == 1 && problems[0].contains("event_audience (ORDER_CREATED, all)"),
        "{problems:?}"
    );
}

#[test]
fn the_first_pointer_that_leads_to_something_counts() {
    let path = json!({"entity_path": "/payload/restaurantId  /payload/restaurant_id /payload/venue/id"});
    let world = town().audience(of_restaurant("staff", &path));
    let told = |payload: &Value| world.fan_out(&order(payload), AFTERNOON);
    for payload in [
        json!({"restaurantId": "5", "restaurant_id": "6"}),
        json!({"restaurant_id": 5, "venue": {"id": 6}}),
        json!({"restaurantId": null, "restaurant_id": "5"}),
        json!({"venue": {"id": "5"}}),
    ] {
        assert_eq!(told(&payload).considered(), ["RESTAURANT_USER/1"], "{payload}");
    }
    let failure = told(&json!({"restaurantId": null}));
    let detail = &failure.failure().detail;
    assert!(
        detail.contains("/payload/restaurantId or /payload/restaurant_id or /payload/venue/id"),
        "{detail}"
    );
    // A value that is no id is an error: the next pointer would name another audience.
    let failure = told(&json!({"restaurantId": [], "restaurant_id": "5"}));
    let detail = &failure.failure().detail;
    assert!(detail.contains("/payload/restaurantId of the event is not an id: it is an array"), "{detail}");
}

#[test]
fn pointers_that_are_none_are_refused_when_written() {
    for path in ["", "  ", "payload", "/payload/a payload/b", "/a\n/b", &"/a".repeat(1_001)] {
        let row: Audience =
            serde_json::from_value(of_restaurant("staff", &json!({"entity_path": path}))).unwrap();
        assert_eq!(row.check(&UserTypes::default()).unwrap_err().field, "entity_path", "{path}");
    }
}

#[test]
fn an_entity_id_that_is_missing_from_the_payload_leaves_no_audience() {
    let reservation = |payload: &Value| event("ORDER_CREATED", "RESERVATION", "5", payload);
    let configured = town().audience(of_restaurant("staff", &json!({})));
    let payloads = [
        json!({}),
        json!({"restaurantId": null}),
        json!({"restaurantId": ""}),
        json!({"restaurantId": true}),
        json!({"restaurantId": 5.5}),
        json!({"restaurantId": ["5"]}),
        json!({"restaurantId": {"id": "5"}}),
    ];
    for payload in &payloads {
        assert_eq!(town().fan_out(&reservation(payload), AFTERNOON).failure().code, NO_AUDIENCE, "{payload}");
        let told = configured.fan_out(&order(payload), AFTERNOON);
        assert_eq!(told.failure().code, NO_AUDIENCE, "{payload}");
        assert!(told.failure().detail.contains("/payload/restaurantId"), "{}", told.failure());
    }
}

#[test]
fn a_missing_entity_id_of_one_audience_fails_the_event_before_anybody_is_told() {
    let world = town()
        .audience(audience("admins", "ADMIN_USER", &json!({})))
        .audience(of_restaurant("staff", &json!({})));
    let told = world.fan_out(&order(&json!({})), AFTERNOON);
    assert_eq!(told.failure().code, NO_AUDIENCE);
    assert!(told.rows.is_empty());
}

#[test]
fn an_unknown_aggregate_type_without_an_audience_has_none() {
    let told = town().fan_out(&order_of_restaurant_5(), AFTERNOON);
    assert_eq!(told.failure().code, NO_AUDIENCE);
    assert!(told.failure().to_string().starts_with("NO_AUDIENCE: "), "{}", told.failure());
    assert!(told.failure().detail.contains("`BASKET`"), "{}", told.failure());
}

#[test]
fn an_audience_with_nobody_in_it_has_no_recipients() {
    let inactive = World::new().person(with(staff("1"), &json!({"active": false})));
    let elsewhere = World::new().person(with(staff("1"), &json!({"entity_id": "6"})));
    let another_type = World::new().person(customer("5"));
    for world in [World::new(), inactive, elsewhere, another_type] {
        let told = world.fan_out(&event("ORDER_CREATED", "RESTAURANT", "5", &json!({})), AFTERNOON);
        assert_eq!(told.failure().code, NO_RECIPIENTS);
        assert!(told.failure().detail.contains("RESTAURANT 5"), "{}", told.failure());
    }
    let told = World::new().fan_out(&event("ORDER_CREATED", "BROADCAST", "x", &json!({})), AFTERNOON);
    assert_eq!(told.failure().code, NO_RECIPIENTS);
}

#[test]
fn one_of_several_audiences_may_be_empty_which_is_recorded() {
    let world = town().audience(of_restaurant("chefs", &json!({"roles": ["CHEF"]}))).audience(audience(
        "admins",
        "ADMIN_USER",
        &json!({}),
    ));
    let told = world.fan_out(&order_of_restaurant_5(), AFTERNOON);
    assert_eq!(told.considered(), ["ADMIN_USER/1"]);
    assert_eq!(told.summary().empty_audiences, ["chefs: RESTAURANT_USER of RESTAURANT 5"]);
}

#[test]
fn when_all_of_several_audiences_are_empty_the_event_fails_and_names_them() {
    let world = World::new().audience(of_restaurant("staff", &json!({}))).audience(audience(
        "admins",
        "ADMIN_USER",
        &json!({}),
    ));
    let failure = world.fan_out(&order_of_restaurant_5(), AFTERNOON).failure().clone();
    assert_eq!(failure.code, NO_RECIPIENTS);
    assert!(failure.detail.contains("staff") && failure.detail.contains("admins"), "{failure}");
}

#[test]
fn an_audience_whose_members_were_told_by_another_is_not_empty() {
    let world = town()
        .audience(of_restaurant("first", &json!({})))
        .audience(of_restaurant("second", &json!({"roles": ["WAITER"]})));
    let told = world.fan_out(&order_of_restaurant_5(), AFTERNOON);
    assert_eq!(told.considered(), ["RESTAURANT_USER/1"]);
    assert_eq!(told.summary().empty_audiences, Vec::<String>::new());
}

#[test]
fn an_audience_of_some_roles_leaves_out_the_others() {
    let world = World::new()
        .person(manager("1"))
        .person(staff("2"))
        .person(with(staff("3"), &json!({"role": "CHEF"})))
        .person(with(staff("4"), &json!({"role": null})))
        .audience(of_restaurant("kitchen", &json!({"roles": ["CHEF", "MANAGER"]})));
    let told = world.fan_out(&order_of_restaurant_5(), AFTERNOON);
    assert_eq!(told.considered(), ["RESTAURANT_USER/1", "RESTAURANT_USER/3"]);
}

/// The verdict on staff 1's e-mail in an audience of the given scope.
fn email_in(scope: &str, world: World) -> Verdict {
    let told = world
        .person(staff("1"))
        .audience(of_restaurant("staff", &json!({"scope": scope})))
        .fan_out(&order_of_restaurant_5(), AFTERNOON);
    told.verdict("RESTAURANT_USER/1", Channel::Email)
}

#[test]
fn a_team_does_not_ask_its_members_switches_and_thresholds() {
    let off = || World::new().preference(first_staff_preference(Channel::Email, &json!({"enabled": false})));
    assert_eq!(email_in("PERSONAL", off()), Verdict::UserOff);
    assert_eq!(email_in("TEAM", off()), Send);
    let high_only = json!({"min_priority": "HIGH"});
    let high_only = || World::new().preference(first_staff_preference(Channel::Email, &high_only));
    assert_eq!(email_in("PERSONAL", high_only()), LowPriority);
    assert_eq!(email_in("TEAM", high_only()), Send);
}

#[test]
fn a_team_keeps_quiet_hours_and_the_rules_of_group_and_event() {
    let day = json!({"quiet_hours_start": "08:00", "quiet_hours_end": "20:00"});
    let of_user = World::new().preference(first_staff_preference(Channel::Email, &day));
    assert_eq!(email_in("TEAM", of_user), QuietHours);
    let by_group = [
        (day, QuietHours),
        (json!({"enabled": false}), GroupOff),
        (json!({"roles": ["MANAGER"]}), Role),
        (json!({"max_recipients": 0}), MaxRecipients),
    ];
    for (changes, verdict) in by_group {
        let world = World::new().setting(restaurant_setting(Channel::Email, &changes));
        assert_eq!(email_in("TEAM", world), verdict, "{changes}");
    }
    let by_event = json!({"event_type": "ORDER_CREATED", "channel": "WEBSOCKET", "mandatory": true});
    let world = World::new().route(by_event);
    assert_eq!(email_in("TEAM", world), Verdict::NotRouted);
}

#[test]
fn a_user_in_two_audiences_is_told_once_and_the_team_wins() {
    let team = json!({"scope": "TEAM", "shared_read": true, "roles": ["WAITER"]});
    let world = World::new()
        .person(staff("1"))
        .person(manager("2"))
        .preference(first_staff_preference(Channel::Email, &json!({"enabled": false})))
        .audience(of_restaurant("a personal one", &json!({"scope": "PERSONAL"})))
        .audience(of_restaurant("the waiters", &team));
    let told = world.fan_out(&order_of_restaurant_5(), AFTERNOON);
    assert_eq!(told.considered(), ["RESTAURANT_USER/1", "RESTAURANT_USER/2"]);
    assert_eq!(told.decision("RESTAURANT_USER/1").audience, "the waiters");
    assert_eq!(told.verdict("RESTAURANT_USER/1", Channel::Email), Send);
    assert!(told.rows_of("RESTAURANT_USER/1").iter().all(|row| row.shared_read));
    assert_eq!(told.decision("RESTAURANT_USER/2").audience, "a personal one");
    assert!(told.rows_of("RESTAURANT_USER/2").iter().all(|row| !row.shared_read));
    assert_eq!(told.notifications(), 2);
}

#[test]
fn who_is_listed_twice_is_told_once() {
    // A table cannot contain such rows, but a view in its place may.
    let world =
        World::new().person(staff("1")).person(staff("1")).audience(of_restaurant("staff", &json!({})));
    let told = world.fan_out(&order_of_restaurant_5(), AFTERNOON);
    assert_eq!(told.considered(), ["RESTAURANT_USER/1"]);
    assert_eq!(told.notifications(), 1);
}

#[test]
fn only_who_was_listed_in_an_earlier_audience_counts_as_told() {
    let mut world = World::new()
        .person(staff("1"))
        .person(staff("2"))
        .audience(of_restaurant("a staff", &json!({})))
        .audience(audience("b town", "ALL", &json!({})));
    // Such a row cannot be written, but a view or an older configuration may show it.
    world.recipients[1].entity_type = Some(entity("AGENCY", "5").entity_type);
    let told = world.fan_out(&order_of_restaurant_5(), AFTERNOON);
    assert_eq!(told.considered(), ["RESTAURANT_USER/1", "RESTAURANT_USER/2"]);
}

#[test]
fn an_audience_without_a_path_is_everybody_of_the_type() {
    let world = town().audience(audience("all staff", "RESTAURANT_USER", &json!({})));
    let told = world.fan_out(&order(&json!({})), AFTERNOON);
    assert_eq!(told.considered(), ["RESTAURANT_USER/1", "RESTAURANT_USER/2"]);
    assert_eq!(told.queues(), BTreeSet::from(["notification.restaurant"]));
}

#[test]
fn a_path_yields_the_user_where_the_type_has_no_entity() {
    let path = json!({"entity_path": "/payload/customerId"});
    let world = town().person(customer("2")).audience(audience("customer", "CUSTOMER", &path));
    assert_eq!(world.fan_out(&order(&json!({"customerId": "2"})), AFTERNOON).considered(), ["CUSTOMER/2"]);
}

#[test]
fn numbers_in_the_payload_are_ids() {
    let world = World::new()
        .person(with(staff("1"), &json!({"entity_id": 9_007_199_254_740_993_u64})))
        .person(with(staff("2"), &json!({"entity_id": "05"})))
        .person(with(staff("3"), &json!({"entity_id": 5})))
        .audience(of_restaurant("staff", &json!({})));
    let considered = |id: Value| world.fan_out(&order(&json!({"restaurantId": id})), AFTERNOON).considered();
    assert_eq!(considered(json!(9_007_199_254_740_993_u64)), ["RESTAURANT_USER/1"]);
    assert_eq!(considered(json!("05")), ["RESTAURANT_USER/2"]);
    assert_eq!(considered(json!(5)), ["RESTAURANT_USER/3"]);
}

fn queues(told: &Told) -> Vec<(Channel, &str)> {
    told.rows.iter().map(|row| (row.key.channel, row.queue.as_str())).collect()
}

#[test]
fn everybody_travels_by_the_broadcast_queue() {
    let world = town().audience(audience("town", "ALL", &json!({})));
    let told = world.fan_out(&order(&json!({})), AFTERNOON);
    assert_eq!(told.notifications(), 6);
    assert_eq!(told.queues(), BTreeSet::from(["notification.broadcast"]));
    let fallback = event("ORDER_CREATED", "BROADCAST", "x", &json!({}));
    assert_eq!(town().fan_out(&fallback, AFTERNOON).queues(), BTreeSet::from(["notification.broadcast"]));
    let high = urgent(order(&json!({})), Priority::High);
    assert_eq!(world.fan_out(&high, AFTERNOON).queues(), BTreeSet::from(["notification.broadcast.high"]));
}

#[test]
fn what_is_high_travels_by_the_twin_of_its_queue() {
    let told = |priority| {
        let event = event("ORDER_CREATED", "CUSTOMER", "1", &json!({}));
        let told = town().fan_out(&urgent(event, priority), AFTERNOON);
        told.queues().into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(told(Priority::High), ["notification.customer.high"]);
    assert_eq!(told(Priority::Normal), ["notification.customer"]);
    assert_eq!(told(Priority::Low), ["notification.customer"]);
}

#[test]
fn a_route_that_is_high_takes_only_its_own_channel_to_the_twin() {
    let world = World::default()
        .person(customer("1"))
        .route(json!({"channel": "EMAIL", "priority": "HIGH"}))
        .route(json!({"channel": "WEBSOCKET", "priority": "LOW"}));
    let told = world.fan_out(&event("ORDER_CREATED", "CUSTOMER", "1", &json!({})), AFTERNOON);
    assert_eq!(
        queues(&told),
        [(Channel::Email, "notification.customer.high"), (Channel::Websocket, "notification.customer")]
    );
}

#[test]
fn an_audience_of_a_user_type_that_is_no_longer_configured_is_none() {
    let mut world = town().audience(audience("agents", "AGENCY_USER", &json!({})));
    let left = world.user_types.iter().filter(|t| t.name.as_str() != "AGENCY_USER").cloned().collect();
    world.user_types = UserTypes::new(left).unwrap();
    let failure = world.fan_out(&order(&json!({})), AFTERNOON).failure().clone();
    assert_eq!(failure.code, NO_AUDIENCE);
    assert!(failure.detail.contains("AGENCY_USER"), "{failure}");
}

#[test]
fn a_when_that_could_exhaust_memory_is_refused_when_written() {
    let deep = format!("{}1{}", "(".repeat(500), ")".repeat(500));
    for when in [
        "(\"a\\nb\"|indent(100000000000000))|length > 1",
        "(payload.a|center(100000000000000))|length > 1",
        "\"a\" * 1000000000000 == 1",
        "[1] * 1000000000 == 1",
        "10 ** 1000 > 1",
        "payload.list|batch(1000000000)|length > 1",
        "payload.list|slice(1000000000)|length > 1",
        "payload.a is somthing",
        "payload.a is not somthing",
        "payload.a|uper == 'A'",
        deep.as_str(),
    ] {
        assert!(check_when(when).is_err(), "{when}");
    }
    for when in [
        "payload.a is defined and payload.a|upper == 'A'",
        "payload.a is not none",
        "{'a': {'b': 1}}.a.b == 1",
    ] {
        assert_eq!(check_when(when), Ok(()), "{when}");
    }
}
