//! How urgent an event is. In every claim `HIGH` comes before `NORMAL`, and `NORMAL` before `LOW`.

use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How urgent an event is. `HIGH` is also sent in quiet hours.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize, ToSchema,
)]
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

    /// The lane in which events, chunks and sends of this priority wait.
    pub fn lane(self) -> Lane {
        match self {
            Priority::High => Lane::High,
            Priority::Normal => Lane::Normal,
            Priority::Low => Lane::Low,
        }
    }
}

/// The order of claims: everything in a lane is claimed before everything in later lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Lane {
    High,
    Normal,
    Low,
}

impl Lane {
    /// In the order of claims.
    pub const ALL: [Lane; 3] = [Lane::High, Lane::Normal, Lane::Low];

    /// The number in the `lane` columns of the database. Triggers there give the same number to a plain `INSERT`.
    pub fn number(self) -> i16 {
        match self {
            Lane::High => 0,
            Lane::Normal => 1,
            Lane::Low => 2,
        }
    }

    /// The priority of what waits in this lane.
    pub fn priority(self) -> Priority {
        match self {
            Lane::High => Priority::High,
            Lane::Normal => Priority::Normal,
            Lane::Low => Priority::Low,
        }
    }

    /// Reads the number back. A number of no lane is read as the least urgent, so that nothing is left behind.
    pub fn from_number(number: i16) -> Self {
        Lane::ALL.into_iter().find(|lane| lane.number() == number).unwrap_or(Lane::Low)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_are_numbered_in_the_order_of_claims() {
        assert_eq!(Lane::ALL.map(Lane::number), [0, 1, 2]);
        assert!(Lane::High < Lane::Normal && Lane::Normal < Lane::Low);
        for lane in Lane::ALL {
            assert_eq!(Lane::from_number(lane.number()), lane);
            assert_eq!(lane.priority().lane(), lane);
        }
        assert_eq!(Lane::from_number(7), Lane::Low);
    }

    #[test]
    fn a_higher_priority_has_an_earlier_lane() {
        assert!(Priority::ALL.windows(2).all(|pair| pair[0] < pair[1] && pair[0].lane() > pair[1].lane()));
    }
}
