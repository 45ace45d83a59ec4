//! What a caller may see. Without the scope `payload`, answers have no payloads, addresses or texts, also not inside
//! error messages. Addresses that are secrets are masked for everybody.

use campanile_domain::access::audit::mask_secrets;
use campanile_domain::channel::Channel;
use campanile_domain::people::address::{MASK, webhook};
use campanile_store::{
    AttemptRow, DeadLetterRow, EventRow, ListedDeadLetter, ListedEvent, NotificationRow, OutboxView, SendRow,
    Shown, TableRow, TracedEvent, TracedSend,
};
use serde_json::Value;

use super::access::Caller;

/// Numbers with fewer digits are codes, not phone numbers.
const MIN_PHONE_DIGITS: usize = 7;

/// Hides what the caller may not see.
#[derive(Debug, Clone, Copy)]
pub struct Redaction {
    payloads: bool,
}

impl Redaction {
    pub fn of(caller: &Caller) -> Self {
        Redaction { payloads: caller.sees_payloads() }
    }

    pub fn event(self, event: &mut TracedEvent) {
        if !self.payloads {
            event.payload = Value::Null;
        }
        self.event_row(&mut event.row);
    }

    pub fn listed_event(self, event: &mut ListedEvent) {
        self.event_row(&mut event.row);
    }

    fn event_row(self, row: &mut EventRow) {
        self.error(&mut row.last_error, &[]);
    }

    pub fn outbox_row(self, row: &mut OutboxView) {
        let address = row.recipient_address.clone();
        self.address(&row.channel, &mut row.recipient_address);
        self.error(&mut row.last_error, &[&address]);
        if !self.payloads {
            (row.title, row.body) = (MASK.to_owned(), MASK.to_owned());
        }
    }

    pub fn notification(self, row: &mut NotificationRow) {
        if !self.payloads {
            (row.title, row.body, row.properties) = (MASK.to_owned(), MASK.to_owned(), Value::Null);
        }
    }

    pub fn traced_send(self, send: &mut TracedSend) {
        let addresses: Vec<String> =
            send.addresses.iter().map(|of_address| of_address.address.clone()).collect();
        let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
        let own = send.row.recipient_address.clone();
        let all: Vec<&str> = addresses.iter().copied().chain(own.split(' ')).collect();
        for of_address in &mut send.addresses {
            self.address(&send.row.channel, &mut of_address.address);
            self.error(&mut of_address.error, &all);
        }
        for attempt in &mut send.attempts {
            self.error(&mut attempt.row.error, &all);
        }
        self.error(&mut send.row.last_error, &all);
        self.send(&mut send.row);
    }

    pub fn send(self, row: &mut SendRow) {
        let address = row.recipient_address.clone();
        let addresses: Vec<&str> = address.split(' ').collect();
        self.address(&row.channel, &mut row.recipient_address);
        self.error(&mut row.last_error, &addresses);
    }

    pub fn dead_letter(self, row: &mut DeadLetterRow) {
        if !self.payloads {
            row.error = without_addresses(&row.error, &[]);
        }
    }

    pub fn listed_dead_letter(self, dead_letter: &mut ListedDeadLetter) {
        self.dead_letter(&mut dead_letter.row);
        for AttemptRow { error, .. } in &mut dead_letter.attempts {
            self.error(error, &[]);
        }
        if let Some(message) = &mut dead_letter.message {
            *message = if self.payloads { without_webhooks(message) } else { MASK.to_owned() };
        }
    }

    /// Texts inside a decision's details, such as why a provider declared an address dead.
    pub fn details(self, details: &mut Value) {
        match details {
            Value::String(text) if !self.payloads => *text = without_addresses(text, &[]),
            Value::Array(values) => values.iter_mut().for_each(|value| self.details(value)),
            Value::Object(fields) => fields.values_mut().for_each(|value| self.details(value)),
            _ => {}
        }
    }

    /// The URL of a webhook is a secret: with it, anybody can post. It is masked for every caller.
    pub fn address(self, channel: &Shown<Channel>, address: &mut String) {
        if channel.typed().is_none_or(|channel| channel.facts().secret_address) {
            *address = masked(address);
        } else if !self.payloads && !address.is_empty() {
            MASK.clone_into(address);
        }
    }

    /// Callers who may write recipients see their addresses, except secret ones.
    pub fn table_row(row: &mut Shown<TableRow>) {
        match row {
            Shown::Typed(TableRow::Recipient(recipient)) => recipient.mask_secrets(masked),
            Shown::Raw(Value::Object(fields)) => mask_secrets(fields),
            Shown::Typed(_) | Shown::Raw(_) => {}
        }
    }

    fn error(self, error: &mut Option<String>, addresses: &[&str]) {
        if !self.payloads
            && let Some(text) = error
        {
            *text = without_addresses(text, addresses);
        }
    }
}

