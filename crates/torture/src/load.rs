//! Business services that write events, by SQL and by HTTP. Some roll back, some get no answer, and some emit events
//! twice. The ledger is compared with what they know about their own events.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::database::{Database, Ended};
use crate::people::{EVENT_TYPE, Group};
use crate::random::Random;
use crate::world::World;

#[derive(Debug, Clone)]
pub struct Event {
    pub id: String,
    pub group: Group,
}

/// The prefix of event ids that are written once everything works again.
pub const CALM: &str = "calm-";

/// The events of one transaction: all of them exist, or none.
pub type Transaction = Vec<Event>;

/// What the producers know.
#[derive(Debug, Default)]
pub struct Known {
    pub committed: Vec<Transaction>,
    pub rolled_back: Vec<Transaction>,
    /// The transaction got no answer.
    pub unknown: Vec<Transaction>,
}

#[derive(Debug, Default)]
pub struct Load {
    known: Mutex<Known>,
}

impl Load {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn into_known(self) -> Known {
        self.known.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, events: Transaction, ended: Ended) {
        let mut known = self.known();
        match ended {
            Ended::Committed => known.committed.push(events),
            Ended::RolledBack => known.rolled_back.push(events),
            Ended::Unknown => known.unknown.push(events),
        }
    }

    /// A service with its tables in the same database. Every fifth transaction rolls back, and every other one uses
    /// `campanile.emit` where it exists.
    pub async fn by_sql(&self, world: &World, mut random: Random, stop: CancellationToken) {
        const MOST: u64 = 20;
        let mut number = 0;
        while !stop.is_cancelled() {
            number += 1;
            let events = draw(&mut random, &format!("sql-{number}"), MOST);
            let by_function = random.percent(50) && matches!(world.database, Database::Postgres { .. });
            let statements = if by_function { emit(&events) } else { plain_insert(&world.database, &events) };
            let ended = world.database.transaction(&statements, !random.percent(20)).await;
            world.journal.count(match (ended, by_function) {
                (Ended::Committed, true) => "transactions committed by campanile.emit",
                (Ended::Committed, false) => "transactions committed by INSERT",
                (Ended::RolledBack, _) => "transactions rolled back",
                (Ended::Unknown, _) => "transactions with unknown outcome",
            });
            let pause =
                Duration::from_millis(1_000 * events.len() as u64 / world.round.events_per_second.max(1));
            self.keep(events, ended);
            tokio::time::sleep(pause.max(Duration::from_millis(1))).await;
        }
    }

    /// A remote service, which repeats requests until they are answered, and sometimes without need.
    pub async fn by_http(&self, world: &World, mut random: Random, stop: CancellationToken) {
        const MOST: u64 = 10;
        const RETRY_TIMEOUT: Duration = Duration::from_secs(10);
        let mut number = 0;
        while !stop.is_cancelled() {
            number += 1;
            let events = draw(&mut random, &format!("http-{number}"), MOST);
            let bodies: Vec<Value> = events.iter().map(body).collect();
            let mut ended = Ended::Unknown;
            let begun = Instant::now();
            while begun.elapsed() < RETRY_TIMEOUT {
                let Some(instance) = random.pick(&world.instances) else { break };
                match world.emit(instance, &bodies).await {
                    Some(202) => {
                        ended = Ended::Committed;
                        if random.percent(90) {
                            break;
                        }
                    }
                    Some(status @ 400..=499) => {
                        world.journal.find(format!("an event was refused with {status}"));
                        break;
                    }
                    Some(_) | None => tokio::time::sleep(Duration::from_millis(50)).await,
                }
            }
            world.journal.count(match ended {
                Ended::Committed => "requests accepted by HTTP",
                Ended::RolledBack | Ended::Unknown => "requests never answered",
            });
            let pause =
                Duration::from_millis(1_000 * events.len() as u64 / world.round.events_per_second.max(1));
            self.keep(events, ended);
            tokio::time::sleep(pause.max(Duration::from_millis(1))).await;
        }
    }

    /// Writes `count` events as fast as possible, for a backlog. Returns how the last transaction ended.
    pub async fn at_once(&self, world: &World, name: &str, group: Group, count: usize) -> Ended {
        const PAGE: usize = 500;
        let events: Vec<Event> = (0..count).map(|n| Event { id: format!("{name}{n}"), group }).collect();
        let mut last = Ended::Committed;
        for page in events.chunks(PAGE) {
            let ended = world.database.transaction(&plain_insert(&world.database, page), true).await;
            world.journal.count(match ended {
                Ended::Committed => "transactions committed by INSERT",
                Ended::RolledBack => "transactions rolled back",
                Ended::Unknown => "transactions with unknown outcome",
            });
            self.keep(page.to_vec(), ended);
            last = ended;
        }
        last
    }
}

fn draw(random: &mut Random, prefix: &str, most: u64) -> Transaction {
    let count = random.between(1, most);
    let group = |random: &mut Random| if random.percent(10) { Group::Phones } else { Group::Staff };
    (0..count).map(|n| Event { id: format!("{prefix}-{n}"), group: group(random) }).collect()
}

fn body(event: &Event) -> Value {
    json!({
        "event_id": event.id, "event_type": EVENT_TYPE, "aggregate_type": "RESTAURANT",
        "aggregate_id": event.group.restaurant().to_string(), "payload": {"guest": "Ada"},
    })
}

fn emit(events: &[Event]) -> String {
    let calls = events.iter().map(|Event { id, group }| {
        let restaurant = group.restaurant();
        format!("SELECT emit('{id}', '{EVENT_TYPE}', 'RESTAURANT', '{restaurant}', '{{\"guest\": \"Ada\"}}', 'HIGH')")
    });
    calls.collect::<Vec<_>>().join("; ")
}

fn plain_insert(database: &Database, events: &[Event]) -> String {
    let rows: Vec<String> = events
        .iter()
        .map(|event| {
            let restaurant = event.group.restaurant();
            format!(
                "('{}', '{EVENT_TYPE}', 'RESTAURANT', '{restaurant}', '{{\"guest\": \"Ada\"}}')",
                event.id
            )
        })
        .collect();
    let table = match database {
        Database::Postgres { .. } => "campanile.event_outbox",
        Database::Sqlite { .. } => "event_outbox",
    };
    format!(
        "INSERT INTO {table} (event_id, event_type, aggregate_type, aggregate_id, payload) VALUES {};",
        rows.join(", ")
    )
}
