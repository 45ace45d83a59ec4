//! Dead letters: listing them, and putting what they speak of back to where it failed.

use std::collections::BTreeMap;

use async_trait::async_trait;
use campanile_domain::id::SendKey;
use campanile_domain::priority::{Lane, Priority};
use campanile_domain::queue::Queue;
use campanile_domain::status::SendStatus;
use campanile_domain::time;
use rusqlite::{Row, ToSql, named_params};

use super::session::Session;
use super::{Sqlite, outbox, statement};
use crate::columns::Columns;
use crate::dead_letter::{
    NO_LONGER_STORED, ReplayTarget, RowKey, Skipped, StoredDeadLetter, event_skipped, listed_dead_letter,
    rerendered_text, row_skipped, send_skipped,
};
use crate::stored;
use crate::{
    DeadLetterFilter, DeadLetterStore, ListedDeadLetter, Replayed, RerenderedTexts, RowText, StoreError,
};

#[async_trait]
impl DeadLetterStore for Sqlite {
    async fn list_dead_letters(&self, filter: DeadLetterFilter) -> Result<Vec<ListedDeadLetter>, StoreError> {
        self.read(move |session| matching(session, &filter, |row| listed_dead_letter(row))).await
    }

    async fn replay(
        &self,
        filter: DeadLetterFilter,
        rerendered: RerenderedTexts,
    ) -> Result<Replayed, StoreError> {
        let filter = DeadLetterFilter { replayed: false, ..filter };
        self.write(move |session, now| replay(session, now, &filter, &rerendered)).await
    }
}

fn matching<T>(
    session: &Session,
    filter: &DeadLetterFilter,
    read: impl FnMut(&Row) -> Result<T, StoreError>,
) -> Result<Vec<T>, StoreError> {
    let (after, last) = filter.range();
    let until = filter.until.map(time::to_text);
    let mut params: Vec<(&str, &dyn ToSql)> = vec![
        (":after", &after),
        (":last", &last),
        (":replayed", &filter.replayed),
        (":stage", &filter.stage),
        (":channel", &filter.channel),
        (":provider", &filter.provider),
        (":reason", &filter.reason),
        (":error", &filter.error),
        (":until", &until),
        (":limit", &filter.limit),
    ];
    let Some(event_id) = &filter.event_id else {
        return session.all(statement::LIST_DEAD_LETTERS, &params[..], read);
    };
    params.push((":event_id", event_id));
    session.all(statement::LIST_DEAD_LETTERS_OF, &params[..], read)
}

fn dead_letter(row: &Row) -> Result<StoredDeadLetter, StoreError> {
    let recipient_type: Option<String> = row.get("recipient_type")?;
    Ok(StoredDeadLetter {
        id: row.get("id")?,
        stage: row.get("stage")?,
        event_id: row.get("event_id")?,
        recipient: recipient_type.zip(row.get("recipient_id")?),
        channel: row.get("channel")?,
    })
}

/// Rows that wait for a chunk, by event, queue and lane: the rows of one event lie together.
type Waiting = BTreeMap<(String, Queue, Lane), Vec<SendKey>>;

fn replay(
    session: &Session,
    now: &str,
    filter: &DeadLetterFilter,
    rerendered: &RerenderedTexts,
) -> Result<Replayed, StoreError> {
    let dead_letters = matching(session, filter, dead_letter)?;
    let mut result = Replayed::default();
    let mut waiting = Waiting::new();
    for dead_letter in &dead_letters {
        match replay_dead_letter(session, now, dead_letter, rerendered, &mut waiting)? {
            Ok(()) => {
                let params = named_params! { ":id": dead_letter.id, ":now": now };
                session.change(statement::MARK_REPLAYED, params)?;
                result.replayed += 1;
            }
            Err(Skipped(why)) => result.skipped.push((dead_letter.id, why)),
        }
    }
    for ((_, queue, lane), keys) in waiting {
        outbox::insert_chunks(session, &queue, lane, keys)?;
    }
    result.next =
        dead_letters.last().filter(|_| dead_letters.len() >= filter.limit).map(|dead_letter| dead_letter.id);
    Ok(result)
}

type Outcome = Result<(), Skipped>;

