//! Dead letters: listing them, and putting what they speak of back to where it failed.

use std::collections::HashMap;

use async_trait::async_trait;
use campanile_domain::id::SendKey;
use campanile_domain::priority::{Lane, Priority};
use campanile_domain::queue::Queue;
use campanile_domain::status::SendStatus;
use tokio_postgres::Row;

use super::transaction::Transaction;
use super::{Params, Postgres, outbox, read, statement};
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
impl DeadLetterStore for Postgres {
    async fn list_dead_letters(&self, filter: DeadLetterFilter) -> Result<Vec<ListedDeadLetter>, StoreError> {
        let snapshot = self.snapshot().await?;
        matching(&snapshot, &filter).await?.iter().map(listed_dead_letter).collect()
    }

    async fn replay(
        &self,
        filter: DeadLetterFilter,
        rerendered: RerenderedTexts,
    ) -> Result<Replayed, StoreError> {
        let filter = DeadLetterFilter { replayed: false, ..filter };
        let transaction = self.begin().await?;
        // Two operators at once would both find the same letters.
        transaction.query(statement::LOCK_REPLAY, &[]).await?;
        let dead_letters: Vec<StoredDeadLetter> =
            matching(&transaction, &filter).await?.iter().map(dead_letter).collect::<Result<_, _>>()?;
        let replayed = replay(&transaction, &dead_letters, &rerendered, filter.limit).await?;
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
            transaction.query(statement::LIST_DEAD_LETTERS_OF, &params).await
        }
    }
}

fn dead_letter(row: &Row) -> Result<StoredDeadLetter, StoreError> {
    let recipient_type: Option<String> = read::get(row, "recipient_type")?;
    Ok(StoredDeadLetter {
        id: read::get(row, "id")?,
        stage: read::get(row, "stage")?,
        event_id: read::get(row, "event_id")?,
        recipient: recipient_type.zip(read::get(row, "recipient_id")?),
        channel: read::get(row, "channel")?,
    })
}

/// Rows that wait for a chunk, by queue and lane.
type Waiting = HashMap<(Queue, Lane), Vec<SendKey>>;

async fn replay(
    transaction: &Transaction,
    dead_letters: &[StoredDeadLetter],
    rerendered: &RerenderedTexts,
    limit: usize,
) -> Result<Replayed, StoreError> {
    let mut result = Replayed::default();
    // By event: the rows of one chunk had better lie together.
    let mut waiting: HashMap<&str, Waiting> = HashMap::new();
    for dead_letter in dead_letters {
        let event_id = dead_letter.event_id.as_deref().unwrap_or_default();
        let waiting = waiting.entry(event_id).or_default();
        match replay_dead_letter(transaction, dead_letter, rerendered, waiting).await? {
            Ok(()) => {
                transaction.execute(statement::MARK_REPLAYED, &[&dead_letter.id]).await?;
                result.replayed += 1;
            }
            Err(Skipped(why)) => result.skipped.push((dead_letter.id, why)),
        }
    }
    for rows in waiting.into_values() {
        outbox::insert_chunks(transaction, rows).await?;
    }
    result.next =
        dead_letters.last().filter(|_| dead_letters.len() >= limit).map(|dead_letter| dead_letter.id);
    Ok(result)
}

type Outcome = Result<(), Skipped>;

