//! Stored values that are only shown. A damaged value must not hide its row or other rows.

use campanile_domain::time::{self, Moment, Timestamp};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// A value as its type. If the type would not show the same as what is stored, such as an unknown status, the stored
/// value.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Shown<T> {
    Typed(T),
    Raw(Value),
}

impl<T> Shown<T> {
    pub fn typed(&self) -> Option<&T> {
        match self {
            Shown::Typed(typed) => Some(typed),
            Shown::Raw(_) => None,
        }
    }
}

impl<T: Serialize> Shown<T> {
    pub(crate) fn of(stored: Value) -> Self
    where
        T: DeserializeOwned,
    {
        Self::parsed(stored, |stored| T::deserialize(stored))
    }

    pub(crate) fn parsed(stored: Value, parse: impl FnOnce(&Value) -> Result<T, serde_json::Error>) -> Self {
        match parse(&stored) {
            Ok(typed) if serde_json::to_value(&typed).is_ok_and(|shown| shown == stored) => {
                Shown::Typed(typed)
            }
            Ok(_) | Err(_) => Shown::Raw(stored),
        }
    }
}

impl Shown<Moment> {
    /// The time, also if another program wrote it in another form.
    pub fn at(&self) -> Option<Timestamp> {
        match self {
            Shown::Typed(Moment(at)) => Some(*at),
            Shown::Raw(stored) => stored.as_str().and_then(time::from_text),
        }
    }
}

impl<'de, T: DeserializeOwned + Serialize> Deserialize<'de> for Shown<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(Shown::of)
    }
}

impl<T: PartialEq> PartialEq<T> for Shown<T> {
    fn eq(&self, other: &T) -> bool {
        self.typed() == Some(other)
    }
}

#[cfg(test)]
mod tests {
    use campanile_domain::status::SendStatus;
    use campanile_domain::time::Moment;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_type_shows_as_it_is_stored_is_typed() {
        let stored = json!("2026-01-21T10:15:30.000Z");
        let at = Shown::<Moment>::of(stored.clone());
        assert!(at.typed().is_some());
        assert_eq!(json!(at), stored);
        assert_eq!(Shown::of(json!("SENT")), SendStatus::Sent);
    }

    #[test]
    fn anything_else_is_shown_as_it_is_stored() {
        for stored in
            [json!("yesterday"), json!("2026-01-21T10:15:30Z"), json!("2026-01-21 10:15:30"), json!(7)]
        {
            let at = Shown::<Moment>::of(stored.clone());
            assert!(at.typed().is_none(), "{at:?}");
            assert_eq!(json!(at), stored);
        }
        assert_eq!(Shown::<SendStatus>::of(json!("LOST")), Shown::Raw(json!("LOST")));
    }
}
