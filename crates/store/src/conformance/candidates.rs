//! Checks pages of recipients that an event may reach: their order, and the data that decides what they get.

use campanile_domain::channel::{Channel, PerChannel};
use campanile_domain::fan_out::{Page, Position};
use campanile_domain::id::UserTypeName;
use campanile_domain::people::recipient::Candidate;
use campanile_domain::people::user_type::Webhook;
use campanile_domain::rules::Reach;
use campanile_domain::rules::row::Selector;
use serde_json::{Value, json};

use super::Fixture;
use super::setup::{customer, entity};
use crate::{AudienceReader, Table};

/// A member of a restaurant. No user is a member of two.
fn staff(restaurant: &str, user_id: &str, role: &str) -> Value {
    json!({
        "user_type": "RESTAURANT_USER", "user_id": user_id, "entity_type": "RESTAURANT", "entity_id": restaurant,
        "role": role,
    })
}

fn restaurant(id: &str) -> Reach {
    Reach::Entity { user_type: UserTypeName::stored("RESTAURANT_USER"), entity: entity("RESTAURANT", id) }
}

fn everybody(user_type: &str) -> Reach {
    Reach::Everybody(UserTypeName::stored(user_type))
}

fn page(reach: Reach) -> Page {
    Page {
        reach,
        roles: None,
        after: None,
        limit: 100,
        channels: PerChannel::from_fn(|_| true),
        default_webhook: None,
    }
}

async fn read_audience(fixture: &Fixture) -> Box<dyn AudienceReader> {
    fixture.store.read_audience().await.expect("the database is there")
}

async fn read_pages(fixture: &Fixture, pages: Vec<Page>) -> Vec<Vec<Candidate>> {
    read_audience(fixture).await.candidates(pages).await.expect("the pages are good")
}

fn ids(candidates: &[Candidate]) -> Vec<&str> {
    candidates.iter().map(|candidate| candidate.recipient.user_id.as_str()).collect()
}

async fn ids_of(fixture: &Fixture, page: Page) -> Vec<String> {
    ids(&read_pages(fixture, vec![page]).await[0]).into_iter().map(str::to_owned).collect()
}

/// Reads page after page, as a fan-out does, until a page is not full.
async fn walk(fixture: &Fixture, reach: Reach, limit: usize) -> Vec<String> {
    let mut walked = Vec::new();
    let mut after = None;
    loop {
        let page = Page { after, limit, ..page(reach.clone()) };
        let candidates = read_pages(fixture, vec![page]).await.remove(0);
        walked.extend(ids(&candidates).into_iter().map(str::to_owned));
        after = candidates.last().map(|last| Position::of(&last.recipient));
        assert!(candidates.len() <= limit && walked.len() <= 100, "{walked:?}");
        if candidates.len() < limit {
            return walked;
        }
    }
}

pub async fn members_come_by_rank_then_by_id(fixture: &Fixture) {
    let members =
        [("4", "WAITER"), ("3", "MANAGER"), ("1", "CHEF"), ("2", "WAITER"), ("9", "MANAGER"), ("5", "ADMIN")];
    fixture.put(Table::Recipients, members.map(|(id, role)| staff("5", id, role)).to_vec()).await;
    assert_eq!(ids_of(fixture, page(restaurant("5"))).await, ["3", "9", "1", "2", "4", "5"]);
}

pub async fn everybody_comes_by_entity_then_rank_then_id(fixture: &Fixture) {
    let alone = json!({ "user_type": "RESTAURANT_USER", "user_id": "z" });
    let boss_of_none = json!({ "user_type": "RESTAURANT_USER", "user_id": "zz", "role": "MANAGER" });
    let recipients = vec![
        staff("6", "a", "WAITER"),
        staff("6", "b", "MANAGER"),
        staff("5", "d", "WAITER"),
        staff("5", "c", "WAITER"),
        alone,
        boss_of_none,
    ];
    fixture.put(Table::Recipients, recipients).await;
    assert_eq!(ids_of(fixture, page(everybody("RESTAURANT_USER"))).await, ["zz", "z", "c", "d", "b", "a"]);
}

pub async fn ids_are_compared_bytewise(fixture: &Fixture) {
    let ids = ["9", "10", "b", "B", "é", "e", "_"];
    fixture.put(Table::Recipients, ids.map(|id| staff("5", id, "WAITER")).to_vec()).await;
    let walked = walk(fixture, restaurant("5"), 2).await;
    assert_eq!(walked, ["10", "9", "B", "_", "b", "e", "é"]);
}

