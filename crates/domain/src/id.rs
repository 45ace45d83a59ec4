//! Identifiers. Ids of users, entities and aggregates are texts and compare bytewise. JSON numbers are accepted and
//! kept as texts.

use std::fmt;
use std::str::FromStr;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::channel::Channel;
use crate::schema::{self, schema};

pub const MAX_ID_CHARS: usize = 200;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    #[error("must not be empty")]
    Empty,
    #[error("must have at most {MAX_ID_CHARS} characters, has {0}")]
    TooLong(usize),
    #[error("must not contain control characters such as NUL or line breaks")]
    Control,
    #[error("must not be `.` or `..`: no URL can name it")]
    Dots,
}

/// Checks the rules that all ids and names share.
pub fn check(text: &str) -> Result<(), IdError> {
    if text.is_empty() {
        return Err(IdError::Empty);
    }
    if text.chars().any(char::is_control) {
        return Err(IdError::Control);
    }
    match text.chars().count() {
        n if n > MAX_ID_CHARS => Err(IdError::TooLong(n)),
        _ => Ok(()),
    }
}

/// Checks an id that is used in paths, such as `/v1/events/{id}`. Clients and proxies remove `.` and `..` from paths,
/// even when they are percent-encoded.
pub fn check_path(text: &str) -> Result<(), IdError> {
    check(text)?;
    if matches!(text, "." | "..") { Err(IdError::Dots) } else { Ok(()) }
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident, $check:path, $example:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            pub fn new(text: impl Into<String>) -> Result<Self, IdError> {
                let text = text.into();
                $check(&text)?;
                Ok($name(text))
            }

            /// Wraps text that was checked when it was stored.
            pub fn stored(text: impl Into<String>) -> Self {
                $name(text.into())
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                $name::new(text)
            }
        }

        schema!($name, schema::id("", $example));

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $name::new(text_or_number(deserializer)?).map_err(de::Error::custom)
            }
        }
    };
}

text_id!(
    /// Chosen by the producer. The same id always means the same event.
    EventId,
    check_path, "order-1001"
);
text_id!(EventType, check, "ORDER_CREATED");
text_id!(
    /// `RESTAURANT_USER`, `CUSTOMER`, …: the configuration defines the names.
    UserTypeName,
    check, "RESTAURANT_USER"
);
text_id!(
    /// Unique per user type only.
    UserId,
    check, "10"
);
text_id!(EntityType, check, "RESTAURANT");
text_id!(EntityId, check, "5");

/// Reads a text, or a number as the text that it was written as.
pub fn text_or_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    struct TextOrNumber;
    impl Visitor<'_> for TextOrNumber {
        type Value = String;

        fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
            f.write_str("text or a whole number")
        }
        fn visit_str<E: de::Error>(self, v: &str) -> Result<String, E> {
            Ok(v.to_owned())
        }
        fn visit_u64<E: de::Error>(self, v: u64) -> Result<String, E> {
            Ok(v.to_string())
        }
        fn visit_i64<E: de::Error>(self, v: i64) -> Result<String, E> {
            Ok(v.to_string())
        }
    }
    deserializer.deserialize_any(TextOrNumber)
}

/// The number that the database gives an event when it arrives. Events are claimed and closed in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, ToSchema)]
#[serde(transparent)]
pub struct EventSeq(pub i64);

impl fmt::Display for EventSeq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A user. The type is part of the key: user 50 may be a customer and also a restaurant user.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub struct UserRef {
    pub user_type: UserTypeName,
    pub user_id: UserId,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct EntityRef {
    pub entity_type: EntityType,
    pub entity_id: EntityId,
}

/// Created when the fan-out decides, before the broker. Ordered by time, so that inserts go to the right edge of an
/// index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
pub struct NotificationId(pub Uuid);

impl NotificationId {
    pub fn generate() -> Self {
        NotificationId(Uuid::now_v7())
    }
}

impl fmt::Display for NotificationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The key of an outbox row and of its send, as text `0197…-…:EMAIL`. Receivers trust nothing else in a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SendKey {
    pub notification_id: NotificationId,
    pub channel: Channel,
}

impl fmt::Display for SendKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.notification_id, self.channel)
    }
}

impl Serialize for SendKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for SendKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

schema!(
    SendKey,
    schema::text(
        "A notification id, a colon and a channel.",
        None,
        "01970000-0000-7000-8000-000000000000:EMAIL"
    )
);

#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not a send id: expected a notification id, a colon and a channel")]
pub struct InvalidSendKey(String);

impl FromStr for SendKey {
    type Err = InvalidSendKey;

    fn from_str(text: &str) -> Result<Self, InvalidSendKey> {
        let key = || {
            let (id, channel) = text.split_once(':')?;
            Some(SendKey {
                notification_id: NotificationId(Uuid::try_parse(id).ok()?),
                channel: channel.parse().ok()?,
            })
        };
        key().ok_or_else(|| InvalidSendKey(text.chars().take(80).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_kept_as_text() {
        assert_eq!(serde_json::from_str::<UserId>("42").unwrap().as_str(), "42");
        assert_eq!(serde_json::from_str::<UserId>("\"042\"").unwrap().as_str(), "042");
        assert!(serde_json::from_str::<UserId>("4.5").is_err());
        assert!(serde_json::from_str::<UserId>("true").is_err());
    }

    #[test]
    fn empty_long_and_control_characters_are_refused() {
        assert_eq!(EventId::new(""), Err(IdError::Empty));
        assert_eq!(EventId::new("a\0b"), Err(IdError::Control));
        assert_eq!(EventId::new("x".repeat(10_000)), Err(IdError::TooLong(10_000)));
        assert!(EventId::new("ü".repeat(200)).is_ok());
        assert_eq!((EventId::new("."), EventId::new("..")), (Err(IdError::Dots), Err(IdError::Dots)));
        assert!(EventId::new("...").is_ok() && UserId::new("..").is_ok());
    }

    #[test]
    fn send_keys_come_back_from_text() {
        let key = SendKey { notification_id: NotificationId::generate(), channel: Channel::Sms };
        assert_eq!(key.to_string().parse::<SendKey>().unwrap(), key);
        let json = serde_json::to_value(key).unwrap();
        assert_eq!(
            (json.as_str().unwrap(), serde_json::from_value(json.clone()).ok()),
            (&*key.to_string(), Some(key))
        );
        assert!("nonsense".parse::<SendKey>().is_err());
        assert!(format!("{}:FAX", key.notification_id).parse::<SendKey>().is_err());
    }
}
