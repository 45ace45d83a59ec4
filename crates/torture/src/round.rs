//! One round: a world, a load, faults, and the comparison with the ledger.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio_util::sync::CancellationToken;

use crate::fault::{self, Fault, Hits};
use crate::fuzz;
use crate::ledger;
use crate::load::{CALM, Load};
use crate::people::Group;
use crate::random::Random;
use crate::servers::Servers;
use crate::world::World;
use campanile_testkit::proxy::{Mode, Proxy};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// SQLite and the in-process broker.
    Embedded,
    /// PostgreSQL and RabbitMQ.
    Servers,
    /// PostgreSQL and the in-process broker.
    Mixed,
}

/// What the engine does with a text in doubt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnDoubt {
    Resend,
    Hold,
}

impl OnDoubt {
    pub fn as_str(self) -> &'static str {
        match self {
            OnDoubt::Resend => "resend",
            OnDoubt::Hold => "hold",
        }
    }
}

#[derive(Debug, Clone)]
pub struct Round {
    pub name: &'static str,
    pub backend: Backend,
    pub instances: usize,
    pub on_doubt: OnDoubt,
    pub small_disk: bool,
    /// Whether the sweep for purged messages runs every few seconds instead of every hour. In other rounds nothing may
    /// depend on it.
    pub sweep: bool,
    /// The rate of each of the two producers.
    pub events_per_second: u64,
    pub script: Script,
}

/// The faults of a round.
#[derive(Debug, Clone)]
pub enum Script {
    /// Instances die all the time, and something around them fails, for this long.
    Anything(Duration),
    /// These faults, one after the other.
    These(Vec<Fault>),
    /// This many events while the broker is away for this long.
    BrokerAway { events: usize, length: Duration },
    /// Hostile requests for this long, and no faults.
    Fuzz(Duration),
}

impl Script {
    /// In the other rounds, the broker's absence or the hostile requests have a load of their own.
    fn has_producers(&self) -> bool {
        match self {
            Script::Anything(_) | Script::These(_) => true,
            Script::BrokerAway { .. } | Script::Fuzz(_) => false,
        }
    }

    /// Hostile requests change people and rules at random, so the expected recipients are unknown.
    fn has_ledger(&self) -> bool {
        match self {
            Script::Anything(_) | Script::These(_) | Script::BrokerAway { .. } => true,
            Script::Fuzz(_) => false,
        }
    }
}

