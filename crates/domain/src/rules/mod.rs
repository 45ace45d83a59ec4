//! The rules of all event types in memory, and the audience that an event has by them.

pub mod decide;
pub mod decision;
pub mod quiet_hours;
pub mod row;

use std::collections::{BTreeSet, HashMap};

use minijinja::Environment;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::channel::PerChannel;
use crate::event::{Event, Failure};
use crate::id::{EntityId, EntityRef, EntityType, EventType, UserId, UserRef, UserTypeName};
use crate::people::recipient::Recipient;
use crate::people::user_type::{UserType, UserTypes};
use crate::rules::row::{Audience, Route, Row as _, Scope, Selector, Setting, Template};
use crate::template::{self, Templates};

/// The recipient type of an audience with all users.
pub const EVERYBODY: &str = "ALL";

pub const NO_AUDIENCE: &str = "NO_AUDIENCE";
pub const NO_RECIPIENTS: &str = "NO_RECIPIENTS";

/// The rows of the rule tables.
#[derive(Debug, Clone, Default)]
pub struct RuleRows {
    pub audiences: Vec<Audience>,
    pub routing: Vec<Route>,
    pub templates: Vec<Template>,
    /// Settings of a type or a kind. An entity's own settings are loaded with its recipients.
    pub default_settings: Vec<Setting>,
}

#[derive(Debug)]
pub struct Rules {
    pub user_types: UserTypes,
    pub templates: Templates,
    pub default_settings: Vec<Setting>,
    audiences: HashMap<EventType, Vec<Audience>>,
    /// Evaluates `when` expressions.
    conditions: Environment<'static>,
    routing: HashMap<EventType, Routes>,
    /// The routes of event types without rows of their own.
    default_routing: Option<Routes>,
}

/// The routes of one event type, by channel.
pub type Routes = PerChannel<Option<Route>>;

impl Rules {
    /// Compiles the rules. Also returns what is wrong with the rows: rows written by SQL bypass the checks of HTTP.
    pub fn new(user_types: UserTypes, rows: RuleRows) -> (Self, Vec<String>) {
        let mut problems = wrong_rows(&user_types, &rows);
        let (templates, unusable) = Templates::new(rows.templates);
        problems.extend(unusable);
        let mut audiences: HashMap<EventType, Vec<Audience>> = HashMap::new();
        for audience in rows.audiences {
            audiences.entry(audience.event_type.clone()).or_default().push(audience);
        }
        let (mut routing, mut default_routing) = (HashMap::<EventType, Routes>::new(), None::<Routes>);
        for route in rows.routing {
            let routes = match &route.event_type {
                Selector::Any => default_routing.get_or_insert_default(),
                Selector::Only(event_type) => routing.entry(event_type.clone()).or_default(),
            };
            let channel = route.channel;
            *routes.get_mut(channel) = Some(route);
        }
        let conditions = template::conditions();
        let default_settings = rows.default_settings;
        let rules = Rules {
            user_types,
            templates,
            default_settings,
            audiences,
            conditions,
            routing,
            default_routing,
        };
        (rules, problems)
    }

    /// The rows for the event type, else the rows for `*`.
    pub fn routes(&self, event_type: &EventType) -> Option<&Routes> {
        self.routing.get(event_type).or(self.default_routing.as_ref())
    }

    /// The event types that have an audience with users of this type, or no audience of their own, and `*` for all
    /// others. Sorted.
    pub fn event_types_for(&self, user_type: &UserTypeName) -> Vec<Selector<EventType>> {
        let concerns = |event_type: &&EventType| {
            self.audiences.get(*event_type).is_none_or(|all| all.iter().any(|row| includes(row, user_type)))
        };
        let named: BTreeSet<&EventType> =
            self.audiences.keys().chain(self.routing.keys()).filter(concerns).collect();
        let named = named.into_iter().cloned().map(Selector::Only);
        [Selector::Any].into_iter().chain(named).collect()
    }

    /// The scope in which events of this type reach users of this type. If there are several, `TEAM` wins.
    pub fn scope_for(&self, event_type: &Selector<EventType>, user_type: &UserTypeName) -> Scope {
        let audiences = match event_type {
            Selector::Any => None,
            Selector::Only(event_type) => self.audiences.get(event_type),
        };
        let of_user = audiences.into_iter().flatten().filter(|row| includes(row, user_type));
        of_user.map(|row| row.scope).min().unwrap_or_default()
    }

