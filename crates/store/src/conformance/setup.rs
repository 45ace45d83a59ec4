//! Test setup: short constructors for events, rows and outcomes, and helpers that take an event to the stage where a
//! check begins.

use std::sync::Arc;
use std::time::Duration;

use campanile_domain::access::audit::Actor;
use campanile_domain::channel::Channel;
use campanile_domain::event::transition::Step;
use campanile_domain::event::{Event, Failure, NewEvent};
use campanile_domain::fan_out::{OutboxRow, Summary};
use campanile_domain::id::{
    EntityId, EntityRef, EntityType, EventId, EventType, NotificationId, SendKey, UserId, UserRef,
    UserTypeName,
};
use campanile_domain::priority::Priority;
use campanile_domain::queue::Queue;
use campanile_domain::send::{EXHAUSTED, OutcomeKind, SendState};
use campanile_domain::status::{EventStatus, OutboxStatus};
use campanile_domain::time::Timestamp;
use serde_json::{Value, json};

use super::Fixture;
use crate::{
    Acceptance, Capture, Chunk, ChunkRow, Claim, ClaimedEvent, FailedMessage, FanOutClaim, FanOutCommit,
    FanOutStep, Instance, InstanceId, NewChunk, OutboxView, Received, ReceivedKey, SendJob, Settlement,
    Table, TableRow, Trace, TraceFilter, TracedSend,
};

pub const LEASE: Duration = Duration::from_mins(1);
pub const HALF_A_LEASE: Duration = Duration::from_secs(30);
/// The queue of rows for which a check names no other queue.
pub const QUEUE: &str = "notification.customer";
pub const EVENT_TYPE: &str = "ORDER_CREATED";

pub fn event(id: &str) -> NewEvent {
    NewEvent {
        event_id: event_id(id),
        event_type: EventType::stored(EVENT_TYPE),
        aggregate_type: "ORDER".to_owned(),
        aggregate_id: "7".to_owned(),
        payload: serde_json::from_value(json!({ "total": 12 })).expect("an object is a payload"),
        priority: None,
        occurred_at: None,
    }
}

pub fn urgent(id: &str, priority: Priority) -> NewEvent {
    NewEvent { priority: Some(priority), ..event(id) }
}

pub fn of_type(id: &str, event_type: &str) -> NewEvent {
    NewEvent { event_type: EventType::stored(event_type), ..event(id) }
}

pub fn event_id(id: &str) -> EventId {
    EventId::stored(id)
}

pub fn user(user_type: &str, user_id: &str) -> UserRef {
    UserRef { user_type: UserTypeName::stored(user_type), user_id: UserId::stored(user_id) }
}

pub fn customer(user_id: &str) -> UserRef {
    user("CUSTOMER", user_id)
}

pub fn entity(entity_type: &str, entity_id: &str) -> EntityRef {
    EntityRef { entity_type: EntityType::stored(entity_type), entity_id: EntityId::stored(entity_id) }
}

/// One row per channel, all of one notification.
pub fn rows(event_id: &str, user: &UserRef, channels: &[Channel]) -> Vec<OutboxRow> {
    let notification_id = NotificationId::generate();
    channels.iter().map(|channel| row_of(event_id, user, notification_id, *channel)).collect()
}

pub fn row(event_id: &str, user: &UserRef, channel: Channel) -> OutboxRow {
    row_of(event_id, user, NotificationId::generate(), channel)
}

fn row_of(event_id: &str, user: &UserRef, notification_id: NotificationId, channel: Channel) -> OutboxRow {
    OutboxRow {
        key: SendKey { notification_id, channel },
        event_id: EventId::stored(event_id),
        recipient: user.clone(),
        address: format!("{channel} of {}", user.user_id),
        title: format!("{channel} title"),
        body: format!("{channel} body"),
        inbox: None,
        priority: Priority::Normal,
        audience: "customer".to_owned(),
        entity: None,
        shared_read: false,
        queue: Queue::named(QUEUE),
        failure: None,
    }
}

/// The summary of an event with this many sends.
pub fn summary(sends: usize) -> Summary {
    Summary { recipients: sends as u64, sends: sends as u64, ..Summary::default() }
}

pub fn step_of(claimed: &ClaimedEvent, step: Step) -> FanOutStep {
    FanOutStep {
        seq: claimed.seq,
        event: Arc::clone(&claimed.event),
        body_hash: claimed.event.body_hash(),
        cursor_before: claimed.cursor.clone(),
        decisions: None,
        entities: Vec::new(),
        step,
    }
}

/// Rows of one queue and lane.
pub fn chunk_of(event: &Arc<Event>, rows: &[OutboxRow], leased: bool) -> NewChunk {
    let first = rows.first().expect("a chunk has rows");
    let with_event = |row: &OutboxRow| ChunkRow { row: row.clone(), event: Arc::clone(event) };
    NewChunk {
        queue: first.queue.clone(),
        lane: first.priority.lane(),
        rows: rows.iter().map(with_event).collect(),
        leased,
    }
}

