//! Builds a message for the wire: headers, text and HTML, all in 7 bits.
//!
//! `Message-ID`, `Date` and the boundary are derived from the notification. So every attempt creates the same bytes,
//! and a mail server can recognise a duplicate.

use std::borrow::Cow;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use campanile_domain::id::SendKey;
use campanile_domain::people::address::Mailbox;
use mail_builder::MessageBuilder;
use mail_builder::headers::HeaderType;
use mail_builder::headers::address::Address;
use mail_builder::headers::content_type::ContentType;
use mail_builder::headers::date::Date;
use mail_builder::headers::raw::Raw;
use mail_builder::headers::text::Text;
use mail_builder::mime::MimePart;

use crate::Message;
use crate::email::header::ExtraHeader;
use crate::email::named_mailbox::NamedMailbox;

/// Mail programs show less, and servers refuse much longer subjects.
const MAX_SUBJECT_CHARS: usize = 250;
const MAX_NAME_CHARS: usize = 100;

/// The headers that all messages share.
#[derive(Debug, Clone)]
pub struct Head {
    pub from: NamedMailbox,
    pub reply_to: Option<NamedMailbox>,
    pub extra: Vec<ExtraHeader>,
}

pub fn build(message: &Message<'_>, to: &Mailbox, head: &Head) -> Vec<u8> {
    let Head { from, reply_to, extra } = head;
    let mut email = MessageBuilder::new()
        .header("From", address(from.name.as_deref(), &from.mailbox))
        .header("To", address(message.name, to))
        .header("Subject", text(one_line(message.title, MAX_SUBJECT_CHARS)))
        .header("Date", Date::new(written_at(message)))
        .header("Message-ID", Raw::new(format!("<{}>", message_id(message.key, from))))
        // Prevents automatic replies.
        .header("Auto-Submitted", Raw::new("auto-generated"));
    if let Some(reply_to) = reply_to {
        email = email.header("Reply-To", address(reply_to.name.as_deref(), &reply_to.mailbox));
    }
    for header in extra {
        // An identifier or a URL must not be folded or encoded, however long it is.
        let value = header.value();
        let value = if value.is_ascii() { Raw::new(value).into() } else { text(value.into()) };
        email = email.header(header.name(), value);
    }
    let mut bytes = Vec::new();
    email.body(parts(message)).serialize(&mut bytes);
    bytes
}

fn parts<'a>(message: &Message<'a>) -> MimePart<'a> {
    let text = MimePart::new("text/plain", lines(message.body));
    let Some(html) = message.html else { return text };
    // A text cannot contain this boundary, because its author does not know the id of the notification.
    let between = format!("=_{}", message.key.notification_id);
    let both = ContentType::new("multipart/alternative").attribute("boundary", between);
    MimePart::new(both, vec![text, MimePart::new("text/html", lines(html))])
}

/// The `Message-ID`, equal in every attempt.
pub fn message_id(key: SendKey, from: &NamedMailbox) -> String {
    format!("{}.email@{}", key.notification_id, from.mailbox.domain())
}

/// The time when the notification was created, in seconds, taken from its id.
fn written_at(message: &Message<'_>) -> i64 {
    let made = message.key.notification_id.0.get_timestamp();
    made.and_then(|made| i64::try_from(made.to_unix().0).ok()).unwrap_or_default()
}

fn address<'a>(name: Option<&'a str>, mailbox: &'a Mailbox) -> HeaderType<'a> {
    let name = name.map(|name| one_line(name, MAX_NAME_CHARS)).filter(|name| !name.is_empty());
    match name {
        Some(name) if looks_encoded(&name) => {
            Raw::new(format!("{} <{mailbox}>", encoded_words(&name))).into()
        }
        name => Address::new_address(name, mailbox.as_str()).into(),
    }
}