#[derive(Debug)]
pub struct Outcome {
    pub counts: BTreeMap<&'static str, u64>,
    pub findings: Vec<String>,
    pub left_out: Vec<(Fault, &'static str)>,
}

/// Runs a round. Its files are kept only after findings or an error of the harness.
pub async fn run(round: Round, servers: &Servers, binary: &Path, seed: u64) -> Result<Outcome> {
    let folder = tempfile::Builder::new().prefix("campanile-torture-").tempdir()?;
    let outcome = run_in(folder.path(), round, servers, binary, seed).await;
    if !outcome.as_ref().is_ok_and(|outcome| outcome.findings.is_empty()) {
        println!("  files kept in {}", folder.keep().display());
    }
    outcome
}

async fn run_in(folder: &Path, round: Round, servers: &Servers, binary: &Path, seed: u64) -> Result<Outcome> {
    let mut world = World::build(round, folder, servers, binary, seed).await?;
    let load = Load::default();
    let left_out = left_out(&world);
    let stop = CancellationToken::new();
    let happening = async {
        let happened = play(&world, &load, seed).await;
        stop.cancel();
        happened
    };
    let producing = async {
        if world.round.script.has_producers() {
            tokio::join!(
                load.by_sql(&world, Random::new(seed, "sql"), stop.clone()),
                load.by_http(&world, Random::new(seed, "http"), stop.clone()),
            );
        }
    };
    let (happened, ()) = tokio::join!(happening, producing);
    if let Err(error) = happened {
        world.journal.find(format!("the harness failed: {error:#}"));
        heal_servers(&world).await?;
    }
    heal(&world).await?;
    world.await_all_up().await?;
    await_quiet(&world).await;
    let has_ledger = world.round.script.has_ledger();
    if has_ledger {
        load.at_once(&world, CALM, Group::Staff, 50).await;
        await_quiet(&world).await;
    }
    world.wind_up().await?;
    if has_ledger {
        ledger::check(&world, &load.into_known()).await?;
    }
    let (counts, findings) = (world.journal.counts(), world.journal.findings());
    world.demolish().await?;
    Ok(Outcome { counts, findings, left_out })
}

fn left_out(world: &World) -> Vec<(Fault, &'static str)> {
    Fault::ALL.iter().filter_map(|fault| Some((*fault, fault.possible(world).err()?))).collect()
}

async fn play(world: &World, load: &Load, seed: u64) -> Result<()> {
    let mut random = Random::new(seed, "faults");
    match &world.round.script {
        Script::Anything(length) => {
            let end = Instant::now() + *length;
            let deaths = deaths(world, load, Random::new(seed, "deaths"), end);
            let pauses = pauses(world, load, Random::new(seed, "pauses"), end);
            let surroundings = surroundings(world, load, random, end);
            tokio::try_join!(deaths, pauses, surroundings).map(drop)
        }
        Script::These(faults) => {
            for fault in faults.iter().filter(|fault| fault.possible(world) == Ok(true)) {
                // Faults hit instances that are at work.
                world.await_all_up().await?;
                tokio::time::sleep(Duration::from_millis(300)).await;
                fault.happen(world, load, &mut random).await?;
            }
            Ok(())
        }
        Script::BrokerAway { events, length } => broker_away(world, load, *events, *length).await,
        Script::Fuzz(length) => fuzz::run(world, *length, seed).await,
    }
}

/// Kills and restarts instances, several times a second.
async fn deaths(world: &World, load: &Load, mut random: Random, end: Instant) -> Result<()> {
    while Instant::now() < end {
        let fault = match random.below(100) {
            0..75 => Fault::Kill,
            75..85 => Fault::Terminate,
            85..96 => Fault::KillAtFailpoint,
            _ => Fault::WrongClock,
        };
        // Mostly instances at work, and sometimes one that is starting.
        let at_work = world.instances.iter().any(|instance| instance.url().is_some());
        if (at_work || random.percent(10)) && fault.possible(world) == Ok(true) {
            fault.happen(world, load, &mut random).await?;
        }
        let (least, most) = match world.round.backend {
            Backend::Embedded | Backend::Servers => (20, 250),
            // The next process must wait for the lease of the in-process broker, about 15 s.
            Backend::Mixed => (8_000, 20_000),
        };
        tokio::time::sleep(Duration::from_millis(random.between(least, most))).await;
    }
    Ok(())
}

/// Suspends an instance past its lease from time to time. Nothing kills it meanwhile.
async fn pauses(world: &World, load: &Load, mut random: Random, end: Instant) -> Result<()> {
    while Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(random.between(2_000, 8_000))).await;
        Fault::Pause.happen(world, load, &mut random).await?;
    }
    Ok(())
}

/// All other faults, each equally often.
async fn surroundings(world: &World, load: &Load, mut random: Random, end: Instant) -> Result<()> {
    let possible: Vec<Fault> = Fault::ALL
        .into_iter()
        .filter(|fault| fault.hits() != Hits::Instance && fault.possible(world) == Ok(true))
        .collect();
    let mut bag = Vec::new();
    while Instant::now() < end {
        if bag.is_empty() {
            bag.clone_from(&possible);
            random.shuffle(&mut bag);
        }
        if let Some(fault) = bag.pop() {
            fault.happen(world, load, &mut random).await?;
        }
        if world.small_disk.is_some() {
            Fault::DiskFull.happen(world, load, &mut random).await?;
        }
        tokio::time::sleep(Duration::from_millis(random.between(50, 500))).await;
    }
    Ok(())
}

