//! Lists sends for operators, and resolves sends in doubt by their decisions. A list follows an existing index order
//! and skips sends that do not match. Each page examines a bounded number of sends.

use async_trait::async_trait;
use campanile_domain::access::audit::{Actor, AuditAction, AuditEntry};
use campanile_domain::channel::Channel;
use campanile_domain::id::{SendKey, UserId, UserRef, UserTypeName};
use campanile_domain::priority::Lane;
use campanile_domain::status::SendStatus;
use campanile_domain::time;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::columns::Columns;
use crate::send_row::{ListedSend, listed_send};
use crate::{DeadLetter, InstanceId, StoreError};

/// The number of sends that a page examines, if some of them may not match.
const MAX_SCANNED_SENDS: usize = 1_000;

/// Selects sends. Each field that is set must match. At most `limit` are returned, beginning after `after`.
#[derive(Debug, Clone, Default)]
pub struct SendFilter {
    pub status: Option<SendStatus>,
    pub channel: Option<Channel>,
    pub event_id: Option<String>,
    pub user_type: Option<String>,
    pub user_id: Option<String>,
    pub provider: Option<String>,
    pub after: Option<SendCursor>,
    pub limit: usize,
}

/// Where a page ended: a position in the order of the same filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SendCursor(Vec<String>);

impl SendCursor {
    pub fn to_text(&self) -> String {
        Value::from(self.0.clone()).to_string()
    }
}

/// A page of sends. Fewer than `limit` items do not mean that this is the last page; only a missing `next` does.
#[derive(Debug, Default, PartialEq)]
pub struct SendPage {
    pub items: Vec<ListedSend>,
    pub next: Option<SendCursor>,
}

/// An operator's decision about a send in doubt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolution {
    /// The message is sent again at once, however many attempts there were.
    Resend,
    /// The message has arrived.
    Sent,
    /// The message has not arrived and is not sent again.
    Failed,
}

/// The result of resolving a send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolved {
    Done,
    /// The send is not in doubt. It has this status, because it was resolved before or was never in doubt.
    NotInDoubt(SendStatus),
    Unknown,
}

#[async_trait]
pub trait SendAdminStore {
    /// Lists sends. With an event, by recipient. Without one, `IN_DOUBT` and `DUE` sends in the order in which they
    /// wait, and all other sends from the newest to the oldest.
    async fn list_sends(&self, filter: SendFilter) -> Result<SendPage, StoreError>;

    /// Resolves a send in doubt. If two operators do so at once, only the first succeeds. The decision is stored as an
    /// attempt, with the note, and as an action of the actor. A failed send gets a dead letter, like any other failure.
    async fn resolve(
        &self,
        key: SendKey,
        resolution: Resolution,
        note: Option<String>,
        instance: InstanceId,
        actor: &Actor,
    ) -> Result<Resolved, StoreError>;
}

/// The record of a decision.
pub(crate) fn decision(key: SendKey, resolution: Resolution, note: Option<&str>) -> AuditEntry {
    let action = match resolution {
        Resolution::Resend => AuditAction::Resend,
        Resolution::Sent | Resolution::Failed => AuditAction::Settle,
    };
    AuditEntry {
        action,
        object_type: "send",
        object_id: key.to_string(),
        before: Some(json!({ "status": SendStatus::InDoubt })),
        after: Some(json!({ "status": resolution.status(), "note": note })),
    }
}

/// A row of a scan. `send` is `None` if the message has not been received yet.
#[derive(Debug)]
pub(crate) struct ScannedSend {
    cursor: Option<SendCursor>,
    send: Option<ListedSend>,
}

pub(crate) fn scanned_send(row: &impl Columns) -> Result<ScannedSend, StoreError> {
    let cursor = row.maybe_json("cursor")?.and_then(|cursor| serde_json::from_value(cursor).ok());
    Ok(ScannedSend { cursor: cursor.map(SendCursor), send: listed_send(row)? })
}

/// The order in which sends are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SendOrder {
    /// By recipient and channel.
    ByRecipient,
    /// By the time since when they are in doubt.
    InDoubtSince,
    /// By channel, lane and due time.
    Due,
    /// By id, from the newest to the oldest.
    Newest,
}

