//! The engine's settings. The server reads them from files and environment variables.

use std::time::Duration;

use campanile_channels::Providers;
use campanile_domain::channel::PerChannel;
use campanile_domain::people::user_type::UserTypes;
use campanile_domain::send::SendPolicy;

use crate::roles::Roles;

#[derive(Debug, Clone)]
pub struct EngineConfig {
    /// The name of this instance in traces and claims.
    pub instance: String,
    /// The parts of the pipeline that this instance runs.
    pub roles: Roles,
    pub user_types: UserTypes,
    pub fan_out: FanOutConfig,
    pub publish: PublishConfig,
    pub receive: ReceiveConfig,
    pub send: PerChannel<SendConfig>,
    pub recover: RecoverConfig,
    pub retain: RetainConfig,
    /// How long a claim is valid before other instances may take it over.
    pub lease: Duration,
}

#[derive(Debug, Clone)]
pub struct FanOutConfig {
    /// The longest delay until the engine notices an event that a producer wrote with a plain `INSERT`.
    pub poll_interval: Duration,
    pub batch: usize,
    pub initial_delay: Duration,
}

#[derive(Debug, Clone)]
pub struct PublishConfig {
    /// Rows per chunk, at most `MAX_CHUNK_ROWS`. A chunk is published as a whole.
    pub batch: usize,
    pub poll_interval: Duration,
    pub max_refusals: u32,
}

#[derive(Debug, Clone)]
pub struct ReceiveConfig {
    /// The most batches of one queue that are written at the same time.
    pub workers: usize,
    /// The most batches of all queues that are written at the same time. Urgent queues are not counted.
    pub max_workers: usize,
    pub prefetch: usize,
    pub batch: usize,
    /// How long to wait for more messages after the first one of a batch, while another batch is being written.
    pub linger: Duration,
}

#[derive(Debug, Clone)]
pub struct SendConfig {
    /// The longest delay until the engine notices a retry that another instance wrote.
    pub poll_interval: Duration,
    pub policy: SendPolicy,
    /// The most attempts at the same time.
    pub concurrency: usize,
}

#[derive(Debug, Clone)]
pub struct RecoverConfig {
    /// Rows that were published this long ago and not received are published again, even if the broker reported no
    /// loss. Also the interval between two such sweeps.
    pub republish_after: Duration,
}

#[derive(Debug, Clone)]
pub struct RetainConfig {
    /// Closed events are deleted at this age; without an age they are kept forever.
    pub age: Option<Duration>,
    /// The same for the record of changes.
    pub audit_age: Option<Duration>,
    pub interval: Duration,
}

/// Checks that the lease is longer than an attempt may take. Otherwise no attempt would ever begin.
pub fn check_lease(providers: &Providers, lease: Duration) -> Result<(), String> {
    match providers.iter().find(|(_, chain)| chain.deadline() >= lease) {
        None => Ok(()),
        Some((channel, chain)) => Err(format!(
            "engine.lease is {lease:?}, but an attempt over {channel} may take {:?} ({}); \
             set engine.lease to a longer time",
            chain.deadline(),
            chain.first().name()
        )),
    }
}
