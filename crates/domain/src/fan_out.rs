//! Turns an event into one outbox row per recipient and channel, a page of recipients at a time.
//!
//! A small event takes one step. A large audience advances by a cursor that is stored with the event, so that a crash
//! neither loses nor repeats recipients. Which channels a recipient gets is decided in `rules`; loading pages is left
//! to the engine.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::channel::PerChannel;
use crate::event::{Event, Failure};
use crate::id::{EntityId, EntityRef, EntityType, EventId, NotificationId, SendKey, UserRef, UserTypeName};
use crate::people::recipient::{Candidate, Group, Recipient};
use crate::people::user_type::Webhook;
use crate::priority::Priority;
use crate::queue::Queue;
use crate::rules::decide::{Situation, Tally, decide};
use crate::rules::decision::{Decision, Rulings, VerdictCounts};
use crate::rules::row::Scope;
use crate::rules::{NO_RECIPIENTS, Reach, Rules, Target};
use crate::send::TEMPLATE_ERROR;
use crate::template::{Renderer, Text};
use crate::time::Timestamp;

/// The most rows of a chunk. The rows of a chunk belong to one queue and are published and confirmed together.
pub const MAX_CHUNK_ROWS: usize = 1_000;
/// Events with more decisions keep only counts.
pub const MAX_DECISIONS: usize = 1_000;

/// A row of the second outbox: one message for one recipient over one channel.
#[derive(Debug, Clone, PartialEq)]
pub struct OutboxRow {
    pub key: SendKey,
    pub event_id: EventId,
    pub recipient: UserRef,
    pub address: String,
    pub title: String,
    pub body: String,
    /// The inbox text, if it differs from this channel's text.
    pub inbox: Option<Text>,
    pub priority: Priority,
    pub audience: String,
    /// The recipient's entity. For shared notifications, the group that shares them.
    pub entity: Option<EntityRef>,
    pub shared_read: bool,
    pub queue: Queue,
    /// Set if the row cannot be sent, for example because its template fails.
    pub failure: Option<Failure>,
}

/// Where a page ended: the next page starts after this recipient of the target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    pub entity_id: String,
    pub rank: i64,
    pub user_id: String,
}

impl Position {
    pub fn of(recipient: &Recipient) -> Self {
        Position {
            entity_id: recipient.entity_id.as_ref().map_or(String::new(), |id| id.as_str().to_owned()),
            rank: recipient.rank(),
            user_id: recipient.user_id.as_str().to_owned(),
        }
    }
}

/// The progress of an event's fan-out.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Cursor {
    /// The current target, identified by its place in the order of the event's targets. `None` before the first one.
    at: Option<(Scope, String, UserTypeName)>,
    after: Option<Position>,
    /// Finished targets. Their recipients have been considered, unlike those of a target that was added to the rules
    /// meanwhile.
    #[serde(default)]
    walked: Vec<Target>,
    tally: Tally,
    pub summary: Summary,
}

impl Cursor {
    /// Whether recipients were considered already, so that rows may have been written.
    pub fn has_begun(&self) -> bool {
        *self != Cursor::default()
    }

    /// The text that the stored cursor must still have for a step that goes on from it. `stored` is the text that the
    /// claim read: another release may write the same cursor with other words.
    pub fn stored_text(&self, stored: Option<&str>) -> String {
        let same = |text: &&str| serde_json::from_str::<Cursor>(text).is_ok_and(|cursor| cursor == *self);
        stored.filter(same).map_or_else(|| json!(self).to_string(), str::to_owned)
    }
}

/// Counts of what has been decided so far.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Summary {
    pub recipients: u64,
    pub sends: u64,
    pub counts: VerdictCounts,
    /// Audiences without any recipient.
    pub empty_audiences: Vec<String>,
}

/// A query for the next recipients of a target, in the order (entity, rank, user id).
#[derive(Debug, Clone)]
pub struct Page {
    pub reach: Reach,
    pub roles: Option<Vec<String>>,
    pub after: Option<Position>,
    pub limit: usize,
    /// The channels that the event has routes for. Dead addresses are looked up only for these.
    pub channels: PerChannel<bool>,
    /// The default webhook of the target's user type.
    pub default_webhook: Option<Webhook>,
}

impl Page {
    /// One user, without looking up dead addresses.
    pub fn of_user(user: UserRef) -> Self {
        let channels = PerChannel::default();
        Page { reach: Reach::User(user), roles: None, after: None, limit: 1, channels, default_webhook: None }
    }

    /// Also looks up which of the recipients' addresses are dead, for every channel.
    #[must_use]
    pub fn asking_for_every_dead_address(self, rules: &Rules) -> Self {
        let default_webhook = rules.user_types.default_webhook(self.reach.user_type()).cloned();
        Page { channels: PerChannel::from_fn(|_| true), default_webhook, ..self }
    }