impl SendFilter {
    pub(crate) fn order(&self) -> SendOrder {
        match (&self.event_id, self.status) {
            (Some(_), _) => SendOrder::ByRecipient,
            (None, Some(SendStatus::InDoubt)) => SendOrder::InDoubtSince,
            (None, Some(SendStatus::Due)) => SendOrder::Due,
            (
                None,
                Some(SendStatus::Sending | SendStatus::Sent | SendStatus::Failed | SendStatus::Cancelled)
                | None,
            ) => SendOrder::Newest,
        }
    }

    /// Parses a cursor of this filter. `None` if the text is not one.
    pub fn cursor(&self, text: &str) -> Option<SendCursor> {
        let parts: Vec<String> = serde_json::from_str(text).ok()?;
        let is_id = |id: &str| Uuid::try_parse(id).is_ok();
        let fits = match (self.order(), &parts[..]) {
            (SendOrder::ByRecipient, [_, _, channel]) => channel.parse::<Channel>().is_ok(),
            (SendOrder::InDoubtSince, [since, id, channel]) => {
                is_time(since) && is_id(id) && channel.parse::<Channel>().is_ok()
            }
            (SendOrder::Due, [channel, lane, due_at, id]) => {
                channel.parse::<Channel>().is_ok()
                    && lane.parse::<i16>().is_ok()
                    && is_time(due_at)
                    && is_id(id)
            }
            (SendOrder::Newest, [id, channel]) => is_id(id) && channel.parse::<Channel>().is_ok(),
            (SendOrder::ByRecipient | SendOrder::InDoubtSince | SendOrder::Due | SendOrder::Newest, _) => {
                false
            }
        };
        let clean = parts.iter().all(|part| !part.chars().any(char::is_control));
        (fits && clean).then_some(SendCursor(parts))
    }

    /// The position after which to begin. `first` is the position before all others.
    pub(crate) fn start(&self, first: &[&str]) -> Vec<String> {
        if let Some(SendCursor(cursor)) = &self.after {
            return cursor.clone();
        }
        let mut cursor: Vec<String> = first.iter().map(|part| (*part).to_owned()).collect();
        match (self.order(), self.user(), self.channel) {
            (SendOrder::ByRecipient, Some((user_type, user_id)), _) => {
                (cursor[0], cursor[1]) = (user_type.to_owned(), user_id.to_owned());
            }
            (SendOrder::Due, _, Some(channel)) => channel.as_str().clone_into(&mut cursor[0]),
            (SendOrder::ByRecipient | SendOrder::InDoubtSince | SendOrder::Due | SendOrder::Newest, ..) => {}
        }
        cursor
    }

    /// The last channel to read, if the order contains channels. Without a channel in the filter, a text that sorts
    /// after all of them.
    pub(crate) fn last_channel(&self) -> &'static str {
        self.channel.map_or("~", Channel::as_str)
    }

    fn user(&self) -> Option<(&str, &str)> {
        self.user_type.as_deref().zip(self.user_id.as_deref())
    }

    /// The number of sends to examine.
    pub(crate) fn scan_limit(&self) -> usize {
        let by_order = match self.order() {
            SendOrder::ByRecipient | SendOrder::Newest => self.status.is_none() && self.channel.is_none(),
            SendOrder::InDoubtSince => self.channel.is_none(),
            SendOrder::Due => true,
        };
        let all_match =
            by_order && self.user_type.is_none() && self.user_id.is_none() && self.provider.is_none();
        if all_match { self.limit } else { MAX_SCANNED_SENDS.max(self.limit) }
    }

    /// Builds a page from the scanned rows that match.
    pub(crate) fn page(&self, scanned: Vec<ScannedSend>) -> SendPage {
        let is_last_scan = scanned.len() < self.scan_limit();
        let mut page = SendPage::default();
        let (count, mut examined) = (scanned.len(), 0);
        for ScannedSend { cursor, send } in scanned {
            page.next = cursor;
            examined += 1;
            if let Some(send) = send.filter(|send| self.matches(send)) {
                page.items.push(send);
                if page.items.len() == self.limit {
                    break;
                }
            }
        }
        // A user's sends are adjacent, and there are no more than there are channels.
        let of_one_user = self.order() == SendOrder::ByRecipient && self.user().is_some();
        if is_last_scan && examined == count || of_one_user && page.items.len() < self.limit {
            page.next = None;
        }
        page
    }

    fn matches(&self, send: &ListedSend) -> bool {
        let is =
            |wanted: &Option<String>, found: Option<&str>| wanted.is_none() || wanted.as_deref() == found;
        self.status.is_none_or(|status| send.row.status == status)
            && self.channel.is_none_or(|channel| send.row.channel == channel)
            && is(&self.user_type, send.user_type.as_ref().map(UserTypeName::as_str))
            && is(&self.user_id, send.user_id.as_ref().map(UserId::as_str))
            && is(&self.provider, send.row.provider.as_deref())
    }
}