async fn replay_dead_letter(
    transaction: &Transaction,
    dead_letter: &StoredDeadLetter,
    rerendered: &RerenderedTexts,
    waiting: &mut Waiting,
) -> Result<Outcome, StoreError> {
    let no_longer_stored = || Ok(Err(Skipped(NO_LONGER_STORED.to_owned())));
    match dead_letter.target() {
        Err(skipped) => Ok(Err(skipped)),
        Ok(ReplayTarget::Event(event_id)) => replay_event(transaction, event_id).await,
        Ok(ReplayTarget::Row(row)) => match FailedRow::find(transaction, row).await? {
            Some(found) => replay_row(transaction, row.event_id, found, waiting).await,
            None => no_longer_stored(),
        },
        Ok(ReplayTarget::Unrendered(row)) => {
            match (FailedRow::find(transaction, row).await?, rerendered_text(dead_letter, rerendered)) {
                (Some(found), Ok(text)) => {
                    found.update_text(transaction, text).await?;
                    replay_row(transaction, row.event_id, found, waiting).await
                }
                (Some(_), Err(skipped)) => Ok(Err(skipped)),
                (None, _) => no_longer_stored(),
            }
        }
        Ok(ReplayTarget::Send(row)) => match FailedRow::find(transaction, row).await? {
            Some(found) => replay_send(transaction, &found).await,
            None => no_longer_stored(),
        },
    }
}

async fn replay_event(transaction: &Transaction, event_id: &str) -> Result<Outcome, StoreError> {
    if transaction.execute(statement::REPLAY_EVENT, &[&event_id]).await? > 0 {
        return Ok(Ok(()));
    }
    let rows = transaction.query(statement::EVENT_STATUS, &[&event_id]).await?;
    let status = rows.first().map(|row| row.parsed("status")).transpose()?;
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
    async fn find(transaction: &Transaction, of: RowKey<'_>) -> Result<Option<Self>, StoreError> {
        let params: Params = &[&of.event_id, &of.recipient_type, &of.recipient_id, &of.channel];
        let rows = transaction.query(statement::DEAD_LETTER_ROW, params).await?;
        let found = |row: &Row| {
            Ok(FailedRow {
                key: stored::key_of(row)?,
                queue: Queue::named(row.str("queue")?),
                lane: row.parsed::<Priority>("priority")?.lane(),
                status: read::get(row, "status")?,
                send: row.maybe_parsed("send")?,
            })
        };
        rows.first().map(found).transpose()
    }

    async fn update_text(&self, transaction: &Transaction, text: &RowText) -> Result<(), StoreError> {
        let RowText { text, inbox } = text;
        let inbox = inbox.as_ref();
        let params: Params = &[
            &self.key.notification_id.0,
            &self.key.channel.as_str(),
            &text.title,
            &text.body,
            &inbox.map(|inbox| inbox.title.as_str()),
            &inbox.map(|inbox| inbox.body.as_str()),
        ];
        transaction.execute(statement::UPDATE_ROW_TEXT, params).await.map(drop)
    }

    /// Answers whether the statement found the row in the state that it leaves.
    async fn change(&self, transaction: &Transaction, sql: &str) -> Result<bool, StoreError> {
        let params: Params = &[&self.key.notification_id.0, &self.key.channel.as_str()];
        Ok(transaction.execute(sql, params).await? > 0)
    }
}

async fn replay_row(
    transaction: &Transaction,
    event_id: &str,
    row: FailedRow,
    waiting: &mut Waiting,
) -> Result<Outcome, StoreError> {
    if !row.change(transaction, statement::REPLAY_ROW).await? {
        return Ok(Err(row_skipped(row.status.as_deref(), row.send)));
    }
    transaction.execute(statement::REOPEN_EVENT, &[&event_id]).await?;
    waiting.entry((row.queue, row.lane)).or_default().push(row.key);
    Ok(Ok(()))
}

async fn replay_send(transaction: &Transaction, row: &FailedRow) -> Result<Outcome, StoreError> {
    if !row.change(transaction, statement::REPLAY_SEND).await? {
        return Ok(Err(send_skipped(row.send)));
    }
    let now = read::get::<campanile_domain::time::Timestamp>(
        read::only_row(&transaction.query(statement::NOW, &[]).await?)?,
        "now",
    )?;
    let params: Params = &[
        &vec![row.key.channel.as_str()],
        &vec![row.lane.number()],
        &vec![now],
        &vec![row.key.notification_id.0],
    ];
    transaction.execute(statement::INSERT_DUE, params).await?;
    Ok(Ok(()))
}
