//! Lists dead letters, and moves failed events, rows and sends back to the stage where they failed.

use std::collections::BTreeMap;

use async_trait::async_trait;
use campanile_domain::access::audit::Actor;
use campanile_domain::id::SendKey;
use campanile_domain::priority::Lane;
use campanile_domain::queue::Queue;
use campanile_domain::replay::{DeadLetter, Replay, RowKey, RowText, Skipped, State, Subject};
use campanile_domain::status::EventStatus;
use campanile_domain::time;
use rusqlite::{Row, ToSql, named_params};

use super::session::Session;
use super::{Sqlite, audit, outbox, statement};
use crate::columns::Columns;
use crate::dead_letter::{FailedRow, failed_row, listed_dead_letter, replayable, replayed};
use crate::{DeadLetterFilter, DeadLetterStore, ListedDeadLetter, Replayed, RerenderedTexts, StoreError};

#[async_trait]
impl DeadLetterStore for Sqlite {
    async fn list_dead_letters(&self, filter: DeadLetterFilter) -> Result<Vec<ListedDeadLetter>, StoreError> {
        self.read(move |session| matching(session, &filter, |row| listed_dead_letter(row))).await
    }

    async fn replay(
        &self,
        filter: DeadLetterFilter,
        rerendered: RerenderedTexts,
        actor: &Actor,
    ) -> Result<Replayed, StoreError> {
        let filter = DeadLetterFilter { replayed: false, ..filter };
        let actor = actor.clone();
        self.write(move |session, now| replay(session, now, &filter, &rerendered, &actor)).await
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
    session.all(statement::LIST_DEAD_LETTERS_OF_EVENT, &params[..], read)
}

/// Rows that are to be put into chunks, by event, queue and lane, so that the rows of an event are adjacent.
type Waiting = BTreeMap<(String, Queue, Lane), Vec<SendKey>>;

fn replay(
    session: &Session,
    now: &str,
    filter: &DeadLetterFilter,
    rerendered: &RerenderedTexts,
    actor: &Actor,
) -> Result<Replayed, StoreError> {
    let dead_letters = matching(session, filter, |row| replayable(row))?;
    let mut result = Replayed::default();
    let mut waiting = Waiting::new();
    for dead_letter in &dead_letters {
        match replay_dead_letter(session, now, dead_letter, rerendered, &mut waiting)? {
            Ok(()) => {
                let params = named_params! { ":id": dead_letter.id, ":now": now };
                session.change(statement::MARK_REPLAYED, params)?;
                audit::insert(session, now, actor, &replayed(dead_letter))?;
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

fn replay_dead_letter(
    session: &Session,
    now: &str,
    dead_letter: &DeadLetter,
    rerendered: &RerenderedTexts,
    waiting: &mut Waiting,
) -> Result<Result<(), Skipped>, StoreError> {
    let subject = match dead_letter.subject() {
        Ok(subject) => subject,
        Err(skipped) => return Ok(Err(skipped)),
    };
    let (state, row) = match subject {
        Subject::Event(event_id) => (State::Event(event_status(session, event_id)?), None),
        Subject::Row(key) => {
            let row = find_row(session, key)?;
            (State::Row(row.as_ref().map(|row| row.state)), row)
        }
    };
    let replay = match dead_letter.replay(state, rerendered.get(&dead_letter.id)) {
        Ok(replay) => replay,
        Err(skipped) => return Ok(Err(skipped)),
    };
    let event_id = subject.event_id();
    let is_put_back = match (replay, row) {
        (Replay::Event, _) => {
            session.change(statement::REPLAY_EVENT, named_params! { ":event_id": event_id })? > 0
        }
        (Replay::Row { text }, Some(row)) => {
            if let Some(text) = text {
                update_text(session, row.key, text)?;
            }
            publish_again(session, event_id, row, waiting)?
        }
        (Replay::Send, Some(row)) => send_again(session, now, &row)?,
        (Replay::Row { .. } | Replay::Send, None) => false,
    };
    Ok(if is_put_back { Ok(()) } else { Err(Skipped::raced()) })
}

fn event_status(session: &Session, event_id: &str) -> Result<Option<EventStatus>, StoreError> {
    session
        .first(statement::EVENT_STATUS, named_params! { ":event_id": event_id }, |row| row.parsed("status"))
}

fn find_row(session: &Session, key: RowKey) -> Result<Option<FailedRow>, StoreError> {
    let params = named_params! {
        ":event_id": key.event_id, ":recipient_type": key.recipient_type, ":recipient_id": key.recipient_id,
        ":channel": key.channel,
    };
    session.first(statement::DEAD_LETTER_ROW, params, |row| failed_row(row))
}

fn update_text(session: &Session, key: SendKey, text: &RowText) -> Result<(), StoreError> {
    let RowText { text, inbox } = text;
    let inbox = inbox.as_ref();
    let params = named_params! {
        ":notification_id": key.notification_id.to_string(), ":channel": key.channel.as_str(),
        ":title": text.title, ":body": text.body,
        ":inbox_title": inbox.map(|inbox| inbox.title.as_str()),
        ":inbox_body": inbox.map(|inbox| inbox.body.as_str()),
    };
    session.change(statement::UPDATE_ROW_TEXT, params).map(drop)
}

fn publish_again(
    session: &Session,
    event_id: &str,
    row: FailedRow,
    waiting: &mut Waiting,
) -> Result<bool, StoreError> {
    if !change(session, statement::REPLAY_ROW, row.key)? {
        return Ok(false);
    }
    session.change(statement::REOPEN_EVENT, named_params! { ":event_id": event_id })?;
    waiting.entry((event_id.to_owned(), row.queue, row.lane)).or_default().push(row.key);
    Ok(true)
}

fn send_again(session: &Session, now: &str, row: &FailedRow) -> Result<bool, StoreError> {
    if !change(session, statement::REPLAY_SEND, row.key)? {
        return Ok(false);
    }
    let params = named_params! {
        ":channel": row.key.channel.as_str(), ":lane": row.lane.number(), ":due_at": now,
        ":notification_id": row.key.notification_id.to_string(),
    };
    session.change(statement::INSERT_DUE, params)?;
    Ok(true)
}

/// Executes an update. Returns whether the row was still in the expected state.
fn change(session: &Session, sql: &str, key: SendKey) -> Result<bool, StoreError> {
    let params = named_params! {
        ":notification_id": key.notification_id.to_string(), ":channel": key.channel.as_str(),
    };
    Ok(session.change(sql, params)? > 0)
}
