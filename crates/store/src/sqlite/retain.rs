//! Retention: deletes a bounded number of old rows at a time. An event is deleted after everything that belongs to it.

use std::time::Duration;

use async_trait::async_trait;
use campanile_domain::id::EventSeq;
use campanile_domain::time::{self, Timestamp};
use rusqlite::named_params;

use super::session::Session;
use super::{Sqlite, statement};
use crate::columns::Columns;
use crate::decode;
use crate::retain::{MAX_PAGE_EVENTS, advanced_horizon, effective_horizon};
use crate::{Horizon, RetainStore, Retained, StoreError};

#[async_trait]
impl RetainStore for Sqlite {
    async fn move_horizon(
        &self,
        age: Duration,
        known_version: Option<i64>,
        by: Duration,
    ) -> Result<Option<Horizon>, StoreError> {
        let now = self.clock();
        self.write(move |session, _| {
            let Some((mut stored, mut version)) = horizon(session)? else { return Ok(None) };
            if known_version == Some(version) {
                stored = advanced_horizon(stored, now, age, by);
                let params = named_params! { ":horizon": time::to_text(stored), ":version": version };
                version +=
                    i64::try_from(session.change(statement::MOVE_HORIZON, params)?).unwrap_or_default();
            }
            Ok(Some(Horizon { before: effective_horizon(stored, now, age), version }))
        })
        .await
    }

    async fn retain(&self, before: Timestamp, after: EventSeq, limit: usize) -> Result<Retained, StoreError> {
        self.write(move |session, now| {
            let mut budget = Budget { spent: 0, limit: limit.max(1) };
            let next = retain(session, now, &time::to_text(before), after, &mut budget)?;
            Ok(Retained { rows: budget.spent as u64, next })
        })
        .await
    }
}

/// The stored horizon, and how often it was moved.
fn horizon(session: &Session) -> Result<Option<(Timestamp, i64)>, StoreError> {
    let read = || {
        session.first(statement::READ_HORIZON, named_params! {}, |row| {
            Ok((row.maybe_time("horizon")?.unwrap_or_default(), row.get("version")?))
        })
    };
    if let Some(found) = read()? {
        return Ok(Some(found));
    }
    session.change(statement::BEGIN_HORIZON, named_params! {})?;
    read()
}

/// The number of rows that may still be deleted.
struct Budget {
    spent: usize,
    limit: usize,
}

impl Budget {
    fn left(&self) -> usize {
        self.limit.saturating_sub(self.spent)
    }

    fn is_spent(&self) -> bool {
        self.left() == 0
    }
}

/// Deletes old events after `after`. Returns the event after which the next call continues.
fn retain(
    session: &Session,
    now: &str,
    before: &str,
    after: EventSeq,
    budget: &mut Budget,
) -> Result<Option<EventSeq>, StoreError> {
    let params = named_params! { ":before": before, ":after": after.0, ":limit": MAX_PAGE_EVENTS };
    let events = session.all(statement::RETAIN_PAGE, params, |row| {
        Ok((EventSeq(row.get("id")?), row.get::<_, bool>("is_old")?, row.get::<_, bool>("is_closed")?))
    })?;
    let mut passed = after;
    for (seq, is_old, is_closed) in &events {
        if *is_old && *is_closed && !delete_event(session, now, *seq, budget)? {
            return Ok(Some(passed));
        }
        passed = *seq;
    }
    if events.len() == MAX_PAGE_EVENTS && events.iter().any(|(_, is_old, _)| *is_old) {
        return Ok(Some(passed));
    }
    for sql in [statement::DELETE_OLD_CAPTURED, statement::DELETE_DEAD_LETTERS_WITHOUT_EVENT] {
        let params = named_params! { ":before": before, ":limit": budget.left() };
        budget.spent += session.change(sql, params)?;
    }
    Ok(budget.is_spent().then_some(passed))
}

/// Deletes an event and its finished rows. Returns `true` if the event is deleted, or if it stays because of an
/// unsettled send. Returns `false` if more rows remain than one call may delete.
fn delete_event(
    session: &Session,
    now: &str,
    seq: EventSeq,
    budget: &mut Budget,
) -> Result<bool, StoreError> {
    let id = seq.0;
    delete_rows(session, id, budget)?;
    if budget.is_spent() {
        return Ok(false);
    }
    let this_event = named_params! { ":id": id };
    if session.first(statement::HAS_ROWS, this_event, |_| Ok(()))?.is_some() {
        return Ok(true);
    }
    for sql in [
        statement::DELETE_CAPTURED_OF,
        statement::DELETE_DEAD_LETTERS_OF,
        statement::DELETE_EVENT_NOTIFICATIONS_OF,
        statement::DELETE_SEND_ONCE_OF,
    ] {
        let params = named_params! { ":id": id, ":limit": budget.left() };
        budget.spent += session.change(sql, params)?;
        if budget.is_spent() {
            return Ok(false);
        }
    }
    remember(session, now, id)?;
    session.change(statement::CLEAR_DECISIONS, this_event)?;
    budget.spent += session.change(statement::DELETE_CANCEL, this_event)?;
    budget.spent += session.change(statement::DELETE_EVENT, this_event)?;
    Ok(true)
}

/// Deletes finished rows, each with its send. A notification is deleted with its last row.
fn delete_rows(session: &Session, id: i64, budget: &mut Budget) -> Result<(), StoreError> {
    let params = named_params! { ":id": id, ":limit": budget.left() };
    let rows = session.all(statement::FINISHED_ROWS, params, |row| {
        Ok((row.get::<_, String>("notification_id")?, row.get::<_, String>("channel")?))
    })?;
    for (notification_id, channel) in rows {
        if budget.is_spent() {
            break;
        }
        let this_row = named_params! { ":notification_id": notification_id, ":channel": channel };
        for sql in [
            statement::DELETE_ATTEMPTS,
            statement::DELETE_SEND_ADDRESSES,
            statement::DELETE_SEND,
            statement::DELETE_ROW,
        ] {
            budget.spent += session.change(sql, this_row)?;
        }
        let params = named_params! { ":notification_id": notification_id };
        budget.spent += session.change(statement::DELETE_NOTIFICATION, params)?;
    }
    Ok(())
}

/// Stores the id of an event forever, and its hash if the body could be read.
fn remember(session: &Session, now: &str, id: i64) -> Result<(), StoreError> {
    let params = named_params! { ":id": id };
    let hash = session.first(statement::EVENT_WITHOUT_PROCESSED, params, |row| Ok(decode::body_hash(row)))?;
    let Some(hash) = hash else { return Ok(()) };
    let params = named_params! { ":id": id, ":body_hash": hash.as_str(), ":now": now };
    session.change(statement::REMEMBER_EVENT, params).map(drop)
}
