//! The record of what was changed by whom. Secrets are left out, but a change of a secret can be seen.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use utoipa::ToSchema;

use super::api_key::ApiKeyId;
use crate::channel::{AddressSource, Channel};
use crate::hex::hex;

/// Who acts: a service, or an operator with the admin key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Actor {
    AdminKey,
    ApiKey { id: ApiKeyId, name: String },
}

impl Actor {
    pub fn kind(&self) -> ActorKind {
        match self {
            Actor::AdminKey => ActorKind::AdminKey,
            Actor::ApiKey { .. } => ActorKind::ApiKey,
        }
    }

    /// The key's id; empty for the admin key, of which there is one.
    pub fn id(&self) -> &str {
        match self {
            Actor::AdminKey => "",
            Actor::ApiKey { id, .. } => id.as_str(),
        }
    }

    pub fn name(&self) -> &str {
        match self {
            Actor::AdminKey => "admin key",
            Actor::ApiKey { name, .. } => name,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ActorKind {
    AdminKey,
    ApiKey,
}

impl ActorKind {
    pub fn as_str(self) -> &'static str {
        match self {
            ActorKind::AdminKey => "ADMIN_KEY",
            ActorKind::ApiKey => "API_KEY",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum AuditAction {
    /// A row was created or replaced.
    Put,
    /// A row was deleted.
    Delete,
    /// Dead letters were replayed.
    Replay,
    /// A send in doubt is sent again.
    Resend,
    /// A send in doubt got its outcome from a person.
    Settle,
    /// An API key was created.
    Create,
    /// An API key was revoked.
    Revoke,
    /// The signing key was replaced.
    Rotate,
}

impl AuditAction {
    pub const ALL: [AuditAction; 8] = [
        AuditAction::Put,
        AuditAction::Delete,
        AuditAction::Replay,
        AuditAction::Resend,
        AuditAction::Settle,
        AuditAction::Create,
        AuditAction::Revoke,
        AuditAction::Rotate,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            AuditAction::Put => "PUT",
            AuditAction::Delete => "DELETE",
            AuditAction::Replay => "REPLAY",
            AuditAction::Resend => "RESEND",
            AuditAction::Settle => "SETTLE",
            AuditAction::Create => "CREATE",
            AuditAction::Revoke => "REVOKE",
            AuditAction::Rotate => "ROTATE",
        }
    }
}

impl fmt::Display for AuditAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A longer text is recorded by its beginning and its hash: the record is kept for long, and listed by the thousand.
const MAX_TEXT_BYTES: usize = 2_000;
const SHOWN_CHARS: usize = 200;

/// One change, to be written in the transaction of the change.
#[derive(Debug, Clone, PartialEq)]
pub struct AuditEntry {
    pub action: AuditAction,
    /// The kind of the changed thing: the name of its table.
    pub object_type: &'static str,
    /// Its key: an id, or a JSON array of the key's columns.
    pub object_id: String,
    pub before: Option<Value>,
    pub after: Option<Value>,
}

impl AuditEntry {
    /// The change of a row. `None` if nothing changed.
    pub fn of_row(
        object_type: &'static str,
        key: &[String],
        mut before: Option<Map<String, Value>>,
        mut after: Option<Map<String, Value>>,
    ) -> Option<Self> {
        if before == after {
            return None;
        }
        for row in [&mut before, &mut after].into_iter().flatten() {
            mask_secrets(row);
            row.values_mut().for_each(shorten);
        }
        let action = if after.is_some() { AuditAction::Put } else { AuditAction::Delete };
        Some(AuditEntry {
            action,
            object_type,
            object_id: Value::from(key.to_vec()).to_string(),
            before: before.map(Value::Object),
            after: after.map(Value::Object),
        })
    }
}

/// Shortens a long text, such as that of a template. A hash shows whether it changed.
fn shorten(value: &mut Value) {
    match value {
        Value::String(text) if text.len() > MAX_TEXT_BYTES => {
            let begin: String = text.chars().take(SHOWN_CHARS).collect();
            *text = format!("{begin}… ({} bytes, sha256 {})", text.len(), short_hash(text));
        }
        Value::Array(values) => values.iter_mut().for_each(shorten),
        Value::Object(fields) => fields.values_mut().for_each(shorten),
        _ => {}
    }
}

/// Masks the addresses of a recipient that are secrets.
pub fn mask_secrets(row: &mut Map<String, Value>) {
    for facts in Channel::ALL.into_iter().map(Channel::facts).filter(|facts| facts.secret_address) {
        match facts.address {
            AddressSource::Column(column) => {
                row.get_mut(column.as_str()).into_iter().for_each(mask);
            }
            AddressSource::Entry => {
                row.get_mut("addresses").and_then(|all| all.get_mut(facts.name)).into_iter().for_each(mask);
            }
            AddressSource::None => {}
        }
    }
}

/// Replaces a text by a short hash. A secret address is long and random, so the hash does not reveal it.
fn mask(value: &mut Value) {
    match value {
        Value::String(text) => {
            *text = format!("*** (sha256 {})", short_hash(text));
        }
        Value::Array(values) => values.iter_mut().for_each(mask),
        _ => {}
    }
}

fn short_hash(text: &str) -> String {
    hex(&Sha256::digest(text.as_bytes())[..4])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn row(value: Value) -> Option<Map<String, Value>> {
        match value {
            Value::Object(row) => Some(row),
            _ => None,
        }
    }

    #[test]
    fn a_change_of_a_secret_is_seen_and_the_secret_is_not() {
        let person = |webhook: &str| row(json!({ "name": "Anna", "slack_webhook": webhook }));
        let key = ["CUSTOMER".to_owned(), "1".to_owned()];
        let (old, new) = ("https://hooks.slack.com/services/A", "https://hooks.slack.com/services/B");
        let entry = AuditEntry::of_row("recipient", &key, person(old), person(new)).unwrap();
        assert_eq!(entry.object_id, r#"["CUSTOMER","1"]"#);
        assert_ne!(entry.before, entry.after);
        let shown = format!("{entry:?}");
        assert!(shown.contains("Anna") && !shown.contains("hooks.slack.com"), "{shown}");
    }

    #[test]
    fn a_long_text_is_recorded_by_its_beginning_and_its_hash() {
        let template = |body: &str| row(json!({ "body": body }));
        let (old, new) = ("x".repeat(100_000), format!("{}y", "x".repeat(99_999)));
        let entry = AuditEntry::of_row("template", &[], template(&old), template(&new)).unwrap();
        assert_ne!(entry.before, entry.after);
        assert!(entry.before.unwrap().to_string().len() < 1_000);
    }

    #[test]
    fn a_row_that_stays_as_it_was_is_no_change() {
        let same = || row(json!({ "name": "Anna" }));
        assert_eq!(AuditEntry::of_row("recipient", &[], same(), same()), None);
        assert_eq!(AuditEntry::of_row("recipient", &[], None, None), None);
        let written = AuditEntry::of_row("recipient", &[], None, same()).unwrap();
        let deleted = AuditEntry::of_row("recipient", &[], same(), None).unwrap();
        assert_eq!((written.action, deleted.action), (AuditAction::Put, AuditAction::Delete));
    }

    #[test]
    fn actions_are_written_by_their_names() {
        for action in AuditAction::ALL {
            assert_eq!(json!(action), action.as_str());
        }
        for kind in [ActorKind::AdminKey, ActorKind::ApiKey] {
            assert_eq!(json!(kind), kind.as_str());
        }
    }
}
