//! A sender as operators write it: an address, optionally with a name.

use std::str::FromStr;

use campanile_domain::people::address::{InvalidMailbox, Mailbox};

/// `Campanile <noreply@example.com>`, or the address alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedMailbox {
    pub name: Option<String>,
    pub mailbox: Mailbox,
}

impl FromStr for NamedMailbox {
    type Err = InvalidMailbox;

    fn from_str(text: &str) -> Result<Self, InvalidMailbox> {
        let Some((name, rest)) = text.trim().split_once('<') else {
            return Ok(NamedMailbox { name: None, mailbox: text.trim().parse()? });
        };
        let mailbox = rest.strip_suffix('>').ok_or(InvalidMailbox::Domain)?.parse()?;
        let name = name.trim().trim_matches('"').trim();
        Ok(NamedMailbox { name: (!name.is_empty()).then(|| name.to_owned()), mailbox })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_may_have_a_name() {
        let named: NamedMailbox = "\"Trattoria è buona\" <ciao@example.com>".parse().unwrap();
        assert_eq!(named.name.as_deref(), Some("Trattoria è buona"));
        assert_eq!(named.mailbox.as_str(), "ciao@example.com");
        assert_eq!("ciao@example.com".parse::<NamedMailbox>().unwrap().name, None);
        assert!("Trattoria <ciao@example.com".parse::<NamedMailbox>().is_err());
    }
}
