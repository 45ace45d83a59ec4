//! What the engine can be told. Reading it from files and variables is the server's business.

use std::time::Duration;

use campanile_channels::Providers;
use campanile_domain::channel::PerChannel;
use campanile_domain::people::user_type::UserTypes;
use campanile_domain::send::SendPolicy;

use crate::roles::Roles;

#[derive(Debug, Clone)]
pub struct EngineConfig {
    /// Named in traces and claims.
    pub instance: String,
    /// What of the pipeline this instance runs.
    pub roles: Roles,
    pub user_types: UserTypes,
    pub fan_out: FanOutConfig,
    pub publish: PublishConfig,
    pub receive: ReceiveConfig,
    pub send: PerChannel<SendConfig>,
    pub recover: RecoverConfig,
    pub retain: RetainConfig,
    /// How long a claim holds before others may take it over.
    pub lease: Duration,
}

#[derive(Debug, Clone)]
pub struct FanOutConfig {
    /// The longest wait for a plain `INSERT` to be noticed.
    pub poll_interval: Duration,
    pub batch: usize,
    pub initial_delay: Duration,
}

#[derive(Debug, Clone)]
pub struct PublishConfig {
    /// Rows that are published together, up to what the database keeps together.
    pub batch: usize,
    pub poll_interval: Duration,
    pub max_refusals: u32,
}

#[derive(Debug, Clone)]
pub struct ReceiveConfig {
    /// Batches of one queue that are written at the same time.
    pub workers: usize,
    /// Batches of all queues that are written at the same time.
    pub max_workers: usize,
    pub prefetch: usize,
    pub batch: usize,
    /// How long to wait for a batch to grow once its first message is there, while another is being written.
    pub linger: Duration,
}

#[derive(Debug, Clone)]
pub struct SendConfig {
    /// The longest wait for a retry to be noticed that another instance wrote.
    pub poll_interval: Duration,
    pub policy: SendPolicy,
    /// Attempts at the same time.
    pub concurrency: usize,
}

#[derive(Debug, Clone)]
pub struct RecoverConfig {
    /// How old what was published and not received must be to be published again without a known loss; and how often
    /// that is looked for.
    pub republish_after: Duration,
}

#[derive(Debug, Clone)]
pub struct RetainConfig {
    /// How long what is closed is kept; never, if absent, is it deleted.
    pub age: Option<Duration>,
    pub interval: Duration,
}

/// A lease must outlast an attempt, or none would ever begin.
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
