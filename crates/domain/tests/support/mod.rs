//! A small world in memory: rules, people and groups, and a fan-out over them in pages like those of a store. Rows are
//! written as JSON and checked like requests, so that no test uses a row that cannot be stored.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::{Value, json};

use campanile_domain::channel::Channel;
use campanile_domain::event::{Event, Failure, NewEvent};
use campanile_domain::fan_out::{Cursor, End, OutboxRow, Page, Plan, Position, Progress, Summary};
use campanile_domain::id::EntityRef;
use campanile_domain::people::recipient::{Candidate, DeadAddress, Group, Recipient};
use campanile_domain::people::user_type::UserTypes;
use campanile_domain::priority::Priority;
use campanile_domain::rules::decision::{Decision, Verdict};
use campanile_domain::rules::row::{Audience, Preference, Route, Row, Setting, Template};
use campanile_domain::rules::{Reach, RuleRows, Rules};
use campanile_domain::time::Timestamp;

/// A time outside of all usual quiet hours.
pub const AFTERNOON: &str = "2026-01-15T15:00:00Z";

/// Everything that decides about an event, as in the tables.
#[derive(Debug, Clone, Default)]
pub struct World {
    pub user_types: UserTypes,
    pub audiences: Vec<Audience>,
    pub routes: Vec<Route>,
    pub templates: Vec<Template>,
    pub settings: Vec<Setting>,
    pub kinds: HashMap<EntityRef, String>,
    pub recipients: Vec<Recipient>,
    pub preferences: Vec<Preference>,
    pub dead_addresses: Vec<DeadAddress>,
    /// Whether a step has time for only one recipient.
    pub is_slow: bool,
}

impl World {
    /// A world without people, and with no rules but the default routing.
    pub fn new() -> Self {
        World::default()
            .route(json!({"channel": "WEBSOCKET", "mandatory": true, "priority": "NORMAL"}))
            .route(json!({"channel": "EMAIL", "priority": "NORMAL"}))
            .route(json!({"channel": "PUSH", "priority": "NORMAL"}))
            .route(json!({"channel": "SMS", "priority": "NORMAL"}))
    }

    pub fn route(mut self, row: Value) -> Self {
        self.routes.push(self.checked(row));
        self
    }

    pub fn audience(mut self, row: Value) -> Self {
        self.audiences.push(self.checked(row));
        self
    }

    pub fn template(mut self, row: Value) -> Self {
        self.templates.push(self.checked(row));
        self
    }

    /// Adds a setting for an entity, a kind, or a whole type.
    pub fn setting(mut self, row: Value) -> Self {
        self.settings.push(self.checked(row));
        self
    }

    pub fn kind(mut self, entity_type: &str, entity_id: &str, kind: &str) -> Self {
        self.kinds.insert(entity(entity_type, entity_id), kind.to_owned());
        self
    }

    pub fn person(mut self, row: Value) -> Self {
        self.recipients.push(self.checked(row));
        self
    }

    pub fn preference(mut self, row: Value) -> Self {
        self.preferences.push(self.checked(row));
        self
    }

    pub fn dead_address(mut self, channel: Channel, address: &str) -> Self {
        let (address, reason) = (address.to_owned(), "unregistered".to_owned());
        self.dead_addresses.push(DeadAddress { channel, address, reason });
        self
    }

    fn checked<R: Row>(&self, row: Value) -> R {
        let row: R = serde_json::from_value(row).expect("the row has the columns of its table");
        row.check(&self.user_types).expect("the row could be stored");
        row
    }

    pub fn rules(&self) -> Rules {
        let default_settings = self.settings.iter().filter(|s| s.entity_id.is_any()).cloned().collect();
        let rows = RuleRows {
            audiences: self.audiences.clone(),
            routing: self.routes.clone(),
            templates: self.templates.clone(),
            default_settings,
        };
        Rules::new(self.user_types.clone(), rows).0
    }

    /// Runs the fan-out in one step.
    pub fn fan_out(&self, event: &Event, at: &str) -> Told {
        self.fan_out_by(10_000, event, moment(at))
    }