    /// The targets of an event, in the order in which they are walked. Targets with scope `TEAM` come first, so that
    /// `TEAM` wins for a recipient who is in two audiences.
    pub fn targets(&self, event: &Event, document: &Value) -> Result<Vec<Target>, Failure> {
        let mut targets = Vec::new();
        for audience in self.audiences.get(&event.event_type).into_iter().flatten() {
            if self.holds(audience, document)? {
                targets.extend(self.audience_targets(audience, document)?);
            }
        }
        if targets.is_empty() {
            targets = self.fallback(event, document)?;
        }
        targets.sort_by(|a, b| a.order().cmp(&b.order()));
        Ok(targets)
    }

    fn holds(&self, audience: &Audience, document: &Value) -> Result<bool, Failure> {
        let Some(when) = &audience.when else { return Ok(true) };
        template::holds(&self.conditions, when, document).map_err(|error| {
            let detail = format!("audience `{}`: `when` can't be evaluated: {error}", audience.name);
            Failure::new("WHEN_ERROR", detail)
        })
    }

    fn audience_targets(&self, audience: &Audience, document: &Value) -> Result<Vec<Target>, Failure> {
        let target = |reach, broadcast: bool| Target {
            audience: audience.name.clone(),
            reach,
            roles: audience.roles.clone(),
            scope: audience.scope,
            shared_read: audience.shared_read && !broadcast,
            broadcast,
        };
        if audience.recipient_type.as_str() == EVERYBODY {
            return Ok(self
                .user_types
                .iter()
                .map(|t| target(Reach::Everybody(t.name.clone()), true))
                .collect());
        }
        let user_type = self.user_types.get(&audience.recipient_type).ok_or_else(|| {
            Failure::new(
                NO_AUDIENCE,
                format!(
                    "audience `{}` is for the user type `{}`, which is not configured",
                    audience.name, audience.recipient_type
                ),
            )
        })?;
        let reach = match &audience.entity_path {
            None => Reach::Everybody(user_type.name.clone()),
            Some(path) => reach_by_path(&audience.name, user_type, path, document)?,
        };
        Ok(vec![target(reach, false)])
    }

    /// The target by aggregate type, if no audience is configured or none applies.
    fn fallback(&self, event: &Event, document: &Value) -> Result<Vec<Target>, Failure> {
        let (user_type, path) = match event.aggregate_type.as_str() {
            "RESTAURANT" => ("RESTAURANT_USER", Some("/aggregate_id")),
            "AGENCY" => ("AGENCY_USER", Some("/aggregate_id")),
            "CUSTOMER" => ("CUSTOMER", Some("/aggregate_id")),
            "ADMIN" => ("ADMIN_USER", None),
            "BROADCAST" => (EVERYBODY, None),
            "RESERVATION" | "ORDER" => {
                ("RESTAURANT_USER", Some("/payload/restaurantId /payload/restaurant_id"))
            }
            other => {
                return Err(Failure::new(
                    NO_AUDIENCE,
                    format!(
                        "no audience matches event type `{}`, and aggregate type `{other}` has no default \
                         audience; add one with PUT /v1/audiences",
                        event.event_type
                    ),
                ));
            }
        };
        let audience = Audience {
            event_type: event.event_type.clone(),
            name: event.aggregate_type.to_lowercase(),
            recipient_type: UserTypeName::stored(user_type),
            entity_path: path.map(str::to_owned),
            roles: None,
            scope: Scope::Personal,
            shared_read: false,
            when: None,
        };
        let mut targets = self.audience_targets(&audience, document)?;
        for target in &mut targets {
            target.shared_read = matches!(target.reach, Reach::Entity { .. });
        }
        Ok(targets)
    }
}

/// Whether an audience may have users of this type.
fn includes(audience: &Audience, user_type: &UserTypeName) -> bool {
    audience.recipient_type.as_str() == EVERYBODY || audience.recipient_type == *user_type
}

/// Problems of rows that could be parsed. A wrong audience stays in use and fails its events with the reason. Other
/// wrong rows are applied as far as possible.
fn wrong_rows(user_types: &UserTypes, rows: &RuleRows) -> Vec<String> {
    let audiences = rows.audiences.iter().filter_map(|row| {
        let error = row.check(user_types).err()?;
        Some(format!("event_audience ({}, {}): {error}", row.event_type, row.name))
    });
    let settings = rows.default_settings.iter().filter_map(|row| {
        let error = row.check(user_types).err()?;
        Some(format!(
            "entity_notification_settings ({}, {}, {}, {}, {}): {error}",
            row.entity_type, row.entity_id, row.kind, row.channel, row.event_type
        ))
    });
    audiences.chain(settings).collect()
}