/// Without a broker, messages are only delayed: no failure is counted against a row, and the broker is not flooded with
/// connection attempts.
async fn broker_away(world: &World, load: &Load, events: usize, length: Duration) -> Result<()> {
    const MOST_PER_SECOND: u64 = 5;
    let lines = || world.instances.iter().filter_map(|instance| instance.to_broker.as_ref());
    world.servers.rabbitmqctl(&["stop_app"]).await?;
    let (begun, before) = (Instant::now(), lines().map(Proxy::accepted).sum::<u64>());
    load.at_once(world, "away-", Group::Phones, events).await;
    tokio::time::sleep(length.saturating_sub(begun.elapsed())).await;
    let attempts = lines().map(Proxy::accepted).sum::<u64>() - before;
    let seconds = begun.elapsed().as_secs().max(1);
    if attempts == 0 || attempts > seconds * MOST_PER_SECOND * world.instances.len() as u64 {
        world.journal.find(format!("{attempts} connections were tried in {seconds} s without a broker"));
    }
    world.journal.add("connections tried without a broker", attempts);
    world.journal.add("seconds without a broker", seconds);
    world.servers.rabbitmqctl(&["start_app"]).await?;
    await_quiet(world).await;
    let counted = "SELECT count(*) FROM notification_outbox WHERE retry_count > 0";
    let counted = world.database.number(counted).await?;
    if counted > 0 {
        world.journal.find(format!("the missing broker was counted against {counted} rows"));
    }
    Ok(())
}

/// Repairs what a fault that failed half-way may have left.
async fn heal_servers(world: &World) -> Result<()> {
    if world.round.backend == Backend::Servers && world.servers.steers_rabbitmq() {
        fault::heal_broker(world).await?;
    }
    if let Some(disk) = &world.small_disk {
        // It may not have been full.
        let _ = disk.free();
    }
    Ok(())
}

/// Repairs everything.
async fn heal(world: &World) -> Result<()> {
    for instance in &world.instances {
        if world.round.backend == Backend::Embedded {
            // On SQLite its clock is the database's, and may be wrong.
            instance.kill();
        }
        let lines = [instance.to_database.as_ref(), instance.to_broker.as_ref(), Some(&instance.to_provider)];
        for line in lines.into_iter().flatten() {
            line.set(Mode::Pass);
        }
    }
    world.provider.behave_well().await
}

/// Waits until nothing is in progress. A row that remains will never move.
async fn await_quiet(world: &World) {
    const WITHOUT_PROGRESS: Duration = Duration::from_mins(1);
    let (mut best, mut since) = (u64::MAX, Instant::now());
    let begun = Instant::now();
    loop {
        let under_way = match ledger::under_way(world).await {
            Ok(under_way) if under_way.is_empty() => break,
            Ok(under_way) => under_way,
            Err(error) => {
                world.journal.note(format_args!("cannot query the database: {error:#}"));
                BTreeMap::from([("unknown", u64::MAX)])
            }
        };
        let left = under_way.values().fold(0u64, |sum, count| sum.saturating_add(*count));
        if left < best {
            (best, since) = (left, Instant::now());
        }
        if since.elapsed() > WITHOUT_PROGRESS {
            world.journal.find(format!("stuck for {WITHOUT_PROGRESS:?}: {under_way:?}"));
            ask_the_broker(world).await;
            return;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    world.journal.add("seconds until quiet", begun.elapsed().as_secs());
}

/// Logs the broker's state, for examining why nothing moves.
async fn ask_the_broker(world: &World) {
    if world.round.backend != Backend::Servers || !world.servers.steers_rabbitmq() {
        return;
    }
    let questions: [&[&str]; 4] = [
        &["list_queues", "name", "state", "messages", "messages_unacknowledged", "consumers", "leader"],
        &["list_connections", "pid", "state", "channels", "recv_cnt", "send_pend"],
        &["list_channels", "pid", "connection", "consumer_count", "messages_unconfirmed", "state"],
        &["status"],
    ];
    for question in questions {
        match world.servers.rabbitmqctl(question).await {
            Ok(answer) => world.journal.note(format_args!("{}:\n{answer}", question[0])),
            Err(error) => world.journal.note(format_args!("{}: {error:#}", question[0])),
        }
    }
}
