//! Turns received messages into sends, and claims the sends. `settle` writes the outcomes of attempts.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

use async_trait::async_trait;
use campanile_domain::channel::Channel;
use campanile_domain::id::{EventId, NotificationId, SendKey, UserRef};
use campanile_domain::message::MAX_PAYLOAD_BYTES;
use campanile_domain::priority::Lane;
use campanile_domain::send::{AddressClaim, ON_RECEIPT_PROVIDER};
use campanile_domain::time::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::outbox::columns;
use super::transaction::Transaction;
use super::{Params, Postgres, failed, prepare, query_prepared, read, settle, statement};
use crate::columns::Columns;
use crate::decode;
use crate::send::address_hash;
use crate::{
    ClaimId, ExpiredClaim, FailedMessage, Instance, InstanceId, Receipt, Received, ReceivedKey, SendJob,
    SendStore, Settled, Settlement, StoreError,
};

#[async_trait]
impl SendStore for Postgres {
    async fn receive(
        &self,
        keys: Vec<ReceivedKey>,
        instance: &Instance,
        lease: Duration,
    ) -> Result<Received, StoreError> {
        let message_columns = MessageColumns::new(&keys, instance, lease);
        let params = &message_columns.params()[..];
        let transaction = self.begin().await?;
        let receive = transaction.prepare_cached(statement::RECEIVE_NEW).await?;
        let (transaction, rows) = match transaction.client().query(&receive, params).await {
            Ok(rows) => (transaction, rows),
            // Some of the rows were received before, or another instance is receiving them right now.
            Err(error) if error.code() == Some(&SqlState::UNIQUE_VIOLATION) => {
                drop(transaction);
                let transaction = self.begin().await?;
                let rows = transaction.query(statement::RECEIVE, params).await?;
                (transaction, rows)
            }
            Err(error) => return Err(failed(&transaction, error)),
        };
        let (mut received, raced) = classify(&transaction, &keys, &rows).await?;
        retry_raced(&transaction, &raced, instance, lease, &mut received).await?;
        transaction.commit().await?;
        Ok(received)
    }

    async fn claim_due(
        &self,
        channel: Channel,
        limit: usize,
        instance: &Instance,
        lease: Duration,
    ) -> Result<Vec<SendJob>, StoreError> {
        let transaction = self.begin().await?;
        let mut jobs: Vec<SendJob> = Vec::new();
        let seconds = lease.as_secs_f64();
        for lane in Lane::ALL {
            let remaining = i64::try_from(limit - jobs.len()).unwrap_or(i64::MAX);
            if remaining == 0 {
                break;
            }
            let params: Params = &[
                &channel.as_str(),
                &lane.number(),
                &remaining,
                &instance.name,
                &seconds,
                &instance.id.0,
                &channel.has_many_addresses(),
            ];
            let mut due = transaction
                .query(statement::CLAIM_DUE, params)
                .await?
                .iter()
                .map(|row| {
                    Ok((
                        read::get::<Timestamp>(row, "due_at")?,
                        decode::due_job(row, ClaimId(row.integer("claim")?))?,
                    ))
                })
                .collect::<Result<Vec<_>, StoreError>>()?;
            due.sort_by_key(|(due_at, job)| (*due_at, job.key));
            jobs.extend(due.into_iter().map(|(_, job)| job));
        }
        remove_dead_addresses(&transaction, &mut jobs).await?;
        transaction.commit().await?;
        Ok(jobs)
    }

    async fn settle(
        &self,
        settlements: Vec<Settlement>,
        finished: Vec<ClaimId>,
        instance: InstanceId,
    ) -> Result<Settled, StoreError> {
        settle::settle(self, &settlements, &finished, instance).await
    }

    async fn claim_address(&self, job: &SendJob) -> Result<AddressClaim, StoreError> {
        let (event_id, hash) = (job.event_id.as_str(), address_hash(&job.address));
        let (id, channel) = (job.key.notification_id, job.key.channel.as_str());
        let asked: Params = &[&event_id, &channel, &hash];
        if let Some(row) = self.query(statement::ADDRESS_CLAIM_HOLDER, asked).await?.first() {
            let holder = NotificationId(read::get(row, "notification_id")?);
            let address_claim = AddressClaim::of(holder, row.maybe_parsed("status")?, id);
            if address_claim != AddressClaim::Held {
                return Ok(address_claim);
            }
        }
        let params: Params = &[&event_id, &channel, &hash, &id.0, &job.claim.0];
        let claimed = self.execute(statement::CLAIM_ADDRESS, params).await?;
        Ok(if claimed > 0 { AddressClaim::Held } else { AddressClaim::Pending })
    }

    async fn may_have_sent(&self, job: &SendJob) -> Result<bool, StoreError> {
        let (id, channel) = (job.key.notification_id, job.key.channel.as_str());
        let hash = address_hash(&job.address);
        let params: Params = &[&job.event_id.as_str(), &channel, &hash, &id.0, &job.claim.0];
        let rows = self.query(statement::MAY_HAVE_SENT, params).await?;
        Ok(read::get::<i64>(read::only_row(&rows)?, "claims")? > 0)
    }

