//! Instances that run only some of the pipeline tell those that run the rest when there is something for them, and hear
//! it from others. Nothing depends on it: every loop also looks for itself.

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
pub struct PendingSignals {
    signals: Mutex<Vec<Signal>>,
    more: Notify,
}

impl PendingSignals {
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
    /// Something may wait for every stage, after an operator's change for example. Whoever runs them, here or
    /// elsewhere, need not wait for a tick.
    pub(crate) fn wake(&self) {
        for signal in Signal::ALL {
            self.signals.dispatch(signal);
            self.notify(signal);
        }
    }

    /// Something waits for a stage that others run.
    pub(crate) fn notify(&self, signal: Signal) {
        let stage = match signal {
            Signal::Events => Role::FanOut,
            Signal::Chunks => Role::Publish,
            Signal::Sends => Role::Send,
        };
        if !self.config.roles.has(stage) {
            self.pending_signals.add(signal);
        }
    }
}

pub async fn run_notify(engine: Engine, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = engine.pending_signals.more.notified() => {}
        }
        for signal in engine.pending_signals.take() {
            if let Err(error) = engine.store.notify(signal).await {
                tracing::debug!(%error, ?signal, "could not notify other instances; they find the work by polling");
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

pub async fn run_subscribe(engine: Engine, stop: CancellationToken) {
    let Some(mut signals) = engine.store.subscribe() else { return stop.cancelled().await };
    loop {
        let signal = tokio::select! {
            () = stop.cancelled() => return,
            signal = signals.recv() => signal,
        };
        match signal {
            Ok(signal) => engine.signals.dispatch(signal),
            Err(RecvError::Lagged(_)) => {
                for signal in Signal::ALL {
                    engine.signals.dispatch(signal);
                }
            }
            Err(RecvError::Closed) => return stop.cancelled().await,
        }
    }
}
