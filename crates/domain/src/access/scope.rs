//! What an API key may do.

use std::fmt;
use std::str::FromStr;

use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::ToSchema;

/// One permission of an API key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Emits events.
    Emit,
    /// Reads traces, lists and explanations, without payloads, addresses and texts.
    Read,
    /// Adds payloads, addresses and texts to what is read.
    Payload,
    /// Reads and writes people, rules and templates.
    Rules,
    /// Replays, resends and settles.
    Operate,
    /// Uploads and controls mailings.
    Mailings,
    /// Issues tickets for end users.
    Tickets,
    /// Everything, and the keys themselves.
    Admin,
}

impl Scope {
    pub const ALL: [Scope; 8] = [
        Scope::Emit,
        Scope::Read,
        Scope::Payload,
        Scope::Rules,
        Scope::Operate,
        Scope::Mailings,
        Scope::Tickets,
        Scope::Admin,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Scope::Emit => "emit",
            Scope::Read => "read",
            Scope::Payload => "payload",
            Scope::Rules => "rules",
            Scope::Operate => "operate",
            Scope::Mailings => "mailings",
            Scope::Tickets => "tickets",
            Scope::Admin => "admin",
        }
    }

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown scope `{0}`: expected emit, read, payload, rules, operate, mailings, tickets or admin")]
pub struct UnknownScope(String);

impl FromStr for Scope {
    type Err = UnknownScope;

    fn from_str(text: &str) -> Result<Self, UnknownScope> {
        let known = Scope::ALL.into_iter().find(|scope| scope.as_str() == text);
        known.ok_or_else(|| UnknownScope(text.chars().take(80).collect()))
    }
}

impl<'de> Deserialize<'de> for Scope {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// The scopes of a key. As JSON an array of names, each once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Scopes(u8);

impl Scopes {
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn iter(self) -> impl Iterator<Item = Scope> {
        Scope::ALL.into_iter().filter(move |scope| self.0 & scope.bit() != 0)
    }

    /// Whether a key with these scopes may do what `scope` permits. `admin` includes every other scope.
    pub fn allow(self, scope: Scope) -> bool {
        self.0 & (scope.bit() | Scope::Admin.bit()) != 0
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Self {
        Scopes(scopes.into_iter().fold(0, |bits, scope| bits | scope.bit()))
    }
}

impl fmt::Display for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.iter().map(Scope::as_str).collect();
        f.pad(&names.join(" "))
    }
}

impl Serialize for Scopes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

impl<'de> Deserialize<'de> for Scopes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Names;
        impl<'de> Visitor<'de> for Names {
            type Value = Scopes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array of scopes")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut names: A) -> Result<Scopes, A::Error> {
                let mut scopes = Scopes::default();
                while let Some(scope) = names.next_element::<Scope>()? {
                    scopes.0 |= scope.bit();
                }
                Ok(scopes)
            }
        }
        deserializer.deserialize_seq(Names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_scope_allows_itself_and_admin_allows_all() {
        for scope in Scope::ALL {
            let alone: Scopes = [scope].into_iter().collect();
            for other in Scope::ALL {
                assert_eq!(alone.allow(other), scope == other || scope == Scope::Admin, "{scope} {other}");
            }
            assert_eq!(scope.as_str().parse(), Ok(scope));
            assert!(!Scopes::default().allow(scope));
        }
    }

    #[test]
    fn scopes_are_an_array_of_names() {
        let scopes: Scopes = serde_json::from_str(r#"["read", "emit", "read"]"#).unwrap();
        assert_eq!(serde_json::to_string(&scopes).unwrap(), r#"["emit","read"]"#);
        assert_eq!(scopes.to_string(), "emit read");
        let wrong = serde_json::from_str::<Scopes>(r#"["everything"]"#).unwrap_err().to_string();
        assert!(wrong.contains("unknown scope `everything`: expected emit, read"), "{wrong}");
    }
}
