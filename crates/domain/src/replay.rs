//! What a replay does with a dead letter: what it puts back, or why it leaves the dead letter alone.

use crate::status::{EventStatus, OutboxStatus, SendStatus};
use crate::template::Text;

/// A dead letter, as far as a replay depends on it. Its texts may have been written by hand.
#[derive(Debug)]
pub struct DeadLetter {
    pub id: i64,
    pub stage: String,
    pub event_id: Option<String>,
    /// User type and user id.
    pub recipient: Option<(String, String)>,
    pub channel: Option<String>,
}

/// What a dead letter names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject<'a> {
    Event(&'a str),
    Row(RowKey<'a>),
}

impl<'a> Subject<'a> {
    pub fn event_id(self) -> &'a str {
        match self {
            Subject::Event(event_id) | Subject::Row(RowKey { event_id, .. }) => event_id,
        }
    }
}

/// The unique key of an outbox row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowKey<'a> {
    pub event_id: &'a str,
    pub recipient_type: &'a str,
    pub recipient_id: &'a str,
    pub channel: &'a str,
}

/// The subject as it is now. `None` if it is no longer stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Event(Option<EventStatus>),
    Row(Option<RowState>),
}

/// An outbox row as it is now: its stored status, and that of its send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowState {
    pub status: Option<OutboxStatus>,
    pub send: Option<SendStatus>,
}

/// The text of a row that could not be rendered when its event was decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowText {
    pub text: Text,
    /// The inbox text where it differs from the channel's.
    pub inbox: Option<Text>,
}

/// What is put back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replay<'a> {
    /// The event waits for its fan-out again.
    Event,
    /// The row waits to be published again, with a new text if there is one.
    Row { text: Option<&'a RowText> },
    /// The send is due now, with all its attempts.
    Send,
}

/// Why a dead letter is left alone, in words for the operator.
#[derive(Debug, PartialEq, Eq)]
pub struct Skipped(pub String);

impl Skipped {
    fn because(why: &str) -> Self {
        Skipped(why.to_owned())
    }

    /// The subject was in the right state when it was read, and no longer when it was put back.
    pub fn raced() -> Self {
        Self::because("it changed at the same moment; replay it again")
    }
}

impl DeadLetter {
    pub fn subject(&self) -> Result<Subject<'_>, Skipped> {
        let Some(event_id) = self.event_id.as_deref() else {
            return Err(Skipped::because("it names no known event"));
        };
        match (self.stage.as_str(), &self.recipient, &self.channel) {
            ("fan_out", None, _) => Ok(Subject::Event(event_id)),
            (
                "fan_out" | "publish" | "receive" | "send",
                Some((recipient_type, recipient_id)),
                Some(channel),
            ) => Ok(Subject::Row(RowKey { event_id, recipient_type, recipient_id, channel })),
            ("fan_out" | "publish" | "receive" | "send", ..) => {
                Err(Skipped::because("it names no recipient and channel"))
            }
            (stage, ..) => Err(Skipped(format!("unknown stage {stage}"))),
        }
    }

    /// The only function that decides about a replay. `rendered` is the text of a row that had none, or why it still
    /// can't be rendered.
    pub fn replay<'a>(
        &self,
        state: State,
        rendered: Option<&'a Result<RowText, String>>,
    ) -> Result<Replay<'a>, Skipped> {
        let row = match state {
            State::Event(Some(status)) => return event(status).map(|()| Replay::Event),
            State::Row(Some(row)) => row,
            State::Event(None) | State::Row(None) => {
                return Err(Skipped::because("its event, row or send is no longer stored"));
            }
        };
        match (self.stage.as_str(), rendered) {
            ("send", _) => send(row).map(|()| Replay::Send),
            ("fan_out", None) => Err(Skipped::because("its text was not rendered again")),
            ("fan_out", Some(Err(why))) => Err(Skipped(format!("its text still can't be rendered: {why}"))),
            ("fan_out", Some(Ok(text))) => unsent(row).map(|()| Replay::Row { text: Some(text) }),
            _ => unsent(row).map(|()| Replay::Row { text: None }),
        }
    }
}

fn event(status: EventStatus) -> Result<(), Skipped> {
    match status {
        EventStatus::Failed => Ok(()),
        EventStatus::Pending => Err(Skipped::because("its event is already being processed")),
        EventStatus::Published | EventStatus::Processed | EventStatus::Cancelled => Err(Skipped(format!(
            "its event is {}; an event that was already decided is not replayed",
            status.as_str()
        ))),
    }
}

