//! Properties that hold for every world: laws of verdicts, of counts, and of fan-outs in steps. The rules are looked up
//! here by independent code, so that a law does not repeat the code that it tests.

mod random;
#[expect(dead_code, reason = "each test file takes what it needs of the world")]
mod support;

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::{ProptestConfig, prop_assert, prop_assert_eq, proptest};
use proptest::test_runner::TestCaseError;

use campanile_domain::channel::{AddressSource, Channel, RecipientColumn};
use campanile_domain::fan_out::OutboxRow;
use campanile_domain::id::{EntityRef, UserRef};
use campanile_domain::people::recipient::Recipient;
use campanile_domain::priority::Priority;
use campanile_domain::rules::decision::{Decision, Verdict};
use campanile_domain::rules::row::{Preference, Route, Scope, Selector, Setting};
use campanile_domain::rules::{Reach, Target};

use random::{Case, cases};
use support::Told;

/// Verdicts that may suppress even a mandatory channel.
const BEYOND_MANDATORY: [Verdict; 7] = [
    Verdict::Unsupported,
    Verdict::NoAddress,
    Verdict::DeadAddress,
    Verdict::Role,
    Verdict::LowPriority,
    Verdict::QuietHours,
    Verdict::MaxRecipients,
];

impl Case {
    fn told(&self) -> Told {
        self.world.fan_out_by(100_000, &self.event, self.now)
    }

    fn recipient(&self, user: &UserRef) -> &Recipient {
        self.world.recipients.iter().find(|r| r.user() == *user).expect("only people are told")
    }

    /// The audiences of a recipient, in order.
    fn targets_of(&self, recipient: &Recipient) -> Vec<&Target> {
        let reached = |target: &&Target| match &target.reach {
            Reach::User(user) => recipient.user() == *user,
            Reach::Entity { user_type, entity } => {
                recipient.user_type == *user_type && recipient.entity().as_ref() == Some(entity)
            }
            Reach::Everybody(user_type) => recipient.user_type == *user_type,
        };
        let role = recipient.role.clone().unwrap_or_default();
        let admitted = |target: &&Target| target.roles.as_ref().is_none_or(|roles| roles.contains(&role));
        self.targets.iter().filter(|t| recipient.active && reached(t) && admitted(t)).collect()
    }

    /// Whether any audience of the recipient is a team.
    fn scope(&self, recipient: &Recipient) -> Scope {
        self.targets_of(recipient).iter().map(|t| t.scope).min().unwrap_or_default()
    }

    fn route(&self, channel: Channel) -> Option<&Route> {
        let own = Selector::Only(self.event.event_type.clone());
        let has_own = self.world.routes.iter().any(|route| route.event_type == own);
        let event_type = if has_own { own } else { Selector::Any };
        self.world.routes.iter().find(|route| route.event_type == event_type && route.channel == channel)
    }

    fn priority(&self, channel: Channel) -> Priority {
        let routed = self.route(channel).and_then(|route| route.priority);
        self.event.priority.or(routed).unwrap_or(Priority::Normal)
    }

    /// Tries the keys one by one, the most specific first.
    fn setting(&self, entity: &EntityRef, channel: Channel) -> Option<&Setting> {
        let kind = self.world.kinds.get(entity).cloned().map_or(Selector::Any, Selector::Only);
        let own = Selector::Only(entity.entity_id.clone());
        let groups = [(own, Selector::Any), (Selector::Any, kind), (Selector::Any, Selector::Any)];
        let event_types = [Selector::Only(self.event.event_type.clone()), Selector::Any];
        let keys =
            groups.iter().flat_map(|group| event_types.iter().map(move |event_type| (group, event_type)));
        keys.into_iter().find_map(|((entity_id, kind), event_type)| {
            self.world.settings.iter().find(|row| {
                (&row.entity_type, row.channel) == (&entity.entity_type, channel)
                    && (&row.entity_id, &row.kind, &row.event_type) == (entity_id, kind, event_type)
            })
        })
    }

    fn preference(&self, user: &UserRef, channel: Channel) -> Option<&Preference> {
        [Selector::Only(self.event.event_type.clone()), Selector::Any].iter().find_map(|event_type| {
            self.world.preferences.iter().find(|row| {
                (&row.user_type, &row.user_id) == (&user.user_type, &user.user_id)
                    && (row.channel, &row.event_type) == (channel, event_type)
            })
        })
    }

