//! Writes each outcome if its claim still holds, and dead letters for sends that are not retried.

use campanile_domain::channel::Channel;
use campanile_domain::id::SendKey;
use campanile_domain::send::SendState;
use campanile_domain::time::{self, Timestamp};
use rusqlite::named_params;

use super::send::insert_due;
use super::session::Session;
use super::statement;
use crate::send::address_outcome;
use crate::{Capture, DeadLetter, InstanceId, Settlement, StoreError};

/// Writes the outcome, and returns whether the claim still held.
pub fn settle(
    session: &Session,
    now: &str,
    settlement: &Settlement,
    instance: InstanceId,
) -> Result<bool, StoreError> {
    let SendKey { notification_id, channel } = settlement.job.key;
    let job = &settlement.job;
    let sent_at = settlement.state.is_sent().then_some(now);
    let changed = session.change(statement::SETTLE_SEND,
        named_params! {
            ":status": settlement.state.status().as_str(), ":attempt_count": settlement.attempts(),
            ":attempted": settlement.outcome.is_attempt(), ":provider": settlement.provider,
            ":external_id": settlement.state.external_id(),
            ":last_error": settlement.last_error(), ":sent_at": sent_at,
            ":notification_id": notification_id.to_string(),
            ":channel": channel.as_str(), ":lease": job.claim.0, ":recipient_address": settlement.remaining_addresses(),
            ":attempted_at": settlement.attempted_at.map(Timestamp::as_millisecond), ":instance": instance.0,
        },
    )?;
    if changed == 0 {
        return Ok(false);
    }
    if let SendState::Due { at } = &settlement.state {
        insert_due(session, job, &time::to_text(*at))?;
    }
    if let Some(history) = settlement.new_history() {
        let deferral = history.deferral;
        session.change(
            statement::WRITE_HISTORY,
            named_params! {
                ":notification_id": notification_id.to_string(), ":channel": channel.as_str(),
                ":deferred_since": deferral.map(|deferral| time::to_text(deferral.since)),
                ":deferrals": deferral.map(|deferral| deferral.count), ":unanswered": history.unanswered,
            },
        )?;
    }
    if settlement.keeps_attempt() {
        session.change(statement::INSERT_ATTEMPT,
            named_params! {
                ":notification_id": notification_id.to_string(), ":channel": channel.as_str(), ":at": now,
                ":provider": settlement.provider, ":outcome": settlement.outcome.as_str(), ":error": settlement.error,
                ":duration_ms": i64::try_from(settlement.duration.as_millis()).unwrap_or(i64::MAX),
                ":instance": None::<i32>,
            },
        )?;
    }
    if let (Capture::Keep { html }, true) = (&settlement.capture, settlement.state.is_sent()) {
        session.change(
            statement::INSERT_CAPTURED,
            named_params! {
                ":event_id": job.event_id.as_str(), ":user_type": job.user.user_type.as_str(),
                ":user_id": job.user.user_id.as_str(), ":channel": channel.as_str(), ":address": job.address,
                ":title": job.title, ":body": job.body, ":html": html.as_deref(), ":at": now,
            },
        )?;
    }
    write_addresses(session, now, settlement)?;
    if let Some(dead_letter) = settlement.dead_letter() {
        insert_dead_letter(session, now, &dead_letter)?;
    }
    Ok(true)
}

/// Writes the outcome of each address of a send with several, and its dead addresses. Releases the shared address that
/// another send may use.
fn write_addresses(session: &Session, now: &str, settlement: &Settlement) -> Result<(), StoreError> {
    let SendKey { notification_id, channel } = settlement.job.key;
    for done in settlement.addresses() {
        let (outcome, external_id, error) = address_outcome(done);
        let params = named_params! {
            ":notification_id": notification_id.to_string(), ":channel": channel.as_str(), ":address": done.address,
            ":outcome": outcome, ":external_id": external_id, ":error": error, ":at": now,
        };
        session.change(statement::UPSERT_SEND_ADDRESS, params)?;
    }
    for (address, reason) in settlement.dead() {
        let params = named_params! { ":channel": channel.as_str(), ":address": address, ":reason": reason, ":at": now };
        session.change(statement::INSERT_DEAD_ADDRESS, params)?;
    }
    if let Some(address_hash) = settlement.released_address() {
        let params = named_params! {
            ":event_id": settlement.job.event_id.as_str(), ":channel": channel.as_str(),
            ":address_hash": address_hash, ":notification_id": notification_id.to_string(),
        };
        session.change(statement::RELEASE_ADDRESS_CLAIM, params)?;
    }
    Ok(())
}

pub fn insert_dead_letter(session: &Session, now: &str, dead_letter: &DeadLetter) -> Result<(), StoreError> {
    session
        .change(
            statement::INSERT_DEAD_LETTER,
            named_params! {
                ":stage": dead_letter.stage, ":event_id": dead_letter.event_id,
                ":recipient_type": dead_letter.recipient.as_ref().map(|r| r.user_type.as_str()),
                ":recipient_id": dead_letter.recipient.as_ref().map(|r| r.user_id.as_str()),
                ":channel": dead_letter.channel.map(Channel::as_str), ":provider": dead_letter.provider,
                ":reason": dead_letter.reason, ":error": dead_letter.error, ":message": dead_letter.message,
                ":now": now,
            },
        )
        .map(drop)
}
