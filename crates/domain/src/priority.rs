//! How urgent an event is. `HIGH` overtakes `NORMAL` overtakes `LOW` in every claim.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Ordered by urgency: `Low < Normal < High`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Priority {
    Low,
    #[default]
    Normal,
    High,
}

impl Priority {
    pub const ALL: [Priority; 3] = [Priority::Low, Priority::Normal, Priority::High];

    pub fn as_str(self) -> &'static str {
        match self {
            Priority::Low => "LOW",
            Priority::Normal => "NORMAL",
            Priority::High => "HIGH",
        }
    }

    /// The order of claims: the smallest lane goes first.
    pub fn lane(self) -> i64 {
        match self {
            Priority::High => 0,
            Priority::Normal => 1,
            Priority::Low => 2,
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("unknown priority `{0}`: expected HIGH, NORMAL or LOW")]
pub struct UnknownPriority(String);

impl FromStr for Priority {
    type Err = UnknownPriority;

    fn from_str(text: &str) -> Result<Self, UnknownPriority> {
        Priority::ALL.into_iter().find(|p| p.as_str() == text).ok_or_else(|| UnknownPriority(text.to_owned()))
    }
}