    fn living_addresses(&self, recipient: &Recipient, channel: Channel) -> Vec<String> {
        let addresses: Vec<String> = match channel.facts().address {
            AddressSource::Column(RecipientColumn::Email) => recipient.email.clone().into_iter().collect(),
            AddressSource::Column(RecipientColumn::PushTokens) => recipient.push_tokens.clone(),
            AddressSource::Column(RecipientColumn::Phone) => recipient.phone.clone().into_iter().collect(),
            AddressSource::Column(RecipientColumn::SlackWebhook) => {
                recipient.slack_webhook.clone().into_iter().collect()
            }
            AddressSource::None => vec![String::new()],
            // No random recipient has an entry.
            AddressSource::Entry => Vec::new(),
        };
        let dead: Vec<(Channel, &str)> =
            self.world.dead_addresses.iter().map(|d| (d.channel, d.address.as_str())).collect();
        let mut seen = BTreeSet::new();
        let counts =
            |address: &String| !dead.contains(&(channel, address.as_str())) && seen.insert(address.clone());
        addresses.into_iter().filter(counts).collect()
    }
}

fn user(decision: &Decision) -> UserRef {
    UserRef { user_type: decision.user_type.clone(), user_id: decision.user_id.clone() }
}

/// The contents of a row without its random id.
fn content(row: &OutboxRow) -> (UserRef, Channel, [String; 5], bool) {
    let texts =
        [&row.address, &row.title, &row.audience, &row.queue.to_string(), &row.priority.as_str().to_owned()];
    (row.recipient.clone(), row.key.channel, texts.map(Clone::clone), row.shared_read)
}

/// The recipients that get a channel, by group and channel, in the order in which they were considered.
fn members_sent(case: &Case, told: &Told, verdict: Verdict) -> BTreeMap<(EntityRef, Channel), Vec<UserRef>> {
    let mut members: BTreeMap<_, Vec<UserRef>> = BTreeMap::new();
    for decision in &told.decisions {
        let entity = case.recipient(&user(decision)).group();
        for (channel, _) in decision.channels.iter().filter(|(_, given)| **given == verdict) {
            members.entry((entity.clone(), *channel)).or_default().push(user(decision));
        }
    }
    members
}

