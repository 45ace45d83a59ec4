//! Random worlds for properties. The ranges are small, so that keys collide, groups fill up and rules interact. Ids
//! sort differently as bytes and as numbers.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use proptest::collection::vec;
use proptest::prelude::{Strategy, any};
use proptest::sample::{select, subsequence};
use serde_json::{Value, json};

use campanile_domain::channel::{AddressSource, Channel, RecipientColumn};
use campanile_domain::event::Event;
use campanile_domain::id::EntityRef;
use campanile_domain::people::recipient::{DeadAddress, Recipient};
use campanile_domain::people::user_type::UserTypes;
use campanile_domain::priority::Priority;
use campanile_domain::rules::Target;
use campanile_domain::rules::row::{Audience, Preference, Route, Row, Setting};
use campanile_domain::time::Timestamp;

use crate::support::{World, entity, event, moment, urgent};

const EVENT_TYPE: &str = "ORDER_CREATED";
const ROLES: [&str; 4] = ["MANAGER", "CHEF", "WAITER", "AGENT"];
const ENTITY_IDS: [&str; 3] = ["5", "10", "9"];
const KINDS: [&str; 2] = ["BAR", "TRATTORIA"];

/// An event in a world, at a time.
#[derive(Debug, Clone)]
pub struct Case {
    pub world: World,
    pub event: Event,
    pub now: Timestamp,
    /// The targets of the event; empty without an audience.
    pub targets: Vec<Target>,
}

pub fn cases() -> impl Strategy<Value = Case> {
    let now = (0..24_u8).prop_map(|hour| moment(&format!("2026-01-15T{hour:02}:30:00Z")));
    (worlds(), events(), now).prop_map(|(world, event, now)| {
        let targets = world.rules().targets(&event, &event.document()).unwrap_or_default();
        Case { world, event, now, targets }
    })
}

fn worlds() -> impl Strategy<Value = World> {
    let routes = (routes("*"), maybe(40, routes(EVENT_TYPE)), maybe(20, routes("CANCELLATION")));
    let rules = (vec(audience(), 0..5), routes, vec(setting(), 0..20), kinds());
    let people = (vec(recipient(), 0..30), vec(preference(), 0..40), vec(dead_address(), 0..4));
    (rules, people).prop_map(|((audiences, routes, settings, kinds), people)| {
        let (recipients, preferences, dead_addresses) = people;
        let routes = [Some(routes.0), routes.1, routes.2];
        World {
            user_types: UserTypes::default(),
            audiences: unique(audiences, |row: &Audience| row.name.clone()),
            routes: routes.into_iter().flatten().flatten().collect(),
            templates: Vec::new(),
            settings: unique(settings, |row: &Setting| {
                (
                    (row.entity_type.clone(), row.entity_id.clone(), row.kind.clone()),
                    (row.channel, row.event_type.clone()),
                )
            }),
            kinds,
            recipients: unique(recipients, Recipient::user),
            preferences: unique(preferences, |row: &Preference| {
                (row.user_type.clone(), row.user_id.clone(), row.channel, row.event_type.clone())
            }),
            dead_addresses,
            is_slow: false,
        }
    })
}

/// The rows as a table with this key would hold them.
fn unique<R, K: Eq + Hash>(rows: Vec<R>, key: impl Fn(&R) -> K) -> Vec<R> {
    let mut seen = HashSet::new();
    rows.into_iter().filter(|row| seen.insert(key(row))).collect()
}

fn stored<R: Row>(row: Value) -> R {
    let row: R = serde_json::from_value(row).expect("the row has the columns of its table");
    row.check(&UserTypes::default()).expect("the row could be stored");
    row
}

fn events() -> impl Strategy<Value = Event> {
    let aggregates = select(vec![
        ("RESTAURANT", "5"),
        ("AGENCY", "10"),
        ("CUSTOMER", "9"),
        ("ADMIN", "1"),
        ("BROADCAST", "1"),
        ("RESERVATION", "77"),
        ("BASKET", "77"),
    ]);
    let ids = || select(vec![json!("5"), json!(5), json!(10), json!("9")]);
    (aggregates, ids(), ids(), 0..3_u8, maybe(40, priority())).prop_map(
        |(aggregate, restaurant, customer, total, priority)| {
            let payload = json!({"restaurantId": restaurant, "customerId": customer, "total": total});
            let event = event(EVENT_TYPE, aggregate.0, aggregate.1, &payload);
            match priority {
                Some(priority) => urgent(event, priority),
                None => event,
            }
        },
    )
}