/// The part of an event's audience that one ordered walk over the recipients covers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    pub audience: String,
    pub reach: Reach,
    pub roles: Option<Vec<String>>,
    pub scope: Scope,
    pub shared_read: bool,
    pub broadcast: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reach {
    User(UserRef),
    Entity { user_type: UserTypeName, entity: EntityRef },
    Everybody(UserTypeName),
}

impl Reach {
    pub fn user_type(&self) -> &UserTypeName {
        match self {
            Reach::User(user) => &user.user_type,
            Reach::Entity { user_type, .. } | Reach::Everybody(user_type) => user_type,
        }
    }
}

impl Target {
    /// The place of the target in the order of its event's targets. A cursor identifies it by this.
    pub fn order(&self) -> (Scope, &str, &UserTypeName) {
        (self.scope, &self.audience, self.reach.user_type())
    }

    /// Whether the recipient belongs to this target, by the same conditions as the query.
    pub fn includes(&self, recipient: &Recipient) -> bool {
        let reached = match &self.reach {
            Reach::User(user) => recipient.user_type == user.user_type && recipient.user_id == user.user_id,
            Reach::Entity { user_type, entity } => {
                recipient.user_type == *user_type && recipient.entity().as_ref() == Some(entity)
            }
            Reach::Everybody(user_type) => recipient.user_type == *user_type,
        };
        reached && self.admits(recipient)
    }

    /// Whether the recipient is active and has one of the audience's roles.
    pub fn admits(&self, recipient: &Recipient) -> bool {
        let role_fits =
            |roles: &Vec<String>| recipient.role.as_ref().is_some_and(|role| roles.contains(role));
        recipient.active && self.roles.as_ref().is_none_or(role_fits)
    }

    /// The target in words, for people.
    pub fn describe(&self) -> String {
        match &self.reach {
            Reach::User(user) => format!("{}: {} {}", self.audience, user.user_type, user.user_id),
            Reach::Entity { user_type, entity } => {
                format!("{}: {user_type} of {} {}", self.audience, entity.entity_type, entity.entity_id)
            }
            Reach::Everybody(user_type) => format!("{}: every {user_type}", self.audience),
        }
    }
}

fn reach_by_path(
    audience: &str,
    user_type: &UserType,
    path: &str,
    document: &Value,
) -> Result<Reach, Failure> {
    let found = path.split_whitespace().find_map(|pointer| {
        // A null counts as missing.
        document.pointer(pointer).filter(|value| !value.is_null()).map(|value| (pointer, value))
    });
    let id = match found {
        Some((_, Value::String(text))) if crate::id::check(text).is_ok() => text.clone(),
        Some((_, Value::Number(number))) if number.is_i64() || number.is_u64() => number.to_string(),
        Some((pointer, other)) => {
            let detail =
                format!("audience `{audience}`: {pointer} of the event is not an id: {}", kind_of(other));
            return Err(Failure::new(NO_AUDIENCE, detail));
        }
        None => {
            let pointers = path.split_whitespace().collect::<Vec<_>>().join(" or ");
            let detail = format!(
                "audience `{audience}`: the event has no value at {pointers}; if that is expected, \
                 add a `when` to the audience"
            );
            return Err(Failure::new(NO_AUDIENCE, detail));
        }
    };
    let user_type_name = user_type.name.clone();
    Ok(match &user_type.entity_type {
        None => Reach::User(UserRef { user_type: user_type_name, user_id: UserId::stored(id) }),
        Some(entity_type) => Reach::Entity {
            user_type: user_type_name,
            entity: EntityRef {
                entity_type: EntityType::clone(entity_type),
                entity_id: EntityId::stored(id),
            },
        },
    })
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "it is null",
        Value::Bool(_) => "it is a boolean",
        Value::Number(_) => "it is a broken number",
        Value::String(_) => "it is empty, too long, or has control characters",
        Value::Array(_) => "it is an array",
        Value::Object(_) => "it is an object",
    }
}

/// Checks whether an expression can be used as `when`.
pub fn check_when(when: &str) -> Result<(), String> {
    const MAX_WHEN_BYTES: usize = 8 * 1024;
    if when.len() > MAX_WHEN_BYTES {
        return Err(format!("must have at most {MAX_WHEN_BYTES} bytes"));
    }
    template::check_no_nul(when)?;
    template::check_condition(when).map_err(|error| {
        format!("is not an expression over the event, such as `payload.total > 100`: {error}")
    })
}
