//! Signals between instances. An instance that runs only part of the pipeline tells the others when there is work for
//! them. Nothing depends on these signals: every task also polls.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use campanile_store::Signal;
use tokio::sync::Notify;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;

use crate::Engine;
use crate::roles::Role;

/// The pause between two notifications. A `NOTIFY` makes commits wait for one another, so signals are gathered during
/// the pause.
const PAUSE: Duration = Duration::from_millis(10);

/// Signals that have not been sent yet, each at most once.
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
    /// Wakes every stage, here and on other instances, for example after an operator's change.
    pub(crate) fn wake(&self) {
        for signal in Signal::ALL {
            self.signals.dispatch(signal);
            self.notify(signal);
        }
    }

    /// Queues a signal for other instances, if the stage that it wakes does not run here.
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