pub async fn pages_of_an_entity_cover_its_members_once(fixture: &Fixture) {
    let role = |n: u32| if n.is_multiple_of(5) { "MANAGER" } else { "WAITER" };
    let member = |n: u32| staff("5", &format!("{n:02}"), role(n));
    fixture.put(Table::Recipients, (0..23).map(member).collect()).await;
    let whole = ids_of(fixture, page(restaurant("5"))).await;
    assert_eq!(whole.len(), 23);
    for limit in [1, 5, 22, 23, 24] {
        assert_eq!(walk(fixture, restaurant("5"), limit).await, whole, "in pages of {limit}");
    }
}

pub async fn pages_of_everybody_cover_them_once(fixture: &Fixture) {
    let role = |n: u32| if n.is_multiple_of(5) { "MANAGER" } else { "WAITER" };
    let member = |n: u32| staff(&format!("{}", n % 4), &format!("{n:02}"), role(n));
    let alone = |n: u32| json!({ "user_type": "RESTAURANT_USER", "user_id": format!("alone {n}") });
    fixture.put(Table::Recipients, (0..20).map(member).chain((0..3).map(alone)).collect()).await;
    let whole = ids_of(fixture, page(everybody("RESTAURANT_USER"))).await;
    assert_eq!(whole.len(), 23);
    for limit in [1, 4, 22, 23, 24] {
        assert_eq!(walk(fixture, everybody("RESTAURANT_USER"), limit).await, whole, "in pages of {limit}");
    }
}

pub async fn a_user_is_one_page(fixture: &Fixture) {
    let customers = ["41", "42"].map(|id| json!({ "user_type": "CUSTOMER", "user_id": id }));
    fixture.put(Table::Recipients, customers.to_vec()).await;
    assert_eq!(ids_of(fixture, page(Reach::User(customer("42")))).await, ["42"]);
    assert!(ids_of(fixture, page(Reach::User(customer("43")))).await.is_empty());
    assert_eq!(walk(fixture, Reach::User(customer("42")), 1).await, ["42"]);
}

pub async fn the_inactive_are_left_out(fixture: &Fixture) {
    let mut gone = staff("5", "2", "MANAGER");
    gone["active"] = json!(false);
    let gone_customer = json!({ "user_type": "CUSTOMER", "user_id": "42", "active": false });
    fixture.put(Table::Recipients, vec![staff("5", "1", "WAITER"), gone, gone_customer]).await;
    let pages = vec![
        page(restaurant("5")),
        page(everybody("RESTAURANT_USER")),
        page(everybody("CUSTOMER")),
        page(Reach::User(customer("42"))),
    ];
    let answers = read_pages(fixture, pages).await;
    assert_eq!(
        answers.iter().map(|page| ids(page)).collect::<Vec<_>>(),
        [vec!["1"], vec!["1"], vec![], vec![]]
    );
}

pub async fn only_the_roles_that_are_asked_for_come(fixture: &Fixture) {
    let mut no_role = staff("5", "4", "");
    no_role["role"] = Value::Null;
    let members =
        vec![staff("5", "1", "WAITER"), staff("5", "2", "CHEF"), staff("5", "3", "MANAGER"), no_role];
    fixture.put(Table::Recipients, members).await;
    let of_roles = |reach: Reach, roles: &[&str]| Page {
        roles: Some(roles.iter().map(|role| (*role).to_owned()).collect()),
        ..page(reach)
    };
    assert_eq!(ids_of(fixture, of_roles(restaurant("5"), &["MANAGER", "CHEF"])).await, ["3", "2"]);
    let staff_member = Reach::User(super::setup::user("RESTAURANT_USER", "1"));
    assert!(ids_of(fixture, of_roles(staff_member.clone(), &["CHEF"])).await.is_empty());
    assert_eq!(ids_of(fixture, of_roles(staff_member, &["WAITER"])).await, ["1"]);
    assert_eq!(ids_of(fixture, of_roles(everybody("RESTAURANT_USER"), &["CHEF"])).await, ["2"]);
    assert!(ids_of(fixture, of_roles(restaurant("5"), &[])).await.is_empty());
    // The limit counts only recipients with the role.
    let first = Page { limit: 1, ..of_roles(restaurant("5"), &["WAITER"]) };
    assert_eq!(ids_of(fixture, first).await, ["1"]);
}

