//! Decides over which channels a recipient gets an event. The functions are pure: rules, rows and time are arguments.
//! The checks run in the order of the verdicts, and the first one that applies is the verdict.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::channel::{Channel, PerChannel};
use crate::event::Event;
use crate::id::{EntityId, EntityRef, EntityType};
use crate::people::recipient::{Candidate, Group};
use crate::priority::Priority;
use crate::rules::Rules;
use crate::rules::decision::{Ruling, Rulings, Verdict};
use crate::rules::quiet_hours::Zone;
use crate::rules::row::{Preference, Route, Scope, Setting};
use crate::time::Timestamp;

/// What all recipients of an event have in common.
#[derive(Debug, Clone, Copy)]
pub struct Situation<'a> {
    pub rules: &'a Rules,
    pub event: &'a Event,
    pub now: Timestamp,
}

impl Situation<'_> {
    /// The channels that have a route for the event.
    pub fn routed(&self) -> PerChannel<bool> {
        let routes = self.rules.routes(&self.event.event_type);
        PerChannel::from_fn(|channel| routes.is_some_and(|routes| routes.get(channel).is_some()))
    }
}

/// How many members of a group have got a channel so far; `max_recipients` limits this number.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Tally(BTreeMap<EntityType, BTreeMap<EntityId, BTreeMap<Channel, u32>>>);

impl Tally {
    /// Drops the counts of groups that no later page can contain, so that a cursor stays small.
    pub fn keep(&mut self, may_come_again: impl Fn(&EntityType, &EntityId) -> bool) {
        for (entity_type, entities) in &mut self.0 {
            entities.retain(|entity_id, _| may_come_again(entity_type, entity_id));
        }
        self.0.retain(|_, entities| !entities.is_empty());
    }

    fn count(&mut self, group: &EntityRef, channel: Channel) -> &mut u32 {
        let entities = self.0.entry(group.entity_type.clone()).or_default();
        entities.entry(group.entity_id.clone()).or_default().entry(channel).or_default()
    }
}

/// Decides all channels of one recipient. `group` belongs to the recipient's
/// [`group`](crate::people::recipient::Recipient::group). Recipients must come in rank order, because the tally grants
/// `max_recipients` to the first ones.
pub fn decide(
    situation: Situation<'_>,
    candidate: &Candidate,
    member_of: &EntityRef,
    group: &Group,
    scope: Scope,
    tally: &mut Tally,
) -> Rulings {
    let routes = situation.rules.routes(&situation.event.event_type);
    let channels = PerChannel::from_fn(|channel| {
        let route = routes.and_then(|routes| routes.get(channel).as_ref());
        let question = Question::new(situation, candidate, group, scope, channel, member_of, route);
        question.answer(tally)
    });
    Rulings { user: candidate.recipient.user(), channels }
}

/// One recipient, one channel, one event: whether to send.
struct Question<'a> {
    situation: Situation<'a>,
    candidate: &'a Candidate,
    scope: Scope,
    channel: Channel,
    member_of: &'a EntityRef,
    route: Option<&'a Route>,
    setting: Option<&'a Setting>,
    preference: Option<&'a Preference>,
    priority: Priority,
}

impl<'a> Question<'a> {
    fn new(
        situation: Situation<'a>,
        candidate: &'a Candidate,
        group: &'a Group,
        scope: Scope,
        channel: Channel,
        member_of: &'a EntityRef,
        route: Option<&'a Route>,
    ) -> Self {
        let event = situation.event;
        Question {
            situation,
            candidate,
            scope,
            channel,
            member_of,
            route,
            setting: applicable_setting(situation, group, member_of, channel),
            preference: applicable_preference(candidate, event, channel),
            // The event's own priority, else the route's, else `NORMAL`.
            priority: event.priority.or_else(|| route?.priority).unwrap_or_default(),
        }
    }

    fn answer(&self, tally: &mut Tally) -> Ruling {
        let address = match self.address() {
            Ok(address) => address,
            Err(objection) => return objection,
        };
        let objection = self.wrong_role().or_else(|| self.low_priority()).or_else(|| self.quiet_hours());
        if let Some(objection) = objection.or_else(|| self.beyond_max_recipients(tally)) {
            return objection;
        }
        Ruling::Send { address, priority: self.priority }
    }

    /// A usable address, if the channel is routed, switched on and supported.
    fn address(&self) -> Result<String, Ruling> {
        if let Some(objection) =
            self.not_routed().or_else(|| self.switched_off()).or_else(|| self.unsupported())
        {
            return Err(objection);
        }
        let Candidate { recipient, .. } = self.candidate;
        let default_webhook = self.situation.rules.user_types.default_webhook(&recipient.user_type);
        let addresses = recipient.addresses_of(self.channel, default_webhook);
        if addresses.is_empty() {
            return Err(not(Verdict::NoAddress, Value::Null));
        }
        let dead = |address: &str| {
            self.candidate.dead_addresses.iter().find(|d| d.channel == self.channel && d.address == address)
        };
        let living: Vec<&str> = addresses.iter().copied().filter(|address| dead(address).is_none()).collect();
        if living.is_empty() {
            let reason = addresses.first().and_then(|address| dead(address)).map(|d| d.reason.clone());
            return Err(not(Verdict::DeadAddress, json!({ "rule": "dead_address", "reason": reason })));
        }
        Ok(living.join(" "))
    }

    fn not_routed(&self) -> Option<Ruling> {
        self.route.is_none().then(|| not(Verdict::NotRouted, Value::Null))
    }

