//! Addresses of channels without a column of their own: `recipient.addresses`. It is an object from the name of a
//! channel to an address or a list of addresses.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::value::SeqAccessDeserializer;
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::channel::{AddressCount, AddressSource, Channel, ChannelFacts};
use crate::rules::row::FieldError;

/// As in outcomes and dead addresses, which do not store longer ones.
const MAX_BYTES: usize = 2_000;
/// A recipient's devices of one channel.
const MAX_ADDRESSES: usize = 100;

const FIELD: &str = "addresses";

/// By the name of the channel. Only a checked one contains nothing but known channels.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Addresses(BTreeMap<String, Entry>);

/// The addresses of one channel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Entry {
    One(String),
    Many(Vec<String>),
}

impl Addresses {
    /// The addresses of a channel that has an entry. A channel with one address takes the first.
    pub fn of(&self, facts: &ChannelFacts) -> Vec<&str> {
        let addresses = self.0.get(facts.name).map(Entry::as_slice).unwrap_or_default();
        let most = match facts.addresses {
            AddressCount::One => 1,
            AddressCount::Many => addresses.len(),
        };
        addresses.iter().take(most).map(String::as_str).collect()
    }

    /// Masks the addresses of the channel with this name.
    pub fn mask(&mut self, name: &str, masked: impl Fn(&str) -> String) {
        match self.0.get_mut(name) {
            Some(Entry::One(address)) => *address = masked(address),
            Some(Entry::Many(addresses)) => {
                for address in addresses {
                    *address = masked(address);
                }
            }
            None => {}
        }
    }

    /// Errors do not contain the addresses: those may be secrets, and callers may log errors.
    pub fn check(&self) -> Result<(), FieldError> {
        for (name, entry) in &self.0 {
            let channel: Channel =
                name.parse().map_err(|error| FieldError::new(FIELD, format!("{error}; {}", remedy())))?;
            check_entry(channel.facts(), entry)?;
        }
        Ok(())
    }
}

/// Which channels have an entry.
fn remedy() -> String {
    let has_entry = |channel: &Channel| channel.facts().address == AddressSource::Entry;
    let names: Vec<&str> = Channel::ALL.into_iter().filter(has_entry).map(Channel::as_str).collect();
    match names.as_slice() {
        [] => "every channel has a column of its own or needs no address".to_owned(),
        names => format!("channels without a column of their own are {}", names.join(", ")),
    }
}

fn check_entry(facts: &ChannelFacts, entry: &Entry) -> Result<(), FieldError> {
    let name = facts.name;
    let field = format!("{FIELD}/{name}");
    match facts.address {
        AddressSource::Column(column) => {
            let detail =
                format!("{name} has a column of its own: write the address to `{}`", column.as_str());
            return Err(FieldError::new(&field, detail));
        }
        AddressSource::None => {
            return Err(FieldError::new(&field, format!("{name} needs no address; remove it")));
        }
        AddressSource::Entry => {}
    }
    let addresses = entry.as_slice();
    match facts.addresses {
        AddressCount::One if addresses.len() > 1 => {
            return Err(FieldError::new(&field, format!("{name} takes one address")));
        }
        AddressCount::Many if addresses.len() > MAX_ADDRESSES => {
            let detail = format!("must have at most {MAX_ADDRESSES} addresses");
            return Err(FieldError::new(&field, detail));
        }
        AddressCount::One | AddressCount::Many => {}
    }
    for (at, address) in addresses.iter().enumerate() {
        let Some(why) = objection(facts.addresses, address) else { continue };
        let field = match entry {
            Entry::One(_) => field,
            Entry::Many(_) => format!("{field}/{at}"),
        };
        return Err(FieldError::new(&field, why));
    }
    Ok(())
}

/// What is wrong with an address, whatever the channel. Its provider judges the rest.
fn objection(count: AddressCount, address: &str) -> Option<String> {
    let is_blank = |c: char| c.is_whitespace();
    if address.is_empty() {
        Some("must not be empty; remove it".to_owned())
    } else if address.len() > MAX_BYTES {
        Some(format!("must have at most {MAX_BYTES} bytes"))
    } else if address.chars().any(char::is_control) {
        Some("must not contain control characters such as line breaks".to_owned())
    } else if address.starts_with(is_blank) || address.ends_with(is_blank) {
        Some("has leading or trailing spaces".to_owned())
    } else if count == AddressCount::Many && address.contains(is_blank) {
        Some("must not contain spaces".to_owned())
    } else {
        None
    }
}