fn text(text: Cow<'_, str>) -> HeaderType<'_> {
    if looks_encoded(&text) { Raw::new(encoded_words(&text)).into() } else { Text::new(text).into() }
}

/// Whether a mail program could read a part of the text as an encoded word of RFC 2047 and show something else.
fn looks_encoded(text: &str) -> bool {
    text.contains("=?")
}

/// The text as encoded words. Mail programs do not show blanks between them.
fn encoded_words(text: &str) -> String {
    // An encoded word has at most 75 characters.
    const MAX_WORD_BYTES: usize = 45;
    let mut words = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (word, tail) = rest.split_at(rest.floor_char_boundary(MAX_WORD_BYTES));
        words.push(format!("=?utf-8?B?{}?=", BASE64_STANDARD.encode(word)));
        rest = tail;
    }
    words.join(" ")
}

/// The text without control characters, cut to `max` characters.
fn one_line(text: &str, max: usize) -> Cow<'_, str> {
    let text = text.trim();
    if text.chars().count() <= max && !text.chars().any(char::is_control) {
        return Cow::Borrowed(text);
    }
    let words = text.split(|c: char| c.is_control() || c == ' ').filter(|word| !word.is_empty());
    let line = words.collect::<Vec<_>>().join(" ");
    if line.chars().count() <= max {
        return Cow::Owned(line);
    }
    let cut: String = line.chars().take(max - 1).collect();
    Cow::Owned(format!("{}…", cut.trim_end()))
}

/// The text with CRLF line breaks and without control characters other than tabs. Servers interpret a lone CR
/// differently. One that takes it for a line break could see the end of the message, and another message after it.
fn lines(text: &str) -> String {
    let mut lines = String::with_capacity(text.len() + text.len() / 32);
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\r' | '\n' => {
                if c == '\r' {
                    rest.next_if_eq(&'\n');
                }
                lines.push_str("\r\n");
            }
            '\t' => lines.push(c),
            c if c.is_control() => {}
            c => lines.push(c),
        }
    }
    lines
}