    /// Whether the group or the user has switched the channel off. Mandatory routes cannot be switched off, and the
    /// scope `TEAM` ignores the user's choice.
    fn switched_off(&self) -> Option<Ruling> {
        if self.route.is_some_and(|route| route.mandatory) {
            return None;
        }
        if let Some(setting) = self.setting.filter(|setting| !setting.enabled) {
            return Some(not(Verdict::GroupOff, by_setting(setting)));
        }
        let preference = self.users_choice().filter(|preference| !preference.enabled)?;
        Some(not(Verdict::UserOff, by_preference(preference)))
    }

    fn unsupported(&self) -> Option<Ruling> {
        let user_type = &self.candidate.recipient.user_type;
        let supported = self
            .situation
            .rules
            .user_types
            .get(user_type)
            .is_some_and(|t| t.channels.contains(&self.channel));
        (!supported)
            .then(|| not(Verdict::Unsupported, json!({ "rule": "user_types", "user_type": user_type })))
    }

    fn wrong_role(&self) -> Option<Ruling> {
        let setting = self.setting?;
        let roles = setting.roles.as_ref()?;
        let role = self.candidate.recipient.role.as_ref();
        if role.is_some_and(|role| roles.contains(role)) {
            return None;
        }
        Some(not(Verdict::Role, with(by_setting(setting), "roles", json!(roles))))
    }

    /// Whether the event's priority is below a threshold: the route's, the group's or the user's, in this order.
    fn low_priority(&self) -> Option<Ruling> {
        let above = |min: Option<Priority>| min.filter(|min| self.priority < *min);
        let of_route = || self.route.and_then(|r| Some((above(r.min_priority)?, by_route(r))));
        let of_group = || self.setting.and_then(|s| Some((above(s.min_priority)?, by_setting(s))));
        let of_user = || self.users_choice().and_then(|p| Some((above(p.min_priority)?, by_preference(p))));
        let (min, because) = of_route().or_else(of_group).or_else(of_user)?;
        let because = with(because, "min_priority", json!(min));
        Some(not(Verdict::LowPriority, with(because, "priority", json!(self.priority))))
    }

    fn quiet_hours(&self) -> Option<Ruling> {
        if !self.channel.facts().heeds_quiet_hours || self.priority == Priority::High {
            return None;
        }
        let of_user = self.preference.and_then(|p| Some((p.quiet_hours()?, by_preference(p))));
        let of_group = self.setting.and_then(|s| Some((s.quiet_hours()?, by_setting(s))));
        if of_user.is_none() && of_group.is_none() {
            return None;
        }
        let zone = self.candidate.recipient.time_zone.clone().unwrap_or_else(Zone::utc);
        let (hours, because) = [of_user, of_group]
            .into_iter()
            .flatten()
            .find(|(hours, _)| hours.hold(self.situation.now, zone.tz()))?;
        let because = with(because, "quiet_hours", json!(format!("{}-{}", hours.start, hours.end)));
        Some(not(Verdict::QuietHours, with(because, "time_zone", json!(zone))))
    }

    /// Whether `max_recipients` is reached. This check counts the recipient, so it must come last.
    fn beyond_max_recipients(&self, tally: &mut Tally) -> Option<Ruling> {
        let setting = self.setting?;
        let max = setting.max_recipients?;
        let count = tally.count(self.member_of, self.channel);
        if *count < max {
            *count += 1;
            return None;
        }
        Some(not(Verdict::MaxRecipients, with(by_setting(setting), "max_recipients", json!(max))))
    }

    /// The user's preference, unless the scope ignores it.
    fn users_choice(&self) -> Option<&'a Preference> {
        match self.scope {
            Scope::Team => None,
            Scope::Personal => self.preference,
        }
    }
}

/// The most specific setting: entity before kind before `*`, then event type before `*`. The chosen row applies as a
/// whole.
fn applicable_setting<'a>(
    situation: Situation<'a>,
    group: &'a Group,
    member_of: &EntityRef,
    channel: Channel,
) -> Option<&'a Setting> {
    let kind_fits = |setting: &Setting| {
        setting.kind.is_any() || group.kind.as_ref().is_some_and(|kind| setting.kind.selects(kind))
    };
    group
        .settings
        .iter()
        .chain(&situation.rules.default_settings)
        .filter(|setting| {
            setting.entity_type == member_of.entity_type
                && setting.entity_id.selects(&member_of.entity_id)
                && kind_fits(setting)
                && setting.channel == channel
                && setting.event_type.selects(&situation.event.event_type)
        })
        .max_by_key(|s| (!s.entity_id.is_any(), !s.kind.is_any(), !s.event_type.is_any()))
}

fn applicable_preference<'a>(
    candidate: &'a Candidate,
    event: &Event,
    channel: Channel,
) -> Option<&'a Preference> {
    candidate
        .preferences
        .iter()
        .filter(|preference| {
            preference.channel == channel && preference.event_type.selects(&event.event_type)
        })
        .max_by_key(|preference| !preference.event_type.is_any())
}

fn not(verdict: Verdict, because: Value) -> Ruling {
    Ruling::Not { verdict, because }
}

fn by_route(route: &Route) -> Value {
    json!({ "rule": "event_type_channel_routing", "event_type": route.event_type })
}

fn by_setting(setting: &Setting) -> Value {
    json!({
        "rule": "entity_notification_settings",
        "entity_type": setting.entity_type,
        "entity_id": setting.entity_id,
        "kind": setting.kind,
        "event_type": setting.event_type,
    })
}

fn by_preference(preference: &Preference) -> Value {
    json!({ "rule": "user_notification_preferences", "event_type": preference.event_type })
}

fn with(mut because: Value, field: &str, value: Value) -> Value {
    because[field] = value;
    because
}
