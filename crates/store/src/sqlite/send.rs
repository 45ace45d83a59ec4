//! Turns received messages into sends, and claims the sends. `settle` writes the outcomes of attempts.

use std::collections::HashSet;
use std::time::Duration;

use async_trait::async_trait;
use campanile_domain::channel::Channel;
use campanile_domain::id::{EventId, NotificationId, SendKey, UserRef};
use campanile_domain::message::MAX_PAYLOAD_BYTES;
use campanile_domain::priority::Lane;
use campanile_domain::send::{AddressClaim, ON_RECEIPT_PROVIDER};
use campanile_domain::status::SendStatus;
use campanile_domain::time::{self, Timestamp};
use rusqlite::named_params;
use serde_json::json;
use uuid::Uuid;

use super::columns::InOrder;
use super::outbox::lease_until;
use super::session::Session;
use super::{Sqlite, settle, statement};
use crate::columns::Columns;
use crate::decode;
use crate::send::address_hash;
use crate::{
    ClaimId, ExpiredClaim, FailedMessage, Instance, InstanceId, NewSend, Receipt, Received, ReceivedKey,
    SendJob, SendStore, Settled, Settlement, StoreError,
};

#[async_trait]
impl SendStore for Sqlite {
    async fn receive(
        &self,
        keys: Vec<ReceivedKey>,
        instance: &Instance,
        lease: Duration,
    ) -> Result<Received, StoreError> {
        let instance = instance.clone();
        self.write(move |session, now| {
            let claim = open_claim(session, now, &instance.name, lease)?;
            let (mut received, mut last) = (Received::default(), None);
            let batch = ReceiveBatch { session, now, claim, instance: instance.id };
            for key in &keys {
                batch.receive(*key, &mut received, &mut last)?;
            }
            fill_claim(session, claim, &received.jobs)?;
            Ok(received)
        })
        .await
    }

    async fn claim_due(
        &self,
        channel: Channel,
        limit: usize,
        instance: &Instance,
        lease: Duration,
    ) -> Result<Vec<SendJob>, StoreError> {
        let instance = instance.clone();
        self.write(move |session, now| {
            let claim = open_claim(session, now, &instance.name, lease)?;
            let mut jobs = Vec::new();
            for lane in Lane::ALL {
                let params = named_params! {
                    ":channel": channel.as_str(), ":lane": lane.number(), ":now": now, ":limit": limit - jobs.len(),
                };
                let mut due: Vec<(String, String)> =
                    session.all(statement::CLAIM_DUE, params, |row| Ok((row.get(0)?, row.get(1)?)))?;
                due.sort_unstable();
                for (_, notification_id) in due {
                    jobs.extend(start(session, &notification_id, channel, claim, instance.id)?);
                }
            }
            fill_claim(session, claim, &jobs)?;
            remove_dead_addresses(session, &mut jobs)?;
            Ok(jobs)
        })
        .await
    }

    async fn settle(
        &self,
        settlements: Vec<Settlement>,
        finished: Vec<ClaimId>,
        instance: InstanceId,
    ) -> Result<Settled, StoreError> {
        self.write(move |session, now| {
            let mut settled = Settled::default();
            for settlement in &settlements {
                if !settle::settle(session, now, settlement, instance)? {
                    settled.lost.push(settlement.job.key);
                }
            }
            for claim in &finished {
                session.change(statement::DELETE_CLAIM, named_params! { ":id": claim.0 })?;
            }
            Ok(settled)
        })
        .await
    }

    async fn claim_address(&self, job: &SendJob) -> Result<AddressClaim, StoreError> {
        let (event_id, hash) = (job.event_id.to_string(), address_hash(&job.address));
        let (id, channel, claim) = (job.key.notification_id, job.key.channel.as_str(), job.claim);
        self.write(move |session, now| {
            let params = named_params! { ":event_id": event_id, ":channel": channel, ":address_hash": hash };
            let holder = session.first(statement::ADDRESS_CLAIM_HOLDER, params, |row| {
                let holder = row.parsed::<Uuid>("notification_id")?;
                Ok((NotificationId(holder), row.maybe_parsed("status")?))
            })?;
            if let Some(address_claim) = holder.map(|(holder, status)| AddressClaim::of(holder, status, id))
                && address_claim != AddressClaim::Held
            {
                return Ok(address_claim);
            }
            let params = named_params! {
                ":event_id": event_id, ":channel": channel, ":address_hash": hash, ":notification_id": id.to_string(),
                ":at": now, ":lease": claim.0,
            };
            let claimed = session.change(statement::CLAIM_ADDRESS, params)?;
            Ok(if claimed > 0 { AddressClaim::Held } else { AddressClaim::Pending })
        })
        .await
    }

