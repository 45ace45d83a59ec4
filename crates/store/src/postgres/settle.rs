//! Writes each outcome if its claim still holds, and dead letters for sends that are not retried.

use std::collections::HashSet;

use campanile_domain::channel::Channel;
use campanile_domain::id::SendKey;
use campanile_domain::send::{AddressResult, History, SendState};
use campanile_domain::time::Timestamp;

use super::outbox::columns;
use super::transaction::Transaction;
use super::{Params, Postgres, read, statement};
use crate::decode;
use crate::send::address_outcome;
use crate::{Capture, ClaimId, DeadLetter, InstanceId, Settled, Settlement, StoreError};

pub async fn settle(
    store: &Postgres,
    settlements: &[Settlement],
    finished: &[ClaimId],
    instance: InstanceId,
) -> Result<Settled, StoreError> {
    let transaction = store.begin().await?;
    let mut settled = Settled::default();
    if !settlements.is_empty() {
        let held = write_outcomes(&transaction, settlements, instance).await?;
        let (held, lost): (Vec<&Settlement>, Vec<&Settlement>) =
            settlements.iter().partition(|s| held.contains(&(s.job.key, s.job.claim)));
        settled.lost = lost.iter().map(|settlement| settlement.job.key).collect();
        let dead_letters: Vec<DeadLetter> =
            held.iter().filter_map(|settlement| settlement.dead_letter()).collect();
        tokio::try_join!(
            biased;
            write_due(&transaction, &held),
            write_history(&transaction, &held),
            write_attempts(&transaction, &held),
            write_captured(&transaction, &held),
            write_addresses(&transaction, &held),
            write_dead_addresses(&transaction, &held),
            release_address_claims(&transaction, &held),
            insert_dead_letters(&transaction, &dead_letters),
        )?;
    }
    if !finished.is_empty() {
        let claims: Vec<i64> = finished.iter().map(|claim| claim.0).collect();
        transaction.execute(statement::DELETE_CLAIM, &[&claims]).await?;
    }
    transaction.commit().await?;
    Ok(settled)
}

fn column<'a, T>(settlements: &[&'a Settlement], of: impl Fn(&'a Settlement) -> T) -> Vec<T> {
    settlements.iter().map(|settlement| of(settlement)).collect()
}

/// Writes the outcomes. Returns the claims that still held, because a batch may contain outcomes of one send under two
/// claims.
async fn write_outcomes(
    transaction: &Transaction,
    settlements: &[Settlement],
    instance: InstanceId,
) -> Result<HashSet<(SendKey, ClaimId)>, StoreError> {
    // In key order, so that two concurrent batches do not deadlock.
    let mut ordered: Vec<&Settlement> = settlements.iter().collect();
    ordered.sort_unstable_by_key(|settlement| settlement.job.key);
    let changed = transaction
        .query(
            statement::SETTLE_SEND,
            &[
                &column(&ordered, |s| s.job.key.notification_id.0),
                &column(&ordered, |s| s.job.key.channel.as_str()),
                &column(&ordered, |s| s.job.claim.0),
                &column(&ordered, |s| s.state.status().as_str()),
                &column(&ordered, |s| i32::try_from(s.attempts()).unwrap_or(i32::MAX)),
                &column(&ordered, |s| s.outcome.is_attempt()),
                &column(&ordered, |s| s.provider.as_str()),
                &column(&ordered, |s| s.state.external_id()),
                &column(&ordered, Settlement::last_error),
                &column(&ordered, Settlement::remaining_addresses),
                &column(&ordered, |s| s.attempted_at),
                &instance.0,
            ],
        )
        .await?;
    changed.iter().map(|row| Ok((decode::key_of(row)?, ClaimId(read::get(row, "lease")?)))).collect()
}

async fn write_due(transaction: &Transaction, held: &[&Settlement]) -> Result<(), StoreError> {
    let due_at = |settlement: &&Settlement| match &settlement.state {
        SendState::Due { at } => Some(*at),
        SendState::Sent { .. } | SendState::Failed { .. } | SendState::InDoubt { .. } => None,
    };
    let due: Vec<&Settlement> = held.iter().filter(|s| due_at(s).is_some()).copied().collect();
    if due.is_empty() {
        return Ok(());
    }
    let times: Vec<Timestamp> = due.iter().filter_map(due_at).collect();
    let params: Params = &[
        &column(&due, |s| s.job.key.channel.as_str()),
        &column(&due, |s| s.job.priority.lane().number()),
        &times,
        &column(&due, |s| s.job.key.notification_id.0),
    ];
    transaction.execute(statement::INSERT_DUE, params).await.map(drop)
}

/// Writes deferrals and unanswered messages. Few sends have any.
async fn write_history(transaction: &Transaction, held: &[&Settlement]) -> Result<(), StoreError> {
    let (new, histories): (Vec<&Settlement>, Vec<History>) =
        held.iter().filter_map(|s| Some((*s, s.new_history()?))).unzip();
    if new.is_empty() {
        return Ok(());
    }
    let deferral = |history: &History| history.deferral;
    let params: Params = &[
        &column(&new, |s| s.job.key.notification_id.0),
        &column(&new, |s| s.job.key.channel.as_str()),
        &histories.iter().map(|h| deferral(h).map(|d| d.since)).collect::<Vec<_>>(),
        &histories
            .iter()
            .map(|h| deferral(h).map(|d| i32::try_from(d.count).unwrap_or(i32::MAX)))
            .collect::<Vec<_>>(),
        &histories.iter().map(|h| h.unanswered).collect::<Vec<_>>(),
    ];
    transaction.execute(statement::WRITE_HISTORY, params).await.map(drop)
}