    /// Runs the fan-out in steps of `room` recipients. Between two steps the cursor is stored as JSON.
    pub fn fan_out_by(&self, room: usize, event: &Event, now: Timestamp) -> Told {
        // An audience contains nobody twice, and every step but the last considers somebody.
        let most_steps = self.recipients.len() * self.audiences.len().max(1) + 1;
        let rules = self.rules();
        let (mut rows, mut decisions, mut cursors) = (Vec::new(), Vec::new(), Vec::new());
        let mut entities = BTreeMap::new();
        for _ in 0..most_steps {
            let cursor = cursors.last().map_or_else(Cursor::default, |json: &String| {
                serde_json::from_str(json).expect("a cursor comes back from JSON")
            });
            let end = match self.step(&rules, event, cursor, room, now) {
                Ok(plan) => {
                    assert!(plan.decisions.len() <= room, "a step considers no more than it has room for");
                    rows.extend(plan.rows);
                    entities.extend(plan.entities);
                    decisions.extend(plan.decisions);
                    plan.end
                }
                Err(failure) => End::Failed(failure),
            };
            let result = match end {
                End::Continues(cursor) => {
                    cursors.push(serde_json::to_string(&cursor).expect("a cursor can be written"));
                    continue;
                }
                End::Finished(summary) => Ok(summary),
                End::Failed(failure) => Err(failure),
            };
            return Told { rows, decisions, entities, result, cursors };
        }
        panic!("the fan-out does not come to an end");
    }

    fn step(
        &self,
        rules: &Rules,
        event: &Event,
        cursor: Cursor,
        room: usize,
        now: Timestamp,
    ) -> Result<Plan, Failure> {
        let mut progress = Progress::new(rules, event, &event.document(), cursor, room, now)?;
        while let Some(page) = progress.next_page() {
            let candidates = self.page(&page);
            let groups = candidates.iter().filter_map(|c| c.recipient.entity()).map(|e| self.group(e));
            let groups = groups.collect();
            let considered = progress.consider(&candidates, &groups, || self.is_slow);
            progress.turn_page(&candidates, considered);
        }
        Ok(progress.finish())
    }

    /// The page that a store returns: by entity, rank and user id, strictly after the position, up to the limit.
    pub fn page(&self, page: &Page) -> Vec<Candidate> {
        let place = |r: &Recipient| place(&Position::of(r));
        let mut found: Vec<&Recipient> = self
            .recipients
            .iter()
            .filter(|r| r.active && reaches(&page.reach, r) && admits(page.roles.as_deref(), r))
            .filter(|r| page.after.as_ref().is_none_or(|after| place(r) > self::place(after)))
            .collect();
        found.sort_by_key(|r| place(r));
        found.into_iter().take(page.limit).map(|r| self.candidate(r)).collect()
    }

    fn candidate(&self, recipient: &Recipient) -> Candidate {
        let own = |p: &&Preference| p.user_type == recipient.user_type && p.user_id == recipient.user_id;
        let preferences = self.preferences.iter().filter(own).cloned().collect();
        Candidate { recipient: recipient.clone(), preferences, dead_addresses: self.dead_addresses.clone() }
    }

    fn group(&self, entity: EntityRef) -> (EntityRef, Group) {
        let own = |s: &&Setting| {
            s.entity_type == entity.entity_type
                && !s.entity_id.is_any()
                && s.entity_id.selects(&entity.entity_id)
        };
        let settings = self.settings.iter().filter(own).cloned().collect();
        let kind = self.kinds.get(&entity).cloned();
        (entity, Group { kind, settings })
    }
}

fn reaches(reach: &Reach, recipient: &Recipient) -> bool {
    match reach {
        Reach::User(user) => recipient.user() == *user,
        Reach::Entity { user_type, entity } => {
            recipient.user_type == *user_type && recipient.entity().as_ref() == Some(entity)
        }
        Reach::Everybody(user_type) => recipient.user_type == *user_type,
    }
}

fn admits(roles: Option<&[String]>, recipient: &Recipient) -> bool {
    roles.is_none_or(|roles| recipient.role.as_ref().is_some_and(|role| roles.contains(role)))
}

fn place(position: &Position) -> (String, i64, String) {
    (position.entity_id.clone(), position.rank, position.user_id.clone())
}

/// The result of a fan-out.
#[derive(Debug)]
pub struct Told {
    pub rows: Vec<OutboxRow>,
    pub decisions: Vec<Decision>,
    /// The groups with a state of their own for the event, and whether it is shared.
    pub entities: BTreeMap<EntityRef, bool>,
    pub result: Result<Summary, Failure>,
    /// The cursors as JSON, in the order of the steps.
    pub cursors: Vec<String>,
}

impl Told {
    /// The considered recipients in order, as `CUSTOMER/42`.
    pub fn considered(&self) -> Vec<String> {
        self.decisions.iter().map(|d| format!("{}/{}", d.user_type, d.user_id)).collect()
    }