    async fn may_have_sent(&self, job: &SendJob) -> Result<bool, StoreError> {
        let (event_id, hash) = (job.event_id.to_string(), address_hash(&job.address));
        let (id, channel) = (job.key.notification_id.to_string(), job.key.channel.as_str());
        let claim = job.claim;
        self.read(move |session| {
            let params = named_params! {
                ":event_id": event_id, ":channel": channel, ":address_hash": hash, ":notification_id": id,
                ":lease": claim.0,
            };
            let claims: Option<i64> =
                session.first(statement::MAY_HAVE_SENT, params, |row| Ok(row.get(0)?))?;
            Ok(claims.is_some_and(|claims| claims > 0))
        })
        .await
    }

    async fn record_receipt(&self, key: SendKey, receipt: Receipt) -> Result<bool, StoreError> {
        self.write(move |session, now| {
            let params = named_params! {
                ":notification_id": key.notification_id.to_string(), ":channel": key.channel.as_str(),
                ":external_id": receipt.external_id, ":receipt": receipt.receipt,
                ":later_receipts": json!(receipt.later_receipts).to_string(), ":now": now,
            };
            Ok(session.change(statement::RECORD_RECEIPT, params)? > 0)
        })
        .await
    }

    async fn renew_claims(&self, claims: Vec<ClaimId>, lease: Duration) -> Result<Vec<ClaimId>, StoreError> {
        self.write(move |session, now| {
            let until = lease_until(now, lease);
            let mut renewed = Vec::with_capacity(claims.len());
            for claim in &claims {
                let params = named_params! { ":id": claim.0, ":now": now, ":lease_until": until };
                if session.change(statement::RENEW_CLAIM, params)? > 0 {
                    renewed.push(*claim);
                }
            }
            Ok(renewed)
        })
        .await
    }

    async fn expired_claims(&self, limit: usize) -> Result<Vec<ExpiredClaim>, StoreError> {
        let now = time::to_text(self.clock());
        self.read(move |session| {
            let params = named_params! { ":now": now, ":limit": limit };
            let claims = session.all(statement::EXPIRED_CLAIMS, params, |row| {
                Ok((ClaimId(row.get("id")?), row.get::<_, String>("notifications")?))
            })?;
            let jobs = |(claim, notifications): (ClaimId, String)| {
                let params = named_params! { ":notifications": notifications, ":lease": claim.0 };
                let jobs = session.all(statement::CLAIMED_SENDS, params, |row| {
                    decode::started_job(&InOrder::new(row), claim)
                })?;
                Ok(ExpiredClaim { claim, jobs })
            };
            claims.into_iter().map(jobs).collect()
        })
        .await
    }

    async fn fail_messages(&self, failed: Vec<FailedMessage>) -> Result<(), StoreError> {
        self.write(move |session, now| failed.iter().try_for_each(|message| fail(session, now, message)))
            .await
    }

    async fn next_due(&self, channel: Channel) -> Result<Option<Timestamp>, StoreError> {
        self.read(move |session| {
            let params = named_params! { ":channel": channel.as_str() };
            let due: Option<Option<String>> =
                session.first(statement::NEXT_DUE, params, |row| Ok(row.get(0)?))?;
            Ok(due.flatten().and_then(|text| time::from_text(&text)))
        })
        .await
    }
}

fn open_claim(session: &Session, now: &str, instance: &str, lease: Duration) -> Result<ClaimId, StoreError> {
    let params = named_params! { ":instance": instance, ":lease_until": lease_until(now, lease) };
    session.change(statement::INSERT_CLAIM, params)?;
    Ok(ClaimId(session.last_insert_rowid()))
}

