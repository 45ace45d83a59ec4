//! What a device is told, as FCM's `messages:send` takes it, and cut to what FCM takes.
//!
//! FCM knows no idempotency key. What comes nearest is done by the device: of two messages with the same tag (Android, browsers)
//! or collapse id (Apple) the later replaces the earlier, so that a repetition after a doubt is shown in its place. A
//! `collapse_key` is not given: FCM keeps only four of them for a device that is away, and would drop other messages.

use std::borrow::Cow;

use campanile_domain::priority::Priority;
use serde::Serialize;

use crate::Message;

/// FCM takes so much of title, body and data, keys included. All but the token is counted here, which is on the safe side.
const MAX_BYTES: usize = 4_096;
/// For a title or a body, while the rest is measured.
const STAND_IN: &str = ".";
const ELLIPSIS: char = '…';

/// The same for each device of a recipient.
#[derive(Debug)]
pub struct Content<'a> {
    title: Cow<'a, str>,
    body: Cow<'a, str>,
    event_id: &'a str,
    event_type: &'a str,
    notification_id: String,
    urgent: bool,
}

impl<'a> Content<'a> {
    /// Nothing, if there is nothing to say.
    pub fn of(message: &Message<'a>) -> Option<Self> {
        let [title, body] = [message.title.trim(), message.body.trim()];
        if title.is_empty() && body.is_empty() {
            return None;
        }
        let mut content = Content {
            title: Cow::Borrowed(STAND_IN),
            body: Cow::Borrowed(STAND_IN),
            event_id: message.event_id,
            event_type: message.event_type,
            notification_id: message.key.notification_id.to_string(),
            urgent: message.priority == Priority::High,
        };
        let frame = content.request("", false).len() - 2 * STAND_IN.len();
        let room = MAX_BYTES.saturating_sub(frame);
        // A long title leaves three quarters to the body, if the body needs them.
        content.title = cut(title, (room / 4).max(room.saturating_sub(length(body))));
        content.body = cut(body, room.saturating_sub(length(&content.title)));
        Some(content)
    }

    /// The request to one device, in JSON.
    pub fn request(&self, token: &str, validate_only: bool) -> Vec<u8> {
        let tag = &self.notification_id;
        let (android, apns, web) =
            if self.urgent { ("HIGH", "10", "high") } else { ("NORMAL", "5", "normal") };
        let message = Target {
            token,
            notification: Notification { title: &self.title, body: &self.body },
            data: Data { event_id: self.event_id, event_type: self.event_type, notification_id: tag },
            android: Android { priority: android, notification: Tagged { tag } },
            apns: Apns { headers: ApnsHeaders { priority: apns, collapse_id: tag } },
            webpush: Webpush { headers: WebpushHeaders { urgency: web }, notification: Tagged { tag } },
        };
        serde_json::to_vec(&Request { message, validate_only }).expect("text can be written as JSON")
    }
}

#[derive(Serialize)]
struct Request<'a> {
    message: Target<'a>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    validate_only: bool,
}

#[derive(Serialize)]
struct Target<'a> {
    token: &'a str,
    notification: Notification<'a>,
    data: Data<'a>,
    android: Android<'a>,
    apns: Apns<'a>,
    webpush: Webpush<'a>,
}

#[derive(Serialize)]
struct Notification<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    title: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    body: &'a str,
}

/// For the app, which may open what it is about. Values are text by FCM's rule.
#[derive(Serialize)]
struct Data<'a> {
    event_id: &'a str,
    event_type: &'a str,
    notification_id: &'a str,
}

#[derive(Serialize)]
struct Android<'a> {
    priority: &'a str,
    notification: Tagged<'a>,
}

#[derive(Serialize)]
struct Tagged<'a> {
    tag: &'a str,
}

#[derive(Serialize)]
struct Apns<'a> {
    headers: ApnsHeaders<'a>,
}

#[derive(Serialize)]
struct ApnsHeaders<'a> {
    #[serde(rename = "apns-priority")]
    priority: &'a str,
    #[serde(rename = "apns-collapse-id")]
    collapse_id: &'a str,
}

