//! The stages that an event passes, and the loops that run them. `pipeline/` holds the stages in the order of the data;
//! beside them `recover` takes over what died, and `rules` keeps the rules in memory.

mod backoff;
pub mod config;
pub mod pipeline;
mod recover;
mod rules;
mod signals;
mod supervisor;

use std::sync::Arc;
use std::time::Duration;

use campanile_broker::Broker;
use campanile_channels::Providers;
use campanile_store::{Store, StoreError};

pub use config::EngineConfig;
pub use rules::RuleCache;
pub use signals::Signals;

use pipeline::send::Desk;
use pipeline::{fan_out, publish, receive, send, settle};
use supervisor::Supervisor;

/// What every stage works with. A clone is another handle.
#[derive(Debug, Clone)]
pub struct Engine {
    pub store: Arc<dyn Store>,
    pub broker: Arc<dyn Broker>,
    pub providers: Providers,
    pub rules: Arc<RuleCache>,
    pub signals: Arc<Signals>,
    pub config: Arc<EngineConfig>,
}

impl Engine {
    /// Loads the rules; nothing runs yet.
    pub async fn new(
        store: Arc<dyn Store>,
        broker: Arc<dyn Broker>,
        providers: Providers,
        config: EngineConfig,
    ) -> Result<Self, StoreError> {
        // Otherwise no attempt would ever begin.
        if let Some((channel, provider)) =
            providers.iter().find(|(_, provider)| provider.deadline() >= config.lease)
        {
            return Err(StoreError::Unusable(format!(
                "engine.lease: {:?} is not longer than the {:?} that an attempt over {channel} may take by {}: make it longer",
                config.lease,
                provider.deadline(),
                provider.name()
            )));
        }
        let rules = Arc::new(RuleCache::load(store.as_ref(), config.user_types.clone()).await?);
        let signals = Arc::new(Signals::new(config.user_types.queues()));
        Ok(Engine { store, broker, providers, rules, signals, config: Arc::new(config) })
    }

    /// Starts every loop.
    pub fn start(&self) -> Running {
        let (desk, outcomes) = Desk::new(self);
        let (handover, handed) = publish::handover(self.config.user_types.queues());
        let mut taking = Supervisor::new(&self.signals);
        let mut sending = Supervisor::new(&self.signals);
        let mut settling = Supervisor::new(&self.signals);

        let engine = self.clone();
        taking.run("fan_out", move |stop| fan_out::run(engine.clone(), handover.clone(), stop));
        for (queue, handed) in handed {
            let engine = self.clone();
            taking.run("publish", move |stop| {
                publish::run(engine.clone(), queue.clone(), Arc::clone(&handed), stop)
            });
        }
        for queue in self.config.user_types.queues() {
            let (engine, desk) = (self.clone(), Arc::clone(&desk));
            taking.run("receive", move |stop| {
                receive::run(engine.clone(), Arc::clone(&desk), queue.clone(), stop)
            });
        }
        let engine = self.clone();
        taking.run("dead letters", move |stop| receive::run_dead_letters(engine.clone(), stop));
        for (channel, _) in self.providers.iter() {
            let (engine, due_desk) = (self.clone(), Arc::clone(&desk));
            taking
                .run("due", move |stop| send::run_due(engine.clone(), Arc::clone(&due_desk), channel, stop));
            let (engine, desk) = (self.clone(), Arc::clone(&desk));
            sending.run("send", move |drain| send::run(engine.clone(), Arc::clone(&desk), channel, drain));
        }
        let (engine, recover_desk) = (self.clone(), Arc::clone(&desk));
        taking.run("recover", move |stop| recover::run(engine.clone(), Arc::clone(&recover_desk), stop));
        let engine = self.clone();
        taking.run("close", move |stop| recover::run_close(engine.clone(), stop));
        let engine = self.clone();
        taking.run("rules", move |stop| rules::run(engine.clone(), stop));

        let (engine, settle_desk) = (self.clone(), Arc::clone(&desk));
        settling.run("settle", move |done| {
            settle::run(engine.clone(), Arc::clone(&settle_desk), Arc::clone(&outcomes), done)
        });
        Running { taking, sending, settling, desk }
    }
}

/// The loops of a started engine.
#[derive(Debug)]
pub struct Running {
    taking: Supervisor,
    sending: Supervisor,
    settling: Supervisor,
    desk: Arc<Desk>,
}

impl Running {
    /// Stops taking, finishes what is in flight, and ends within the deadline. What is left is taken over by the next
    /// instance. Answers whether all was finished.
    pub async fn stop(self, deadline: Duration) -> bool {
        let orderly = async move {
            self.taking.stop().await;
            self.sending.stop().await;
            self.desk.finish().await;
            self.settling.stop().await;
        };
        tokio::time::timeout(deadline, orderly).await.is_ok()
    }
}
