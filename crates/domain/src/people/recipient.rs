//! Recipients and the groups that they belong to, as rows, with everything that decides about their channels.

use crate::schema::JsonObject;
use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::channel::{AddressSource, Channel, RecipientColumn};
use crate::id::{EntityId, EntityRef, EntityType, UserId, UserRef, UserTypeName};
use crate::people::address::{Addresses, MASK, Mailbox, e164, is_e164, is_push_token, webhook};
use crate::people::user_type::{UserTypes, Webhook};
use crate::rules::quiet_hours::Zone;
use crate::rules::row::{FieldError, Preference, Row, Setting, yes};
use crate::template::is_locale;

/// The role that comes first when `max_recipients` limits a channel.
pub const FIRST_ROLE: &str = "MANAGER";

/// In a setting: every entity of a type. As a group: all users of a user type that have no entity.
pub const EVERY_ENTITY: &str = "*";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "user_type": "RESTAURANT_USER", "user_id": "10", "entity_type": "RESTAURANT", "entity_id": "5", "role": "MANAGER",
    "name": "Anna", "email": "anna@example.com", "locale": "it", "time_zone": "Europe/Rome",
}))]
pub struct Recipient {
    pub user_type: UserTypeName,
    pub user_id: UserId,
    #[serde(default)]
    pub entity_type: Option<EntityType>,
    #[serde(default)]
    pub entity_id: Option<EntityId>,
    #[serde(default)]
    pub role: Option<String>,
    #[serde(default)]
    pub name: Option<String>,
    #[serde(default)]
    pub email: Option<String>,
    #[serde(default)]
    pub phone: Option<String>,
    #[serde(default)]
    pub push_tokens: Vec<String>,
    #[serde(default)]
    pub slack_webhook: Option<String>,
    /// Addresses of channels without a column of their own: an address or an array of addresses by channel.
    #[serde(default)]
    #[schema(value_type = JsonObject)]
    pub addresses: Addresses,
    #[serde(default)]
    pub locale: Option<String>,
    #[serde(default)]
    pub time_zone: Option<Zone>,
    #[serde(default = "yes")]
    pub active: bool,
}

impl Recipient {
    pub fn user(&self) -> UserRef {
        UserRef { user_type: self.user_type.clone(), user_id: self.user_id.clone() }
    }

    pub fn entity(&self) -> Option<EntityRef> {
        Some(EntityRef { entity_type: self.entity_type.clone()?, entity_id: self.entity_id.clone()? })
    }

    pub fn has_entity(&self) -> bool {
        self.entity_type.is_some() && self.entity_id.is_some()
    }

    /// The group whose settings and shared state apply: the recipient's entity. Without an entity it is the whole user
    /// type, as (`ADMIN_USER`, `*`).
    pub fn group(&self) -> EntityRef {
        self.entity().unwrap_or_else(|| EntityRef {
            entity_type: EntityType::stored(self.user_type.as_str()),
            entity_id: EntityId::stored(EVERY_ENTITY),
        })
    }

    /// 0 for the first role, 1 for all others.
    pub fn rank(&self) -> i64 {
        i64::from(self.role.as_deref() != Some(FIRST_ROLE))
    }

    /// The distinct, non-empty addresses of the channel; an empty text if the channel needs none. Recipients without a
    /// Slack webhook get the default of their user type, if there is one.
    pub fn addresses_of<'a>(
        &'a self,
        channel: Channel,
        default_webhook: Option<&'a Webhook>,
    ) -> Vec<&'a str> {
        let facts = channel.facts();
        let mut addresses: Vec<&str> = match facts.address {
            AddressSource::None => return vec![""],
            AddressSource::Column(column) => self.column(column),
            AddressSource::Entry => self.addresses.of(facts),
        };
        addresses.retain(|address| !address.is_empty());
        if addresses.is_empty() && facts.address == AddressSource::Column(RecipientColumn::SlackWebhook) {
            addresses.extend(default_webhook.map(Webhook::as_str));
        }
        if addresses.len() > 1 {
            let mut seen = HashSet::new();
            addresses.retain(|address| seen.insert(*address));
        }
        addresses
    }

    /// Masks the addresses that are secrets.
    pub fn mask_secrets(&mut self, masked: impl Fn(&str) -> String) {
        for facts in Channel::ALL.into_iter().map(Channel::facts).filter(|facts| facts.secret_address) {
            match facts.address {
                AddressSource::Column(RecipientColumn::SlackWebhook) => {
                    self.slack_webhook = self.slack_webhook.as_deref().map(&masked);
                }
                AddressSource::Column(RecipientColumn::Email) => {
                    self.email = self.email.as_deref().map(&masked);
                }
                AddressSource::Column(RecipientColumn::Phone) => {
                    self.phone = self.phone.as_deref().map(&masked);
                }
                AddressSource::Column(RecipientColumn::PushTokens) => {
                    self.push_tokens = self.push_tokens.iter().map(|token| masked(token)).collect();
                }
                AddressSource::Entry => self.addresses.mask(facts.name, &masked),
                AddressSource::None => {}
            }
        }
    }

    fn column(&self, column: RecipientColumn) -> Vec<&str> {
        match column {
            RecipientColumn::Email => self.email.as_deref().into_iter().collect(),
            RecipientColumn::Phone => self.phone.as_deref().into_iter().collect(),
            RecipientColumn::PushTokens => self.push_tokens.iter().map(String::as_str).collect(),
            RecipientColumn::SlackWebhook => self.slack_webhook.as_deref().into_iter().collect(),
        }
    }
}