pub fn commit_of(steps: Vec<FanOutStep>, chunks: Vec<NewChunk>) -> FanOutCommit {
    FanOutCommit { instance: "test".to_owned(), steps, chunks, failed_rows: Vec::new(), lease: LEASE }
}

/// An instance that the trace can't name, unless it was registered first.
pub fn instance(name: &str) -> Instance {
    Instance { id: InstanceId(1), name: name.to_owned() }
}

/// The settlement of an attempt that ended in this state.
pub fn outcome(job: &SendJob, state: SendState) -> Settlement {
    let (outcome, error) = match state {
        SendState::Sent { .. } => (OutcomeKind::Sent, None),
        SendState::Due { .. } => (OutcomeKind::Retry, Some("busy".to_owned())),
        SendState::Failed { .. } => (OutcomeKind::Rejected, Some("busy".to_owned())),
        SendState::InDoubt { .. } => (OutcomeKind::Unknown, Some("busy".to_owned())),
    };
    Settlement {
        job: job.clone(),
        state,
        done: Vec::new(),
        provider: "provider".to_owned(),
        error,
        outcome,
        history: job.history,
        duration: Duration::from_millis(5),
        attempted_at: None,
        capture: Capture::None,
    }
}

pub fn claimed(key: SendKey) -> ReceivedKey {
    ReceivedKey { key, claim: true, published: None }
}

pub fn left_due(key: SendKey) -> ReceivedKey {
    ReceivedKey { key, claim: false, published: None }
}

pub fn table_row(table: Table, row: &Value) -> TableRow {
    TableRow::parse(table, row).unwrap_or_else(|error| panic!("{row} is no row: {error}"))
}

/// One column of several rows.
pub fn column<'r, T, V>(rows: &'r [T], column: impl Fn(&'r T) -> V) -> Vec<V> {
    rows.iter().map(column).collect()
}

pub fn ids(claim: &dyn FanOutClaim) -> Vec<String> {
    claim.events().iter().map(|claimed| claimed.event.event_id.to_string()).collect()
}

pub fn found<'a>(claim: &'a dyn FanOutClaim, id: &str) -> &'a ClaimedEvent {
    let this = |claimed: &&ClaimedEvent| claimed.event.event_id.as_str() == id;
    claim.events().iter().find(this).unwrap_or_else(|| panic!("{id} was not claimed"))
}

/// The stages of an event that succeeds.
impl Fixture {
    pub async fn advance(&self, by: Duration) {
        self.test_database.advance(by).await;
    }

    pub async fn execute(&self, sql: &str) {
        self.test_database.execute(sql).await;
    }

    pub async fn count(&self, sql: &str) -> i64 {
        self.test_database.count(sql).await
    }

    pub async fn put(&self, table: Table, rows: Vec<Value>) {
        let count = rows.len() as u64;
        let rows = rows.iter().map(|row| table_row(table, row)).collect();
        let written =
            self.store.put_rows(table, rows, Some(&Actor::AdminKey)).await.expect("the rows are good");
        assert_eq!(written, count);
    }

    /// Accepts these events and checks that all are new.
    pub async fn accept(&self, events: &[NewEvent]) {
        let accepted = self.store.accept(events.to_vec()).await.expect("the events are good");
        assert_eq!(accepted, Acceptance::Accepted(vec![true; events.len()]));
    }

    /// Inserts an event as a producer would, with only the required columns.
    pub async fn insert(&self, id: &str) {
        self.execute(&format!(
            "INSERT INTO event_outbox (event_id, event_type, aggregate_type, aggregate_id, payload)
             VALUES ('{id}', 'ORDER_CREATED', 'ORDER', '7', '{{}}')"
        ))
        .await;
    }

    pub async fn try_claim(&self, claim: Claim) -> Option<Box<dyn FanOutClaim>> {
        self.store.claim_events(claim).await.expect("the database is there")
    }

    pub async fn claim_new(&self) -> Box<dyn FanOutClaim> {
        self.try_claim(Claim::New { limit: 100 }).await.expect("an event waits")
    }

    pub async fn commit(
        &self,
        claim: Box<dyn FanOutClaim>,
        steps: Vec<FanOutStep>,
        chunks: Vec<NewChunk>,
    ) -> Vec<Chunk> {
        claim.commit(commit_of(steps, chunks)).await.expect("nobody was faster")
    }

    /// Creates an event whose fan-out wrote these rows in one chunk.
    pub async fn fan_out(&self, event: &NewEvent, rows: &[OutboxRow], leased: bool) -> Vec<Chunk> {
        self.accept(std::slice::from_ref(event)).await;
        let claim = self.claim_new().await;
        let claimed = found(&*claim, event.event_id.as_str());
        let steps = vec![step_of(claimed, Step::Finished(summary(rows.len())))];
        let chunks = vec![chunk_of(&claimed.event, rows, leased)];
        self.commit(claim, steps, chunks).await
    }

