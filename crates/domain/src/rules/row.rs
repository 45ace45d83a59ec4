//! The rows that operators write: preferences, settings, routing, audiences, templates. Parsing a row checks it, so
//! that every stored rule can be applied.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::ToSchema;

use crate::channel::Channel;
use crate::id::{EntityId, EntityType, EventType, UserId, UserTypeName};
use crate::people::recipient::{known_user_type, plain_text};
use crate::people::user_type::UserTypes;
use crate::priority::Priority;
use crate::rules;
use crate::rules::quiet_hours::{HourMinute, QuietHours, QuietHoursMode};
use crate::schema::{self, schema};
use crate::template;

/// A row object with the column names of its table. `check` has the rules that types alone cannot express.
pub trait Row: Serialize + DeserializeOwned + Send + Sync + 'static {
    fn check(&self, user_types: &UserTypes) -> Result<(), FieldError>;

    /// The stored form. Keys that can be spelled in several ways are stored in one spelling, so that they are equal.
    #[must_use]
    fn canonical(self) -> Self {
        self
    }

    /// The first of these rows whose key equals that of another in a different spelling. It would be unclear which of
    /// them counts.
    fn collision(_: &[Self]) -> Option<(usize, FieldError)> {
        None
    }
}

/// Which field of a row is wrong, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {detail}")]
pub struct FieldError {
    pub field: String,
    pub detail: String,
}

impl FieldError {
    pub fn new(field: &str, detail: impl Into<String>) -> Self {
        FieldError { field: field.to_owned(), detail: detail.into() }
    }
}

/// `*`, or a single value.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Selector<T> {
    #[default]
    Any,
    Only(T),
}

impl<T: PartialEq> Selector<T> {
    pub fn selects(&self, value: &T) -> bool {
        match self {
            Selector::Any => true,
            Selector::Only(only) => only == value,
        }
    }

    pub fn is_any(&self) -> bool {
        *self == Selector::Any
    }
}

impl<T: fmt::Display> fmt::Display for Selector<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Selector::Any => f.write_str("*"),
            Selector::Only(only) => only.fmt(f),
        }
    }
}

impl<T: fmt::Display> Serialize for Selector<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de, T: FromStr<Err: fmt::Display>> Deserialize<'de> for Selector<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match crate::id::text_or_number(deserializer)?.as_str() {
            "*" => Ok(Selector::Any),
            text => text.parse().map(Selector::Only).map_err(D::Error::custom),
        }
    }
}

/// The texts that a [`Selector`] accepts: the values of its type, and `*`.
macro_rules! selector_schema {
    ($name:ident, $schema:expr) => {
        /// The schema of a selector.
        #[derive(Debug)]
        pub struct $name;

        schema!($name, $schema);
    };
}

selector_schema!(EventTypeSelector, schema::id("An event type, or `*` for any.", "*"));
selector_schema!(EntityIdSelector, schema::id("The id of an entity, or `*` for any.", "5"));
selector_schema!(TextSelector, schema::id("A value, or `*` for any.", "*"));
selector_schema!(ChannelSelector, {
    let names: Vec<&str> = ["*"].into_iter().chain(Channel::ALL.map(Channel::as_str)).collect();
    schema::word("A channel, or `*` for any.", &names)
});

/// The schema of an audience's name.
#[derive(Debug)]
pub struct AudienceName;

schema!(AudienceName, schema::text("Unique within the event type.", None, "staff"));

/// The default of switches that are on unless somebody switches them off.
pub(crate) fn yes() -> bool {
    true
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "user_type": "RESTAURANT_USER", "user_id": "10", "channel": Channel::ALL[0], "event_type": "*", "enabled": false,
}))]
pub struct Preference {
    pub user_type: UserTypeName,
    pub user_id: UserId,
    pub channel: Channel,
    #[serde(default)]
    #[schema(value_type = EventTypeSelector)]
    pub event_type: Selector<EventType>,
    #[serde(default = "yes")]
    pub enabled: bool,
    #[serde(default)]
    pub min_priority: Option<Priority>,
    #[serde(default)]
    pub quiet_hours_start: Option<HourMinute>,
    #[serde(default)]
    pub quiet_hours_end: Option<HourMinute>,
    #[serde(default)]
    pub quiet_hours_mode: QuietHoursMode,
}

impl Preference {
    pub fn quiet_hours(&self) -> Option<QuietHours> {
        quiet_hours(self.quiet_hours_start, self.quiet_hours_end, self.quiet_hours_mode)
    }
}