    async fn record_receipt(&self, key: SendKey, receipt: Receipt) -> Result<bool, StoreError> {
        let Receipt { external_id, receipt, later_receipts } = receipt;
        let params: Params =
            &[&key.notification_id.0, &key.channel.as_str(), &external_id, &receipt, &later_receipts];
        Ok(self.execute(statement::RECORD_RECEIPT, params).await? > 0)
    }

    async fn renew_claims(&self, claims: Vec<ClaimId>, lease: Duration) -> Result<Vec<ClaimId>, StoreError> {
        let claims: Vec<i64> = claims.into_iter().map(|claim| claim.0).collect();
        let rows = self.query(statement::RENEW_CLAIM, &[&claims, &lease.as_secs_f64()]).await?;
        rows.iter().map(|row| Ok(ClaimId(read::get(row, "id")?))).collect()
    }

    async fn expired_claims(&self, limit: usize) -> Result<Vec<ExpiredClaim>, StoreError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let snapshot = self.snapshot().await?;
        let claims = snapshot.query(statement::EXPIRED_CLAIMS, &[&limit]).await?;
        let mut expired = Vec::with_capacity(claims.len());
        for row in &claims {
            let claim = ClaimId(read::get(row, "id")?);
            let notifications: Vec<Uuid> = read::get(row, "notifications")?;
            let rows = snapshot.query(statement::CLAIMED_SENDS, &[&notifications, &claim.0]).await?;
            let jobs = rows.iter().map(|row| decode::started_job(row, claim)).collect::<Result<_, _>>()?;
            expired.push(ExpiredClaim { claim, jobs });
        }
        Ok(expired)
    }

    async fn fail_messages(&self, failed: Vec<FailedMessage>) -> Result<(), StoreError> {
        let transaction = self.begin().await?;
        let with_key =
            || failed.iter().filter_map(|message| Some((message.key?, message.failure.to_string())));
        let (keys, errors): (Vec<SendKey>, Vec<String>) = with_key().unzip();
        let (ids, channels) = columns(keys);
        let rows = transaction.query(statement::FAIL_ROW, &[&ids, &channels, &errors]).await?;
        let mut of_rows: HashMap<SendKey, (String, UserRef)> = HashMap::new();
        for row in &rows {
            of_rows.insert(decode::key_of(row)?, (read::get(row, "event_id")?, decode::recipient_of(row)?));
        }
        let dead_letters: Vec<_> = failed
            .iter()
            .map(|message| message.dead_letter(message.key.and_then(|key| of_rows.remove(&key))))
            .collect();
        settle::insert_dead_letters(&transaction, &dead_letters).await?;
        transaction.commit().await
    }

    async fn next_due(&self, channel: Channel) -> Result<Option<Timestamp>, StoreError> {
        let rows = self.query(statement::NEXT_DUE, &[&channel.as_str()]).await?;
        read::get(read::only_row(&rows)?, "due_at")
    }
}

/// A batch of messages as columns, for `receive_new` and `receive`.
struct MessageColumns<'a> {
    ids: Vec<Uuid>,
    channels: Vec<&'static str>,
    births: Vec<&'static str>,
    published_at: Vec<Option<Timestamp>>,
    published_by: Vec<Option<i32>>,
    instance: &'a Instance,
    lease_seconds: f64,
    /// The priorities in the order of their lanes.
    priorities: Vec<&'static str>,
    max_payload_bytes: i32,
}

impl<'a> MessageColumns<'a> {
    fn new(keys: &[ReceivedKey], instance: &'a Instance, lease: Duration) -> Self {
        let (ids, channels) = columns(keys.iter().map(|key| key.key));
        MessageColumns {
            ids,
            channels,
            births: keys.iter().map(|key| key.birth().as_str()).collect(),
            published_at: keys.iter().map(|key| key.published.map(|stamp| stamp.at)).collect(),
            published_by: keys.iter().map(|key| key.published.map(|stamp| stamp.by.0)).collect(),
            instance,
            lease_seconds: lease.as_secs_f64(),
            priorities: Lane::ALL.map(|lane| lane.priority().as_str()).to_vec(),
            max_payload_bytes: i32::try_from(MAX_PAYLOAD_BYTES).unwrap_or(i32::MAX),
        }
    }

    fn params(&self) -> [&(dyn ToSql + Sync); 11] {
        let Instance { id, name } = self.instance;
        [
            &self.ids,
            &self.channels,
            &self.births,
            name,
            &self.lease_seconds,
            &id.0,
            &self.published_at,
            &self.published_by,
            &ON_RECEIPT_PROVIDER,
            &self.priorities,
            &self.max_payload_bytes,
        ]
    }

