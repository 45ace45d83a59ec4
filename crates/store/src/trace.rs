//! Reading what happened: the trace of one event, the list of events, and what was captured.

use async_trait::async_trait;
use campanile_domain::id::{EventId, UserRef};
use campanile_domain::status::EventStatus;
use campanile_domain::time;
use serde_json::{Value, json};

use crate::{JsonRow, StoreError};

/// Which part of a trace: one user only, or the users behind `after`; at most `limit` of them.
#[derive(Debug, Clone, Default)]
pub struct TraceFilter {
    pub user: Option<UserRef>,
    pub after: Option<UserRef>,
    pub limit: usize,
}

/// What happened to one event. Rows have the column names of their tables.
#[derive(Debug)]
pub struct Trace {
    /// With `stages.fan_out`: `at` and `instance`.
    pub event: JsonRow,
    pub processed: Option<JsonRow>,
    /// Decisions as they were stored; absent for large audiences.
    pub decisions: Option<Value>,
    /// Name and role of everybody in the decisions, as they are now.
    pub recipients: Vec<JsonRow>,
    pub outbox: Vec<JsonRow>,
    pub notifications: Vec<JsonRow>,
    /// Each with `stages`: `publish`, `receive`, `send`, `settle`.
    pub sends: Vec<JsonRow>,
    pub dead_letters: Vec<JsonRow>,
    pub next: Option<UserRef>,
}

impl Trace {
    /// Puts instance and time of each stage where readers look for them: `stages` of the event and of each send.
    pub(crate) fn with_stages(mut self) -> Self {
        let fan_out = fan_out_stage(&self.event, self.processed.as_ref());
        self.event.insert("stages".to_owned(), json!({ "fan_out": fan_out }));
        for send in &mut self.sends {
            let stages = send_stages(send);
            send.insert("stages".to_owned(), stages);
        }
        self
    }
}

/// A stage that has not happened, or that nobody noted, is null.
fn stage(at: &Value, instance: &Value) -> Value {
    if at.is_null() && instance.is_null() { Value::Null } else { json!({ "at": at, "instance": instance }) }
}

/// While a large audience is under way, the instance of its last step and no time. An id that was known already was
/// decided by whoever saw it first, which says nothing of this event.
fn fan_out_stage(event: &JsonRow, processed: Option<&JsonRow>) -> Value {
    let of = |row: &JsonRow, column: &str| row.get(column).cloned().unwrap_or_default();
    let published_at = of(event, "published_at");
    let accepted = event.get("created_at").and_then(Value::as_str).and_then(time::from_text);
    let decided = |row: &&JsonRow| {
        let at = row.get("created_at").and_then(Value::as_str).and_then(time::from_text);
        at >= accepted
    };
    let Some(processed) = processed.filter(decided) else { return stage(&published_at, &Value::Null) };
    let under_way = processed.get("status").is_some_and(|status| status == "PROCESSING");
    let at = if under_way || !published_at.is_null() { published_at } else { of(processed, "created_at") };
    stage(&at, &of(processed, "instance"))
}

/// Takes the columns that the stages are made of. What is settled for good or for now was so when it was sent, or with
/// its last attempt.
fn send_stages(send: &mut JsonRow) -> Value {
    let attempts = send.get("attempts").and_then(Value::as_array);
    let last_attempt = attempts.and_then(|attempts| attempts.last()).map(|attempt| attempt["at"].clone());
    let sent_at = send.get("sent_at").filter(|at| !at.is_null()).cloned();
    let settled_at = sent_at.or(last_attempt).unwrap_or_default();
    let received_at = send.get("created_at").cloned().unwrap_or_default();
    let is_sending = send.get("status").is_some_and(|status| status == "SENDING");
    let mut take = |column: &str| send.remove(column).unwrap_or_default();
    let (settled_by, claimed_at) = (take("settled_by"), take("attempted_at"));
    // Until it is settled, nobody knows whether the attempt has begun.
    let attempted_at = if is_sending { Value::Null } else { claimed_at };
    json!({
        "publish": stage(&take("published_at"), &take("published_by")),
        "receive": stage(&received_at, &take("received_by")),
        "send": stage(&attempted_at, &take("attempted_by")),
        "settle": if settled_at.is_null() { Value::Null } else { stage(&settled_at, &settled_by) },
    })
}

#[derive(Debug, Clone, Default)]
pub struct EventFilter {
    pub status: Option<EventStatus>,
    pub event_type: Option<String>,
    /// Only events that arrived behind this one (oldest first), or before it (newest first).
    pub after: Option<i64>,
    pub newest_first: bool,
    pub limit: usize,
}

#[async_trait]
pub trait TraceStore {
    async fn trace(&self, event_id: &EventId, filter: TraceFilter) -> Result<Option<Trace>, StoreError>;

    async fn list_events(&self, filter: EventFilter) -> Result<Vec<JsonRow>, StoreError>;

    async fn list_captured(
        &self,
        event_id: Option<String>,
        after: i64,
        limit: usize,
    ) -> Result<Vec<JsonRow>, StoreError>;
}