impl Entry {
    fn as_slice(&self) -> &[String] {
        match self {
            Entry::One(address) => std::slice::from_ref(address),
            Entry::Many(addresses) => addresses,
        }
    }
}

impl<'de> Deserialize<'de> for Entry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrMany;
        impl<'de> Visitor<'de> for OneOrMany {
            type Value = Entry;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an address or an array of addresses")
            }

            fn visit_str<E: Error>(self, address: &str) -> Result<Entry, E> {
                Ok(Entry::One(address.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, addresses: A) -> Result<Entry, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(addresses)).map(Entry::Many)
            }
        }
        deserializer.deserialize_any(OneOrMany)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A channel with an entry; the shipped ones have none.
    fn pager(addresses: AddressCount) -> ChannelFacts {
        ChannelFacts { name: "PAGER", address: AddressSource::Entry, addresses, ..*Channel::ALL[0].facts() }
    }

    fn stored(value: Value) -> Addresses {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn an_entry_is_an_address_or_a_list_and_is_written_as_it_was_read() {
        for value in [json!({}), json!({"PAGER": "7"}), json!({"PAGER": ["7", "8"]})] {
            assert_eq!(serde_json::to_value(stored(value.clone())).unwrap(), value);
        }
        for value in [json!({"PAGER": 7}), json!({"PAGER": [7]}), json!({"PAGER": null}), json!([])] {
            assert!(serde_json::from_value::<Addresses>(value.clone()).is_err(), "{value}");
        }
    }

    #[test]
    fn a_channel_takes_as_many_addresses_as_it_can_have() {
        let (one, many) = (pager(AddressCount::One), pager(AddressCount::Many));
        let two = stored(json!({"PAGER": ["7", "8"], "FAX": "9"}));
        assert_eq!((two.of(&one), two.of(&many)), (vec!["7"], vec!["7", "8"]));
        assert_eq!(stored(json!({"PAGER": "7"})).of(&many), ["7"]);
        assert!(Addresses::default().of(&many).is_empty());
    }

    #[test]
    fn only_channels_without_a_column_have_an_entry() {
        let refused = |value| stored(value).check().unwrap_err().to_string();
        assert!(refused(json!({"FAX": "7"})).starts_with("addresses: unknown channel `FAX`"));
        let column = refused(json!({"EMAIL": "a@example.com"}));
        assert!(column.starts_with("addresses/EMAIL: ") && column.contains("`email`"), "{column}");
        assert!(refused(json!({"WEBSOCKET": "x"})).contains("needs no address"));
        assert_eq!(stored(json!({})).check(), Ok(()));
    }

    #[test]
    fn what_is_no_address_is_refused_without_naming_it() {
        let check = |count, value: Value| {
            check_entry(&pager(count), &serde_json::from_value(value).unwrap()).map_err(|e| e.to_string())
        };
        let (one, many) = (AddressCount::One, AddressCount::Many);
        assert_eq!(check(one, json!("Room 7")), Ok(()));
        assert_eq!(check(one, json!(["7"])), Ok(()));
        assert_eq!(check(many, json!(["7", "8"])), Ok(()));
        for (count, value, reason) in [
            (one, json!(""), "addresses/PAGER: must not be empty"),
            (one, json!(" 7"), "addresses/PAGER: has leading"),
            (one, json!("7\n"), "addresses/PAGER: must not contain control"),
            (one, json!("x".repeat(2_001)), "addresses/PAGER: must have at most 2000 bytes"),
            (one, json!(["7", "8"]), "addresses/PAGER: PAGER takes one address"),
            (many, json!(["7", "8 9"]), "addresses/PAGER/1: must not contain spaces"),
            (many, json!(vec!["7"; 101]), "addresses/PAGER: must have at most 100"),
        ] {
            let refused = check(count, value).unwrap_err();
            assert!(refused.starts_with(reason), "{refused}");
        }
    }
}
