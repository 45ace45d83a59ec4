//! Lists sends page by page, and resolves sends in doubt.

use async_trait::async_trait;
use campanile_domain::access::audit::Actor;
use campanile_domain::id::SendKey;
use campanile_domain::priority::Priority;
use campanile_domain::status::SendStatus;
use rusqlite::named_params;
use serde_json::json;

use super::session::Session;
use super::{Sqlite, audit, settle, statement};
use crate::columns::Columns;
use crate::decode;
use crate::send_admin::{ScannedSend, SendOrder, SendToResolve, decision, scanned_send};
use crate::{InstanceId, Resolution, Resolved, SendAdminStore, SendFilter, SendPage, StoreError};

#[async_trait]
impl SendAdminStore for Sqlite {
    async fn list_sends(&self, filter: SendFilter) -> Result<SendPage, StoreError> {
        self.read(move |session| Ok(filter.page(scan(session, &filter)?))).await
    }

    async fn resolve(
        &self,
        key: SendKey,
        resolution: Resolution,
        note: Option<String>,
        instance: InstanceId,
        actor: &Actor,
    ) -> Result<Resolved, StoreError> {
        let actor = actor.clone();
        self.write(move |session, now| {
            let Some(send) = find(session, key)? else { return Ok(Resolved::Unknown) };
            if send.status != SendStatus::InDoubt {
                return Ok(Resolved::NotInDoubt(send.status));
            }
            resolve(session, now, &send, resolution, note.as_deref(), instance)?;
            audit::insert(session, now, &actor, &decision(key, resolution, note.as_deref()))?;
            Ok(Resolved::Done)
        })
        .await
    }
}

fn scan(session: &Session, filter: &SendFilter) -> Result<Vec<ScannedSend>, StoreError> {
    let limit = filter.scan_limit();
    let from = |first: &[&str]| json!(filter.start(first)).to_string();
    match filter.order() {
        SendOrder::ByRecipient => {
            let params = named_params! {
                ":after": from(&["", "", ""]), ":limit": limit, ":event_id": filter.event_id,
            };
            session.all(statement::LIST_SENDS_OF_EVENT, params, |row| scanned_send(row))
        }
        SendOrder::InDoubtSince => {
            let params = named_params! { ":after": from(&["", "", ""]), ":limit": limit };
            session.all(statement::LIST_SENDS_IN_DOUBT, params, |row| scanned_send(row))
        }
        SendOrder::Due => {
            let params = named_params! {
                ":after": from(&["", "-1", "", ""]), ":limit": limit, ":last_channel": filter.last_channel(),
            };
            session.all(statement::LIST_DUE, params, |row| scanned_send(row))
        }
        SendOrder::Newest => {
            let params = named_params! { ":after": from(&["~", "~"]), ":limit": limit };
            session.all(statement::LIST_SENDS, params, |row| scanned_send(row))
        }
    }
}

fn find(session: &Session, key: SendKey) -> Result<Option<SendToResolve>, StoreError> {
    let params = named_params! {
        ":notification_id": key.notification_id.to_string(), ":channel": key.channel.as_str(),
    };
    session.first(statement::FIND_SEND_TO_RESOLVE, params, |row| {
        Ok(SendToResolve {
            key,
            status: row.parsed("status")?,
            provider: row.get("provider")?,
            event_id: row.get("event_id")?,
            recipient: decode::recipient_of(row)?,
            lane: row.parsed::<Priority>("priority")?.lane(),
        })
    })
}

fn resolve(
    session: &Session,
    now: &str,
    send: &SendToResolve,
    resolution: Resolution,
    note: Option<&str>,
    instance: InstanceId,
) -> Result<(), StoreError> {
    let (id, channel) = (send.key.notification_id.to_string(), send.key.channel.as_str());
    let last_error = resolution.last_error(note);
    let sent_at = (resolution == Resolution::Sent).then_some(now);
    let params = named_params! {
        ":notification_id": id, ":channel": channel, ":status": resolution.status().as_str(), ":sent_at": sent_at,
        ":last_error": last_error, ":instance": instance.0,
    };
    session.change(statement::RESOLVE_SEND, params)?;
    let params = named_params! {
        ":notification_id": id, ":channel": channel, ":at": now, ":provider": send.provider,
        ":outcome": resolution.as_str(), ":error": note, ":duration_ms": 0, ":instance": instance.0,
    };
    session.change(statement::INSERT_ATTEMPT, params)?;
    if let Some(error) = last_error.filter(|_| send.key.channel.is_retried()) {
        settle::insert_dead_letter(session, now, &send.dead_letter(error))?;
    }
    if resolution == Resolution::Resend {
        let params = named_params! {
            ":channel": channel, ":lane": send.lane.number(), ":due_at": now, ":notification_id": id,
        };
        session.change(statement::INSERT_DUE, params)?;
    }
    Ok(())
}
