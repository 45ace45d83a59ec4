//! Tickets: short-lived tokens for browsers, which cannot set headers on a WebSocket. A ticket is a JWT signed with the
//! installation's own key, so no token of an identity provider is a ticket, and no ticket is such a token.

use campanile_domain::access::end_user::{Claims, EndUser};
use campanile_domain::id::{EntityId, EntityType};
use campanile_domain::time::Timestamp;
use campanile_store::SigningKey;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde::Serialize;
use serde_json::Value;

/// Who a ticket is for. Other tokens that the same key signs have other audiences.
const AUDIENCE: &str = "campanile:ticket";

#[derive(Serialize)]
struct TicketClaims<'a> {
    #[serde(flatten)]
    claims: Claims,
    aud: &'a str,
    iat: i64,
}

/// Signs a ticket for this user, valid until the user's `expires_at`.
pub fn sign(user: &EndUser, key: &SigningKey, now: Timestamp) -> Result<String, jsonwebtoken::errors::Error> {
    let entity = user.entity.as_ref();
    let claims = Claims {
        sub: user.user.user_id.clone(),
        user_type: user.user.user_type.clone(),
        entity_type: entity.map(|entity| EntityType::stored(entity.entity_type.as_str())),
        entity_id: entity.map(|entity| EntityId::stored(entity.entity_id.as_str())),
        name: user.name.clone(),
        exp: Value::from(user.expires_at.as_second()),
        aud: Value::Null,
    };
    let mut header = Header::new(Algorithm::HS256);
    header.kid = Some(key.id.to_string());
    let claims = TicketClaims { claims, aud: AUDIENCE, iat: now.as_second() };
    encode(&header, &claims, &EncodingKey::from_secret(key.secret.as_bytes()))
}
