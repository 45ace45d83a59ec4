//! Lists dead letters, and moves failed events, rows and sends back to the stage where they failed.

use std::collections::HashMap;

use async_trait::async_trait;
use campanile_domain::access::audit::Actor;
use campanile_domain::id::SendKey;
use campanile_domain::priority::Lane;
use campanile_domain::queue::Queue;
use campanile_domain::replay::{DeadLetter, Replay, RowKey, RowText, Skipped, State, Subject};
use campanile_domain::status::EventStatus;
use campanile_domain::time::Timestamp;
use tokio_postgres::Row;

use super::transaction::Transaction;
use super::{Params, Postgres, audit, outbox, read, statement};
use crate::columns::Columns;
use crate::dead_letter::{FailedRow, failed_row, listed_dead_letter, replayable, replayed};
use crate::{DeadLetterFilter, DeadLetterStore, ListedDeadLetter, Replayed, RerenderedTexts, StoreError};

#[async_trait]
impl DeadLetterStore for Postgres {
    async fn list_dead_letters(&self, filter: DeadLetterFilter) -> Result<Vec<ListedDeadLetter>, StoreError> {
        let snapshot = self.snapshot().await?;
        matching(&snapshot, &filter).await?.iter().map(listed_dead_letter).collect()
    }

    async fn replay(
        &self,
        filter: DeadLetterFilter,
        rerendered: RerenderedTexts,
        actor: &Actor,
    ) -> Result<Replayed, StoreError> {
        let filter = DeadLetterFilter { replayed: false, ..filter };
        let transaction = self.begin().await?;
        // Without the lock, two concurrent replays would both find the same dead letters.
        transaction.query(statement::LOCK_REPLAY, &[]).await?;
        let dead_letters: Vec<DeadLetter> =
            matching(&transaction, &filter).await?.iter().map(replayable).collect::<Result<_, _>>()?;
        let replayed = replay(&transaction, &dead_letters, &rerendered, filter.limit, actor).await?;
        transaction.commit().await?;
        Ok(replayed)
    }
}

async fn matching(transaction: &Transaction, filter: &DeadLetterFilter) -> Result<Vec<Row>, StoreError> {
    let limit = i64::try_from(filter.limit).unwrap_or(i64::MAX);
    let (after, last) = filter.range();
    let DeadLetterFilter { event_id, stage, channel, provider, reason, error, replayed, until, .. } = filter;
    let params: Params = &[&after, &last, replayed, stage, channel, provider, reason, error, until, &limit];
    match event_id {
        None => transaction.query(statement::LIST_DEAD_LETTERS, params).await,
        Some(event_id) => {
            let params = [params, &[event_id]].concat();
            transaction.query(statement::LIST_DEAD_LETTERS_OF_EVENT, &params).await
        }
    }
}

/// Rows that are to be put into chunks, by queue and lane.
type Waiting = HashMap<(Queue, Lane), Vec<SendKey>>;

async fn replay(
    transaction: &Transaction,
    dead_letters: &[DeadLetter],
    rerendered: &RerenderedTexts,
    limit: usize,
    actor: &Actor,
) -> Result<Replayed, StoreError> {
    let mut result = Replayed::default();
    let mut records = Vec::new();
    // By event, because a chunk is read faster if its rows are adjacent.
    let mut waiting: HashMap<&str, Waiting> = HashMap::new();
    for dead_letter in dead_letters {
        let event_id = dead_letter.event_id.as_deref().unwrap_or_default();
        let waiting = waiting.entry(event_id).or_default();
        match replay_dead_letter(transaction, dead_letter, rerendered, waiting).await? {
            Ok(()) => {
                transaction.execute(statement::MARK_REPLAYED, &[&dead_letter.id]).await?;
                records.push(replayed(dead_letter));
                result.replayed += 1;
            }
            Err(Skipped(why)) => result.skipped.push((dead_letter.id, why)),
        }
    }
    for rows in waiting.into_values() {
        outbox::insert_chunks(transaction, rows).await?;
    }
    audit::insert(transaction, actor, &records).await?;
    result.next =
        dead_letters.last().filter(|_| dead_letters.len() >= limit).map(|dead_letter| dead_letter.id);
    Ok(result)
}