pub async fn the_same_ids_of_other_types_are_left_out(fixture: &Fixture) {
    let agent = json!({
        "user_type": "AGENCY_USER", "user_id": "50", "entity_type": "AGENCY", "entity_id": "5", "role": "AGENT",
    });
    let misplaced = json!({
        "user_type": "RESTAURANT_USER", "user_id": "51", "entity_type": "AGENCY", "entity_id": "5", "role": "AGENT",
    });
    let same_customer = json!({ "user_type": "CUSTOMER", "user_id": "50" });
    fixture.put(Table::Recipients, vec![staff("5", "50", "WAITER"), agent, misplaced, same_customer]).await;
    let found = read_pages(fixture, vec![page(restaurant("5")), page(Reach::User(customer("50")))]).await;
    assert_eq!(ids(&found[0]), ["50"]);
    assert_eq!(found[0][0].recipient.role.as_deref(), Some("WAITER"));
    assert_eq!(found[1][0].recipient.user(), customer("50"));
}

pub async fn pages_are_answered_in_the_order_in_which_they_are_asked_for(fixture: &Fixture) {
    let recipients = vec![
        staff("5", "1", "WAITER"),
        staff("6", "2", "WAITER"),
        json!({ "user_type": "CUSTOMER", "user_id": "42", "name": "Ada", "locale": "it", "time_zone": "Europe/Rome" }),
    ];
    fixture.put(Table::Recipients, recipients).await;
    let pages = vec![
        page(restaurant("6")),
        page(Reach::User(customer("42"))),
        page(restaurant("7")),
        page(restaurant("5")),
        page(restaurant("6")),
    ];
    let answers = read_pages(fixture, pages).await;
    let answered: Vec<_> = answers.iter().map(|page| ids(page)).collect();
    assert_eq!(answered, [vec!["2"], vec!["42"], vec![], vec!["1"], vec!["2"]]);
    let ada = &answers[1][0].recipient;
    assert_eq!((ada.name.as_deref(), ada.locale.as_deref()), (Some("Ada"), Some("it")));
    assert!(read_audience(fixture).await.candidates(vec![]).await.expect("nothing is asked").is_empty());
}

pub async fn preferences_and_dead_addresses_come_along(fixture: &Fixture) {
    let customers = vec![
        json!({ "user_type": "CUSTOMER", "user_id": "42", "phone": "+39", "email": "a@b", "push_tokens": ["t1",
            "t2"] }),
        json!({ "user_type": "CUSTOMER", "user_id": "43", "phone": "+39", "email": "+41@b" }),
        json!({ "user_type": "CUSTOMER", "user_id": "44", "phone": "+41" }),
    ];
    fixture.put(Table::Recipients, customers).await;
    let off = |user_type: &str, user_id: &str, channel: &str, event_type: &str| {
        json!({
            "user_type": user_type, "user_id": user_id, "channel": channel, "event_type": event_type, "enabled": false,
        })
    };
    let preferences = vec![
        off("CUSTOMER", "42", "SMS", "*"),
        off("CUSTOMER", "42", "SMS", "NEWS"),
        off("CUSTOMER", "44", "EMAIL", "*"),
        off("RESTAURANT_USER", "43", "EMAIL", "*"),
    ];
    fixture.put(Table::Preferences, preferences).await;
    fixture
        .execute(
            "INSERT INTO dead_address (channel, address, reason, at)
             VALUES ('SMS', '+39', 'unknown number', '2026-01-21T10:15:30.000Z'),
                    ('PUSH', 't2', 'unregistered', '2026-01-21T10:15:30.000Z'),
                    ('EMAIL', '+39', 'not an address', '2026-01-21T10:15:30.000Z'),
                    ('SMS', 'a@b', 'not a number', '2026-01-21T10:15:30.000Z')",
        )
        .await;
    let candidates = read_pages(fixture, vec![page(everybody("CUSTOMER"))]).await.remove(0);
    assert_eq!(ids(&candidates), ["42", "43", "44"]);
    let counts: Vec<usize> = candidates.iter().map(|candidate| candidate.preferences.len()).collect();
    assert_eq!(counts, [2, 0, 1]);
    assert!(candidates[0].preferences.iter().all(|preference| !preference.enabled));
    let dead: Vec<Vec<(Channel, &str)>> = candidates
        .iter()
        .map(|candidate| candidate.dead_addresses.iter().map(|d| (d.channel, d.address.as_str())).collect())
        .collect();
    assert_eq!(
        dead,
        [vec![(Channel::Push, "t2"), (Channel::Sms, "+39")], vec![(Channel::Sms, "+39")], vec![]]
    );
    // Each page loads dead addresses only for its own channels.
    let pushes = Page {
        channels: PerChannel::from_fn(|channel| channel == Channel::Push),
        ..page(everybody("CUSTOMER"))
    };
    let pages = read_pages(fixture, vec![pushes, page(everybody("CUSTOMER"))]).await;
    let numbers = |page: &[Candidate]| page.iter().map(|c| c.dead_addresses.len()).collect::<Vec<_>>();
    assert_eq!(pages.iter().map(|page| numbers(page)).collect::<Vec<_>>(), [[1, 0, 0], [2, 1, 0]]);
}