impl Resolution {
    pub fn status(self) -> SendStatus {
        match self {
            Resolution::Resend => SendStatus::Due,
            Resolution::Sent => SendStatus::Sent,
            Resolution::Failed => SendStatus::Failed,
        }
    }

    /// The outcome under which the decision is stored among the attempts.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Resolution::Resend => "RESENT",
            Resolution::Sent => "SETTLED_SENT",
            Resolution::Failed => "SETTLED_FAILED",
        }
    }

    /// The send's new error, if it changes.
    pub(crate) fn last_error(self, note: Option<&str>) -> Option<String> {
        let note = note.unwrap_or("an operator reported that it did not arrive");
        (self == Resolution::Failed).then(|| format!("{SETTLED}: {note}"))
    }
}

/// The code of a failure that an operator decided.
const SETTLED: &str = "SETTLED";

/// The current state of a send that may be in doubt.
#[derive(Debug)]
pub(crate) struct SendToResolve {
    pub key: SendKey,
    pub status: SendStatus,
    pub provider: Option<String>,
    pub event_id: String,
    pub recipient: UserRef,
    pub lane: Lane,
}

impl SendToResolve {
    pub fn dead_letter(&self, error: String) -> DeadLetter {
        DeadLetter {
            stage: "send",
            event_id: Some(self.event_id.clone()),
            recipient: Some(self.recipient.clone()),
            channel: Some(self.key.channel),
            provider: self.provider.clone(),
            reason: SETTLED.to_owned(),
            error,
            message: None,
        }
    }
}

/// Whether the text is a time in the form that both databases write. Our own parser accepts more forms, years and
/// offsets.
fn is_time(text: &str) -> bool {
    let bytes = text.as_bytes();
    let is_dated = bytes.get(4) == Some(&b'-') && bytes.get(7) == Some(&b'-');
    let is_plain = bytes.iter().all(|byte| byte.is_ascii_digit() || b"T:.+-Z".contains(byte));
    let offset = text.len().checked_sub(6).and_then(|start| text.get(start..)).unwrap_or_default();
    let is_near_utc = text.ends_with('Z')
        || matches!(
            offset.as_bytes(),
            [b'+' | b'-', b'0', b'0'..=b'9', b':', ..] | [b'+' | b'-', b'1', b'0'..=b'4', b':', ..]
        );
    is_dated && is_plain && is_near_utc && time::from_text(text).is_some_and(|at| time::check(at).is_ok())
}

#[cfg(test)]
mod tests {
    use campanile_domain::id::NotificationId;
    use campanile_domain::send::OutcomeKind;
    use campanile_domain::time::{Moment, Timestamp};

    use super::*;
    use crate::{SendRow, Shown};

    fn filter(limit: usize) -> SendFilter {
        SendFilter { limit, ..SendFilter::default() }
    }

    fn row(n: usize, status: Option<SendStatus>) -> ScannedSend {
        let cursor = Some(SendCursor(vec![n.to_string(), "SMS".to_owned()]));
        ScannedSend { cursor, send: status.map(send) }
    }

    fn send(status: SendStatus) -> ListedSend {
        let key = SendKey { notification_id: NotificationId::generate(), channel: Channel::Sms };
        let row = SendRow {
            id: Shown::Typed(key),
            notification_id: Shown::Typed(key.notification_id),
            channel: Shown::Typed(key.channel),
            recipient_address: String::new(),
            status: Shown::Typed(status),
            attempt_count: Shown::Typed(0),
            next_attempt_at: None,
            lease: None,
            lease_until: None,
            provider: None,
            external_id: None,
            receipt: None,
            receipt_at: None,
            last_error: None,
            created_at: Shown::Typed(Moment(Timestamp::UNIX_EPOCH)),
            sent_at: None,
            deferred_since: None,
            deferrals: Shown::Typed(0),
        };
        ListedSend { row, event_id: None, user_type: None, user_id: None, in_doubt_since: None }
    }