type Law = Result<(), TestCaseError>;

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn everybody_in_an_audience_has_exactly_one_verdict_for_each_channel(case in cases()) {
        let told = case.told();
        let considered: Vec<UserRef> = told.decisions.iter().map(user).collect();
        let distinct: BTreeSet<UserRef> = considered.iter().cloned().collect();
        prop_assert_eq!(distinct.len(), considered.len(), "nobody is considered twice");
        let concerned: BTreeSet<UserRef> = case
            .world
            .recipients
            .iter()
            .filter(|r| !case.targets_of(r).is_empty())
            .map(Recipient::user)
            .collect();
        prop_assert_eq!(distinct, concerned);
        for decision in &told.decisions {
            prop_assert_eq!(decision.channels.keys().copied().collect::<Vec<_>>(), Channel::ALL);
        }
    }

    #[test]
    fn rows_are_what_was_decided_and_nobody_is_told_twice(case in cases()) {
        let told = case.told();
        let decided = told.decisions.iter().flat_map(|decision| {
            let sent = decision.channels.iter().filter(|(_, verdict)| **verdict == Verdict::Send);
            sent.map(|(channel, _)| (user(decision), *channel)).collect::<Vec<_>>()
        });
        let rows: Vec<_> = told.rows.iter().map(|row| (row.recipient.clone(), row.key.channel)).collect();
        prop_assert_eq!(&rows, &decided.collect::<Vec<_>>());
        prop_assert_eq!(rows.iter().cloned().collect::<BTreeSet<_>>().len(), rows.len());
        let of_users: BTreeSet<_> =
            told.rows.iter().map(|row| (&row.recipient, row.key.notification_id)).collect();
        let users: BTreeSet<_> = told.rows.iter().map(|row| &row.recipient).collect();
        prop_assert_eq!(of_users.len(), users.len(), "one notification for each user");
        prop_assert_eq!(told.notifications(), users.len(), "and for no other");
    }

    #[test]
    fn whoever_is_in_a_team_is_told_as_its_member(case in cases()) {
        for decision in &case.told().decisions {
            let targets = case.targets_of(case.recipient(&user(decision)));
            let team = targets.iter().find(|target| target.scope == Scope::Team);
            let told_by = team.or(targets.first()).map(|target| target.audience.clone());
            prop_assert_eq!(Some(decision.audience.clone()), told_by);
        }
    }

    #[test]
    fn mandatory_is_sent_unless_a_reason_that_may_exclude_it_holds(case in cases()) {
        for decision in &case.told().decisions {
            for (channel, verdict) in &decision.channels {
                if case.route(*channel).is_some_and(|route| route.mandatory) {
                    let excluded = BEYOND_MANDATORY.contains(verdict);
                    prop_assert!(*verdict == Verdict::Send || excluded, "{channel} is {verdict:?}");
                }
            }
        }
    }

    #[test]
    fn each_reason_that_is_given_is_true(case in cases()) {
        for decision in &case.told().decisions {
            for (channel, verdict) in &decision.channels {
                reason_is_true(&case, &user(decision), *channel, *verdict)?;
            }
        }
    }

    #[test]
    fn nothing_optional_is_sent_that_group_or_user_switched_off(case in cases()) {
        for row in case.told().rows {
            let channel = row.key.channel;
            let recipient = case.recipient(&row.recipient);
            if case.route(channel).is_some_and(|route| route.mandatory) {
                continue;
            }
            let setting = case.setting(&recipient.group(), channel);
            prop_assert!(setting.is_none_or(|setting| setting.enabled), "{channel} is off in the group");
            let preference = case.preference(&row.recipient, channel);
            let on = preference.is_none_or(|preference| preference.enabled);
            prop_assert!(on || case.scope(recipient) == Scope::Team, "{channel} is off for the user");
        }
    }

    #[test]
    fn what_is_sent_is_routed_supported_and_has_a_living_address(case in cases()) {
        for row in case.told().rows {
            let channel = row.key.channel;
            prop_assert!(case.route(channel).is_some());
            let user_type = case.world.user_types.get(&row.recipient.user_type).expect("it is configured");
            prop_assert!(user_type.channels.contains(&channel));
            let living = case.living_addresses(case.recipient(&row.recipient), channel);
            prop_assert!(!living.is_empty());
            prop_assert_eq!(&row.address, &living.join(" "));
            prop_assert_eq!(row.priority, case.priority(channel));
            let twin = row.queue.is_urgent();
            prop_assert_eq!(twin, row.priority == Priority::High);
        }
    }

    #[test]
    fn what_is_sent_is_not_below_the_threshold_nor_kept_by_role_or_quiet_hours(case in cases()) {
        for row in case.told().rows {
            for verdict in [Verdict::Role, Verdict::LowPriority, Verdict::QuietHours] {
                let holds = reason_is_true(&case, &row.recipient, row.key.channel, verdict).is_ok();
                prop_assert!(!holds, "{} to {:?} is {verdict:?}", row.key.channel, row.recipient);
            }
        }
    }

    #[test]
    fn no_entity_gets_a_channel_more_often_than_it_allows(case in cases()) {
        let told = case.told();
        let sent = members_sent(&case, &told, Verdict::Send);
        for ((entity, channel), members) in &sent {
            if let Some(max) = case.setting(entity, *channel).and_then(|setting| setting.max_recipients) {
                prop_assert!(members.len() <= max as usize, "{members:?} got {channel}, {max} are allowed");
            }
        }
        for ((entity, channel), _) in members_sent(&case, &told, Verdict::MaxRecipients) {
            let max = case.setting(&entity, channel).and_then(|setting| setting.max_recipients);
            let members = sent.get(&(entity, channel)).map_or(0, Vec::len);
            prop_assert_eq!(Some(members), max.map(|max| max as usize), "nobody is kept out without need");
        }
    }

    #[test]
    fn within_one_audience_nobody_is_preferred_to_somebody_who_ranks_before(case in cases()) {
        let told = case.told();
        let sent = members_sent(&case, &told, Verdict::Send);
        let place = |user: &UserRef| (case.recipient(user).rank(), user.user_id.clone());
        for ((entity, channel), kept_out) in members_sent(&case, &told, Verdict::MaxRecipients) {
            for first in sent.get(&(entity, channel)).into_iter().flatten() {
                for second in &kept_out {
                    let audience = |user: &UserRef| {
                        told.decision(&format!("{}/{}", user.user_type, user.user_id)).audience.clone()
                    };
                    let comparable = audience(first) == audience(second);
                    prop_assert!(!comparable || place(first) < place(second), "{first:?}, not {second:?}");
                }
            }
        }
    }

    #[test]
    fn the_size_of_the_steps_changes_nothing(mut case in cases()) {
        let whole = case.world.fan_out_by(1_000, &case.event, case.now);
        for (room, is_slow) in [(1, false), (2, false), (7, false), (7, true)] {
            case.world.is_slow = is_slow;
            let steps = case.world.fan_out_by(room, &case.event, case.now);
            let contents = |told: &Told| told.rows.iter().map(content).collect::<Vec<_>>();
            prop_assert_eq!(contents(&steps), contents(&whole), "{} at a time", room);
            prop_assert_eq!(&steps.decisions, &whole.decisions, "{} at a time", room);
            prop_assert_eq!(&steps.result, &whole.result, "{} at a time", room);
        }
    }

    #[test]
    fn counts_add_up(case in cases()) {
        let told = case.told();
        let Ok(summary) = &told.result else {
            prop_assert!(told.decisions.is_empty() && told.rows.is_empty());
            return Ok(());
        };
        let of_channel = |channel| Verdict::ALL.map(|verdict| summary.counts.get(channel, verdict));
        let sum: u64 = Channel::ALL.into_iter().flat_map(of_channel).sum();
        prop_assert_eq!(sum, summary.recipients * Channel::ALL.len() as u64);
        prop_assert_eq!(summary.recipients, told.decisions.len() as u64);
        prop_assert_eq!(summary.sends, told.rows.len() as u64);
        for channel in Channel::ALL {
            for verdict in Verdict::ALL {
                let given = told.decisions.iter().filter(|d| d.channels[&channel] == verdict).count();
                prop_assert_eq!(summary.counts.get(channel, verdict), given as u64);
            }
        }
    }
}