pub async fn a_default_webhook_that_is_dead_is_known_of_those_who_need_it(fixture: &Fixture) {
    let admins = vec![
        json!({ "user_type": "ADMIN_USER", "user_id": "1" }),
        json!({ "user_type": "ADMIN_USER", "user_id": "2", "slack_webhook": "https://hooks.example/own" }),
    ];
    fixture.put(Table::Recipients, admins).await;
    fixture
        .execute(
            "INSERT INTO dead_address (channel, address, reason, at)
             VALUES ('SLACK', 'https://hooks.example/default', 'no_service', '2026-01-21T10:15:30.000Z')",
        )
        .await;
    let webhook = Webhook::new("https://hooks.example/default".to_owned());
    let with_default = Page { default_webhook: Some(webhook), ..page(everybody("ADMIN_USER")) };
    let pages = read_pages(fixture, vec![page(everybody("ADMIN_USER")), with_default]).await;
    let dead = |page: &[Candidate]| page.iter().map(|c| c.dead_addresses.len()).collect::<Vec<_>>();
    assert_eq!(pages.iter().map(|page| dead(page)).collect::<Vec<_>>(), [[0, 0], [1, 0]]);
}

pub async fn who_is_on_two_pages_has_every_preference_once(fixture: &Fixture) {
    fixture
        .put(Table::Recipients, vec![json!({ "user_type": "CUSTOMER", "user_id": "42", "phone": "+39" })])
        .await;
    let preference = json!({ "user_type": "CUSTOMER", "user_id": "42", "channel": "SMS" });
    fixture.put(Table::Preferences, vec![preference]).await;
    fixture
        .execute(
            "INSERT INTO dead_address (channel, address, reason, at)
             VALUES ('SMS', '+39', 'unknown number', '2026-01-21T10:15:30.000Z')",
        )
        .await;
    let pages = vec![page(Reach::User(customer("42"))), page(everybody("CUSTOMER"))];
    for candidates in read_pages(fixture, pages).await {
        assert_eq!(candidates[0].preferences.len(), 1);
        assert_eq!(candidates[0].dead_addresses.len(), 1);
    }
}

pub async fn a_group_has_its_kind_and_its_own_settings(fixture: &Fixture) {
    let entities = vec![
        json!({ "entity_type": "RESTAURANT", "entity_id": "5", "kind": "PIZZERIA", "name": "Da Ada" }),
        json!({ "entity_type": "RESTAURANT", "entity_id": "6", "kind": "BAR" }),
        json!({ "entity_type": "RESTAURANT", "entity_id": "9", "kind": "BAR" }),
        json!({ "entity_type": "AGENCY", "entity_id": "5", "kind": "TRAVEL" }),
    ];
    fixture.put(Table::Entities, entities).await;
    let settings = vec![
        json!({ "entity_type": "RESTAURANT", "entity_id": "5", "channel": "SMS", "roles": ["MANAGER"] }),
        json!({ "entity_type": "RESTAURANT", "entity_id": "5", "channel": "EMAIL", "max_recipients": 3 }),
        json!({ "entity_type": "RESTAURANT", "entity_id": "*", "kind": "PIZZERIA", "channel": "SMS" }),
        json!({ "entity_type": "RESTAURANT", "channel": "PUSH" }),
        json!({ "entity_type": "AGENCY", "entity_id": "5", "channel": "PUSH" }),
        json!({ "entity_type": "RESTAURANT", "entity_id": "7", "channel": "PUSH" }),
    ];
    fixture.put(Table::Settings, settings).await;
    let [five, six, seven, eight] = ["5", "6", "7", "8"].map(|id| entity("RESTAURANT", id));
    let asked = vec![five.clone(), six.clone(), five.clone(), seven.clone(), eight.clone()];
    let groups = read_audience(fixture).await.groups(asked).await.expect("the database is there");
    let mut own: Vec<Channel> = groups[&five].settings.iter().map(|setting| setting.channel).collect();
    own.sort_unstable();
    assert_eq!(own, [Channel::Email, Channel::Sms]);
    assert!(groups[&five].settings.iter().all(|s| s.entity_id == Selector::Only(five.entity_id.clone())));
    assert_eq!(groups[&five].kind.as_deref(), Some("PIZZERIA"));
    assert_eq!((groups[&six].kind.as_deref(), groups[&six].settings.len()), (Some("BAR"), 0));
    assert_eq!((groups[&seven].kind.as_deref(), groups[&seven].settings.len()), (None, 1));
    assert!(groups.get(&eight).is_none_or(|group| group.kind.is_none() && group.settings.is_empty()));
    for not_asked in [entity("AGENCY", "5"), entity("RESTAURANT", "9")] {
        assert!(!groups.contains_key(&not_asked));
    }
}

