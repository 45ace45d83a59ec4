//! The faults. Each begins, lasts for a while and is repaired; afterwards nothing may be lost.

mod broker;
mod database;
mod instance;
mod network;
mod provider;

use anyhow::Result;

use crate::database::Ended;
use crate::load::Load;
use crate::people::Group;
use crate::random::Random;
use crate::round::Backend;
use crate::world::World;

pub use broker::heal as heal_broker;
pub use instance::FAILPOINTS;

pub const REFUSED_BY_A_FULL_DISK: &str = "writes refused by a full disk";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fault {
    Kill,
    Terminate,
    KillAtFailpoint,
    Pause,
    WrongClock,
    EndDatabaseSessions,
    RestartDatabaseFast,
    RestartDatabaseImmediately,
    RefuseDatabaseConnections,
    LockOfAStranger,
    OldSnapshot,
    CloseBrokerConnections,
    CloseBrokerChannels,
    RestartBroker,
    KillBroker,
    BrokerDiskAlarm,
    WipeBroker,
    DeleteQueue,
    PurgeQueue,
    DelayNetwork,
    CutNetwork,
    HalfCloseNetwork,
    BlackHoleNetwork,
    RefuseNetwork,
    SlowProvider,
    BusyProvider,
    BrokenProvider,
    ProviderHangsUp,
    SilentProvider,
    DiskFull,
}

/// What a fault affects. Instances die often and at any time; of everything around them only one thing fails at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hits {
    Instance,
    Database,
    Broker,
    Network,
    Provider,
    Disk,
}