/// Checks that there is such a user type, and that its users belong to such a group.
pub fn check_user(
    user_types: &UserTypes,
    user_type: &UserTypeName,
    entity: (Option<&EntityType>, Option<&EntityId>),
) -> Result<(), FieldError> {
    let known = known_user_type(user_types, "user_type", user_type)?;
    match entity {
        (Some(_), None) => Err(FieldError::new("entity_id", "is required with entity_type")),
        (None, Some(_)) => Err(FieldError::new("entity_type", "is required with entity_id")),
        (Some(entity_type), Some(_)) if known.entity_type.as_ref() != Some(entity_type) => {
            let belongs = known.entity_type.as_ref().map_or("no entity".to_owned(), |t| format!("a {t}"));
            let detail = format!("a {user_type} belongs to {belongs}, not to `{entity_type}`");
            Err(FieldError::new("entity_type", detail))
        }
        (Some(_), Some(entity_id)) if entity_id.as_str() == EVERY_ENTITY => {
            Err(FieldError::new("entity_id", "`*` stands for every entity and can't name one"))
        }
        (None, None) | (Some(_), Some(_)) => Ok(()),
    }
}

impl Row for Recipient {
    fn check(&self, user_types: &UserTypes) -> Result<(), FieldError> {
        let entity = (self.entity_type.as_ref(), self.entity_id.as_ref());
        check_user(user_types, &self.user_type, entity)?;
        for (field, text) in [("role", &self.role), ("name", &self.name)] {
            plain_text(field, text.as_deref())?;
        }
        if self.locale.as_deref().is_some_and(|locale| !is_locale(locale)) {
            return Err(FieldError::new("locale", "is not a language tag such as `it` or `pt-PT`"));
        }
        self.check_addresses()
    }
}

impl Recipient {
    /// Errors do not contain the addresses: those may be secrets, and callers may log errors.
    fn check_addresses(&self) -> Result<(), FieldError> {
        if let Some(email) = &self.email {
            let why = match email.parse::<Mailbox>() {
                Ok(_) if email.trim() == email => None,
                Ok(_) => Some("it has leading or trailing spaces".to_owned()),
                Err(why) => Some(why.to_string()),
            };
            if let Some(why) = why {
                let detail = format!("is not an e-mail address such as name@example.com: {why}");
                return Err(FieldError::new("email", detail));
            }
        }
        if let Some(phone) = self.phone.as_deref().filter(|phone| !is_e164(phone)) {
            let why = e164(phone).err().unwrap_or("write + and the digits only");
            let detail = format!("is not an E.164 phone number, such as +390550100001: {why}");
            return Err(FieldError::new("phone", detail));
        }
        if let Some(at) = self.push_tokens.iter().position(|token| !is_push_token(token)) {
            let detail =
                "is not a registration token: only printable ASCII characters without spaces are allowed";
            return Err(FieldError::new(&format!("push_tokens/{at}"), detail));
        }
        if self.slack_webhook.as_deref().is_some_and(|webhook| webhook.ends_with(MASK)) {
            return Err(FieldError::new(
                "slack_webhook",
                "is masked, as listings show it; give the whole webhook",
            ));
        }
        if let Some(Err(why)) = self.slack_webhook.as_deref().map(webhook) {
            let detail = format!("is not a webhook URL such as https://hooks.slack.com/services/...: {why}");
            return Err(FieldError::new("slack_webhook", detail));
        }
        self.addresses.check()
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"entity_type": "RESTAURANT", "entity_id": "5", "kind": "PIZZERIA", "name": "Da Anna"}))]
pub struct Entity {
    pub entity_type: EntityType,
    pub entity_id: EntityId,
    #[serde(default)]
    pub kind: Option<String>,
    #[serde(default)]
    pub name: Option<String>,
}

impl Row for Entity {
    fn check(&self, _: &UserTypes) -> Result<(), FieldError> {
        if self.entity_id.as_str() == EVERY_ENTITY {
            return Err(FieldError::new("entity_id", "`*` stands for every entity and can't name one"));
        }
        if self.kind.as_deref() == Some("*") {
            return Err(FieldError::new("kind", "`*` stands for every kind and can't name one"));
        }
        plain_text("kind", self.kind.as_deref())?;
        plain_text("name", self.name.as_deref())
    }
}

/// A recipient with the rows that decide about their channels.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    pub recipient: Recipient,
    pub preferences: Vec<Preference>,
    pub dead_addresses: Vec<DeadAddress>,
}

/// An address that a provider declared dead. Nothing is sent to it again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadAddress {
    pub channel: Channel,
    pub address: String,
    pub reason: String,
}

/// An entity's kind and its own settings. The defaults of its type belong to the rules.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Group {
    pub kind: Option<String>,
    pub settings: Vec<Setting>,
}

pub(crate) fn known_user_type<'a>(
    user_types: &'a UserTypes,
    field: &str,
    name: &UserTypeName,
) -> Result<&'a crate::people::user_type::UserType, FieldError> {
    user_types.get(name).ok_or_else(|| {
        FieldError::new(field, format!("unknown user type `{name}`: configured are {}", user_types.names()))
    })
}

const MAX_TEXT_CHARS: usize = 2_000;

pub(crate) fn plain_text(field: &str, text: Option<&str>) -> Result<(), FieldError> {
    let Some(text) = text else { return Ok(()) };
    if text.chars().any(char::is_control) {
        return Err(FieldError::new(field, "must not contain control characters such as line breaks"));
    }
    if text.chars().count() > MAX_TEXT_CHARS {
        return Err(FieldError::new(field, format!("must have at most {MAX_TEXT_CHARS} characters")));
    }
    Ok(())
}
