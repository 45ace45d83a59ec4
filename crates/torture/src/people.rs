//! The recipients, and what each of them should get.

use std::ops::Range;

use serde_json::{Value, json};

/// A number that unsubscribed: each send becomes a dead letter. An invalid number would be marked dead after the first.
const REJECTED_NUMBER: &str = "+15005550004";
const LARGE_AUDIENCE: u32 = 6_000;

/// The audience of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// Three recipients with every address; one has a number that is rejected.
    Staff,
    /// So many that their fan-out takes several steps.
    LargeAudience,
    /// Three recipients with only a number.
    Phones,
}

/// What a recipient should get over one channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// Captured in the transaction that settles the send.
    Captured,
    /// Sent by the provider.
    Texted,
    /// Refused by the provider, and so a dead letter.
    Rejected,
    /// Passed to the sockets.
    Live,
}

impl Group {
    pub const ALL: [Group; 3] = [Group::Staff, Group::LargeAudience, Group::Phones];

    pub fn restaurant(self) -> u32 {
        match self {
            Group::Staff => 5,
            Group::LargeAudience => 6,
            Group::Phones => 7,
        }
    }

    pub fn users(self) -> Range<u32> {
        let count = match self {
            Group::Staff | Group::Phones => 3,
            Group::LargeAudience => LARGE_AUDIENCE,
        };
        let first = self.restaurant() * 10_000 + 1;
        first..first + count
    }

    pub fn due(self, user: u32) -> &'static [(&'static str, Due)] {
        const CAPTURED: (&str, Due) = ("EMAIL", Due::Captured);
        const LIVE: (&str, Due) = ("WEBSOCKET", Due::Live);
        match self {
            Group::Staff if self.phone(user) == REJECTED_NUMBER => {
                &[CAPTURED, ("PUSH", Due::Captured), ("SMS", Due::Rejected), LIVE]
            }
            Group::Staff => &[CAPTURED, ("PUSH", Due::Captured), ("SMS", Due::Texted), LIVE],
            Group::LargeAudience => &[CAPTURED, LIVE],
            Group::Phones => &[("SMS", Due::Texted), LIVE],
        }
    }

    pub fn phone(self, user: u32) -> String {
        let last = self.users().last() == Some(user);
        if self == Group::Staff && last { REJECTED_NUMBER.to_owned() } else { format!("+39055{user:07}") }
    }

    /// The body of `PUT /v1/recipients`.
    pub fn recipients(self) -> Vec<Value> {
        self.users()
            .map(|user| {
                let has = |channel| self.due(user).iter().any(|(name, _)| *name == channel);
                json!({
                    "user_type": "RESTAURANT_USER", "user_id": user, "role": "WAITER",
                    "entity_type": "RESTAURANT", "entity_id": self.restaurant(),
                    "email": has("EMAIL").then(|| email(user)),
                    "phone": has("SMS").then(|| self.phone(user)),
                    "push_tokens": if has("PUSH") { vec![token(user)] } else { vec![] },
                })
            })
            .collect()
    }
}

/// The address of a user, named as in the database, for a channel.
pub fn address_of(user: &str, channel: &str) -> String {
    let user = user.parse().unwrap_or(0);
    match channel {
        "EMAIL" => email(user),
        "PUSH" => token(user),
        _ => {
            let group = Group::ALL.into_iter().find(|group| group.users().contains(&user));
            group.map(|group| group.phone(user)).unwrap_or_default()
        }
    }
}

fn email(user: u32) -> String {
    format!("p{user}@example.com")
}

fn token(user: u32) -> String {
    format!("token-{user}")
}

pub const EVENT_TYPE: &str = "RESERVATION_REQUESTED";

/// A template with the event's id as body, so that the provider's ledger can be matched.
pub fn templates() -> Value {
    json!([{"event_type": EVENT_TYPE, "channel": "SMS", "title": "Reservation", "body": "{{ event_id }}"}])
}