    pub fn decision(&self, user: &str) -> &Decision {
        let named = |d: &&Decision| format!("{}/{}", d.user_type, d.user_id) == user;
        self.decisions.iter().find(named).expect("the user was considered")
    }

    pub fn verdict(&self, user: &str, channel: Channel) -> Verdict {
        self.decision(user).channels[&channel]
    }

    /// The verdicts in the order EMAIL, PUSH, SMS, WEBSOCKET, SLACK.
    pub fn verdicts(&self, user: &str) -> [Verdict; 5] {
        use Channel::{Email, Push, Slack, Sms, Websocket};
        [Email, Push, Sms, Websocket, Slack].map(|channel| self.verdict(user, channel))
    }

    pub fn rows_of(&self, user: &str) -> Vec<&OutboxRow> {
        let named = |r: &&OutboxRow| format!("{}/{}", r.recipient.user_type, r.recipient.user_id) == user;
        self.rows.iter().filter(named).collect()
    }

    pub fn queues(&self) -> BTreeSet<&str> {
        self.rows.iter().map(|row| row.queue.as_str()).collect()
    }

    /// The number of inbox entries.
    pub fn notifications(&self) -> usize {
        self.rows.iter().map(|row| row.key.notification_id).collect::<BTreeSet<_>>().len()
    }

    pub fn summary(&self) -> &Summary {
        self.result.as_ref().expect("the fan-out finished")
    }

    pub fn failure(&self) -> &Failure {
        self.result.as_ref().expect_err("the fan-out failed")
    }
}

/// A waiter of restaurant 5 with every address.
pub fn staff(user_id: &str) -> Value {
    everywhere(json!({
        "user_type": "RESTAURANT_USER", "user_id": user_id,
        "entity_type": "RESTAURANT", "entity_id": "5", "role": "WAITER",
    }))
}

pub fn manager(user_id: &str) -> Value {
    with(staff(user_id), &json!({"role": "MANAGER"}))
}

/// An agent of agency 10 with every address.
pub fn agent(user_id: &str) -> Value {
    everywhere(json!({
        "user_type": "AGENCY_USER", "user_id": user_id,
        "entity_type": "AGENCY", "entity_id": "10", "role": "AGENT",
    }))
}

pub fn customer(user_id: &str) -> Value {
    everywhere(json!({"user_type": "CUSTOMER", "user_id": user_id}))
}

pub fn admin(user_id: &str) -> Value {
    everywhere(json!({"user_type": "ADMIN_USER", "user_id": user_id, "role": "ADMIN"}))
}

fn everywhere(person: Value) -> Value {
    let id = person["user_id"].as_str().unwrap_or_default().to_owned();
    let addresses = json!({
        "email": format!("{id}@example.com"),
        "phone": format!("+3900000{id}"),
        "push_tokens": [format!("token-{id}")],
        "slack_webhook": format!("https://slack.example/{id}"),
    });
    with(person, &addresses)
}

/// The row with some of its fields replaced.
pub fn with(mut row: Value, changes: &Value) -> Value {
    for (field, value) in changes.as_object().into_iter().flatten() {
        row[field] = value.clone();
    }
    row
}

/// A setting of restaurant 5 for one channel, enabled by default.
pub fn restaurant_setting(channel: Channel, changes: &Value) -> Value {
    with(json!({"entity_type": "RESTAURANT", "entity_id": "5", "channel": channel}), changes)
}

/// A preference of restaurant user 1 for one channel, enabled by default.
pub fn first_staff_preference(channel: Channel, changes: &Value) -> Value {
    with(json!({"user_type": "RESTAURANT_USER", "user_id": "1", "channel": channel}), changes)
}

pub fn event(event_type: &str, aggregate_type: &str, aggregate_id: &str, payload: &Value) -> Event {
    let new: NewEvent = serde_json::from_value(json!({
        "event_id": "evt-1", "event_type": event_type,
        "aggregate_type": aggregate_type, "aggregate_id": aggregate_id, "payload": payload,
    }))
    .expect("the event could be accepted");
    new.at(moment(AFTERNOON))
}

pub fn urgent(event: Event, priority: Priority) -> Event {
    Event { priority: Some(priority), ..event }
}

pub fn entity(entity_type: &str, entity_id: &str) -> EntityRef {
    serde_json::from_value(json!({"entity_type": entity_type, "entity_id": entity_id}))
        .expect("an entity has a type and an id")
}

pub fn moment(text: &str) -> Timestamp {
    text.parse().expect("the test names a moment")
}
