//! The preferences of one user, as the user sees them: what may be chosen for each event type and channel, what was
//! chosen, and what the rules decide now.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::channel::Channel;
use crate::event::Event;
use crate::event::payload::Payload;
use crate::id::{EventId, EventType, UserRef};
use crate::people::recipient::{Candidate, Group};
use crate::priority::Priority;
use crate::rules::Rules;
use crate::rules::decide::{Situation, Tally, decide};
use crate::rules::decision::{Decision, Verdict};
use crate::rules::quiet_hours::{HourMinute, QuietHoursMode};
use crate::rules::row::{EventTypeSelector, FieldError, Preference, Scope, Selector, yes};
use crate::time::Timestamp;

/// What a user chooses for one event type and channel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({ "event_type": "*", "channel": Channel::ALL[0], "enabled": true }))]
pub struct Choice {
    /// `*` counts for every event type without a choice of its own.
    #[serde(default)]
    #[schema(value_type = EventTypeSelector)]
    pub event_type: Selector<EventType>,
    pub channel: Channel,
    #[serde(default = "yes")]
    pub enabled: bool,
    /// Less urgent events are not told over this channel.
    #[serde(default)]
    pub min_priority: Option<Priority>,
    /// Local time of the user.
    #[serde(default)]
    pub quiet_hours_start: Option<HourMinute>,
    #[serde(default)]
    pub quiet_hours_end: Option<HourMinute>,
    #[serde(default)]
    pub quiet_hours_mode: QuietHoursMode,
}

/// Why the user cannot switch a channel off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum Lock {
    /// The route of the event type is mandatory.
    Mandatory,
    /// The event is for a whole team, whatever its members chose.
    Team,
}

/// A choice, and what follows from it.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct EffectiveChoice {
    #[serde(flatten)]
    pub choice: Choice,
    /// Whether the user chose it for this event type. Otherwise it is the choice for `*`, or the default.
    pub own: bool,
    /// Why the channel cannot be switched off. Null if it can.
    pub locked: Option<Lock>,
    /// What is decided now for an event of this type: `SEND`, or why not.
    pub effective: Verdict,
}

impl Choice {
    /// The row of this choice.
    pub fn of(self, user: UserRef) -> Preference {
        Preference {
            user_type: user.user_type,
            user_id: user.user_id,
            channel: self.channel,
            event_type: self.event_type,
            enabled: self.enabled,
            min_priority: self.min_priority,
            quiet_hours_start: self.quiet_hours_start,
            quiet_hours_end: self.quiet_hours_end,
            quiet_hours_mode: self.quiet_hours_mode,
        }
    }

    /// Refuses to switch off what is locked: it would have no effect.
    pub fn check_lock(&self, rules: &Rules, user: &UserRef) -> Result<(), FieldError> {
        if self.enabled {
            return Ok(());
        }
        let scope = rules.scope_for(&self.event_type, &user.user_type);
        match lock(rules, &self.event_type, self.channel, scope) {
            None => Ok(()),
            Some(Lock::Mandatory) => {
                let detail = format!("{} is mandatory for {}", self.channel, self.event_type);
                Err(FieldError::new("enabled", detail))
            }
            Some(Lock::Team) => {
                let detail =
                    format!("{} is for the whole team, whatever its members choose", self.event_type);
                Err(FieldError::new("enabled", detail))
            }
        }
    }
}

/// Every event type that may concern the user, with each channel that it may come over.
pub fn effective_choices(
    rules: &Rules,
    candidate: &Candidate,
    group: &Group,
    now: Timestamp,
) -> Vec<EffectiveChoice> {
    let user = candidate.recipient.user();
    let mut choices = Vec::new();
    for event_type in rules.event_types_for(&user.user_type) {
        let scope = rules.scope_for(&event_type, &user.user_type);
        let event = example(&event_type, now);
        let situation = Situation { rules, event: &event, now };
        let member_of = candidate.recipient.group();
        let rulings = decide(situation, candidate, &member_of, group, scope, &mut Tally::default());
        let Decision { channels, .. } = Decision::new(&candidate.recipient, rulings, "");
        for (channel, effective) in channels {
            if matches!(effective, Verdict::NotRouted | Verdict::Unsupported) {
                continue;
            }
            let (choice, own) = chosen(candidate, &event_type, channel);
            let locked = lock(rules, &event_type, channel, scope);
            choices.push(EffectiveChoice { choice, own, locked, effective });
        }
    }
    choices
}

/// The user's choice for this event type, else that for `*`, else the default.
fn chosen(candidate: &Candidate, event_type: &Selector<EventType>, channel: Channel) -> (Choice, bool) {
    let of = |wanted: &Selector<EventType>| {
        candidate.preferences.iter().find(|row| row.channel == channel && row.event_type == *wanted)
    };
    let own = of(event_type);
    let row = own.or_else(|| of(&Selector::Any));
    let choice = Choice {
        event_type: event_type.clone(),
        channel,
        enabled: row.is_none_or(|row| row.enabled),
        min_priority: row.and_then(|row| row.min_priority),
        quiet_hours_start: row.and_then(|row| row.quiet_hours_start),
        quiet_hours_end: row.and_then(|row| row.quiet_hours_end),
        quiet_hours_mode: row.map(|row| row.quiet_hours_mode).unwrap_or_default(),
    };
    (choice, own.is_some())
}

