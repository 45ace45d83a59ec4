//! Validated e-mail addresses. The domain is in ASCII, and no address contains characters that could end an SMTP
//! command or a header.

use std::fmt;
use std::str::FromStr;

use email_address::EmailAddress;
use url::Host;

/// The limit of RFC 5321 for a path, which includes its angle brackets.
const MAX_BYTES: usize = 254;
const MAX_LABEL_BYTES: usize = 63;

/// `anna@example.com`. An internationalised domain is converted to its DNS form; an internationalised local part is
/// kept.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Mailbox {
    text: String,
    at: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidMailbox {
    #[error("it has no @")]
    NoAt,
    #[error("it has a line break or another control character")]
    Control,
    #[error("the part before the @ is invalid")]
    Local,
    #[error("it includes a display name; use name@domain without < and >")]
    Name,
    #[error("the part after the @ is not a domain")]
    Domain,
    #[error("it is longer than 254 bytes")]
    TooLong,
}

impl Mailbox {
    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub fn domain(&self) -> &str {
        &self.text[self.at + 1..]
    }

    /// Whether only a server with SMTPUTF8 accepts the address.
    pub fn needs_utf8(&self) -> bool {
        !self.text.is_ascii()
    }
}

impl FromStr for Mailbox {
    type Err = InvalidMailbox;

    fn from_str(text: &str) -> Result<Self, InvalidMailbox> {
        let text = text.trim_matches(' ');
        if text.chars().any(char::is_control) {
            return Err(InvalidMailbox::Control);
        }
        if text.contains('<') && text.ends_with('>') {
            return Err(InvalidMailbox::Name);
        }
        let (local, domain) = text.rsplit_once('@').ok_or(InvalidMailbox::NoAt)?;
        if !EmailAddress::is_valid_local_part(local) {
            return Err(InvalidMailbox::Local);
        }
        let Ok(Host::Domain(domain)) = Host::parse(domain) else { return Err(InvalidMailbox::Domain) };
        let labels = domain.split('.').all(|label| (1..=MAX_LABEL_BYTES).contains(&label.len()));
        if !labels || !EmailAddress::is_valid_domain(&domain) {
            return Err(InvalidMailbox::Domain);
        }
        let text = format!("{local}@{domain}");
        if text.len() > MAX_BYTES {
            return Err(InvalidMailbox::TooLong);
        }
        Ok(Mailbox { text, at: local.len() })
    }
}

impl fmt::Display for Mailbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_as_they_are_written() {
        for address in [
            "anna@example.com",
            "anna.rossi+tag@mail.example.co.uk",
            "o'neill@example.com",
            "\"anna rossi\"@example.com",
            "\"a@b\"@example.com",
            "é@example.com",
        ] {
            assert_eq!(address.parse::<Mailbox>().map(|m| m.to_string()), Ok(address.to_owned()));
        }
        assert!("é@example.com".parse::<Mailbox>().unwrap().needs_utf8());
    }

    #[test]
    fn a_domain_in_non_ascii_is_written_as_dns_knows_it() {
        let mailbox: Mailbox = " info@caffè.it ".parse().unwrap();
        assert_eq!((mailbox.as_str(), mailbox.domain()), ("info@xn--caff-8oa.it", "xn--caff-8oa.it"));
        assert!(!mailbox.needs_utf8());
    }

    #[test]
    fn what_is_no_address_is_refused_with_a_reason() {
        let long = format!("{}@example.com", "a".repeat(64));
        let cases = [
            ("anna", InvalidMailbox::NoAt),
            ("a@b@example.com", InvalidMailbox::Local),
            ("Anna <anna@example.com>", InvalidMailbox::Name),
            ("<anna@example.com>", InvalidMailbox::Name),
            ("", InvalidMailbox::NoAt),
            ("anna@example.com\r\nRCPT TO:<eve@example.com>", InvalidMailbox::Control),
            ("anna\n@example.com", InvalidMailbox::Control),
            ("\"anna\r\n\"@example.com", InvalidMailbox::Control),
            ("anna rossi@example.com", InvalidMailbox::Local),
            ("a>b@example.com", InvalidMailbox::Local),
            ("<anna@example.com", InvalidMailbox::Local),
            ("@example.com", InvalidMailbox::Local),
            ("anna@example.com>", InvalidMailbox::Domain),
            ("anna@exa mple.com", InvalidMailbox::Domain),
            ("anna@127.0.0.1", InvalidMailbox::Domain),
            ("anna@[127.0.0.1]", InvalidMailbox::Domain),
            ("anna@", InvalidMailbox::Domain),
            ("anna@a..b", InvalidMailbox::Domain),
            (&long.replace('@', "aaaa@"), InvalidMailbox::Local),
        ];
        for (address, why) in cases {
            assert_eq!(address.parse::<Mailbox>(), Err(why), "{address:?}");
        }
    }
}