impl Row for Preference {
    fn check(&self, user_types: &UserTypes) -> Result<(), FieldError> {
        known_user_type(user_types, "user_type", &self.user_type)?;
        check_quiet_hours(self.quiet_hours_start, self.quiet_hours_end)
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "entity_type": "RESTAURANT", "entity_id": "5", "channel": Channel::ALL[0], "quiet_hours_start": "22:00",
    "quiet_hours_end": "08:00",
}))]
pub struct Setting {
    pub entity_type: EntityType,
    #[serde(default)]
    #[schema(value_type = EntityIdSelector)]
    pub entity_id: Selector<EntityId>,
    #[serde(default)]
    #[schema(value_type = TextSelector)]
    pub kind: Selector<String>,
    pub channel: Channel,
    #[serde(default)]
    #[schema(value_type = EventTypeSelector)]
    pub event_type: Selector<EventType>,
    #[serde(default = "yes")]
    pub enabled: bool,
    #[serde(default)]
    pub max_recipients: Option<u32>,
    #[serde(default)]
    pub min_priority: Option<Priority>,
    /// The roles that may get this channel; absent means every role.
    #[serde(default)]
    pub roles: Option<Vec<String>>,
    #[serde(default)]
    pub quiet_hours_start: Option<HourMinute>,
    #[serde(default)]
    pub quiet_hours_end: Option<HourMinute>,
    #[serde(default)]
    pub quiet_hours_mode: QuietHoursMode,
}

impl Setting {
    pub fn quiet_hours(&self) -> Option<QuietHours> {
        quiet_hours(self.quiet_hours_start, self.quiet_hours_end, self.quiet_hours_mode)
    }
}

impl Row for Setting {
    fn check(&self, user_types: &UserTypes) -> Result<(), FieldError> {
        if !user_types.has_entity_type(&self.entity_type) {
            self.check_user_type(user_types)?;
        }
        check_roles(self.roles.as_deref())?;
        if let Selector::Only(kind) = &self.kind {
            plain_text("kind", Some(kind))?;
        }
        if !self.entity_id.is_any() && !self.kind.is_any() {
            return Err(FieldError::new(
                "kind",
                "a setting is for one entity or for a kind, not both: leave one of them `*`",
            ));
        }
        check_quiet_hours(self.quiet_hours_start, self.quiet_hours_end)
    }
}

impl Setting {
    /// Users without an entity have settings by user type: `CUSTOMER` applies to all customers.
    fn check_user_type(&self, user_types: &UserTypes) -> Result<(), FieldError> {
        let name = UserTypeName::stored(self.entity_type.as_str());
        let Some(user_type) = user_types.get(&name) else {
            let detail = format!(
                "`{}` is neither an entity type nor a user type without an entity; known are {}",
                self.entity_type,
                user_types.group_types()
            );
            return Err(FieldError::new("entity_type", detail));
        };
        if let Some(entity_type) = &user_type.entity_type {
            let detail = format!("a {name} belongs to a {entity_type}: write `{entity_type}` here");
            return Err(FieldError::new("entity_type", detail));
        }
        let whole = format!("users of type {name} have no entity; leave this field out or set it to `*`");
        if !self.entity_id.is_any() {
            return Err(FieldError::new("entity_id", whole));
        }
        if !self.kind.is_any() {
            return Err(FieldError::new("kind", whole));
        }
        Ok(())
    }
}

fn quiet_hours(
    start: Option<HourMinute>,
    end: Option<HourMinute>,
    mode: QuietHoursMode,
) -> Option<QuietHours> {
    Some(QuietHours { start: start?, end: end?, mode })
}

fn check_quiet_hours(start: Option<HourMinute>, end: Option<HourMinute>) -> Result<(), FieldError> {
    match (start, end) {
        (Some(start), Some(end)) if start == end => Err(FieldError::new(
            "quiet_hours_end",
            "must differ from quiet_hours_start; leave both out for no quiet hours",
        )),
        (Some(_), None) => Err(FieldError::new("quiet_hours_end", "is required with quiet_hours_start")),
        (None, Some(_)) => Err(FieldError::new("quiet_hours_start", "is required with quiet_hours_end")),
        (Some(_), Some(_)) | (None, None) => Ok(()),
    }
}

/// When a routed send goes out. Delayed strategies will be added here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum DeliveryStrategy {
    #[default]
    Immediate,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"event_type": "*", "channel": Channel::ALL[0], "mandatory": true, "priority": "HIGH"}))]
pub struct Route {
    #[serde(default)]
    #[schema(value_type = EventTypeSelector)]
    pub event_type: Selector<EventType>,
    pub channel: Channel,
    #[serde(default)]
    pub mandatory: bool,
    #[serde(default)]
    pub delivery_strategy: DeliveryStrategy,
    /// The channel is not used for events below this priority.
    #[serde(default)]
    pub min_priority: Option<Priority>,
    #[serde(default)]
    pub priority: Option<Priority>,
}

impl Row for Route {
    fn check(&self, _: &UserTypes) -> Result<(), FieldError> {
        Ok(())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "UPPERCASE")]
