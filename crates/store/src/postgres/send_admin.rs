//! Lists sends page by page, and resolves sends in doubt.

use async_trait::async_trait;
use campanile_domain::access::audit::Actor;
use campanile_domain::id::SendKey;
use campanile_domain::priority::Priority;
use campanile_domain::status::SendStatus;
use campanile_domain::time::Timestamp;

use super::transaction::Transaction;
use super::{Params, Postgres, audit, read, settle, statement};
use crate::columns::Columns;
use crate::decode;
use crate::send_admin::{SendOrder, SendToResolve, decision, scanned_send};
use crate::{InstanceId, Resolution, Resolved, SendAdminStore, SendFilter, SendPage, StoreError};

const NO_ID: &str = "00000000-0000-0000-0000-000000000000";
const LAST_ID: &str = "ffffffff-ffff-ffff-ffff-ffffffffffff";

#[async_trait]
impl SendAdminStore for Postgres {
    async fn list_sends(&self, filter: SendFilter) -> Result<SendPage, StoreError> {
        let limit = i64::try_from(filter.scan_limit()).unwrap_or(i64::MAX);
        let from = |first: &[&str]| filter.start(first);
        let rows = match filter.order() {
            SendOrder::ByRecipient => {
                let params: Params = &[&from(&["", "", ""]), &limit, &filter.event_id];
                self.query(statement::LIST_SENDS_OF_EVENT, params).await?
            }
            SendOrder::InDoubtSince => {
                self.query(statement::LIST_SENDS_IN_DOUBT, &[&from(&["-infinity", NO_ID, ""]), &limit])
                    .await?
            }
            SendOrder::Due => {
                let from = from(&["", "-1", "-infinity", NO_ID]);
                self.query(statement::LIST_DUE, &[&from, &limit, &filter.last_channel()]).await?
            }
            SendOrder::Newest => self.query(statement::LIST_SENDS, &[&from(&[LAST_ID, "~"]), &limit]).await?,
        };
        Ok(filter.page(rows.iter().map(scanned_send).collect::<Result<_, _>>()?))
    }

    async fn resolve(
        &self,
        key: SendKey,
        resolution: Resolution,
        note: Option<String>,
        instance: InstanceId,
        actor: &Actor,
    ) -> Result<Resolved, StoreError> {
        let transaction = self.begin().await?;
        let Some(send) = find(&transaction, key).await? else { return Ok(Resolved::Unknown) };
        if send.status != SendStatus::InDoubt {
            return Ok(Resolved::NotInDoubt(send.status));
        }
        resolve(&transaction, &send, resolution, note.as_deref(), instance).await?;
        audit::insert(&transaction, actor, &[decision(key, resolution, note.as_deref())]).await?;
        transaction.commit().await?;
        Ok(Resolved::Done)
    }
}

async fn find(transaction: &Transaction, key: SendKey) -> Result<Option<SendToResolve>, StoreError> {
    let params: Params = &[&key.notification_id.0, &key.channel.as_str()];
    let rows = transaction.query(statement::FIND_SEND_TO_RESOLVE, params).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    Ok(Some(SendToResolve {
        key,
        status: row.parsed("status")?,
        provider: read::get(row, "provider")?,
        event_id: read::get(row, "event_id")?,
        recipient: decode::recipient_of(row)?,
        lane: row.parsed::<Priority>("priority")?.lane(),
    }))
}

async fn resolve(
    transaction: &Transaction,
    send: &SendToResolve,
    resolution: Resolution,
    note: Option<&str>,
    instance: InstanceId,
) -> Result<(), StoreError> {
    let (id, channel) = (send.key.notification_id.0, send.key.channel.as_str());
    let last_error = resolution.last_error(note);
    let params: Params = &[&id, &channel, &resolution.status().as_str(), &last_error, &instance.0];
    transaction.execute(statement::RESOLVE_SEND, params).await?;
    let attempt: Params = &[
        &vec![id],
        &vec![channel],
        &vec![&send.provider],
        &vec![resolution.as_str()],
        &vec![note],
        &vec![0_i64],
        &Some(instance.0),
    ];
    transaction.execute(statement::INSERT_ATTEMPT, attempt).await?;
    if let Some(error) = last_error.filter(|_| send.key.channel.is_retried()) {
        settle::insert_dead_letters(transaction, &[send.dead_letter(error)]).await?;
    }
    if resolution == Resolution::Resend {
        let now: Timestamp =
            read::get(read::only_row(&transaction.query(statement::NOW, &[]).await?)?, "now")?;
        let params: Params = &[&vec![channel], &vec![send.lane.number()], &vec![now], &vec![id]];
        transaction.execute(statement::INSERT_DUE, params).await?;
    }
    Ok(())
}
