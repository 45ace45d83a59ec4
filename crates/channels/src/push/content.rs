//! The content of a push for FCM's `messages:send`, cut to FCM's limits.
//!
//! FCM has no idempotency key. The device does the next best thing. Of two messages with the same tag (Android,
//! browsers) or collapse id (Apple), the later one replaces the earlier one. So a repetition after a doubt is shown in
//! its place. No `collapse_key` is set: FCM keeps only four of them for an offline device and would drop other
//! messages.

use std::borrow::Cow;
use std::time::Duration;

use campanile_domain::priority::Priority;
use campanile_domain::time::{Timestamp, between, later};

use crate::Message;
use crate::push::request::{
    Android, AndroidNotification, Apns, ApnsHeaders, ApnsPayload, Aps, Data, Notification, Request, Tagged,
    Target, Webpush, WebpushHeaders, WebpushOptions,
};
use crate::text::without_controls;

/// FCM's limit for title, body and data, with keys. We count everything but the token, which is on the safe side.
const MAX_BYTES: usize = 4_096;
/// A link that leaves less than this for title and body is too long.
const MIN_TEXT_BYTES: usize = 512;
/// Stands for title and body while the rest is measured.
const PLACEHOLDER: &str = ".";
const ELLIPSIS: char = '…';

/// How a push alerts. An empty text leaves it to the app.
#[derive(Debug, Clone, Default)]
pub struct Alert {
    /// `default`, or a sound file of the app.
    pub sound: String,
    /// The notification channel of the app on Android.
    pub android_channel: String,
}

/// How long a push may wait for its device. It ends at the same time in every attempt.
#[derive(Debug, Clone, Copy)]
pub struct Lifetime {
    ends: Timestamp,
    remaining: Duration,
}

impl Lifetime {
    /// `None` if the time is over.
    pub fn of(created_at: Timestamp, ttl: Duration, now: Timestamp) -> Option<Self> {
        let ends = later(created_at, ttl);
        (now < ends).then(|| Lifetime { ends, remaining: between(now, ends).min(ttl) })
    }

    /// In whole seconds, at least one: zero would mean "now or never".
    fn remaining_seconds(self) -> u64 {
        self.remaining.as_millis().div_ceil(1_000).try_into().unwrap_or(u64::MAX)
    }
}

/// The content that all devices of a recipient get.
#[derive(Debug)]
pub struct Content<'a> {
    title: Cow<'a, str>,
    body: Cow<'a, str>,
    event_id: &'a str,
    event_type: &'a str,
    notification_id: String,
    url: Option<&'a str>,
    priority: Priority,
    alert: &'a Alert,
    ttl: String,
    android_ttl: String,
    apns_expiration: String,
}

impl<'a> Content<'a> {
    /// The content, or why there is nothing to send.
    pub fn of(message: &Message<'a>, alert: &'a Alert, lifetime: Lifetime) -> Result<Self, &'static str> {
        let [title, body] = [message.title, message.body].map(shown);
        if title.is_empty() && body.is_empty() {
            return Err("nothing to send: the template's title and body are empty");
        }
        let ttl = lifetime.remaining_seconds();
        let mut content = Content {
            title: Cow::Borrowed(PLACEHOLDER),
            body: Cow::Borrowed(PLACEHOLDER),
            event_id: message.event_id,
            event_type: message.event_type,
            notification_id: message.key.notification_id.to_string(),
            url: message.url,
            priority: message.priority,
            alert,
            ttl: ttl.to_string(),
            android_ttl: format!("{ttl}s"),
            apns_expiration: lifetime.ends.as_second().to_string(),
        };
        let frame = content.request("", false).len() - 2 * PLACEHOLDER.len();
        let available = MAX_BYTES.saturating_sub(frame);
        if message.url.is_some() && available < MIN_TEXT_BYTES {
            return Err("the template's url is too long: no space is left for title and body");
        }
        // If the body needs it, it gets at least three quarters of the space.
        content.title = shortened(title, (available / 4).max(available.saturating_sub(length(&body))));
        content.body = shortened(body, available.saturating_sub(length(&content.title)));
        Ok(content)
    }

    /// The JSON request for one device.
    pub fn request(&self, token: &str, validate_only: bool) -> Vec<u8> {
        let tag = &self.notification_id;
        let Alert { sound, android_channel } = self.alert;
        let (android, apns, web) = priorities(self.priority);
        let message = Target {
            token,
            notification: Notification { title: &self.title, body: &self.body },
            data: Data {
                event_id: self.event_id,
                event_type: self.event_type,
                notification_id: tag,
                url: self.url,
            },
            android: Android {
                priority: android,
                ttl: &self.android_ttl,
                notification: AndroidNotification { tag, sound, channel_id: android_channel },
            },
            apns: Apns {
                headers: ApnsHeaders { priority: apns, expiration: &self.apns_expiration, collapse_id: tag },
                payload: (!sound.is_empty()).then_some(ApnsPayload { aps: Aps { sound } }),
            },
            webpush: Webpush {
                headers: WebpushHeaders { urgency: web, ttl: &self.ttl },
                notification: Tagged { tag },
                fcm_options: self.url.filter(|url| is_https(url)).map(|link| WebpushOptions { link }),
            },
        };
        serde_json::to_vec(&Request { message, validate_only }).expect("text can be written as JSON")
    }
}

/// Priorities for Android, Apple and browsers. Phones show everything but `LOW` at once; `LOW` may wait until they are
/// awake.
fn priorities(priority: Priority) -> (&'static str, &'static str, &'static str) {
    match priority {
        Priority::High => ("HIGH", "10", "high"),
        Priority::Normal => ("HIGH", "10", "normal"),
        Priority::Low => ("NORMAL", "5", "low"),
    }
}