/// Of a webhook, the host and the first part of the path; of anything else, nothing.
fn masked(address: &str) -> String {
    let Ok(url) = webhook(address) else { return MASK.to_owned() };
    let first = url.path_segments().and_then(|mut parts| parts.next().map(str::to_owned));
    let origin = url.origin().ascii_serialization();
    match first.filter(|first| url.path().len() > first.len() + 1) {
        Some(first) => format!("{origin}/{first}/{MASK}"),
        None => format!("{origin}/{MASK}"),
    }
}

/// A text without these addresses, and without what looks like an e-mail address or a phone number.
fn without_addresses(text: &str, addresses: &[&str]) -> String {
    let text = addresses
        .iter()
        .filter(|address| !address.is_empty())
        .fold(text.to_owned(), |text, address| text.replace(address, MASK));
    replaced(&text, |word| if is_address(word) { MASK.to_owned() } else { word.to_owned() })
}

/// A text with each of its words replaced. A colon ends a word, except in a URL.
fn replaced(text: &str, shown: impl Fn(&str) -> String) -> String {
    let is_end = |c: char| c.is_whitespace() || "<>()[]{},;\"'`=".contains(c);
    let mut all = String::new();
    for piece in text.split_inclusive(is_end) {
        let (word, end) = piece.split_at(piece.trim_end_matches(is_end).len());
        if word.contains("://") {
            all.push_str(&shown(word));
        } else {
            let parts: Vec<String> = word.split(':').map(&shown).collect();
            all.push_str(&parts.join(":"));
        }
        all.push_str(end);
    }
    all
}

/// A text with only the origins of its URLs, since webhooks are secrets.
fn without_webhooks(text: &str) -> String {
    replaced(text, |word| {
        if word.starts_with("http") && word.contains("://") { masked(word) } else { word.to_owned() }
    })
}

fn is_address(word: &str) -> bool {
    let word = word.replace("%40", "@");
    let is_mail = word.split_once('@').is_some_and(|(user, host)| !user.is_empty() && !host.is_empty());
    let digits = word.chars().filter(char::is_ascii_digit).count();
    let is_phone =
        digits >= MIN_PHONE_DIGITS && word.chars().all(|c| c.is_ascii_digit() || "+.-/".contains(c));
    is_mail || is_phone
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: Redaction = Redaction { payloads: true };
    const REDACTED: Redaction = Redaction { payloads: false };

    fn shown(redaction: Redaction, channel: Channel, address: &str) -> String {
        let mut address = address.to_owned();
        redaction.address(&Shown::Typed(channel), &mut address);
        address
    }

    #[test]
    fn a_webhook_shows_where_it_leads_and_no_more() {
        for (address, expected) in [
            ("https://hooks.slack.com/services/T0/B0/secret", "https://hooks.slack.com/services/***"),
            ("http://127.0.0.1:8080/services/T0?key=secret", "http://127.0.0.1:8080/services/***"),
            ("https://chat.example/secret", "https://chat.example/***"),
            ("https://chat.example?secret", "https://chat.example/***"),
            ("hooks.slack.com/secret", "***"),
        ] {
            assert_eq!(masked(address), expected);
        }
        assert_eq!(shown(FULL, Channel::Slack, "https://a.example/b/c"), "https://a.example/b/***");
        assert_eq!(shown(FULL, Channel::Email, "https://a.example/b/c"), "https://a.example/b/c");
    }

    #[test]
    fn a_webhook_in_a_message_shows_where_it_leads_and_no_more() {
        let message = r#"{"recipient_address":"https://hooks.slack.com/services/T0/secret","title":"a: b"}"#;
        let shown = r#"{"recipient_address":"https://hooks.slack.com/services/***","title":"a: b"}"#;
        assert_eq!(without_webhooks(message), shown);
        assert_eq!(
            without_webhooks("cut off at https://chat.example/sec"),
            "cut off at https://chat.example/***"
        );
    }

    #[test]
    fn without_the_scope_no_address_is_seen() {
        assert_eq!(shown(REDACTED, Channel::Email, "anna@example.com"), "***");
        assert_eq!(shown(REDACTED, Channel::Websocket, ""), "");
        let redacted = |text: &str, addresses: &[&str]| without_addresses(text, addresses);
        assert_eq!(
            redacted("550 5.1.1 <anna@example.com>: user unknown (see mailto:bob@example.org)", &[]),
            "550 5.1.1 <***>: user unknown (see mailto:***)"
        );
        assert_eq!(
            redacted("number +39.055-0123 is not reachable, code +12", &[]),
            "number *** is not reachable, code +12"
        );
        assert_eq!(redacted("0039055123456 or (055)123-4567: 550-5.1.1", &[]), "*** or (055)***: 550-5.1.1");
        assert_eq!(redacted("user anna%40example.com", &[]), "user ***");
        assert_eq!(redacted("token abc:def is gone", &["abc:def"]), "token *** is gone");
        assert_eq!(redacted("NO_RECIPIENTS: nobody @ home", &[""]), "NO_RECIPIENTS: nobody @ home");
    }
}