fn unsent(row: RowState) -> Result<(), Skipped> {
    match (row.status, row.send) {
        // Also one that was received at the moment at which it failed. Published again, it is recognised.
        (Some(OutboxStatus::Failed), _) => Ok(()),
        (_, Some(_)) => Err(Skipped::because("its message was already received")),
        (Some(status), None) => Err(Skipped(format!("its row is {}", status.as_str()))),
        (None, None) => Err(Skipped::because("its row is already being published")),
    }
}

fn send(row: RowState) -> Result<(), Skipped> {
    match row.send {
        Some(SendStatus::Failed) => Ok(()),
        Some(status) => Err(Skipped(format!("its send is {}", status.as_str()))),
        None => Err(Skipped::because("its event, row or send is no longer stored")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dead_letter(stage: &str, recipient: bool, channel: bool) -> DeadLetter {
        DeadLetter {
            id: 1,
            stage: stage.to_owned(),
            event_id: Some("a".to_owned()),
            recipient: recipient.then(|| ("CUSTOMER".to_owned(), "42".to_owned())),
            channel: channel.then(|| "EMAIL".to_owned()),
        }
    }

    fn row(status: Option<OutboxStatus>, send: Option<SendStatus>) -> State {
        State::Row(Some(RowState { status, send }))
    }

    #[test]
    fn an_event_begins_again_only_by_a_dead_letter_without_a_recipient() {
        assert_eq!(dead_letter("fan_out", false, false).subject(), Ok(Subject::Event("a")));
        assert!(matches!(dead_letter("fan_out", true, true).subject(), Ok(Subject::Row(_))));
        assert!(dead_letter("fan_out", true, false).subject().is_err());
        let forged = DeadLetter { event_id: None, ..dead_letter("receive", true, true) };
        assert_eq!(forged.subject(), Err(Skipped::because("it names no known event")));
    }

    #[test]
    fn a_row_is_found_only_by_its_whole_key() {
        for stage in ["publish", "receive", "send"] {
            assert!(matches!(dead_letter(stage, true, true).subject(), Ok(Subject::Row(_))));
            assert!(dead_letter(stage, true, false).subject().is_err());
            assert!(dead_letter(stage, false, true).subject().is_err());
        }
        assert_eq!(dead_letter("lunch", true, true).subject(), Err(Skipped::because("unknown stage lunch")));
    }

    #[test]
    fn only_a_failed_event_begins_again() {
        let dead_letter = dead_letter("fan_out", false, false);
        for status in EventStatus::ALL {
            let replay = dead_letter.replay(State::Event(Some(*status)), None);
            assert_eq!(replay.is_ok(), *status == EventStatus::Failed, "{status:?}");
        }
        assert!(dead_letter.replay(State::Event(None), None).is_err());
    }

    #[test]
    fn only_a_failed_row_is_published_again() {
        let dead_letter = dead_letter("publish", true, true);
        for send in [None, Some(SendStatus::Sent)] {
            let failed = row(Some(OutboxStatus::Failed), send);
            assert_eq!(dead_letter.replay(failed, None), Ok(Replay::Row { text: None }));
        }
        for (status, send) in
            [(None, None), (None, Some(SendStatus::Failed)), (Some(OutboxStatus::Cancelled), None)]
        {
            assert!(dead_letter.replay(row(status, send), None).is_err(), "{status:?} {send:?}");
        }
        assert!(dead_letter.replay(State::Row(None), None).is_err());
    }

    #[test]
    fn a_row_without_a_text_needs_one_to_be_published() {
        let dead_letter = dead_letter("fan_out", true, true);
        let failed = row(Some(OutboxStatus::Failed), None);
        let text = RowText { text: Text { title: "a".to_owned(), body: "b".to_owned() }, inbox: None };
        let rendered = Ok(text.clone());
        assert_eq!(dead_letter.replay(failed, Some(&rendered)), Ok(Replay::Row { text: Some(&text) }));
        assert!(dead_letter.replay(failed, None).is_err());
        let failed_again = Err("`guest` is undefined".to_owned());
        let skipped = dead_letter.replay(failed, Some(&failed_again)).unwrap_err();
        assert_eq!(skipped.0, "its text still can't be rendered: `guest` is undefined");
    }

    #[test]
    fn only_a_failed_send_is_due_again() {
        let dead_letter = dead_letter("send", true, true);
        for status in SendStatus::ALL {
            let replay = dead_letter.replay(row(None, Some(*status)), None);
            assert_eq!(replay.is_ok(), *status == SendStatus::Failed, "{status:?}");
        }
        assert!(dead_letter.replay(row(None, None), None).is_err());
    }
}