/// Removes addresses that were marked dead while the send waited.
fn remove_dead_addresses(session: &Session, jobs: &mut [SendJob]) -> Result<(), StoreError> {
    if jobs.is_empty() {
        return Ok(());
    }
    let addresses: Vec<(&str, &str)> = jobs
        .iter()
        .flat_map(|job| job.addresses().map(|address| (job.key.channel.as_str(), address)))
        .collect();
    let params = named_params! { ":addresses": json!(addresses).to_string() };
    let dead: HashSet<String> =
        session.all(statement::DEAD_ADDRESSES, params, |row| Ok(row.get("address")?))?.into_iter().collect();
    for job in jobs {
        job.remove_addresses(|address| dead.contains(address));
    }
    Ok(())
}

/// Records the notifications of a claim. A claim without sends is deleted.
fn fill_claim(session: &Session, claim: ClaimId, jobs: &[SendJob]) -> Result<(), StoreError> {
    if jobs.is_empty() {
        return session.change(statement::DELETE_CLAIM, named_params! { ":id": claim.0 }).map(drop);
    }
    let mut notifications: Vec<String> = jobs.iter().map(|job| job.key.notification_id.to_string()).collect();
    notifications.dedup();
    let params = named_params! { ":id": claim.0, ":notifications": json!(notifications).to_string() };
    session.change(statement::FILL_CLAIM, params).map(drop)
}

/// The last notification that was written, and whether it is the one that its user sees. Keys are sorted, so that the
/// channels of a notification follow each other.
type LastNotification = Option<(NotificationId, bool)>;

/// The context of one batch of messages that is being written.
struct ReceiveBatch<'s, 'c> {
    session: &'s Session<'c>,
    now: &'s str,
    claim: ClaimId,
    instance: InstanceId,
}

impl ReceiveBatch<'_, '_> {
    fn receive(
        &self,
        received: ReceivedKey,
        into: &mut Received,
        last: &mut LastNotification,
    ) -> Result<(), StoreError> {
        let (session, now, key) = (self.session, self.now, received.key);
        let (id, channel) = (key.notification_id.to_string(), key.channel.as_str());
        let known = last.filter(|(notification_id, _)| *notification_id == key.notification_id);
        let params = named_params! {
            ":notification_id": id, ":channel": channel, ":with_inbox": known.is_none(),
            ":max_payload_bytes": MAX_PAYLOAD_BYTES,
        };
        let found = session.first(statement::RECEIVE_ROW, params, |row| {
            let row = InOrder::new(row);
            let job = decode::job(&row, self.claim)?;
            let ended = row.maybe_str("status")?.is_some();
            let written = known.is_none() && !ended && write_notification(session, now, &job, &row)?;
            Ok((job, ended, written))
        })?;
        let Some((job, ended, written)) = found else {
            into.unknown.push(key);
            return Ok(());
        };
        if ended {
            into.redelivered_events.push(job.event_id);
            into.redelivered += 1;
            return Ok(());
        }
        let is_seen = match known {
            Some((_, is_seen)) => is_seen,
            None => {
                written || notification_of(session, &job.event_id, &job.user)?.is_none_or(|seen| seen == id)
            }
        };
        *last = Some((key.notification_id, is_seen));
        if !is_seen {
            let error = "DUPLICATE: the user has this event's notification already";
            let params = named_params! { ":notification_id": id, ":channel": channel, ":error": error };
            into.redelivered_events.push(job.event_id);
            return session.change(statement::CANCEL_ROW, params).map(drop);
        }
        let status = received.birth();
        if !self.write_send(received, &job, status)? {
            into.redelivered_events.push(job.event_id);
            into.redelivered += 1;
            return Ok(());
        }
        into.new.push(NewSend {
            event_id: job.event_id.clone(),
            channel: key.channel,
            priority: job.priority,
            event_created_at: job.event_created_at,
        });
        match status {
            SendStatus::Sending => into.jobs.push(job),
            SendStatus::Due => insert_due(session, &job, now)?,
            SendStatus::Sent | SendStatus::Failed | SendStatus::InDoubt | SendStatus::Cancelled => {}
        }
        Ok(())
    }