impl Fault {
    pub const ALL: [Fault; 30] = [
        Fault::Kill,
        Fault::Terminate,
        Fault::KillAtFailpoint,
        Fault::Pause,
        Fault::WrongClock,
        Fault::EndDatabaseSessions,
        Fault::RestartDatabaseFast,
        Fault::RestartDatabaseImmediately,
        Fault::RefuseDatabaseConnections,
        Fault::LockOfAStranger,
        Fault::OldSnapshot,
        Fault::CloseBrokerConnections,
        Fault::CloseBrokerChannels,
        Fault::RestartBroker,
        Fault::KillBroker,
        Fault::BrokerDiskAlarm,
        Fault::WipeBroker,
        Fault::DeleteQueue,
        Fault::PurgeQueue,
        Fault::DelayNetwork,
        Fault::CutNetwork,
        Fault::HalfCloseNetwork,
        Fault::BlackHoleNetwork,
        Fault::RefuseNetwork,
        Fault::SlowProvider,
        Fault::BusyProvider,
        Fault::BrokenProvider,
        Fault::ProviderHangsUp,
        Fault::SilentProvider,
        Fault::DiskFull,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Fault::Kill => "kill -9",
            Fault::Terminate => "SIGTERM",
            Fault::KillAtFailpoint => "kill -9 at a failpoint",
            Fault::Pause => "SIGSTOP past the lease, then SIGCONT",
            Fault::WrongClock => "clock wrong by an hour",
            Fault::EndDatabaseSessions => "PostgreSQL: pg_terminate_backend of all",
            Fault::RestartDatabaseFast => "PostgreSQL: fast restart",
            Fault::RestartDatabaseImmediately => "PostgreSQL: immediate restart",
            Fault::RefuseDatabaseConnections => "PostgreSQL: refuses connections",
            Fault::LockOfAStranger => "PostgreSQL: a table locked by another session",
            Fault::OldSnapshot => "PostgreSQL: a long-running reader (old snapshot)",
            Fault::CloseBrokerConnections => "RabbitMQ: connections closed",
            Fault::CloseBrokerChannels => "RabbitMQ: channels closed",
            Fault::RestartBroker => "RabbitMQ: restart",
            Fault::KillBroker => "RabbitMQ: node killed by kill -9",
            Fault::BrokerDiskAlarm => "RabbitMQ: disk alarm",
            Fault::WipeBroker => "RabbitMQ: data wiped",
            Fault::DeleteQueue => "RabbitMQ: a queue deleted",
            Fault::PurgeQueue => "RabbitMQ: a queue purged",
            Fault::DelayNetwork => "network: delayed",
            Fault::CutNetwork => "network: connections cut",
            Fault::HalfCloseNetwork => "network: connections half-closed",
            Fault::BlackHoleNetwork => "network: black hole",
            Fault::RefuseNetwork => "network: refused",
            Fault::SlowProvider => "provider: slow",
            Fault::BusyProvider => "provider: 429",
            Fault::BrokenProvider => "provider: 503",
            Fault::ProviderHangsUp => "provider: accepts, then hangs up",
            Fault::SilentProvider => "provider: accepts, then does not respond",
            Fault::DiskFull => "disk full",
        }
    }

    pub fn hits(self) -> Hits {
        match self {
            Fault::Kill | Fault::Terminate | Fault::KillAtFailpoint | Fault::Pause | Fault::WrongClock => {
                Hits::Instance
            }
            Fault::EndDatabaseSessions
            | Fault::RestartDatabaseFast
            | Fault::RestartDatabaseImmediately
            | Fault::RefuseDatabaseConnections
            | Fault::LockOfAStranger
            | Fault::OldSnapshot => Hits::Database,
            Fault::CloseBrokerConnections
            | Fault::CloseBrokerChannels
            | Fault::RestartBroker
            | Fault::KillBroker
            | Fault::BrokerDiskAlarm
            | Fault::WipeBroker
            | Fault::DeleteQueue
            | Fault::PurgeQueue => Hits::Broker,
            Fault::DelayNetwork
            | Fault::CutNetwork
            | Fault::HalfCloseNetwork
            | Fault::BlackHoleNetwork
            | Fault::RefuseNetwork => Hits::Network,
            Fault::SlowProvider
            | Fault::BusyProvider
            | Fault::BrokenProvider
            | Fault::ProviderHangsUp
            | Fault::SilentProvider => Hits::Provider,
            Fault::DiskFull => Hits::Disk,
        }
    }

    /// Whether this world has what the fault needs. `Err` names something that should be there and is missing.
    pub fn possible(self, world: &World) -> Result<bool, &'static str> {
        let (postgres, rabbitmq) = match world.round.backend {
            Backend::Embedded => (false, false),
            Backend::Mixed => (true, false),
            Backend::Servers => (true, true),
        };
        let servers = &world.servers;
        match self {
            Fault::RestartDatabaseFast | Fault::RestartDatabaseImmediately
                if postgres && !servers.restarts_postgres() =>
            {
                Err("CAMPANILE_TEST_PG_CTL")
            }
            Fault::KillBroker if rabbitmq && !servers.restarts_rabbitmq() => {
                Err("CAMPANILE_TEST_RABBITMQ_NODE")
            }
            Fault::WrongClock if servers.faketime.is_none() => Err("CAMPANILE_TEST_FAKETIME"),
            _ => match self.hits() {
                Hits::Broker if rabbitmq && !servers.steers_rabbitmq() => Err("CAMPANILE_TEST_RABBITMQCTL"),
                Hits::Database => Ok(postgres),
                // Only the sweep finds purged messages. It runs every hour unless the round shortens that.
                Hits::Broker if self == Fault::PurgeQueue => Ok(rabbitmq && world.round.sweep),
                Hits::Broker => Ok(rabbitmq),
                Hits::Disk => Ok(world.small_disk.is_some()),
                Hits::Instance | Hits::Network | Hits::Provider => Ok(true),
            },
        }
    }

    /// Runs the fault until it is repaired.
    pub async fn happen(self, world: &World, load: &Load, random: &mut Random) -> Result<()> {
        world.journal.note(format_args!("{} begins", self.name()));
        match self.hits() {
            Hits::Instance => instance::happen(self, world, load, random).await?,
            Hits::Database => database::happen(self, world, random).await?,
            Hits::Broker => broker::happen(self, world, load, random).await?,
            Hits::Network => network::happen(self, world, random).await,
            Hits::Provider => provider::happen(self, world, random).await?,
            Hits::Disk => disk_full(world, load, random).await?,
        }
        world.journal.note(format_args!("{} is over", self.name()));
        world.journal.count(self.name());
        Ok(())
    }
}

async fn disk_full(world: &World, load: &Load, random: &mut Random) -> Result<()> {
    let Some(disk) = &world.small_disk else { return Ok(()) };
    disk.fill()?;
    write_until_refused(world, load, random).await;
    hold(random, 500, 3_000).await;
    disk.free()
}

/// Writes until the database is refused space. It may have room in its own files, such as a long WAL, and notice
/// nothing for a while.
async fn write_until_refused(world: &World, load: &Load, random: &mut Random) {
    const TRIES: usize = 40;
    for _ in 0..TRIES {
        let name = format!("full-{}-", random.below(u64::MAX));
        if load.at_once(world, &name, Group::Phones, 100).await != Ended::Committed {
            world.journal.count(REFUSED_BY_A_FULL_DISK);
            return;
        }
    }
}

/// Lets the fault last for a random time in milliseconds.
async fn hold(random: &mut Random, least: u64, most: u64) {
    tokio::time::sleep(std::time::Duration::from_millis(random.between(least, most))).await;
}
