//! End users, as a verified token names them. A token gives access to one user's own data, and to nothing else.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::id::{EntityId, EntityRef, EntityType, UserId, UserRef, UserTypeName};
use crate::people::recipient::check_user;
use crate::people::user_type::UserTypes;
use crate::rules::row::FieldError;
use crate::time::{self, Timestamp};

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
    /// Whom the token is for: a text, or several.
    #[serde(default, skip_serializing)]
    pub aud: Value,
}

/// The audiences of tokens that Campanile signs begin with this, such as those of tickets.
pub const OWN_AUDIENCE: &str = "campanile:";

impl Claims {
    /// Whether Campanile signed the token for a purpose of its own.
    pub fn is_own(&self) -> bool {
        let is_own = |audience: &Value| audience.as_str().is_some_and(|text| text.starts_with(OWN_AUDIENCE));
        match &self.aud {
            Value::Array(audiences) => audiences.iter().any(is_own),
            audience => is_own(audience),
        }
    }
}

pub const MAX_NAME_CHARS: usize = 200;
/// A token that is valid for longer was written with milliseconds instead of seconds.
const MAX_LIFETIME: Duration = Duration::from_hours(24 * 366 * 10);

impl EndUser {
    /// Reads the claims of a token whose signature and times were verified. The error names the claim.
    pub fn of(claims: Claims, user_types: &UserTypes, now: Timestamp) -> Result<Self, FieldError> {
        let Claims { sub, user_type, entity_type, entity_id, name, exp, aud: _ } = claims;
        check_user(user_types, &user_type, (entity_type.as_ref(), entity_id.as_ref()))?;
        let is_printable =
            |name: &String| name.chars().count() <= MAX_NAME_CHARS && !name.chars().any(char::is_control);
        if !name.as_ref().is_none_or(is_printable) {
            let detail = format!("must have at most {MAX_NAME_CHARS} characters, none of them control");
            return Err(FieldError::new("name", detail));
        }
        #[expect(clippy::cast_possible_truncation, reason = "fractions of a second do not matter")]
        let seconds = exp.as_i64().or_else(|| exp.as_f64().map(|seconds| seconds as i64));
        let expires_at = seconds.and_then(|seconds| Timestamp::from_second(seconds).ok());
        let Some(expires_at) = expires_at.filter(|at| *at < time::later(now, MAX_LIFETIME)) else {
            let detail =
                "must be a time in seconds since 1970, at most 10 years ahead; it may be in milliseconds";
            return Err(FieldError::new("exp", detail));
        };
        let entity = entity_type.zip(entity_id);
        let entity = entity.map(|(entity_type, entity_id)| EntityRef { entity_type, entity_id });
        Ok(EndUser { user: UserRef { user_type, user_id: sub }, entity, name, expires_at })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn end_user(claims: Value) -> Result<EndUser, String> {
        let claims = serde_json::from_value(claims).map_err(|error| error.to_string())?;
        let now = Timestamp::from_second(1_700_000_000).unwrap();
        EndUser::of(claims, &UserTypes::default(), now).map_err(|error| error.detail)
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
            ("exp", json!(1_700_000_000_000_i64)),
            ("exp", json!(1e300)),
            ("name", json!("a\nb")),
            ("name", json!(7)),
            ("name", json!("x".repeat(201))),
            ("exp", json!("tomorrow")),
        ] {
            let mut claims = json!({ "sub": "1", "user_type": "CUSTOMER", "exp": 1 });
            claims[claim] = value.clone();
            assert!(end_user(claims).is_err(), "{claim} {value}");
        }
        let of_agency = json!({
            "sub": "1", "user_type": "RESTAURANT_USER", "entity_type": "AGENCY", "entity_id": "5", "exp": 1,
        });
        assert!(end_user(of_agency).unwrap_err().contains("belongs to a RESTAURANT"));
        assert!(end_user(json!({ "sub": "1", "exp": 1 })).is_err());
        assert!(end_user(json!({ "user_type": "CUSTOMER", "exp": 1 })).is_err());
    }
}