fn lock(rules: &Rules, event_type: &Selector<EventType>, channel: Channel, scope: Scope) -> Option<Lock> {
    let route = rules.routes(&name_of(event_type)).and_then(|routes| routes.get(channel).as_ref());
    if route.is_some_and(|route| route.mandatory) {
        return Some(Lock::Mandatory);
    }
    (scope == Scope::Team).then_some(Lock::Team)
}

/// An event type without rows of its own has the routes of `*`.
fn name_of(event_type: &Selector<EventType>) -> EventType {
    EventType::stored(event_type.to_string())
}

/// An event of this type, of usual priority.
fn example(event_type: &Selector<EventType>, now: Timestamp) -> Event {
    Event {
        event_id: EventId::stored("preferences"),
        event_type: name_of(event_type),
        aggregate_type: String::new(),
        aggregate_id: String::new(),
        payload: Payload::default(),
        priority: None,
        occurred_at: None,
        created_at: now,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::people::user_type::UserTypes;
    use crate::rules::RuleRows;

    fn rows<T: serde::de::DeserializeOwned>(rows: Value) -> Vec<T> {
        serde_json::from_value(rows).unwrap()
    }

    fn rules() -> Rules {
        let rows = RuleRows {
            audiences: rows(json!([
                { "event_type": "NEWS", "name": "all", "recipient_type": "CUSTOMER" },
                { "event_type": "ALARM", "name": "staff", "recipient_type": "RESTAURANT_USER", "scope": "TEAM" },
            ])),
            routing: rows(json!([
                { "event_type": "*", "channel": "EMAIL" },
                { "event_type": "*", "channel": "WEBSOCKET", "mandatory": true },
                { "event_type": "ORDER", "channel": "SMS" },
            ])),
            ..RuleRows::default()
        };
        Rules::new(UserTypes::default(), rows).0
    }

    fn candidate(preferences: Value) -> Candidate {
        let recipient = json!({
            "user_type": "RESTAURANT_USER", "user_id": "1", "email": "anna@example.com", "phone": "+390550100001",
        });
        Candidate {
            recipient: serde_json::from_value(recipient).unwrap(),
            preferences: rows(preferences),
            dead_addresses: Vec::new(),
        }
    }

    /// Event type, channel, enabled, own, locked, effective.
    type Seen = (String, &'static str, bool, bool, Option<Lock>, Verdict);

    fn seen(preferences: Value) -> Vec<Seen> {
        let choices =
            effective_choices(&rules(), &candidate(preferences), &Group::default(), Timestamp::UNIX_EPOCH);
        let row = |it: EffectiveChoice| {
            let EffectiveChoice { choice, own, locked, effective } = it;
            (choice.event_type.to_string(), choice.channel.as_str(), choice.enabled, own, locked, effective)
        };
        choices.into_iter().map(row).collect()
    }

    #[test]
    fn a_user_sees_what_may_concern_them_and_what_is_locked() {
        let (mandatory, team) = (Some(Lock::Mandatory), Some(Lock::Team));
        let row = |event_type: &str, channel, locked| {
            (event_type.to_owned(), channel, true, false, locked, Verdict::Send)
        };
        assert_eq!(
            seen(json!([])),
            [
                row("*", "EMAIL", None),
                row("*", "WEBSOCKET", mandatory),
                row("ALARM", "EMAIL", team),
                row("ALARM", "WEBSOCKET", mandatory),
                row("ORDER", "SMS", None),
            ],
            "NEWS is for customers, and ORDER comes over one channel"
        );
    }

    #[test]
    fn a_choice_for_any_event_type_counts_where_there_is_no_own_one() {
        let preference = |event_type: &str, channel: &str, enabled: bool| {
            json!({ "user_type": "RESTAURANT_USER", "user_id": "1", "event_type": event_type, "channel": channel,
                "enabled": enabled })
        };
        let seen = seen(json!([
            preference("*", "SMS", false),
            preference("*", "EMAIL", false),
            preference("ALARM", "EMAIL", true)
        ]));
        let of = |event_type: &str, channel: &str| {
            let found = seen.iter().find(|row| row.0 == event_type && row.1 == channel).unwrap();
            (found.2, found.3, found.5)
        };
        assert_eq!(of("*", "EMAIL"), (false, true, Verdict::UserOff));
        assert_eq!(of("ORDER", "SMS"), (false, false, Verdict::UserOff));
        assert_eq!(of("ALARM", "EMAIL"), (true, true, Verdict::Send));
    }

    #[test]
    fn what_is_locked_cannot_be_switched_off() {
        let user = candidate(json!([])).recipient.user();
        let check = |event_type: &str, channel: &str, enabled: bool| {
            let choice = json!({ "event_type": event_type, "channel": channel, "enabled": enabled });
            serde_json::from_value::<Choice>(choice)
                .unwrap()
                .check_lock(&rules(), &user)
                .map_err(|error| error.field)
        };
        assert_eq!(check("*", "WEBSOCKET", false), Err("enabled".to_owned()));
        assert_eq!(check("ALARM", "EMAIL", false), Err("enabled".to_owned()));
        assert_eq!(check("*", "WEBSOCKET", true), Ok(()));
        assert_eq!(check("*", "EMAIL", false), Ok(()));
    }
}