    /// Like `fan_out`, with every row confirmed by the broker.
    pub async fn published(&self, event: &NewEvent, rows: &[OutboxRow]) {
        let chunk = self.fan_out(event, rows, true).await.pop().expect("the chunk was born leased");
        self.store.chunks_published(&[chunk.id]).await.expect("the database is there");
    }

    pub async fn receive(&self, keys: &[ReceivedKey]) -> Received {
        self.store.receive(keys.to_vec(), &instance("test"), LEASE).await.expect("the database is there")
    }

    /// Creates an event for customer 42 and claims its send over this channel.
    pub async fn sending(&self, id: &str, channel: Channel) -> SendJob {
        let row = row(id, &customer("42"), channel);
        self.published(&event(id), std::slice::from_ref(&row)).await;
        self.receive(&[claimed(row.key)]).await.jobs.pop().expect("the send was claimed")
    }

    /// Creates an event for customer 42, whose send is due and not claimed.
    pub async fn waiting(&self, id: &str, channel: Channel, priority: Priority) -> SendKey {
        let row = OutboxRow { priority, ..row(id, &customer("42"), channel) };
        self.published(&event(id), std::slice::from_ref(&row)).await;
        assert!(self.receive(&[left_due(row.key)]).await.jobs.is_empty());
        row.key
    }

    pub async fn claim_due(&self, channel: Channel, limit: usize) -> Vec<SendJob> {
        self.store.claim_due(channel, limit, &instance("test"), LEASE).await.expect("the database is there")
    }

    pub async fn settle(&self, settlements: Vec<Settlement>) -> Vec<SendKey> {
        let finished = settlements.iter().map(|settlement| settlement.job.claim).collect();
        self.store.settle(settlements, finished, InstanceId(1)).await.expect("the database is there").lost
    }
}

/// Events, rows and sends that fail.
impl Fixture {
    /// Creates an event that failed because it had no recipients.
    pub async fn failed(&self, id: &str) {
        self.accept(&[event(id)]).await;
        let claim = self.claim_new().await;
        let step =
            step_of(found(&*claim, id), Step::Failed(Failure::new("NO_RECIPIENTS", "nobody is there")));
        self.commit(claim, vec![step], vec![]).await;
    }

    /// Creates an event with these rows, all of which the broker refuses finally.
    pub async fn refused(&self, id: &str, rows: &[OutboxRow]) {
        let chunk = self.fan_out(&event(id), rows, true).await.pop().expect("the chunk was born leased");
        let refused = rows.iter().map(|row| (row.key, "no route".to_owned())).collect();
        self.store.rows_refused(chunk.id, refused, 1, LEASE).await.expect("the database is there");
    }

    pub async fn fail_messages(&self, keys: &[Option<SendKey>]) {
        let failed = |key: &Option<SendKey>| FailedMessage {
            key: *key,
            failure: Failure::new("POISON", "it came too often"),
            message: Some("{".to_owned()),
        };
        let failed = keys.iter().map(failed).collect();
        self.store.fail_messages(failed).await.expect("the database is there");
    }

    /// Creates an event for customer 42 whose send failed after two attempts.
    pub async fn failed_send(&self, id: &str, channel: Channel) -> SendKey {
        let job = self.sending(id, channel).await;
        self.settle(vec![outcome(&job, SendState::Due { at: Timestamp::UNIX_EPOCH })]).await;
        let job = self.claim_due(channel, 1).await.pop().expect("it is due");
        self.settle(vec![outcome(&job, SendState::Failed { code: EXHAUSTED })]).await;
        job.key
    }

    pub async fn close(&self, ids: &[&str]) -> u64 {
        let candidates = ids.iter().map(|id| event_id(id)).collect();
        self.store.close_events(candidates).await.expect("the database is there")
    }
}

/// Reads the state of an event, its rows and its sends.
impl Fixture {
    pub async fn trace(&self, id: &str) -> Trace {
        let all = TraceFilter { limit: 1_000, ..TraceFilter::default() };
        let trace = self.store.trace(&event_id(id), all).await.expect("the database is there");
        trace.unwrap_or_else(|| panic!("{id} is not there"))
    }

    pub async fn event_status(&self, id: &str) -> EventStatus {
        *self.trace(id).await.event.row.status.typed().expect("statuses are known")
    }

    /// The outbox rows of an event, by recipient and channel.
    pub async fn outbox_statuses(&self, id: &str) -> Vec<OutboxStatus> {
        let outbox = self.trace(id).await.outbox;
        outbox.iter().map(|row| *row.status.typed().expect("statuses are known")).collect()
    }

    pub async fn outbox_row(&self, id: &str, key: SendKey) -> OutboxView {
        let mut outbox = self.trace(id).await.outbox.into_iter();
        outbox.find(|row| row.id == key).unwrap_or_else(|| panic!("no row has the key {key}"))
    }

    pub async fn send(&self, id: &str, key: SendKey) -> TracedSend {
        let mut sends = self.trace(id).await.sends.into_iter();
        sends.find(|send| send.row.id == key).unwrap_or_else(|| panic!("no send has the key {key}"))
    }
}