/// Whether the reason of a verdict holds. Other laws cover sends and full groups.
fn reason_is_true(case: &Case, user: &UserRef, channel: Channel, verdict: Verdict) -> Law {
    let recipient = case.recipient(user);
    let setting = case.setting(&recipient.group(), channel);
    let preference = case.preference(user, channel);
    let personal = case.scope(recipient) == Scope::Personal;
    let priority = case.priority(channel);
    let zone = recipient.time_zone.as_ref().map_or("UTC", |zone| zone.name());
    let quiet = || {
        let hours = [preference.and_then(Preference::quiet_hours), setting.and_then(Setting::quiet_hours)];
        let local = case.now.in_tz(zone).expect("the zone exists").strftime("%H:%M").to_string();
        hours.into_iter().flatten().any(|hours| {
            let (start, end) = (hours.start.to_string(), hours.end.to_string());
            if start < end { start <= local && local < end } else { start <= local || local < end }
        })
    };
    let true_so = match verdict {
        Verdict::Send | Verdict::MaxRecipients => true,
        Verdict::NotRouted => case.route(channel).is_none(),
        Verdict::GroupOff => setting.is_some_and(|setting| !setting.enabled),
        Verdict::UserOff => personal && preference.is_some_and(|preference| !preference.enabled),
        Verdict::Unsupported => {
            let user_type = case.world.user_types.get(&user.user_type);
            user_type.is_some_and(|user_type| !user_type.channels.contains(&channel))
        }
        Verdict::NoAddress => recipient.addresses_of(channel, None).is_empty(),
        Verdict::DeadAddress => {
            !recipient.addresses_of(channel, None).is_empty()
                && case.living_addresses(recipient, channel).is_empty()
        }
        Verdict::Role => setting
            .and_then(|setting| setting.roles.as_ref())
            .is_some_and(|roles| recipient.role.as_ref().is_none_or(|role| !roles.contains(role))),
        Verdict::LowPriority => {
            let of_user = preference.filter(|_| personal).and_then(|preference| preference.min_priority);
            let of_rules = [
                case.route(channel).and_then(|route| route.min_priority),
                setting.and_then(|setting| setting.min_priority),
            ];
            of_rules.into_iter().chain([of_user]).flatten().any(|min| min > priority)
        }
        Verdict::QuietHours => {
            let rings = channel.facts().heeds_quiet_hours;
            rings && priority != Priority::High && quiet()
        }
    };
    prop_assert!(true_so, "{} to {:?} is not {:?}", channel, user, verdict);
    Ok(())
}
