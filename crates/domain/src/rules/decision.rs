//! What was decided for a recipient, channel by channel, and why. It answers questions such as "why did she get no text
//! message?".

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;
use utoipa::ToSchema;

use crate::channel::{Channel, PerChannel};
use crate::id::{UserId, UserRef, UserTypeName};
use crate::people::recipient::Recipient;
use crate::priority::Priority;
use crate::schema::JsonObject;

/// The reasons, in the order of the checks. The first one that applies is the verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Verdict {
    Send,
    NotRouted,
    GroupOff,
    UserOff,
    Unsupported,
    NoAddress,
    DeadAddress,
    Role,
    LowPriority,
    QuietHours,
    MaxRecipients,
}

impl Verdict {
    pub const ALL: [Verdict; 11] = [
        Verdict::Send,
        Verdict::NotRouted,
        Verdict::GroupOff,
        Verdict::UserOff,
        Verdict::Unsupported,
        Verdict::NoAddress,
        Verdict::DeadAddress,
        Verdict::Role,
        Verdict::LowPriority,
        Verdict::QuietHours,
        Verdict::MaxRecipients,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Send => "SEND",
            Verdict::NotRouted => "NOT_ROUTED",
            Verdict::GroupOff => "GROUP_OFF",
            Verdict::UserOff => "USER_OFF",
            Verdict::Unsupported => "UNSUPPORTED",
            Verdict::NoAddress => "NO_ADDRESS",
            Verdict::DeadAddress => "DEAD_ADDRESS",
            Verdict::Role => "ROLE",
            Verdict::LowPriority => "LOW_PRIORITY",
            Verdict::QuietHours => "QUIET_HOURS",
            Verdict::MaxRecipients => "MAX_RECIPIENTS",
        }
    }
}

/// A verdict with what the send needs, or with the rule that prevented it.
#[derive(Debug, Clone, PartialEq)]
pub enum Ruling {
    Send { address: String, priority: Priority },
    Not { verdict: Verdict, because: Value },
}

impl Ruling {
    pub fn verdict(&self) -> Verdict {
        match self {
            Ruling::Send { .. } => Verdict::Send,
            Ruling::Not { verdict, .. } => *verdict,
        }
    }
}

/// One ruling per channel for one recipient.
#[derive(Debug, Clone, PartialEq)]
pub struct Rulings {
    pub user: UserRef,
    pub channels: PerChannel<Ruling>,
}

impl Rulings {
    pub fn sends(&self) -> impl Iterator<Item = (Channel, &str, Priority)> {
        self.channels.iter().filter_map(|(channel, ruling)| match ruling {
            Ruling::Send { address, priority } => Some((channel, address.as_str(), *priority)),
            Ruling::Not { .. } => None,
        })
    }
}

/// A recipient's rulings in their stored and displayed form.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Decision {
    pub user_type: UserTypeName,
    pub user_id: UserId,
    /// The recipient's name, for display only. It is not stored, because names change; it is looked up when a decision
    /// is shown.
    #[serde(skip)]
    pub name: Option<String>,
    #[serde(skip)]
    pub role: Option<String>,
    pub audience: String,
    pub channels: BTreeMap<Channel, Verdict>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<Channel, JsonObject>)]
    pub details: BTreeMap<Channel, Value>,
}

impl Decision {
    pub fn new(recipient: &Recipient, rulings: Rulings, audience: &str) -> Self {
        let Rulings { user, channels } = rulings;
        let details = channels.iter().filter_map(|(channel, ruling)| match ruling {
            Ruling::Not { because, .. } if !because.is_null() => Some((channel, because.clone())),
            Ruling::Not { .. } | Ruling::Send { .. } => None,
        });
        Decision {
            user_type: user.user_type,
            user_id: user.user_id,
            name: recipient.name.clone(),
            role: recipient.role.clone(),
            audience: audience.to_owned(),
            details: details.collect(),
            channels: channels.iter().map(|(channel, ruling)| (channel, ruling.verdict())).collect(),
        }
    }
}

/// How often each verdict was given, by channel. Zeros are left out.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, ToSchema)]
#[schema(value_type = BTreeMap<Channel, BTreeMap<Verdict, u64>>)]
#[serde(from = "BTreeMap<Channel, BTreeMap<Verdict, u64>>")]
pub struct VerdictCounts(PerChannel<OfVerdicts>);

#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct OfVerdicts([u64; Verdict::ALL.len()]);

impl VerdictCounts {
    pub fn add(&mut self, rulings: &Rulings) {
        for (channel, ruling) in rulings.channels.iter() {
            self.0.get_mut(channel).0[ruling.verdict() as usize] += 1;
        }
    }

    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("counts can be written as JSON")
    }

    pub fn get(&self, channel: Channel, verdict: Verdict) -> u64 {
        self.0.get(channel).0[verdict as usize]
    }
}

impl From<BTreeMap<Channel, BTreeMap<Verdict, u64>>> for VerdictCounts {
    fn from(given: BTreeMap<Channel, BTreeMap<Verdict, u64>>) -> Self {
        let mut counts = VerdictCounts::default();
        for (channel, verdicts) in given {
            for (verdict, count) in verdicts {
                counts.0.get_mut(channel).0[verdict as usize] = count;
            }
        }
        counts
    }
}

impl Serialize for VerdictCounts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer
            .collect_map(self.0.iter().filter(|(_, verdicts)| verdicts.0.iter().any(|count| *count > 0)))
    }
}

impl Serialize for OfVerdicts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(Verdict::ALL.into_iter().zip(&self.0).filter(|(_, count)| **count > 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_written_by_name_and_come_back() {
        let mut counts = VerdictCounts::default();
        assert_eq!(counts.to_json(), "{}");
        for verdict in Verdict::ALL {
            let channels = PerChannel::from_fn(|_| Ruling::Not { verdict, because: Value::Null });
            let user = UserRef { user_type: UserTypeName::stored("CUSTOMER"), user_id: UserId::stored("1") };
            counts.add(&Rulings { user, channels });
        }
        for verdict in Verdict::ALL {
            assert_eq!(counts.get(Channel::Sms, verdict), 1, "{}", verdict.as_str());
        }
        let json = counts.to_json();
        let begin = concat!(
            r#"{"EMAIL":{"SEND":1,"NOT_ROUTED":1,"GROUP_OFF":1,"USER_OFF":1,"#,
            r#""UNSUPPORTED":1,"NO_ADDRESS":1,"DEAD_ADDRESS":1,"#
        );
        assert!(json.starts_with(begin), "{json}");
        assert_eq!(serde_json::from_str::<VerdictCounts>(&json).unwrap(), counts);
    }
}