    /// Also looks up which of the recipients' addresses are dead, for the channels that the event has routes for. Asked
    /// for all channels, a large audience went at 47,000 instead of 62,000 rows/s (decision 0024).
    #[must_use]
    pub fn asking_for_dead_addresses(self, situation: Situation<'_>) -> Self {
        let default_webhook = situation.rules.user_types.default_webhook(self.reach.user_type()).cloned();
        Page { channels: situation.routed(), default_webhook, ..self }
    }
}

/// The fan-out of one event while its pages are loaded.
#[derive(Debug)]
pub struct Progress<'a> {
    situation: Situation<'a>,
    targets: Arc<[Target]>,
    next_target: usize,
    found_in_target: bool,
    cursor: Cursor,
    renderer: Renderer<'a>,
    room: usize,
    /// The recipients considered in this step. A view may return somebody twice, and people may move between two pages.
    considered: HashSet<UserRef>,
    rows: Vec<OutboxRow>,
    decisions: Vec<Decision>,
    entities: BTreeMap<EntityRef, bool>,
}

/// What one step of an event's fan-out writes.
#[derive(Debug)]
pub struct Plan {
    pub rows: Vec<OutboxRow>,
    pub decisions: Vec<Decision>,
    /// The groups that need a state of their own for the event, and whether their members share the read state.
    pub entities: BTreeMap<EntityRef, bool>,
    pub end: End,
}

#[derive(Debug)]
pub enum End {
    /// All recipients have been considered.
    Finished(Summary),
    /// The audience goes on after the cursor.
    Continues(Cursor),
    /// The fan-out failed, for example because there are no recipients.
    Failed(Failure),
}

impl<'a> Progress<'a> {
    /// Continues from the cursor and considers at most `room` recipients. The targets come from the current rules. If
    /// the cursor's target is gone, the walk continues with the targets that follow its place.
    pub fn new(
        rules: &'a Rules,
        event: &'a Event,
        document: &Value,
        cursor: Cursor,
        room: usize,
        now: Timestamp,
    ) -> Result<Self, Failure> {
        let targets = rules.targets(event, document)?;
        let standing = |t: &&Target| {
            let (scope, audience, user_type) = t.order();
            cursor.at.as_ref().is_some_and(|at| (scope, audience, user_type) < (at.0, at.1.as_str(), &at.2))
        };
        let next_target = targets.iter().take_while(standing).count();
        let mut progress = Progress {
            situation: Situation { rules, event, now },
            found_in_target: cursor.after.is_some(),
            renderer: Renderer::new(&rules.templates, &event.event_type, document),
            targets: targets.into(),
            next_target,
            cursor,
            room,
            considered: HashSet::new(),
            rows: Vec::new(),
            decisions: Vec::new(),
            entities: BTreeMap::new(),
        };
        let at = progress.cursor.at.as_ref().map(|at| (at.0, at.1.as_str(), &at.2));
        if at != progress.targets.get(next_target).map(Target::order) {
            progress.cursor.after = None;
            progress.found_in_target = false;
        }
        Ok(progress)
    }

    /// The next page to load. `None` when all recipients were considered or the room is used up.
    pub fn next_page(&self) -> Option<Page> {
        let target = self.targets.get(self.next_target).filter(|_| self.room > 0)?;
        let page = Page {
            reach: target.reach.clone(),
            roles: target.roles.clone(),
            after: self.cursor.after.clone(),
            limit: self.room,
            channels: PerChannel::default(),
            default_webhook: None,
        };
        Some(page.asking_for_dead_addresses(self.situation))
    }

    /// Considers candidates of the requested page in their order, until `stop` returns true after one of them. Returns
    /// their number.
    pub fn consider(
        &mut self,
        candidates: &[Candidate],
        groups: &HashMap<EntityRef, Group>,
        stop: impl Fn() -> bool,
    ) -> usize {
        let targets = Arc::clone(&self.targets);
        let target = &targets[self.next_target];
        for (index, candidate) in candidates.iter().enumerate() {
            let was_walked = self.cursor.walked.iter().any(|walked| walked.includes(&candidate.recipient));
            if !was_walked && self.considered.insert(candidate.recipient.user()) {
                self.consider_one(candidate, groups, target);
            }
            if stop() {
                return index + 1;
            }
        }
        candidates.len()
    }

    /// Ends a page of which `considered` candidates were considered. A page with fewer recipients than its limit ends
    /// the target. The next step considers the remaining candidates.
    pub fn turn_page(&mut self, page: &[Candidate], considered: usize) {
        let targets = Arc::clone(&self.targets);
        let target = &targets[self.next_target];
        let is_cut = considered < page.len();
        let done = !is_cut && page.len() < self.room;
        self.room = if is_cut { 0 } else { self.room - page.len() };
        self.found_in_target |= considered > 0;
        if done {
            self.finish_target(target);
        } else {
            self.cursor.at = Some(owned(target.order()));
            self.cursor.after = page[..considered].last().map(|last| Position::of(&last.recipient));
        }
        self.forget_passed_entities();
    }