/// Whether a link may go to browsers; FCM accepts only https there.
fn is_https(url: &str) -> bool {
    url.split_once("://").is_some_and(|(scheme, _)| scheme.eq_ignore_ascii_case("https"))
}

fn shown(text: &str) -> Cow<'_, str> {
    match without_controls(text) {
        Cow::Borrowed(text) => Cow::Borrowed(text.trim()),
        Cow::Owned(text) => Cow::Owned(text.trim().to_owned()),
    }
}

fn shortened(text: Cow<'_, str>, available: usize) -> Cow<'_, str> {
    match cut(&text, available) {
        Some(short) => Cow::Owned(short),
        None => text,
    }
}

/// Cuts a text with an ellipsis if it does not fit. It never splits a character, nor leaves half of a joined emoji.
fn cut(text: &str, available: usize) -> Option<String> {
    const JOINER: char = '\u{200d}';
    let mut used = 0;
    let mut fits = 0;
    for (at, c) in text.char_indices() {
        used += width(c);
        if used > available {
            let kept = text[..fits].trim_end_matches(|c: char| c.is_whitespace() || c == JOINER);
            return Some(format!("{kept}{ELLIPSIS}"));
        }
        if used + ELLIPSIS.len_utf8() <= available {
            fits = at + c.len_utf8();
        }
    }
    None
}

fn length(text: &str) -> usize {
    text.chars().map(width).sum()
}

/// The bytes of a character in JSON.
fn width(c: char) -> usize {
    match c {
        '"' | '\\' | '\n' => 2,
        other => other.len_utf8(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;
    use campanile_domain::channel::Channel;
    use campanile_domain::id::{NotificationId, SendKey};

    const DAY: Duration = Duration::from_hours(24);
    static ALERT: LazyLock<Alert> =
        LazyLock::new(|| Alert { sound: "default".to_owned(), android_channel: "orders".to_owned() });

    fn lifetime() -> Lifetime {
        Lifetime::of(Timestamp::UNIX_EPOCH, DAY, Timestamp::UNIX_EPOCH).unwrap()
    }

    fn message<'a>(title: &'a str, body: &'a str, event_id: &'a str) -> Message<'a> {
        Message {
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
            created_at: Timestamp::UNIX_EPOCH,
        }
    }

    fn content<'a>(title: &'a str, body: &'a str, event_id: &'a str) -> Result<Content<'a>, &'static str> {
        Content::of(&message(title, body, event_id), &ALERT, lifetime())
    }

    #[test]
    fn a_lifetime_ends_at_the_same_moment_however_late_it_is_asked_for() {
        let at = |seconds| later(Timestamp::UNIX_EPOCH, Duration::from_secs(seconds));
        let of = |now| Lifetime::of(at(100), Duration::from_mins(1), now);
        for (now, remaining) in [(100, 60), (101, 59), (159, 1)] {
            let lifetime = of(at(now)).unwrap();
            assert_eq!((lifetime.ends, lifetime.remaining_seconds()), (at(160), remaining));
        }
        assert_eq!(of(at(0)).unwrap().remaining_seconds(), 60, "a clock that is behind prolongs nothing");
        assert_eq!(of(later(at(159), Duration::from_millis(999))).unwrap().remaining_seconds(), 1);
        assert!(of(at(160)).is_none());
    }

    #[test]
    fn a_link_takes_space_from_the_text_and_too_long_a_one_is_refused() {
        let text = "x".repeat(5_000);
        let of = |url: &str| {
            let message = Message { url: Some(url), ..message(&text, &text, "evt-1") };
            Content::of(&message, &ALERT, lifetime()).map(|said| said.request("", false).len())
        };
        let link = |bytes: usize| format!("https://example.org/{}", "a".repeat(bytes));
        for bytes in [1, 500, 1_300] {
            assert_eq!(of(&link(bytes)), Ok(MAX_BYTES));
        }
        assert!(of(&link(2_000)).unwrap_err().contains("url is too long"));
    }

    #[test]
    fn control_characters_are_left_out() {
        let said = content("Table\r\n5\u{7}", "\u{1b}[31mRed\tand more\0", "evt-1").unwrap();
        assert_eq!((&*said.title, &*said.body), ("Table\n5", "[31mRed and more"));
        assert!(content("\u{7}", "\0", "evt-1").is_err());
    }

    #[test]
    fn what_fits_is_not_touched() {
        let said = content("Table 5", "Ready at 20:00 🍝", "evt-1").unwrap();
        assert_eq!((&*said.title, &*said.body), ("Table 5", "Ready at 20:00 🍝"));
        assert!(content(" ", "\n", "evt-1").is_err());
    }

    #[test]
    fn whatever_is_said_is_cut_to_what_fcm_takes_and_uses_it() {
        let id = "é\"".repeat(100);
        for unit in ["x", "è", "🍝", "\"", "\n.", "👩\u{200d}🍳"] {
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
    fn a_long_title_leaves_space_to_the_body() {
        let said = "x".repeat(9_000);
        let said = content(&said, &said, "evt-1").unwrap();
        assert!(said.body.len() > 2 * said.title.len() && said.title.len() > 500);
        assert!(said.title.ends_with("x…") && said.body.ends_with("x…"));
    }

    #[test]
    fn text_is_cut_between_characters() {
        assert_eq!(cut("🍝🍝🍝", 12), None);
        for (text, available, short) in
            [("🍝🍝🍝", 11, "🍝🍝…"), ("🍝🍝🍝", 10, "🍝…"), ("one two", 6, "one…"), ("a\n\n\nb", 7, "a…")]
        {
            assert_eq!(cut(text, available).as_deref(), Some(short));
        }
    }
}