fn replay_dead_letter(
    session: &Session,
    now: &str,
    dead_letter: &StoredDeadLetter,
    rerendered: &RerenderedTexts,
    waiting: &mut Waiting,
) -> Result<Outcome, StoreError> {
    let no_longer_stored = || Ok(Err(Skipped(NO_LONGER_STORED.to_owned())));
    match dead_letter.target() {
        Err(skipped) => Ok(Err(skipped)),
        Ok(ReplayTarget::Event(event_id)) => replay_event(session, event_id),
        Ok(ReplayTarget::Row(row)) => match FailedRow::find(session, row)? {
            Some(found) => replay_row(session, row.event_id, found, waiting),
            None => no_longer_stored(),
        },
        Ok(ReplayTarget::Unrendered(row)) => {
            match (FailedRow::find(session, row)?, rerendered_text(dead_letter, rerendered)) {
                (Some(found), Ok(text)) => {
                    found.update_text(session, text)?;
                    replay_row(session, row.event_id, found, waiting)
                }
                (Some(_), Err(skipped)) => Ok(Err(skipped)),
                (None, _) => no_longer_stored(),
            }
        }
        Ok(ReplayTarget::Send(row)) => match FailedRow::find(session, row)? {
            Some(found) => replay_send(session, now, &found),
            None => no_longer_stored(),
        },
    }
}

fn replay_event(session: &Session, event_id: &str) -> Result<Outcome, StoreError> {
    let this_event = named_params! { ":event_id": event_id };
    if session.change(statement::REPLAY_EVENT, this_event)? > 0 {
        return Ok(Ok(()));
    }
    let status = session.first(statement::EVENT_STATUS, this_event, |row| row.parsed("status"))?;
    Ok(Err(event_skipped(status)))
}

/// The row that a letter speaks of, as it is now.
struct FailedRow {
    key: SendKey,
    queue: Queue,
    lane: Lane,
    status: Option<String>,
    send: Option<SendStatus>,
}

impl FailedRow {
    fn find(session: &Session, of: RowKey) -> Result<Option<Self>, StoreError> {
        let params = named_params! {
            ":event_id": of.event_id, ":recipient_type": of.recipient_type, ":recipient_id": of.recipient_id,
            ":channel": of.channel,
        };
        session.first(statement::DEAD_LETTER_ROW, params, |row| {
            Ok(FailedRow {
                key: stored::key_of(row)?,
                queue: Queue::named(row.str("queue")?),
                lane: row.parsed::<Priority>("priority")?.lane(),
                status: row.get("status")?,
                send: row.maybe_parsed("send")?,
            })
        })
    }

    fn update_text(&self, session: &Session, text: &RowText) -> Result<(), StoreError> {
        let RowText { text, inbox } = text;
        let inbox = inbox.as_ref();
        let params = named_params! {
            ":notification_id": self.key.notification_id.to_string(), ":channel": self.key.channel.as_str(),
            ":title": text.title, ":body": text.body,
            ":inbox_title": inbox.map(|inbox| inbox.title.as_str()),
            ":inbox_body": inbox.map(|inbox| inbox.body.as_str()),
        };
        session.change(statement::UPDATE_ROW_TEXT, params).map(drop)
    }

    /// Answers whether the statement found the row in the state that it leaves.
    fn change(&self, session: &Session, sql: &str) -> Result<bool, StoreError> {
        let params = named_params! {
            ":notification_id": self.key.notification_id.to_string(), ":channel": self.key.channel.as_str(),
        };
        Ok(session.change(sql, params)? > 0)
    }
}

fn replay_row(
    session: &Session,
    event_id: &str,
    row: FailedRow,
    waiting: &mut Waiting,
) -> Result<Outcome, StoreError> {
    if !row.change(session, statement::REPLAY_ROW)? {
        return Ok(Err(row_skipped(row.status.as_deref(), row.send)));
    }
    session.change(statement::REOPEN_EVENT, named_params! { ":event_id": event_id })?;
    waiting.entry((event_id.to_owned(), row.queue, row.lane)).or_default().push(row.key);
    Ok(Ok(()))
}

fn replay_send(session: &Session, now: &str, row: &FailedRow) -> Result<Outcome, StoreError> {
    if !row.change(session, statement::REPLAY_SEND)? {
        return Ok(Err(send_skipped(row.send)));
    }
    let params = named_params! {
        ":channel": row.key.channel.as_str(), ":lane": row.lane.number(), ":due_at": now,
        ":notification_id": row.key.notification_id.to_string(),
    };
    session.change(statement::INSERT_DUE, params)?;
    Ok(Ok(()))
}
