//! End users, as a verified token names them. A token gives access to one user's own data, and to nothing else.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::id::{EntityId, EntityRef, EntityType, UserId, UserRef, UserTypeName};
use crate::people::user_type::UserTypes;
use crate::time::Timestamp;

/// The user that a token was issued for. `ADMIN_USER` is a kind of recipient, not an administrator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndUser {
    pub user: UserRef,
    /// The group that the token names. It matters for topics of a group, never for the access to notifications.
    pub entity: Option<EntityRef>,
    /// The name to show to others, such as "Confirmed by Anna".
    pub name: Option<String>,
    pub expires_at: Timestamp,
}

/// The claims of a token that concern us. Ids may be numbers, as everywhere.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Claims {
    pub sub: UserId,
    pub user_type: UserTypeName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entity_type: Option<EntityType>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entity_id: Option<EntityId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Seconds since 1970. Some issuers write fractions.
    pub exp: Value,
}

const MAX_NAME_CHARS: usize = 200;

impl EndUser {
    /// Reads the claims of a token whose signature and times were verified. The error names the claim.
    pub fn of(claims: Claims, user_types: &UserTypes) -> Result<Self, String> {
        let Claims { sub, user_type, entity_type, entity_id, name, exp } = claims;
        if user_types.get(&user_type).is_none() {
            return Err(format!(
                "user_type: unknown user type `{user_type}`: known are {}",
                user_types.names()
            ));
        }
        let entity = match (entity_type, entity_id) {
            (None, None) => None,
            (Some(entity_type), Some(entity_id)) => Some(EntityRef { entity_type, entity_id }),
            (Some(_), None) => return Err("entity_id: is required with entity_type".to_owned()),
            (None, Some(_)) => return Err("entity_type: is required with entity_id".to_owned()),
        };
        let printable =
            |name: &String| name.chars().count() <= MAX_NAME_CHARS && !name.chars().any(char::is_control);
        if name.as_ref().is_some_and(|name| !printable(name)) {
            return Err(format!(
                "name: must have at most {MAX_NAME_CHARS} characters and no control characters"
            ));
        }
        #[expect(clippy::cast_possible_truncation, reason = "fractions of a second do not matter")]
        let seconds = exp.as_i64().or_else(|| exp.as_f64().map(|seconds| seconds as i64));
        let expires_at = seconds.map(|seconds| Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX));
        let expires_at = expires_at.ok_or("exp: is not a number of seconds")?;
        Ok(EndUser { user: UserRef { user_type, user_id: sub }, entity, name, expires_at })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn end_user(claims: Value) -> Result<EndUser, String> {
        let claims = serde_json::from_value(claims).map_err(|error| error.to_string())?;
        EndUser::of(claims, &UserTypes::default())
    }

    #[test]
    fn a_user_is_a_type_and_an_id() {
        let user = end_user(json!({
            "sub": 50, "user_type": "RESTAURANT_USER", "entity_type": "RESTAURANT", "entity_id": 5,
            "name": "Anna", "exp": 1_900_000_000.5, "scope": "openid",
        }));
        let user = user.unwrap();
        assert_eq!((user.user.user_id.as_str(), user.user.user_type.as_str()), ("50", "RESTAURANT_USER"));
        assert_eq!(user.entity.unwrap().entity_id.as_str(), "5");
        assert_eq!(user.expires_at.as_second(), 1_900_000_000);
        let customer = end_user(json!({ "sub": "50", "user_type": "CUSTOMER", "exp": 1 })).unwrap();
        assert_ne!(customer.user, user.user);
    }

    #[test]
    fn claims_that_cannot_be_right_are_refused_and_named() {
        for (claim, value) in [
            ("sub", json!({})),
            ("sub", json!("")),
            ("sub", json!(["1"])),
            ("user_type", json!("ADMINISTRATOR")),
            ("user_type", json!(null)),
            ("entity_id", json!(5)),
            ("name", json!("a\nb")),
            ("name", json!(7)),
            ("name", json!("x".repeat(201))),
            ("exp", json!("tomorrow")),
        ] {
            let mut claims = json!({ "sub": "1", "user_type": "CUSTOMER", "exp": 1 });
            claims[claim] = value.clone();
            assert!(end_user(claims).is_err(), "{claim} {value}");
        }
        assert!(end_user(json!({ "sub": "1", "exp": 1 })).is_err());
        assert!(end_user(json!({ "user_type": "CUSTOMER", "exp": 1 })).is_err());
    }
}