async fn replay_dead_letter(
    transaction: &Transaction,
    dead_letter: &DeadLetter,
    rerendered: &RerenderedTexts,
    waiting: &mut Waiting,
) -> Result<Result<(), Skipped>, StoreError> {
    let subject = match dead_letter.subject() {
        Ok(subject) => subject,
        Err(skipped) => return Ok(Err(skipped)),
    };
    let (state, row) = match subject {
        Subject::Event(event_id) => (State::Event(event_status(transaction, event_id).await?), None),
        Subject::Row(key) => {
            let row = find_row(transaction, key).await?;
            (State::Row(row.as_ref().map(|row| row.state)), row)
        }
    };
    let replay = match dead_letter.replay(state, rerendered.get(&dead_letter.id)) {
        Ok(replay) => replay,
        Err(skipped) => return Ok(Err(skipped)),
    };
    let event_id = subject.event_id();
    let is_put_back = match (replay, row) {
        (Replay::Event, _) => transaction.execute(statement::REPLAY_EVENT, &[&event_id]).await? > 0,
        (Replay::Row { text }, Some(row)) => {
            if let Some(text) = text {
                update_text(transaction, row.key, text).await?;
            }
            publish_again(transaction, event_id, row, waiting).await?
        }
        (Replay::Send, Some(row)) => send_again(transaction, &row).await?,
        (Replay::Row { .. } | Replay::Send, None) => false,
    };
    Ok(if is_put_back { Ok(()) } else { Err(Skipped::raced()) })
}

async fn event_status(transaction: &Transaction, event_id: &str) -> Result<Option<EventStatus>, StoreError> {
    let rows = transaction.query(statement::EVENT_STATUS, &[&event_id]).await?;
    rows.first().map(|row| row.parsed("status")).transpose()
}

async fn find_row(transaction: &Transaction, key: RowKey<'_>) -> Result<Option<FailedRow>, StoreError> {
    let params: Params = &[&key.event_id, &key.recipient_type, &key.recipient_id, &key.channel];
    let rows = transaction.query(statement::DEAD_LETTER_ROW, params).await?;
    rows.first().map(failed_row).transpose()
}

async fn update_text(transaction: &Transaction, key: SendKey, text: &RowText) -> Result<(), StoreError> {
    let RowText { text, inbox } = text;
    let inbox = inbox.as_ref();
    let params: Params = &[
        &key.notification_id.0,
        &key.channel.as_str(),
        &text.title,
        &text.body,
        &inbox.map(|inbox| inbox.title.as_str()),
        &inbox.map(|inbox| inbox.body.as_str()),
    ];
    transaction.execute(statement::UPDATE_ROW_TEXT, params).await.map(drop)
}

async fn publish_again(
    transaction: &Transaction,
    event_id: &str,
    row: FailedRow,
    waiting: &mut Waiting,
) -> Result<bool, StoreError> {
    if !change(transaction, statement::REPLAY_ROW, row.key).await? {
        return Ok(false);
    }
    transaction.execute(statement::REOPEN_EVENT, &[&event_id]).await?;
    waiting.entry((row.queue, row.lane)).or_default().push(row.key);
    Ok(true)
}

async fn send_again(transaction: &Transaction, row: &FailedRow) -> Result<bool, StoreError> {
    if !change(transaction, statement::REPLAY_SEND, row.key).await? {
        return Ok(false);
    }
    let now: Timestamp = read::get(read::only_row(&transaction.query(statement::NOW, &[]).await?)?, "now")?;
    let params: Params = &[
        &vec![row.key.channel.as_str()],
        &vec![row.lane.number()],
        &vec![now],
        &vec![row.key.notification_id.0],
    ];
    transaction.execute(statement::INSERT_DUE, params).await?;
    Ok(true)
}

/// Executes an update. Returns whether the row was still in the expected state.
async fn change(transaction: &Transaction, sql: &str, key: SendKey) -> Result<bool, StoreError> {
    let params: Params = &[&key.notification_id.0, &key.channel.as_str()];
    Ok(transaction.execute(sql, params).await? > 0)
}