/// The content with a dot before each line that begins with one, and with the final dot.
pub fn dot_stuffed(email: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(email.len() + email.len() / 64 + 8);
    let mut rest = email;
    if rest.first() == Some(&b'.') {
        out.push(b'.');
    }
    while let Some(end) = rest.windows(3).position(|bytes| bytes == b"\r\n.") {
        out.extend_from_slice(&rest[..end + 2]);
        out.push(b'.');
        rest = &rest[end + 2..];
    }
    out.extend_from_slice(rest);
    if !out.ends_with(b"\r\n") {
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b".\r\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_of_an_email_is_its_end() {
        let text = |email: &str| String::from_utf8(dot_stuffed(email.as_bytes())).unwrap();
        assert_eq!(text("a\r\n"), "a\r\n.\r\n");
        assert_eq!(text("a"), "a\r\n.\r\n");
        assert_eq!(text("."), "..\r\n.\r\n");
        assert_eq!(text("a\r\n.\r\n.b\r\n..\r\n"), "a\r\n..\r\n..b\r\n...\r\n.\r\n");
    }
    use campanile_domain::channel::Channel;
    use campanile_domain::id::{NotificationId, SendKey};
    use campanile_domain::priority::Priority;
    use campanile_domain::time::Timestamp;

    fn message<'a>(name: &'a str, title: &'a str, body: &'a str) -> Message<'a> {
        let id = "019a1e2c-3d4f-7000-8000-000000000001".parse().unwrap();
        Message {
            key: SendKey { notification_id: NotificationId(id), channel: Channel::Email },
            event_id: "evt-1",
            event_type: "ORDER_CREATED",
            address: "anna@example.com",
            name: Some(name),
            title,
            body,
            html: Some("<p>Perché no? 🍕</p>"),
            url: None,
            priority: Priority::Normal,
            created_at: Timestamp::now(),
        }
    }

    fn email(message: &Message<'_>) -> String {
        let from: NamedMailbox = "Campanile <noreply@example.org>".parse().unwrap();
        let to = message.address.parse().unwrap();
        let extra = vec![
            ExtraHeader::parse("List-Id", "<news.example.org>").unwrap(),
            ExtraHeader::parse("X-Sala", "Perché no").unwrap(),
        ];
        let head = Head { reply_to: Some(from.clone()), from, extra };
        String::from_utf8(build(message, &to, &head)).unwrap()
    }

    /// The headers, each unfolded to one line.
    fn headers(email: &str) -> Vec<String> {
        let (head, _) = email.split_once("\r\n\r\n").unwrap();
        head.replace("\r\n ", " ").replace("\r\n\t", " ").split("\r\n").map(str::to_owned).collect()
    }

    #[test]
    fn an_email_is_the_same_at_every_attempt() {
        let message = message("Anna", "Ciao", "Testo");
        let first = email(&message);
        assert_eq!(first, email(&message));
        assert!(first.contains("\r\n--=_019a1e2c-3d4f-7000-8000-000000000001--\r\n"), "{first}");
        let headers = headers(&first);
        let stable = |name: &str| headers.iter().find(|header| header.starts_with(name)).unwrap().clone();
        assert_eq!(
            stable("Message-ID:"),
            "Message-ID: <019a1e2c-3d4f-7000-8000-000000000001.email@example.org>"
        );
        assert_eq!(stable("Date:"), "Date: Sun, 26 Oct 2025 01:40:07 +0000");
        assert_eq!(stable("Reply-To:"), "Reply-To: \"Campanile\" <noreply@example.org>");
    }

    #[test]
    fn everything_is_seven_bit_and_no_line_is_too_long() {
        let long = "parola è ".repeat(5_000);
        let email = email(&message("Zoë 🍕", &"Prenotação 🎉 ".repeat(40), &long));
        assert!(email.is_ascii());
        assert!(email.split("\r\n").all(|line| line.len() <= 78), "{email}");
        assert!(!email.replace("\r\n", "").contains(['\r', '\n']), "a bare line break");
    }

    #[test]
    fn nothing_of_a_name_or_a_title_becomes_a_header() {
        let evil = "x\r\nBcc: eve@example.com\r\n\r\n<script>";
        let email = email(&message(evil, evil, "text"));
        let headers = headers(&email);
        assert!(!headers.iter().any(|header| header.starts_with("Bcc")), "{headers:?}");
        assert!(headers.contains(&"Subject: x Bcc: eve@example.com <script>".to_owned()), "{headers:?}");
        assert_eq!(headers.iter().filter(|header| header.starts_with("To:")).count(), 1);
    }

    #[test]
    fn what_looks_like_an_encoded_word_is_itself_encoded() {
        let evil = "=?utf-8?B?RnJlZSBtb25leQ==?= and =?broken";
        let email = email(&message(evil, evil, "text"));
        let headers = headers(&email);
        let expected = format!("=?utf-8?B?{}?=", BASE64_STANDARD.encode(evil));
        assert!(headers.contains(&format!("Subject: {expected}")), "{headers:?}");
        assert!(headers.contains(&format!("To: {expected} <anna@example.com>")), "{headers:?}");
        let long = encoded_words(&"è=?".repeat(100));
        assert!(long.split(' ').count() > 1 && long.split(' ').all(|word| word.len() <= 75), "{long}");
    }

    #[test]
    fn further_headers_are_in_every_email() {
        let headers = headers(&email(&message("Anna", "Ciao", "Testo")));
        assert!(headers.contains(&"List-Id: <news.example.org>".to_owned()), "{headers:?}");
        assert!(headers.iter().any(|header| header.starts_with("X-Sala: =?utf-8?")), "{headers:?}");
    }

    #[test]
    fn every_line_break_of_a_text_is_one_and_other_controls_are_dropped() {
        assert_eq!(lines("a\r.\rb\0"), "a\r\n.\r\nb");
        assert_eq!(lines("a\n\r\n\r\r\nb\n"), "a\r\n\r\n\r\n\r\nb\r\n");
        assert_eq!(lines("è\tb\u{1b}[1m\u{85}\u{7f}"), "è\tb[1m");
        let evil = "a\r.\rMAIL FROM:<eve@example.com>\0";
        let email = email(&Message { html: Some(evil), ..message("Anna", "Ciao", evil) });
        assert!(!email.replace("\r\n", "").contains(|c: char| c.is_control() && c != '\t'), "{email:?}");
    }

    #[test]
    fn a_subject_of_100_kilobytes_is_cut() {
        let email = email(&message("Anna", &"a".repeat(100_000), "text"));
        let subject = headers(&email).into_iter().find(|header| header.starts_with("Subject:")).unwrap();
        assert!(subject.len() < 1_000, "{}", subject.len());
    }
}