#[schema(as = AudienceScope)]
pub enum Scope {
    /// Every active member, regardless of their own switches and thresholds.
    Team,
    #[default]
    Personal,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "event_type": "ORDER_CREATED", "name": "staff", "recipient_type": "RESTAURANT_USER",
    "entity_path": "/payload/restaurantId",
}))]
pub struct Audience {
    pub event_type: EventType,
    pub name: String,
    /// A user type, or `ALL`.
    pub recipient_type: UserTypeName,
    /// JSON pointers into the event, separated by spaces. The first one that leads to a value counts.
    #[serde(default)]
    pub entity_path: Option<String>,
    #[serde(default)]
    pub roles: Option<Vec<String>>,
    #[serde(default)]
    pub scope: Scope,
    #[serde(default)]
    pub shared_read: bool,
    #[serde(default)]
    pub when: Option<String>,
}

impl Row for Audience {
    fn check(&self, user_types: &UserTypes) -> Result<(), FieldError> {
        crate::id::check(&self.name).map_err(|e| FieldError::new("name", e.to_string()))?;
        if self.event_type.as_str() == "*" {
            return Err(FieldError::new("event_type", "an audience is for one event type; `*` is not one"));
        }
        if self.recipient_type.as_str() == rules::EVERYBODY {
            if self.entity_path.is_some() {
                return Err(FieldError::new("entity_path", "an audience of ALL has no entity: leave it out"));
            }
            if self.shared_read {
                return Err(FieldError::new(
                    "shared_read",
                    "an audience of ALL shares nothing: leave it out, or make an audience for each user type",
                ));
            }
        } else {
            known_user_type(user_types, "recipient_type", &self.recipient_type)?;
        }
        if let Some(path) = &self.entity_path {
            check_entity_path(path)?;
        }
        check_roles(self.roles.as_deref())?;
        match &self.when {
            Some(when) => rules::check_when(when).map_err(|e| FieldError::new("when", e)),
            None => Ok(()),
        }
    }
}

/// Checks roles by the rules for ids.
fn check_roles(roles: Option<&[String]>) -> Result<(), FieldError> {
    let wrong = roles.into_iter().flatten().enumerate().find_map(|(index, role)| {
        crate::id::check(role)
            .err()
            .map(|error| FieldError::new(&format!("roles/{index}"), error.to_string()))
    });
    wrong.map_or(Ok(()), Err)
}

fn check_entity_path(path: &str) -> Result<(), FieldError> {
    plain_text("entity_path", Some(path))?;
    let wrong = |what: &str| {
        let detail = format!(
            "{what}: expected JSON pointers into the event separated by spaces, such as /payload/restaurantId"
        );
        FieldError::new("entity_path", detail)
    };
    let mut pointers = path.split_whitespace().peekable();
    if pointers.peek().is_none() {
        return Err(wrong("is empty"));
    }
    match pointers.find(|pointer| !pointer.starts_with('/')) {
        Some(pointer) => Err(wrong(&format!("`{pointer}` does not begin with `/`"))),
        None => Ok(()),
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "event_type": "*", "channel": "*", "locale": "*", "title": "New order", "body": "{{ payload.items }} items",
}))]
pub struct Template {
    #[serde(default)]
    #[schema(value_type = EventTypeSelector)]
    pub event_type: Selector<EventType>,
    /// `*` is the template of the inbox, and of every channel without a template of its own.
    #[serde(default)]
    #[schema(value_type = ChannelSelector)]
    pub channel: Selector<Channel>,
    #[serde(default)]
    #[schema(value_type = TextSelector)]
    pub locale: Selector<String>,
    pub title: String,
    #[serde(default)]
    pub body: String,
    #[serde(default)]
    pub html: Option<String>,
    /// The link that opens on a click.
    #[serde(default)]
    pub url: Option<String>,
}

impl Row for Template {
    fn check(&self, _: &UserTypes) -> Result<(), FieldError> {
        template::check(self)
    }

    fn canonical(self) -> Self {
        let locale = match self.locale {
            Selector::Any => Selector::Any,
            Selector::Only(tag) => Selector::Only(template::canonical_locale(&tag)),
        };
        Template { locale, ..self }
    }

    fn collision(rows: &[Self]) -> Option<(usize, FieldError)> {
        let mut tags = HashMap::new();
        rows.iter().enumerate().find_map(|(index, row)| {
            let Selector::Only(tag) = &row.locale else { return None };
            let key = (&row.event_type, &row.channel, template::canonical_locale(tag));
            let (first, other) = *tags.entry(key).or_insert((index, tag));
            let detail =
                || format!("`{tag}` is the same language as `{other}` in row {first}; remove one of them");
            (tag != other).then(|| (index, FieldError::new("locale", detail())))
        })
    }
}
