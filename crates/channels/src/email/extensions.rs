//! The extensions that a server announces in its answer to EHLO.

use campanile_domain::people::address::Mailbox;

use crate::email::reply::Reply;

/// The announced extensions.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is an extension that is offered or not")]
pub struct Extensions {
    pub pipelining: bool,
    pub starttls: bool,
    pub smtputf8: bool,
    pub auth_plain: bool,
    pub auth_login: bool,
    pub size: bool,
    /// The largest message, if the server has a limit.
    pub max_bytes: Option<usize>,
}

impl Extensions {
    pub fn read(reply: &Reply) -> Self {
        let mut extensions = Extensions::default();
        for line in reply.lines.iter().skip(1) {
            let line = line.to_ascii_uppercase();
            // Old servers write `AUTH=PLAIN`.
            let mut words = line.split([' ', '=']);
            match words.next() {
                Some("PIPELINING") => extensions.pipelining = true,
                Some("STARTTLS") => extensions.starttls = true,
                Some("SMTPUTF8") => extensions.smtputf8 = true,
                Some("SIZE") => {
                    extensions.size = true;
                    extensions.max_bytes =
                        words.next().and_then(|n| n.parse().ok()).filter(|bytes| *bytes > 0);
                }
                Some("AUTH") => words.for_each(|mechanism| match mechanism {
                    "PLAIN" => extensions.auth_plain = true,
                    "LOGIN" => extensions.auth_login = true,
                    _ => {}
                }),
                _ => {}
            }
        }
        extensions
    }

    /// Why this server cannot take a message of this size to this address, if so.
    pub fn refuse(&self, to: &Mailbox, bytes: usize) -> Option<String> {
        if to.needs_utf8() && !self.smtputf8 {
            return Some("the mail server does not accept non-ASCII addresses (SMTPUTF8)".to_owned());
        }
        let max = self.max_bytes.filter(|max| bytes > *max)?;
        Some(format!("the message has {bytes} bytes; the mail server accepts at most {max}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extensions_are_read_in_any_case() {
        let lines = ["mx", "Pipelining", "SIZE 1000", "AUTH=LOGIN", "auth PLAIN CRAM-MD5", "8BITMIME"];
        let reply = Reply { code: 250, enhanced: None, lines: lines.map(str::to_owned).to_vec() };
        let extensions = Extensions::read(&reply);
        assert!(extensions.pipelining && extensions.auth_login && extensions.auth_plain && extensions.size);
        assert_eq!(extensions.max_bytes, Some(1_000));
        assert!(!extensions.starttls && !extensions.smtputf8);
    }
}
