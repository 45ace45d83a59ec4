//! The configured user types. Each has a queue, an entity type, and supported channels.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::channel::Channel;
use crate::id::{EntityType, UserTypeName};
use crate::priority::Priority;
use crate::queue::Queue;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserType {
    pub name: UserTypeName,
    pub queue: Queue,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entity_type: Option<EntityType>,
    pub channels: Vec<Channel>,
    /// The webhook of users without a Slack webhook of their own.
    #[serde(skip)]
    pub default_webhook: Option<Webhook>,
}

/// A Slack webhook. It is a secret: whoever knows it can post.
#[derive(Clone, PartialEq, Eq)]
pub struct Webhook(String);

impl Webhook {
    pub fn new(url: String) -> Self {
        Webhook(url)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Webhook(redacted)")
    }
}

/// The configured user types, in the order of their names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserTypes(Vec<UserType>);

impl UserTypes {
    pub fn new(mut types: Vec<UserType>) -> Result<Self, String> {
        types.sort_by(|a, b| a.name.cmp(&b.name));
        if types.is_empty() {
            return Err("user_types: at least one user type is needed".to_owned());
        }
        if let Some(pair) = types.windows(2).find(|pair| pair[0].name == pair[1].name) {
            return Err(format!("user_types: `{}` is defined twice", pair[0].name));
        }
        if let Some(all) = types.iter().find(|t| t.name.as_str() == "ALL") {
            return Err(format!("user_types: `{}` means everybody and can't name a user type", all.name));
        }
        let types = UserTypes(types);
        let both =
            types.without_entity().find(|t| types.has_entity_type(&EntityType::stored(t.name.as_str())));
        if let Some(both) = both {
            return Err(format!(
                "user_types: `{}` is a user type without an entity and also an entity type: \
                 settings for one would count for the other",
                both.name
            ));
        }
        Ok(types)
    }

    pub fn get(&self, name: &UserTypeName) -> Option<&UserType> {
        self.0.iter().find(|t| t.name == *name)
    }

    pub fn default_webhook(&self, name: &UserTypeName) -> Option<&Webhook> {
        self.get(name)?.default_webhook.as_ref()
    }

    pub fn iter(&self) -> impl Iterator<Item = &UserType> {
        self.0.iter()
    }

    /// Whether any user type has this entity type.
    pub fn has_entity_type(&self, entity_type: &EntityType) -> bool {
        self.0.iter().any(|t| t.entity_type.as_ref() == Some(entity_type))
    }

    /// The types that settings may name: entity types, and user types without an entity.
    pub fn group_types(&self) -> String {
        let entity_types = self.0.iter().filter_map(|t| t.entity_type.as_ref()).map(EntityType::as_str);
        let mut names: Vec<&str> =
            entity_types.chain(self.without_entity().map(|t| t.name.as_str())).collect();
        names.sort_unstable();
        names.dedup();
        names.join(", ")
    }

    fn without_entity(&self) -> impl Iterator<Item = &UserType> {
        self.0.iter().filter(|t| t.entity_type.is_none())
    }

    /// All queues, including the `HIGH` twins.
    pub fn queues(&self) -> Vec<Queue> {
        let mut queues: Vec<Queue> = self.0.iter().map(|t| t.queue.clone()).collect();
        queues.push(Queue::broadcast());
        queues.sort();
        queues.dedup();
        queues.iter().flat_map(|q| [q.clone(), q.for_priority(Priority::High)]).collect()
    }

    pub fn names(&self) -> String {
        self.0.iter().map(|t| t.name.as_str()).collect::<Vec<_>>().join(", ")
    }
}

/// The shipped user types, as in `campanile.toml`. Which channels support them is a fact of each channel.
impl Default for UserTypes {
    fn default() -> Self {
        let user_type = |name: &str, queue: &str, entity: Option<&str>| UserType {
            name: UserTypeName::stored(name),
            queue: Queue::named(format!("notification.{queue}")),
            entity_type: entity.map(EntityType::stored),
            channels: Channel::ALL.into_iter().filter(|c| c.facts().user_types.contains(&name)).collect(),
            default_webhook: None,
        };
        UserTypes(vec![
            user_type("ADMIN_USER", "admin", None),
            user_type("AGENCY_USER", "agency", Some("AGENCY")),
            user_type("CUSTOMER", "customer", None),
            user_type("GUEST", "guest", None),
            user_type("RESTAURANT_USER", "restaurant", Some("RESTAURANT")),
        ])
    }
}
