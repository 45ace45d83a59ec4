//! Additional headers of every message, such as `List-Id`. They are validated, so that none can corrupt a message or
//! occur twice.

/// RFC 5322 limits a line to 998 characters, including the header's name.
const MAX_VALUE_BYTES: usize = 900;
const MAX_NAME_BYTES: usize = 70;
/// Headers that every message has anyway, or that only servers may write.
const OURS: [&str; 11] = [
    "auto-submitted",
    "bcc",
    "cc",
    "date",
    "from",
    "message-id",
    "mime-version",
    "received",
    "return-path",
    "subject",
    "to",
];
const OUR_PREFIXES: [&str; 2] = ["content-", "resent-"];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtraHeader {
    name: String,
    value: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidHeader {
    #[error("a header's name has letters, digits and dashes, up to 70 of them")]
    Name,
    #[error("this header is set by Campanile; remove it")]
    Ours,
    #[error("a header's value is one line without control characters, and not empty")]
    Control,
    #[error("a header's value has at most 900 bytes")]
    TooLong,
}

impl ExtraHeader {
    pub fn parse(name: &str, value: &str) -> Result<Self, InvalidHeader> {
        let value = value.trim();
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.bytes().all(is_name) {
            return Err(InvalidHeader::Name);
        }
        let lower = name.to_ascii_lowercase();
        if OURS.contains(&lower.as_str()) || OUR_PREFIXES.iter().any(|prefix| lower.starts_with(prefix)) {
            return Err(InvalidHeader::Ours);
        }
        if value.is_empty() || value.chars().any(char::is_control) {
            return Err(InvalidHeader::Control);
        }
        if value.len() > MAX_VALUE_BYTES {
            return Err(InvalidHeader::TooLong);
        }
        Ok(ExtraHeader { name: name.to_owned(), value: value.to_owned() })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn value(&self) -> &str {
        &self.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_header_becomes_another_one() {
        let long = "a".repeat(901);
        let cases = [
            ("X-A:\r\nBcc", "x", InvalidHeader::Name),
            ("X A", "x", InvalidHeader::Name),
            ("", "x", InvalidHeader::Name),
            ("X-è", "x", InvalidHeader::Name),
            ("X-A", "x\r\nBcc: eve@example.com", InvalidHeader::Control),
            ("X-A", "x\ny", InvalidHeader::Control),
            ("X-A", " ", InvalidHeader::Control),
            ("X-A", &long, InvalidHeader::TooLong),
        ];
        for (name, value, why) in cases {
            assert_eq!(ExtraHeader::parse(name, value), Err(why), "{name:?} {value:?}");
        }
    }

    #[test]
    fn what_every_email_has_is_refused_in_any_case() {
        for name in ["From", "TO", "bcc", "Message-Id", "Content-Type", "Resent-From", "MIME-Version"] {
            assert_eq!(ExtraHeader::parse(name, "x"), Err(InvalidHeader::Ours), "{name}");
        }
        for name in ["List-Id", "X-Campaign", "Reply-To", "Precedence", "List-Unsubscribe"] {
            assert!(ExtraHeader::parse(name, "x").is_ok(), "{name}");
        }
    }
}
