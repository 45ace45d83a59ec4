//! Latency: events to one person over one channel, each timed from the start of its transaction until the provider has
//! the request; and a load beside them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::Serialize;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use crate::engine::{Engine, Meter};
use crate::provider::Provider;
use crate::shape::Shape;
use crate::world::World;

/// The time between two probes.
const EVERY: Duration = Duration::from_millis(20);
/// How long to wait for probes after the last one.
const ARRIVAL_TIMEOUT: Duration = Duration::from_mins(1);
/// The number of business services that write the load.
const PRODUCERS: usize = 4;
/// How many events may wait to be fanned out while producers keep ahead; some batches.
const MAX_BACKLOG: usize = 3_000;
/// The interval of reading how many events are fanned out, and the pause of a producer that is ahead.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
const WAIT: Duration = Duration::from_millis(2);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    Normal,
    High,
}

#[derive(Debug, Clone, Serialize)]
pub struct Latency {
    pub probes: usize,
    pub p50_ms: f64,
    pub p95_ms: f64,
    pub p99_ms: f64,
    pub max_ms: f64,
}

impl Latency {
    fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        let at = |share: usize| {
            let index = (times.len() * share / 100).min(times.len().saturating_sub(1));
            times.get(index).map_or(f64::NAN, |time| time.as_secs_f64() * 1_000.0)
        };
        Latency { probes: times.len(), p50_ms: at(50), p95_ms: at(95), p99_ms: at(99), max_ms: at(100) }
    }

    pub fn columns() -> [&'static str; 4] {
        ["p50 ms", "p95 ms", "p99 ms", "max ms"]
    }

    pub fn cells(&self) -> [String; 4] {
        [self.p50_ms, self.p95_ms, self.p99_ms, self.max_ms].map(|ms| format!("{ms:.1}"))
    }
}

/// A recipient whose texts go to the benchmark's provider.
#[derive(Debug)]
pub struct Probes {
    provider: Provider,
}

impl Probes {
    /// Must be called before the engine starts.
    pub async fn install(world: &mut World) -> Result<Self> {
        let provider = Provider::start().await?;
        world.set("CAMPANILE_CHANNELS__SMS__URL", provider.url());
        let sql = "INSERT INTO event_type_channel_routing (event_type, channel, mandatory)
            VALUES ('PROBE', 'SMS', true);
             INSERT INTO template (event_type, channel, locale, title, body)
                 VALUES ('PROBE', 'SMS', '*', 'Probe', '{{ payload.probe }}');
             INSERT INTO recipient (user_type, user_id, phone) VALUES ('CUSTOMER', 'probe', '+390551234567')";
        world.database.run(sql).await?;
        Ok(Probes { provider })
    }

    /// Emits probes one after the other until `until` resolves.
    pub async fn run(
        &self,
        world: &World,
        priority: Priority,
        until: impl Future<Output = ()>,
    ) -> Result<Latency> {
        let client = Arc::new(world.database.client().await?);
        let sql = "SELECT emit('probe-' || $1, 'PROBE', 'CUSTOMER', 'probe', json_build_object('probe', \
            $1)::jsonb, $2)";
        let statement = client.prepare_typed(sql, &[tokio_postgres::types::Type::TEXT; 2]).await?;
        let priority = match priority {
            Priority::Normal => None,
            Priority::High => Some("HIGH"),
        };
        let (mut tick, mut begun, mut written) = (interval(EVERY), Vec::new(), JoinSet::new());
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut until = std::pin::pin!(until);
        loop {
            tokio::select! {
                () = &mut until => break,
                _ = tick.tick() => {}
            }
            let name = uuid::Uuid::now_v7().as_u128().to_string();
            begun.push((name.clone(), Instant::now()));
            // The next probe does not wait for this one. So a database that stalls delays all of them, not one.
            let (client, statement) = (Arc::clone(&client), statement.clone());
            written.spawn(async move { client.query(&statement, &[&name, &priority]).await });
        }
        while let Some(probe) = written.join_next().await {
            probe??;
        }
        self.times(&begun).await
    }

    async fn times(&self, begun: &[(String, Instant)]) -> Result<Latency> {
        let end = Instant::now() + ARRIVAL_TIMEOUT;
        let mut times = Vec::with_capacity(begun.len());
        for (name, at) in begun {
            let arrived = loop {
                match self.provider.arrived(name) {
                    Some(arrived) => break Some(arrived),
                    None if Instant::now() > end => break None,
                    None => tokio::time::sleep(Duration::from_millis(5)).await,
                }
            };
            times.push(
                arrived.context("a probe did not arrive within a minute")?.saturating_duration_since(*at),
            );
        }
        Ok(Latency::of(times))
    }
}

/// Business services that write notifications at this rate, each event in a transaction of its own. Dropping it stops
/// them.
#[derive(Debug)]
pub struct Load {
    producers: JoinSet<Result<()>>,
}

impl Load {
    pub async fn start(world: &World, shape: Shape, rate: f64) -> Result<Self> {
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        let every = Duration::from_secs_f64((PRODUCERS * shape.notifications()) as f64 / rate);
        let mut producers = JoinSet::new();
        for producer in 0..PRODUCERS {
            let client = Arc::new(world.database.client().await?);
            producers.spawn(async move {
                let mut tick = interval(every);
                // Missed ticks are made up, so that the rate is reached.
                tick.set_missed_tick_behavior(MissedTickBehavior::Burst);
                let mut number = producer * 1_000_000_000;
                loop {
                    tick.tick().await;
                    client.batch_execute(&shape.emit(number)).await?;
                    number += 1;
                }
            });
        }
        Ok(Load { producers })
    }

    /// Producers that write as fast as they can, as long as not too many events wait.
    pub async fn bounded(world: &World, engine: &Engine, shape: Shape, producers: usize) -> Result<Self> {
        let (written, fanned_out) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let mut all = JoinSet::new();
        all.spawn(poll_fanned_out(engine.meter().clone(), Arc::clone(&fanned_out)));
        for _ in 0..producers {
            let client = world.database.client().await?;
            let (written, fanned_out) = (Arc::clone(&written), Arc::clone(&fanned_out));
            all.spawn(async move {
                loop {
                    if written.load(Ordering::Relaxed) > fanned_out.load(Ordering::Relaxed) + MAX_BACKLOG {
                        tokio::time::sleep(WAIT).await;
                        continue;
                    }
                    let number = written.fetch_add(1, Ordering::Relaxed);
                    client.batch_execute(&shape.emit(number)).await?;
                }
            });
        }
        Ok(Load { producers: all })
    }

    /// Stops the load, and fails if a producer failed.
    pub async fn stop(mut self) -> Result<()> {
        if let Some(Ok(ended)) = self.producers.try_join_next() {
            ended.context("a producer could not go on")?;
        }
        self.producers.shutdown().await;
        Ok(())
    }
}

/// Polls the number of events that are fanned out.
async fn poll_fanned_out(meter: Meter, fanned_out: Arc<AtomicUsize>) -> Result<()> {
    loop {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
        let events = meter.read("campanile_fan_out_events_total", "").await? as usize;
        fanned_out.store(events, Ordering::Relaxed);
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