    /// Writes a send. Returns whether it is new.
    fn write_send(
        &self,
        received: ReceivedKey,
        job: &SendJob,
        status: SendStatus,
    ) -> Result<bool, StoreError> {
        let (now, by) = (self.now, self.instance.0);
        let (sent, due) = (status == SendStatus::Sent, status == SendStatus::Due);
        let millis = time::from_text(now).map(Timestamp::as_millisecond);
        // Clocks of instances may differ. A publish time after the time of receipt is replaced by the latter.
        let published_at = received.published.map(|stamp| stamp.at.as_millisecond());
        let published_at = published_at.map(|at| millis.map_or(at, |now| at.min(now)));
        let inserted = self.session.change(
            statement::RECEIVE_SEND,
            named_params! {
                ":notification_id": job.key.notification_id.to_string(), ":channel": job.key.channel.as_str(),
                ":recipient_address": job.address, ":status": status.as_str(), ":attempt_count": i64::from(sent),
                ":lease": (status == SendStatus::Sending).then_some(self.claim.0),
                ":provider": sent.then_some(ON_RECEIPT_PROVIDER), ":sent_at": sent.then_some(now), ":now": now,
                ":published_at": published_at, ":published_by": received.published.map(|stamp| stamp.by.0),
                ":received_by": by, ":attempted_at": millis.filter(|_| !due), ":attempted_by": (!due).then_some(by),
                ":settled_by": (!due).then_some(by),
            },
        )?;
        Ok(inserted > 0)
    }
}

/// Writes the user's inbox entry, from the columns after those of the job. Returns whether it is new.
fn write_notification(
    session: &Session,
    now: &str,
    job: &SendJob,
    row: &InOrder,
) -> Result<bool, StoreError> {
    let written = session.change(
        statement::RECEIVE_NOTIFICATION,
        named_params! {
            ":id": job.key.notification_id.to_string(), ":event_id": job.event_id.as_str(),
            ":event_type": job.event_type.as_str(), ":user_type": job.user.user_type.as_str(),
            ":user_id": job.user.user_id.as_str(), ":entity_type": row.param("entity_type")?,
            ":entity_id": row.param("entity_id")?, ":title": row.param("inbox_title")?,
            ":body": row.param("inbox_body")?, ":properties": row.param("properties")?,
            ":priority": Lane::from_number(row.integer("lane")?).priority().as_str(),
            ":shared_read": row.param("shared_read")?, ":now": now,
        },
    )?;
    Ok(written > 0)
}

fn fail(session: &Session, now: &str, failed: &FailedMessage) -> Result<(), StoreError> {
    let mut row = None;
    if let Some(key) = failed.key {
        let params = named_params! {
            ":notification_id": key.notification_id.to_string(), ":channel": key.channel.as_str(),
            ":error": failed.failure.to_string(),
        };
        row = session.first(statement::FAIL_ROW, params, |row| {
            Ok((row.get::<_, String>("event_id")?, decode::recipient_of(row)?))
        })?;
    }
    settle::insert_dead_letter(session, now, &failed.dead_letter(row))
}

fn notification_of(
    session: &Session,
    event_id: &EventId,
    user: &UserRef,
) -> Result<Option<String>, StoreError> {
    let params = named_params! {
        ":event_id": event_id.as_str(), ":user_type": user.user_type.as_str(), ":user_id": user.user_id.as_str(),
    };
    session.first(statement::NOTIFICATION_OF, params, |row| Ok(row.get(0)?))
}

pub fn insert_due(session: &Session, job: &SendJob, due_at: &str) -> Result<(), StoreError> {
    session
        .change(
            statement::INSERT_DUE,
            named_params! {
                ":channel": job.key.channel.as_str(), ":lane": job.priority.lane().number(), ":due_at": due_at,
                ":notification_id": job.key.notification_id.to_string(),
            },
        )
        .map(drop)
}

/// Turns a due send into a job. `None` if the send is no longer due.
fn start(
    session: &Session,
    notification_id: &str,
    channel: Channel,
    claim: ClaimId,
    instance: InstanceId,
) -> Result<Option<SendJob>, StoreError> {
    let params = named_params! {
        ":notification_id": notification_id, ":channel": channel.as_str(), ":lease": claim.0, ":instance": instance.0,
    };
    if session.change(statement::START_SEND, params)? == 0 {
        return Ok(None);
    }
    let params = named_params! {
        ":notification_id": notification_id, ":channel": channel.as_str(),
        ":many_addresses": channel.has_many_addresses(),
    };
    session.first(statement::SEND_JOB, params, |row| decode::due_job(&InOrder::new(row), claim))
}