async fn write_attempts(transaction: &Transaction, held: &[&Settlement]) -> Result<(), StoreError> {
    let kept: Vec<&Settlement> = held.iter().filter(|s| s.keeps_attempt()).copied().collect();
    if kept.is_empty() {
        return Ok(());
    }
    let params: Params = &[
        &column(&kept, |s| s.job.key.notification_id.0),
        &column(&kept, |s| s.job.key.channel.as_str()),
        &column(&kept, |s| s.provider.as_str()),
        &column(&kept, |s| s.outcome.as_str()),
        &column(&kept, |s| s.error.as_deref()),
        &column(&kept, |s| i64::try_from(s.duration.as_millis()).unwrap_or(i64::MAX)),
        &None::<i32>,
    ];
    transaction.execute(statement::INSERT_ATTEMPT, params).await.map(drop)
}

async fn write_captured(transaction: &Transaction, held: &[&Settlement]) -> Result<(), StoreError> {
    let (captured, html): (Vec<&Settlement>, Vec<Option<&str>>) = held
        .iter()
        .filter(|s| s.state.is_sent())
        .filter_map(|s| match &s.capture {
            Capture::Keep { html } => Some((*s, html.as_deref())),
            Capture::None => None,
        })
        .unzip();
    if captured.is_empty() {
        return Ok(());
    }
    let params: Params = &[
        &column(&captured, |s| s.job.event_id.as_str()),
        &column(&captured, |s| s.job.user.user_type.as_str()),
        &column(&captured, |s| s.job.user.user_id.as_str()),
        &column(&captured, |s| s.job.key.channel.as_str()),
        &column(&captured, |s| s.job.address.as_str()),
        &column(&captured, |s| s.job.title.as_str()),
        &column(&captured, |s| s.job.body.as_str()),
        &html,
    ];
    transaction.execute(statement::INSERT_CAPTURED, params).await.map(drop)
}

/// Writes the outcome of each address, for sends with several addresses.
async fn write_addresses(transaction: &Transaction, held: &[&Settlement]) -> Result<(), StoreError> {
    let done: Vec<(SendKey, &AddressResult)> =
        held.iter().flat_map(|s| s.addresses().into_iter().map(|done| (s.job.key, done))).collect();
    if done.is_empty() {
        return Ok(());
    }
    let ends: Vec<_> = done.iter().map(|(_, done)| address_outcome(done)).collect();
    let (ids, channels) = columns(done.iter().map(|(key, _)| *key));
    let params: Params = &[
        &ids,
        &channels,
        &done.iter().map(|(_, done)| done.address.as_str()).collect::<Vec<_>>(),
        &ends.iter().map(|(outcome, ..)| *outcome).collect::<Vec<_>>(),
        &ends.iter().map(|(_, external_id, _)| *external_id).collect::<Vec<_>>(),
        &ends.iter().map(|(.., error)| *error).collect::<Vec<_>>(),
    ];
    transaction.execute(statement::UPSERT_SEND_ADDRESS, params).await.map(drop)
}

async fn write_dead_addresses(transaction: &Transaction, held: &[&Settlement]) -> Result<(), StoreError> {
    let dead: Vec<(&str, &str, &str)> = held
        .iter()
        .flat_map(|s| s.dead().map(|(address, reason)| (s.job.key.channel.as_str(), address, reason)))
        .collect();
    if dead.is_empty() {
        return Ok(());
    }
    let params: Params = &[
        &dead.iter().map(|(channel, ..)| *channel).collect::<Vec<_>>(),
        &dead.iter().map(|(_, address, _)| *address).collect::<Vec<_>>(),
        &dead.iter().map(|(.., reason)| *reason).collect::<Vec<_>>(),
    ];
    transaction.execute(statement::INSERT_DEAD_ADDRESS, params).await.map(drop)
}

async fn release_address_claims(transaction: &Transaction, held: &[&Settlement]) -> Result<(), StoreError> {
    let (released, hashes): (Vec<&Settlement>, Vec<String>) =
        held.iter().filter_map(|s| Some((*s, s.released_address()?))).unzip();
    if released.is_empty() {
        return Ok(());
    }
    let params: Params = &[
        &column(&released, |s| s.job.event_id.as_str()),
        &column(&released, |s| s.job.key.channel.as_str()),
        &hashes,
        &column(&released, |s| s.job.key.notification_id.0),
    ];
    transaction.execute(statement::RELEASE_ADDRESS_CLAIM, params).await.map(drop)
}

pub async fn insert_dead_letters(
    transaction: &Transaction,
    dead_letters: &[DeadLetter],
) -> Result<(), StoreError> {
    fn column<'a, T>(dead_letters: &'a [DeadLetter], of: impl Fn(&'a DeadLetter) -> T) -> Vec<T> {
        dead_letters.iter().map(of).collect()
    }
    if dead_letters.is_empty() {
        return Ok(());
    }
    let params: Params = &[
        &column(dead_letters, |l| l.stage),
        &column(dead_letters, |l| l.event_id.as_deref()),
        &column(dead_letters, |l| l.recipient.as_ref().map(|r| r.user_type.as_str())),
        &column(dead_letters, |l| l.recipient.as_ref().map(|r| r.user_id.as_str())),
        &column(dead_letters, |l| l.channel.map(Channel::as_str)),
        &column(dead_letters, |l| l.provider.as_deref()),
        &column(dead_letters, |l| l.reason.as_str()),
        &column(dead_letters, |l| l.error.as_str()),
        &column(dead_letters, |l| l.message.as_deref()),
    ];
    transaction.execute(statement::INSERT_DEAD_LETTER, params).await.map(drop)
}