    /// The parameters of `receive_send`, which does not take the payload limit.
    fn params_of_sends(&self) -> [&(dyn ToSql + Sync); 10] {
        let [params @ .., _] = self.params();
        params
    }
}

/// Classifies each key. Also returns keys whose notification another instance wrote at the same moment.
async fn classify(
    transaction: &Transaction,
    keys: &[ReceivedKey],
    rows: &[Row],
) -> Result<(Received, Vec<ReceivedKey>), StoreError> {
    let (mut received, mut raced) = (Received::default(), HashSet::new());
    let mut known = HashSet::with_capacity(rows.len());
    for row in rows {
        let key = decode::key_of(row)?;
        if !known.insert(key) {
            // The batch contains the same message twice.
            received.redelivered += 1;
            continue;
        }
        let event_id = EventId::stored(read::get::<String>(row, "event_id")?);
        let (open, receivable, inserted): (bool, bool, bool) =
            (read::get(row, "open")?, read::get(row, "receivable")?, read::get(row, "inserted")?);
        if open && !receivable && !inserted {
            raced.insert(key);
            continue;
        }
        if inserted {
            received.new.push(decode::new_send(row, key, event_id)?);
        } else {
            received.redelivered_events.push(event_id);
        }
        match read::get::<Option<i64>>(row, "lease")? {
            Some(claim) if inserted => received.jobs.push(decode::job(row, ClaimId(claim))?),
            _ if inserted => {}
            _ => received.redelivered += 1,
        }
    }
    received.unknown = keys.iter().map(|key| key.key).filter(|key| !known.contains(key)).collect();
    if received.jobs.is_empty() {
        // All rows of the claim were received before, so it holds no sends.
        let claims: BTreeSet<i64> =
            rows.iter().filter_map(|row| row.try_get("lease").ok().flatten()).collect();
        if !claims.is_empty() {
            transaction.execute(statement::DELETE_CLAIM, &[&Vec::from_iter(claims)]).await?;
        }
    }
    Ok((received, keys.iter().filter(|key| raced.contains(&key.key)).copied().collect()))
}

/// Receives the keys whose notification another instance wrote at the same moment; this transaction can see it now. If
/// it is missing, the user has the event's notification under another id.
async fn retry_raced(
    transaction: &Transaction,
    keys: &[ReceivedKey],
    instance: &Instance,
    lease: Duration,
    received: &mut Received,
) -> Result<(), StoreError> {
    if keys.is_empty() {
        return Ok(());
    }
    let message_columns = MessageColumns::new(keys, instance, lease);
    let [sends, rows] = prepare(transaction, [statement::RECEIVE_SEND, statement::RECEIVE_ROW]).await?;
    let (client, with_claims) = (transaction.client(), message_columns.params_of_sends());
    let keys: Params = &[&message_columns.ids, &message_columns.channels];
    let (inserted, rows) = tokio::try_join!(
        biased;
        query_prepared(client, &sends, &with_claims),
        query_prepared(client, &rows, keys),
    )?;
    let mut claims: HashMap<SendKey, Option<ClaimId>> = HashMap::with_capacity(inserted.len());
    for row in &inserted {
        claims.insert(decode::key_of(row)?, read::get::<Option<i64>>(row, "lease")?.map(ClaimId));
    }
    let mut duplicates = Vec::new();
    for row in &rows {
        let key = decode::key_of(row)?;
        let event_id = EventId::stored(read::get::<String>(row, "event_id")?);
        if claims.contains_key(&key) {
            received.new.push(decode::new_send(row, key, event_id)?);
        } else {
            received.redelivered_events.push(event_id);
        }
        match claims.get(&key) {
            Some(Some(claim)) => received.jobs.push(decode::job(row, *claim)?),
            Some(None) => {}
            None if read::get(row, "duplicate")? => duplicates.push(key),
            None => received.redelivered += 1,
        }
    }
    if !duplicates.is_empty() {
        let (ids, channels) = columns(duplicates);
        let error = "DUPLICATE: the user has this event's notification already";
        transaction.execute(statement::CANCEL_ROW, &[&ids, &channels, &error]).await?;
    }
    Ok(())
}

/// Removes addresses that were marked dead while the send waited.
async fn remove_dead_addresses(transaction: &Transaction, jobs: &mut [SendJob]) -> Result<(), StoreError> {
    if jobs.is_empty() {
        return Ok(());
    }
    let (channels, addresses): (Vec<&str>, Vec<&str>) = jobs
        .iter()
        .flat_map(|job| job.addresses().map(|address| (job.key.channel.as_str(), address)))
        .unzip();
    let rows = transaction.query(statement::DEAD_ADDRESSES, &[&channels, &addresses]).await?;
    let dead: HashSet<String> =
        rows.iter().map(|row| read::get(row, "address")).collect::<Result<_, StoreError>>()?;
    for job in jobs {
        job.remove_addresses(|address| dead.contains(address));
    }
    Ok(())
}