pub async fn what_can_not_be_used_of_a_recipient_is_taken_for_empty(fixture: &Fixture) {
    let person = |user_id: &str| {
        json!({
            "user_type": "CUSTOMER", "user_id": user_id, "name": "Ada", "email": "a@b", "push_tokens": ["t"],
            "addresses": {"PAGER": "7"}, "time_zone": "Europe/Rome",
        })
    };
    fixture.put(Table::Recipients, ["1", "2", "3"].map(person).to_vec()).await;
    fixture.execute("UPDATE recipient SET time_zone = 'Middle/Earth' WHERE user_id = '1'").await;
    fixture.execute("UPDATE recipient SET push_tokens = '{\"t\": 1}' WHERE user_id = '2'").await;
    fixture.execute("UPDATE recipient SET addresses = '{\"PAGER\": 7}' WHERE user_id = '3'").await;
    let whole = read_pages(fixture, vec![page(everybody("CUSTOMER"))]).await.remove(0);
    assert_eq!(ids(&whole), ["1", "2", "3"]);
    let zones: Vec<bool> = whole.iter().map(|c| c.recipient.time_zone.is_some()).collect();
    assert_eq!(zones, [false, true, true]);
    let tokens: Vec<usize> = whole.iter().map(|c| c.recipient.push_tokens.len()).collect();
    assert_eq!(tokens, [1, 0, 1]);
    let addresses: Vec<Value> = whole.iter().map(|c| json!(c.recipient.addresses)).collect();
    assert_eq!(addresses, [json!({"PAGER": "7"}), json!({"PAGER": "7"}), json!({})]);
    assert!(whole.iter().all(|c| c.recipient.email.as_deref() == Some("a@b")));
    assert_eq!(walk(fixture, everybody("CUSTOMER"), 1).await, ["1", "2", "3"]);
}

pub async fn a_preference_or_setting_that_can_not_be_used_is_skipped(fixture: &Fixture) {
    fixture.put(Table::Recipients, vec![json!({ "user_type": "CUSTOMER", "user_id": "42" })]).await;
    let preference = |channel: &str| json!({ "user_type": "CUSTOMER", "user_id": "42", "channel": channel });
    fixture.put(Table::Preferences, vec![preference("SMS"), preference("EMAIL")]).await;
    let setting =
        |channel: &str| json!({ "entity_type": "RESTAURANT", "entity_id": "5", "channel": channel });
    fixture.put(Table::Settings, vec![setting("SMS"), setting("EMAIL")]).await;
    fixture
        .execute("UPDATE user_notification_preferences SET quiet_hours_start = '25:00' WHERE channel = 'SMS'")
        .await;
    fixture.execute("UPDATE entity_notification_settings SET channel = 'FAX' WHERE channel = 'SMS'").await;
    let candidates = read_pages(fixture, vec![page(everybody("CUSTOMER"))]).await.remove(0);
    let channels: Vec<Channel> = candidates[0].preferences.iter().map(|p| p.channel).collect();
    assert_eq!(channels, [Channel::Email]);
    let five = entity("RESTAURANT", "5");
    let groups = read_audience(fixture).await.groups(vec![five.clone()]).await.expect("the rest can be used");
    let channels: Vec<Channel> = groups[&five].settings.iter().map(|setting| setting.channel).collect();
    assert_eq!(channels, [Channel::Email]);
}