    fn next(page: &SendPage) -> Option<&str> {
        page.next.as_ref().map(|SendCursor(cursor)| cursor[0].as_str())
    }

    #[test]
    fn only_times_that_every_database_reads_are_of_a_cursor() {
        for at in
            ["2026-01-21T10:15:30.123Z", "2026-01-21T10:15:30.123456+00:00", "2026-01-21T10:15:30-05:00"]
        {
            assert!(is_time(at), "{at}");
        }
        for at in [
            "",
            "yesterday",
            "-009999-01-02T00:00:00Z",
            "0000-01-01T00:00:00Z",
            "2026-01-21T10:15:30,5Z",
            "2026-01-21T10:15:30Z[UTC]",
            "2026-01-21T10:15:30+25:00",
            "20260121T101530Z",
        ] {
            assert!(!is_time(at), "{at}");
        }
    }

    #[test]
    fn a_page_goes_on_behind_the_last_that_was_scanned() {
        let rows = |count: usize| (0..count).map(|n| row(n, Some(SendStatus::Sent))).collect::<Vec<_>>();
        let page = filter(2).page(rows(2));
        assert_eq!((page.items.len(), next(&page)), (2, Some("1")));
        let last = filter(2).page(rows(1));
        assert_eq!((last.items.len(), next(&last)), (1, None));
        assert_eq!(filter(2).page(Vec::new()), SendPage::default());
    }

    #[test]
    fn a_page_without_a_match_has_a_next_if_there_may_be_one_behind() {
        let failed = SendFilter { status: Some(SendStatus::Failed), ..filter(10) };
        let rows = |count: usize| (0..count).map(|n| row(n, Some(SendStatus::Sent))).collect::<Vec<_>>();
        let page = failed.page(rows(MAX_SCANNED_SENDS));
        assert_eq!((page.items.len(), next(&page)), (0, Some("999")));
        assert_eq!(next(&failed.page(rows(MAX_SCANNED_SENDS - 1))), None);
        let mut full = rows(10);
        full.extend((10..30).map(|n| row(n, Some(SendStatus::Failed))));
        let page = failed.page(full);
        assert_eq!((page.items.len(), next(&page)), (10, Some("19")), "some that were looked at are left");
    }

    #[test]
    fn a_row_that_was_not_received_is_no_send() {
        let page = filter(10).page(vec![row(0, None), row(1, Some(SendStatus::Sent))]);
        assert_eq!(page.items.len(), 1);
    }

    #[test]
    fn a_cursor_belongs_to_its_filter() {
        let id = "0197b3c4-0000-7000-8000-000000000000";
        let newest = format!(r#"["{id}","SMS"]"#);
        let in_doubt_cursor = format!(r#"["2026-01-21T10:15:30.123456+00:00","{id}","SMS"]"#);
        let in_doubt = SendFilter { status: Some(SendStatus::InDoubt), ..filter(1) };
        assert_eq!(filter(1).cursor(&newest).unwrap().to_text(), newest);
        assert_eq!(in_doubt.cursor(&in_doubt_cursor).unwrap().to_text(), in_doubt_cursor);
        for wrong in [&in_doubt_cursor, "", "7", "[]", r#"["x","SMS"]"#, "[1,2]"] {
            assert!(filter(1).cursor(wrong).is_none(), "{wrong}");
        }
        assert!(in_doubt.cursor(&newest).is_none());
        let of_event = SendFilter { event_id: Some("a".to_owned()), ..filter(1) };
        assert!(of_event.cursor("[\"CUSTOMER\",\"4\\u00002\",\"SMS\"]").is_none());
    }

    #[test]
    fn a_resolution_is_no_outcome_of_an_attempt() {
        use OutcomeKind::{Deferred, NotAttempted, Rejected, Retry, Sent, Unknown};
        for resolution in [Resolution::Resend, Resolution::Sent, Resolution::Failed] {
            for outcome in [Deferred, NotAttempted, Rejected, Retry, Sent, Unknown] {
                assert_ne!(resolution.as_str(), outcome.as_str());
            }
        }
    }
}