#[derive(Serialize)]
struct Webpush<'a> {
    headers: WebpushHeaders<'a>,
    notification: Tagged<'a>,
}

#[derive(Serialize)]
struct WebpushHeaders<'a> {
    #[serde(rename = "Urgency")]
    urgency: &'a str,
}

/// The text itself, or as much of it as has room with an ellipsis behind it. Never half a character, nor the joint of an emoji
/// whose other half is gone.
fn cut(text: &str, room: usize) -> Cow<'_, str> {
    const JOINER: char = '\u{200d}';
    let mut used = 0;
    let mut fits = 0;
    for (at, c) in text.char_indices() {
        used += width(c);
        if used > room {
            let kept = text[..fits].trim_end_matches(|c: char| c.is_whitespace() || c == JOINER);
            return Cow::Owned(format!("{kept}{ELLIPSIS}"));
        }
        if used + ELLIPSIS.len_utf8() <= room {
            fits = at + c.len_utf8();
        }
    }
    Cow::Borrowed(text)
}

fn length(text: &str) -> usize {
    text.chars().map(width).sum()
}

/// How many bytes it takes in JSON.
fn width(c: char) -> usize {
    match c {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        '\0'..='\u{1f}' => 6,
        other => other.len_utf8(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use campanile_domain::channel::Channel;
    use campanile_domain::id::{NotificationId, SendKey};

    fn content<'a>(title: &'a str, body: &'a str, event_id: &'a str) -> Option<Content<'a>> {
        Content::of(&Message {
            key: SendKey { notification_id: NotificationId::generate(), channel: Channel::Push },
            event_id,
            event_type: "ORDER_CREATED",
            address: "token",
            name: None,
            title,
            body,
            html: None,
            url: None,
            priority: Priority::Normal,
        })
    }

    #[test]
    fn what_fits_is_not_touched() {
        let said = content("Table 5", "Ready at 20:00 🍝", "evt-1").unwrap();
        assert_eq!((&*said.title, &*said.body), ("Table 5", "Ready at 20:00 🍝"));
        assert!(content(" ", "\n", "evt-1").is_none());
    }

    #[test]
    fn whatever_is_said_is_cut_to_what_fcm_takes_and_uses_it() {
        let id = "é\"".repeat(100);
        for unit in ["x", "è", "🍝", "\"", "\n.", "\u{1}", "👩\u{200d}🍳"] {
            for (titles, bodies) in [(1, 20_000), (20_000, 1), (20_000, 20_000), (900, 900), (20_000, 0)] {
                let (title, body) = (unit.repeat(titles), unit.repeat(bodies));
                let said = content(&title, &body, &id).unwrap();
                let bytes = said.request("", false).len();
                assert!(bytes <= MAX_BYTES, "{unit:?} {titles} {bodies}: {bytes}");
                if titles + bodies > 5_000 {
                    assert!(bytes > MAX_BYTES - 32, "{unit:?} {titles} {bodies}: only {bytes}");
                }
                for text in [&said.title, &said.body] {
                    assert!(!text.contains("\u{200d}…"), "a joint is left over");
                }
            }
        }
    }

    #[test]
    fn a_long_title_leaves_room_to_the_body() {
        let said = "x".repeat(9_000);
        let said = content(&said, &said, "evt-1").unwrap();
        assert!(said.body.len() > 2 * said.title.len() && said.title.len() > 500);
        assert!(said.title.ends_with("x…") && said.body.ends_with("x…"));
    }

    #[test]
    fn text_is_cut_between_characters() {
        assert_eq!(cut("🍝🍝🍝", 12), "🍝🍝🍝");
        assert_eq!(cut("🍝🍝🍝", 11), "🍝🍝…");
        assert_eq!(cut("🍝🍝🍝", 10), "🍝…");
        assert_eq!(cut("one two", 6), "one…");
        assert_eq!(cut("a\n\n\nb", 7), "a…");
    }
}
