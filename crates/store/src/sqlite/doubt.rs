//! Sends page by page, and verdicts about those in doubt.

use async_trait::async_trait;
use campanile_domain::id::SendKey;
use campanile_domain::priority::Priority;
use campanile_domain::status::SendStatus;
use rusqlite::{Connection, named_params};
use serde_json::json;

use super::{Sqlite, read, settle, statement};
use crate::doubt::{Doubtful, Way};
use crate::{DoubtStore, JsonRow, Resolved, SendFilter, SendPage, StoreError, Verdict};

#[async_trait]
impl DoubtStore for Sqlite {
    async fn list_sends(&self, filter: SendFilter) -> Result<SendPage, StoreError> {
        self.read(move |connection| Ok(filter.page(look_at(connection, &filter)?))).await
    }

    async fn resolve(
        &self,
        key: SendKey,
        verdict: Verdict,
        note: Option<String>,
    ) -> Result<Resolved, StoreError> {
        self.write(move |connection, now| {
            let Some(send) = find(connection, key)? else { return Ok(Resolved::Unknown) };
            if send.status != SendStatus::InDoubt {
                return Ok(Resolved::NotInDoubt(send.status));
            }
            resolve(connection, now, &send, verdict, note.as_deref())?;
            Ok(Resolved::Done)
        })
        .await
    }
}

fn look_at(connection: &Connection, filter: &SendFilter) -> Result<Vec<JsonRow>, StoreError> {
    let limit = filter.looks_at();
    let from = |first: &[&str]| json!(filter.start(first)).to_string();
    match filter.way() {
        Way::OfEvent => {
            let params = named_params! {
                ":after": from(&["", "", ""]), ":limit": limit, ":event_id": filter.event_id,
            };
            read::all(connection, statement::LIST_SENDS_OF, params, read::json_row)
        }
        Way::Doubts => {
            let params = named_params! { ":after": from(&["", "", ""]), ":limit": limit };
            read::all(connection, statement::LIST_DOUBTS, params, read::json_row)
        }
        Way::Due => {
            let params = named_params! {
                ":after": from(&["", "-1", "", ""]), ":limit": limit, ":last_channel": filter.last_channel(),
            };
            read::all(connection, statement::LIST_DUE, params, read::json_row)
        }
        Way::Newest => {
            let params = named_params! { ":after": from(&["~", "~"]), ":limit": limit };
            read::all(connection, statement::LIST_SENDS, params, read::json_row)
        }
    }
}

fn find(connection: &Connection, key: SendKey) -> Result<Option<Doubtful>, StoreError> {
    let params = named_params! {
        ":notification_id": key.notification_id.to_string(), ":channel": key.channel.as_str(),
    };
    read::first(connection, statement::FIND_DOUBT, params, |row| {
        Ok(Doubtful {
            key,
            status: read::parsed(row, "status")?,
            provider: row.get("provider")?,
            event_id: row.get("event_id")?,
            recipient: read::recipient_of(row)?,
            lane: read::parsed::<Priority>(row, "priority")?.lane(),
        })
    })
}

fn resolve(
    connection: &Connection,
    now: &str,
    send: &Doubtful,
    verdict: Verdict,
    note: Option<&str>,
) -> Result<(), StoreError> {
    let (id, channel) = (send.key.notification_id.to_string(), send.key.channel.as_str());
    let last_error = verdict.last_error(note);
    let sent_at = (verdict == Verdict::Sent).then_some(now);
    let params = named_params! {
        ":notification_id": id, ":channel": channel, ":status": verdict.status().as_str(), ":sent_at": sent_at,
        ":last_error": last_error,
    };
    read::change(connection, statement::RESOLVE_DOUBT, params)?;
    let params = named_params! {
        ":notification_id": id, ":channel": channel, ":at": now, ":provider": send.provider,
        ":outcome": verdict.as_str(), ":error": note, ":duration_ms": 0,
    };
    read::change(connection, statement::INSERT_ATTEMPT, params)?;
    if let Some(error) = last_error.filter(|_| send.key.channel.is_retried()) {
        settle::dead_letter(connection, now, &send.letter(error))?;
    }
    if verdict == Verdict::Resend {
        let params = named_params! {
            ":channel": channel, ":lane": send.lane, ":due_at": now, ":notification_id": id,
        };
        read::change(connection, statement::INSERT_DUE, params)?;
    }
    Ok(())
}