/// True in `percent` of a hundred cases. proptest's options and unions seed a generator of their own each time, which
/// is slow.
fn chance(percent: u8) -> impl Strategy<Value = bool> {
    (0..100_u8).prop_map(move |number| number >= 100 - percent)
}

fn maybe<S: Strategy>(percent: u8, value: S) -> impl Strategy<Value = Option<S::Value>> {
    (chance(percent), value).prop_map(|(given, value)| given.then_some(value))
}

fn priority() -> impl Strategy<Value = Priority> {
    select(Priority::ALL.to_vec())
}

fn channel() -> impl Strategy<Value = Channel> {
    select(Channel::ALL.to_vec())
}

/// `*`, the event's type, or another one.
fn event_type() -> impl Strategy<Value = &'static str> {
    select(vec!["*", "*", "*", EVENT_TYPE, EVENT_TYPE, "CANCELLATION"])
}

fn roles() -> impl Strategy<Value = Option<Vec<&'static str>>> {
    maybe(40, subsequence(ROLES.to_vec(), 1..=3))
}

fn quiet_hours() -> impl Strategy<Value = Value> {
    maybe(30, (0..24_u8, 1..16_u8)).prop_map(|hours| {
        let at = |hour: u8| format!("{:02}:00", hour % 24);
        json!({
            "start": hours.map(|(start, _)| at(start)),
            "end": hours.map(|(start, length)| at(start + length)),
        })
    })
}

fn audience() -> impl Strategy<Value = Audience> {
    let people = select(vec![
        ("RESTAURANT_USER", Some("/payload/restaurantId")),
        ("RESTAURANT_USER", Some("/payload/restaurantId")),
        ("RESTAURANT_USER", None),
        ("AGENCY_USER", Some("/payload/restaurantId")),
        ("CUSTOMER", Some("/payload/customerId")),
        ("ADMIN_USER", None),
        ("ALL", None),
        ("ALL", None),
    ]);
    let when = maybe(20, select(vec!["payload.total > 0", "payload.total > 1", "payload.nothing"]));
    (people, select(vec!["a", "b", "c", "d", "e"]), roles(), any::<bool>(), any::<bool>(), when).prop_map(
        |((recipient_type, entity_path), name, roles, team, shared_read, when)| {
            let scope = if team { "TEAM" } else { "PERSONAL" };
            stored(json!({
                "event_type": EVENT_TYPE, "name": name, "recipient_type": recipient_type,
                "entity_path": entity_path, "roles": roles, "scope": scope,
                "shared_read": shared_read && recipient_type != "ALL",
                "when": when,
            }))
        },
    )
}

fn routes(event_type: &'static str) -> impl Strategy<Value = Vec<Route>> {
    let route = (chance(30), maybe(30, priority()), maybe(15, priority()));
    (subsequence(Channel::ALL.to_vec(), 2..=5), vec(route, 5)).prop_map(move |(channels, choices)| {
        let row = |(channel, choice): (Channel, (bool, Option<Priority>, Option<Priority>))| {
            let (mandatory, priority, min_priority) = choice;
            stored(json!({
                "event_type": event_type, "channel": channel, "mandatory": mandatory,
                "priority": priority, "min_priority": min_priority,
            }))
        };
        channels.into_iter().zip(choices).map(row).collect()
    })
}

fn setting() -> impl Strategy<Value = Setting> {
    let types = ["RESTAURANT", "RESTAURANT", "RESTAURANT", "AGENCY", "CUSTOMER", "ADMIN_USER"];
    let whose = (select(types.to_vec()), entity_or_kind());
    let limits = (chance(80), maybe(60, 0..4_u32), roles(), quiet_hours(), maybe(15, priority()));
    (whose, channel(), event_type(), limits).prop_map(
        |((entity_type, (entity_id, kind)), channel, event_type, limits)| {
            let (enabled, max_recipients, roles, quiet, min_priority) = limits;
            let has_entities = ["RESTAURANT", "AGENCY"].contains(&entity_type);
            let (entity_id, kind) = if has_entities { (entity_id, kind) } else { ("*", "*") };
            stored(json!({
                "entity_type": entity_type, "entity_id": entity_id, "kind": kind, "channel": channel,
                "event_type": event_type, "enabled": enabled, "max_recipients": max_recipients,
                "roles": roles, "quiet_hours_start": quiet["start"], "quiet_hours_end": quiet["end"],
                "min_priority": min_priority,
            }))
        },
    )
}

