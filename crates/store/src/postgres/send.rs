//! From a received message to a claimed send. What became of the attempt is in `settle`.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use async_trait::async_trait;
use campanile_domain::channel::Channel;
use campanile_domain::id::{EventId, SendKey, UserRef};
use campanile_domain::priority::Priority;
use campanile_domain::time::Timestamp;
use tokio_postgres::Row;
use uuid::Uuid;

use super::outbox::columns;
use super::transaction::Transaction;
use super::{Params, Postgres, execute_prepared, prepare, query_prepared, read, settle, statement};
use crate::{
    ClaimId, ExpiredClaim, FailedMessage, Received, ReceivedKey, SendJob, SendStore, Settled, Settlement,
    StoreError,
};

#[async_trait]
impl SendStore for Postgres {
    async fn receive(
        &self,
        keys: Vec<ReceivedKey>,
        instance: &str,
        lease: Duration,
    ) -> Result<Received, StoreError> {
        let keys_only: Vec<SendKey> = keys.iter().map(|key| key.key).collect();
        let (ids, channels) = columns(&keys_only);
        let claims: Vec<bool> = keys.iter().map(|key| key.claim).collect();
        let seconds = lease.as_secs_f64();
        let transaction = self.begin().await?;
        let [notifications, sends, rows] = prepare(
            &transaction,
            [statement::RECEIVE_NOTIFICATION, statement::RECEIVE_SEND, statement::RECEIVE_ROW],
        )
        .await?;
        // Each statement sees what those before it wrote, and also the notifications that another instance has just
        // written: the first statement waited for them.
        let (client, keys): (_, Params) = (transaction.client(), &[&ids, &channels]);
        let with_claims: Params = &[&ids, &channels, &claims, &instance, &seconds];
        let (_, born, rows) = tokio::try_join!(
            biased;
            execute_prepared(client, &notifications, keys),
            query_prepared(client, &sends, with_claims),
            query_prepared(client, &rows, keys),
        )?;
        let received = received(&transaction, &keys_only, &born, &rows).await?;
        transaction.commit().await?;
        Ok(received)
    }

    async fn claim_due(
        &self,
        channel: Channel,
        limit: usize,
        instance: &str,
        lease: Duration,
    ) -> Result<Vec<SendJob>, StoreError> {
        let transaction = self.begin().await?;
        let mut jobs: Vec<SendJob> = Vec::new();
        let seconds = lease.as_secs_f64();
        for lane in 0..=Priority::Low.lane() {
            let rest = i64::try_from(limit - jobs.len()).unwrap_or(i64::MAX);
            let lane = i16::try_from(lane).unwrap_or_default();
            if rest == 0 {
                break;
            }
            let channel = channel.as_str();
            let params: Params = &[&channel, &lane, &rest, &instance, &seconds];
            let mut due = transaction
                .query(statement::TAKE_DUE, params)
                .await?
                .iter()
                .map(|row| Ok((read::get::<Timestamp>(row, "due_at")?, claimed_job(row)?)))
                .collect::<Result<Vec<_>, StoreError>>()?;
            due.sort_by_key(|(due_at, job)| (*due_at, job.key));
            jobs.extend(due.into_iter().map(|(_, job)| job));
        }
        transaction.commit().await?;
        Ok(jobs)
    }

    async fn settle(
        &self,
        settlements: Vec<Settlement>,
        finished: Vec<ClaimId>,
    ) -> Result<Settled, StoreError> {
        settle::settle(self, &settlements, &finished).await
    }

    async fn expired_claims(&self, limit: usize) -> Result<Vec<ExpiredClaim>, StoreError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let snapshot = self.snapshot().await?;
        let claims = snapshot.query(statement::EXPIRED_CLAIMS, &[&limit]).await?;
        let mut expired = Vec::with_capacity(claims.len());
        for row in &claims {
            let claim = ClaimId(read::get(row, "id")?);
            let notifications: Vec<Uuid> = read::get(row, "notifications")?;
            let rows = snapshot.query(statement::CLAIMED_JOBS, &[&notifications, &claim.0]).await?;
            let jobs = rows.iter().map(|row| read::job(row, claim)).collect::<Result<_, _>>()?;
            expired.push(ExpiredClaim { claim, jobs });
        }
        Ok(expired)
    }

    async fn fail_messages(&self, failed: Vec<FailedMessage>) -> Result<(), StoreError> {
        let transaction = self.begin().await?;
        let with_key =
            || failed.iter().filter_map(|message| Some((message.key?, message.failure.to_string())));
        let (keys, errors): (Vec<SendKey>, Vec<String>) = with_key().unzip();
        let (ids, channels) = columns(&keys);
        let rows = transaction.query(statement::FAIL_ROW, &[&ids, &channels, &errors]).await?;
        let mut of_rows: HashMap<SendKey, (String, UserRef)> = HashMap::new();
        for row in &rows {
            of_rows.insert(read::key_of(row)?, (read::get(row, "event_id")?, read::recipient_of(row)?));
        }
        let letters: Vec<_> = failed
            .iter()
            .map(|message| message.letter(message.key.and_then(|key| of_rows.remove(&key))))
            .collect();
        settle::write_letters(&transaction, &letters).await?;
        transaction.commit().await
    }

    async fn next_due(&self, channel: Channel) -> Result<Option<Timestamp>, StoreError> {
        let rows = self.query(statement::NEXT_DUE, &[&channel.as_str()]).await?;
        read::get(read::only(&rows)?, "due_at")
    }
}

/// What became of each key.
async fn received(
    transaction: &Transaction,
    keys: &[SendKey],
    born: &[Row],
    rows: &[Row],
) -> Result<Received, StoreError> {
    let mut claims: HashMap<SendKey, Option<ClaimId>> = HashMap::with_capacity(born.len());
    for row in born {
        claims.insert(read::key_of(row)?, read::get::<Option<i64>>(row, "lease")?.map(ClaimId));
    }
    let mut received = Received::default();
    let (mut known, mut duplicates) = (HashSet::with_capacity(rows.len()), Vec::new());
    for row in rows {
        let key = read::key_of(row)?;
        if !known.insert(key) {
            // The same message twice in one batch.
            received.repeated += 1;
            continue;
        }
        received.events.push(EventId::stored(read::get::<String>(row, "event_id")?));
        match claims.get(&key) {
            Some(Some(claim)) => received.jobs.push(read::job(row, *claim)?),
            Some(None) => received.sent += u64::from(key.channel == Channel::Websocket),
            None if read::get(row, "duplicate")? => duplicates.push(key),
            None => received.repeated += 1,
        }
    }
    received.unknown = keys.iter().filter(|key| !known.contains(key)).copied().collect();
    if !duplicates.is_empty() {
        let (ids, channels) = columns(&duplicates);
        let error = "DUPLICATE: the user has this event's notification already";
        transaction.execute(statement::CANCEL_ROW, &[&ids, &channels, &error]).await?;
    }
    Ok(received)
}

fn claimed_job(row: &Row) -> Result<SendJob, StoreError> {
    read::job(row, ClaimId(read::get(row, "claim")?))
}
