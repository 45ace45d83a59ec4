//! Instances that run only some of the pipeline tell those that run the rest when there is something for them, and hear it
//! from others. Nothing depends on it: every loop also looks for itself.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use campanile_store::Signal;
use tokio::sync::Notify;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;

use crate::Engine;
use crate::roles::Role;

/// A notification makes commits wait for one another, so many are told as one.
const PAUSE: Duration = Duration::from_millis(10);

/// What is to be told.
#[derive(Debug, Default)]
pub struct Untold {
    signals: Mutex<Vec<Signal>>,
    more: Notify,
}

impl Untold {
    fn add(&self, signal: Signal) {
        let mut signals = self.signals.lock().unwrap_or_else(PoisonError::into_inner);
        if !signals.contains(&signal) {
            signals.push(signal);
        }
        self.more.notify_one();
    }

    fn take(&self) -> Vec<Signal> {
        std::mem::take(&mut *self.signals.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Engine {
    /// Something may wait for every stage, after an operator's change for example. Whoever runs them, here or elsewhere, need not
    /// wait for a tick.
    pub fn wake(&self) {
        for signal in Signal::ALL {
            self.signals.heard(signal);
            self.tell(signal);
        }
    }

    /// Something waits for a stage that others run.
    pub(crate) fn tell(&self, signal: Signal) {
        let stage = match signal {
            Signal::Events => Role::FanOut,
            Signal::Chunks => Role::Publish,
            Signal::Sends => Role::Send,
        };
        if !self.config.roles.has(stage) {
            self.untold.add(signal);
        }
    }
}

pub async fn run_tell(engine: Engine, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = engine.untold.more.notified() => {}
        }
        for signal in engine.untold.take() {
            if let Err(error) = engine.store.tell(signal).await {
                tracing::debug!(%error, ?signal, "could not notify other instances; they find the work by polling");
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

pub async fn run_hear(engine: Engine, stop: CancellationToken) {
    let Some(mut told) = engine.store.hear() else { return stop.cancelled().await };
    loop {
        let signal = tokio::select! {
            () = stop.cancelled() => return,
            signal = told.recv() => signal,
        };
        match signal {
            Ok(signal) => engine.signals.heard(signal),
            Err(RecvError::Lagged(_)) => {
                for signal in Signal::ALL {
                    engine.signals.heard(signal);
                }
            }
            Err(RecvError::Closed) => return stop.cancelled().await,
        }
    }
}