fn entity_or_kind() -> impl Strategy<Value = (&'static str, &'static str)> {
    let everything = [("*", "*"); 2];
    let entities = ENTITY_IDS.map(|id| (id, "*"));
    let kinds = KINDS.map(|kind| ("*", kind));
    select([everything.as_slice(), &entities, &kinds].concat())
}

fn kinds() -> impl Strategy<Value = HashMap<EntityRef, String>> {
    vec((select(vec!["RESTAURANT", "AGENCY"]), select(ENTITY_IDS.to_vec()), select(KINDS.to_vec())), 0..6)
        .prop_map(|rows| {
            rows.into_iter()
                .map(|(entity_type, id, kind)| (entity(entity_type, id), kind.to_owned()))
                .collect()
        })
}

fn user() -> impl Strategy<Value = (&'static str, String)> {
    let user_types = select(vec![
        "RESTAURANT_USER",
        "RESTAURANT_USER",
        "RESTAURANT_USER",
        "RESTAURANT_USER",
        "RESTAURANT_USER",
        "AGENCY_USER",
        "CUSTOMER",
        "ADMIN_USER",
        "GUEST",
    ]);
    (user_types, (1..13_u32).prop_map(|id| id.to_string()))
}

fn recipient() -> impl Strategy<Value = Recipient> {
    let place = (maybe(90, select(ENTITY_IDS.to_vec())), maybe(90, select(ROLES.to_vec())));
    let push_tokens = vec(address(Channel::Push), 0..3);
    let addresses = (maybe(80, address(Channel::Email)), maybe(80, address(Channel::Sms)), push_tokens);
    let zones = maybe(60, select(vec!["Europe/Rome", "Asia/Tokyo", "America/New_York"]));
    (user(), place, addresses, maybe(50, address(Channel::Slack)), zones, chance(90)).prop_map(
        |((user_type, user_id), (entity_id, role), (email, phone, push_tokens), slack, zone, active)| {
            let entity_type = match user_type {
                "RESTAURANT_USER" => entity_id.and(Some("RESTAURANT")),
                "AGENCY_USER" => entity_id.and(Some("AGENCY")),
                _ => None,
            };
            stored(json!({
                "user_type": user_type, "user_id": user_id, "role": role, "email": email, "phone": phone,
                "entity_type": entity_type, "entity_id": entity_type.and(entity_id),
                "push_tokens": push_tokens, "slack_webhook": slack, "time_zone": zone,
                "active": active,
            }))
        },
    )
}

/// Few addresses, so that some of them are dead.
fn address(channel: Channel) -> impl Strategy<Value = &'static str> {
    select(match channel.facts().address {
        AddressSource::Column(RecipientColumn::Email) | AddressSource::Entry | AddressSource::None => {
            vec!["a@b.it", "c@d.it", "e@f.it", "g@h.it"]
        }
        AddressSource::Column(RecipientColumn::PushTokens) => {
            vec!["token-a", "token-b", "token-c", "token-d"]
        }
        AddressSource::Column(RecipientColumn::Phone) => vec!["+3901", "+3902", "+3903", "+3904"],
        AddressSource::Column(RecipientColumn::SlackWebhook) => {
            vec!["https://s.it/a", "https://s.it/b", "https://s.it/c", "https://s.it/d"]
        }
    })
}

fn dead_address() -> impl Strategy<Value = DeadAddress> {
    let address = |channel| address(channel).prop_map(move |address| (channel, address));
    channel().prop_flat_map(address).prop_map(|(channel, address)| DeadAddress {
        channel,
        address: address.to_owned(),
        reason: "unregistered".to_owned(),
    })
}

fn preference() -> impl Strategy<Value = Preference> {
    let choice = (chance(60), maybe(30, priority()), quiet_hours());
    (user(), channel(), event_type(), choice).prop_map(
        |((user_type, user_id), channel, event_type, (enabled, min_priority, quiet))| {
            stored(json!({
                "user_type": user_type, "user_id": user_id, "channel": channel, "event_type": event_type,
                "enabled": enabled, "min_priority": min_priority,
                "quiet_hours_start": quiet["start"], "quiet_hours_end": quiet["end"],
            }))
        },
    )
}