    fn forget_passed_entities(&mut self) {
        let user_types = &self.situation.rules.user_types;
        let after = self.cursor.after.as_ref().map_or("", |after| after.entity_id.as_str());
        let reaches = |target: &Target, entity_type: &EntityType, entity_id: &EntityId| match &target.reach {
            Reach::Entity { entity, .. } => {
                (&entity.entity_type, &entity.entity_id) == (entity_type, entity_id)
            }
            Reach::User(UserRef { user_type, .. }) | Reach::Everybody(user_type) => {
                let own = user_types.get(user_type).and_then(|t| t.entity_type.as_ref());
                own == Some(entity_type) || user_type.as_str() == entity_type.as_str()
            }
        };
        let targets = &self.targets[self.next_target..];
        self.cursor.tally.keep(|entity_type, entity_id| {
            targets.iter().enumerate().any(|(index, target)| {
                (index > 0 || entity_id.as_str() >= after) && reaches(target, entity_type, entity_id)
            })
        });
    }

    fn finish_target(&mut self, target: &Target) {
        if !self.found_in_target {
            self.cursor.summary.empty_audiences.push(target.describe());
        }
        self.next_target += 1;
        self.found_in_target = false;
        self.cursor.after = None;
        self.cursor.at = self.targets.get(self.next_target).map(|next| owned(next.order()));
        if self.cursor.at.is_some() {
            self.cursor.walked.push(target.clone());
        }
    }

    fn consider_one(&mut self, candidate: &Candidate, groups: &HashMap<EntityRef, Group>, target: &Target) {
        let nothing = Group::default();
        let member_of = candidate.recipient.group();
        let group = groups.get(&member_of).unwrap_or(&nothing);
        let tally = &mut self.cursor.tally;
        let rulings = decide(self.situation, candidate, &member_of, group, target.scope, tally);
        let before = self.rows.len();
        let has_entity = candidate.recipient.has_entity();
        self.write_rows(
            candidate,
            &rulings,
            target,
            (has_entity || target.shared_read).then_some(&member_of),
        );
        let has_part = target.shared_read || matches!(target.reach, Reach::Entity { .. });
        if has_part && self.rows.len() > before {
            *self.entities.entry(member_of).or_default() |= target.shared_read;
        }
        let summary = &mut self.cursor.summary;
        summary.recipients += 1;
        summary.sends += (self.rows.len() - before) as u64;
        summary.counts.add(&rulings);
        self.decisions.push(Decision::new(&candidate.recipient, rulings, &target.audience));
    }

    fn write_rows(
        &mut self,
        candidate: &Candidate,
        rulings: &Rulings,
        target: &Target,
        entity: Option<&EntityRef>,
    ) {
        let recipient = &candidate.recipient;
        let Some(user_type) = self.situation.rules.user_types.get(&recipient.user_type) else { return };
        let queue = if target.broadcast { Queue::broadcast() } else { user_type.queue.clone() };
        let notification_id = NotificationId::generate();
        let texts: Vec<Result<Text, String>> =
            rulings.sends().map(|(channel, ..)| self.renderer.render(Some(channel), recipient)).collect();
        // If the inbox's own template fails, the rows that take their inbox text from it fail. The other rows are sent,
        // and the inbox gets the text of the first of them.
        let inbox =
            self.renderer.render(None, recipient).ok().or_else(|| texts.iter().flatten().next().cloned());
        for ((channel, address, priority), text) in rulings.sends().zip(texts) {
            let (text, inbox, failure) = match text {
                Ok(text) => {
                    let inbox = inbox.clone().filter(|inbox| *inbox != text);
                    (text, inbox, None)
                }
                Err(error) => {
                    let nothing = Text { title: String::new(), body: String::new() };
                    (nothing, None, Some(Failure::new(TEMPLATE_ERROR, error)))
                }
            };
            self.rows.push(OutboxRow {
                key: SendKey { notification_id, channel },
                event_id: self.situation.event.event_id.clone(),
                recipient: rulings.user.clone(),
                address: address.to_owned(),
                title: text.title,
                body: text.body,
                inbox,
                priority,
                audience: target.audience.clone(),
                entity: entity.cloned(),
                shared_read: target.shared_read,
                queue: queue.for_priority(priority),
                failure,
            });
        }
    }

    pub fn finish(self) -> Plan {
        let end = if self.next_target < self.targets.len() {
            End::Continues(self.cursor)
        } else if self.cursor.summary.recipients == 0 {
            let nobody = self.cursor.summary.empty_audiences.join("; ");
            End::Failed(Failure::new(NO_RECIPIENTS, format!("no active recipient was found for {nobody}")))
        } else {
            End::Finished(self.cursor.summary)
        };
        Plan { rows: self.rows, decisions: self.decisions, entities: self.entities, end }
    }
}

fn owned((scope, audience, user_type): (Scope, &str, &UserTypeName)) -> (Scope, String, UserTypeName) {
    (scope, audience.to_owned(), user_type.clone())
}
