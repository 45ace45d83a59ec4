//! Captures the log of this thread.

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Metadata, Subscriber};

#[derive(Debug)]
pub struct Log {
    lines: Arc<Mutex<Vec<String>>>,
    _listening: DefaultGuard,
}

impl Log {
    /// Captures until it is dropped.
    pub fn listen() -> Self {
        let lines = Arc::default();
        let listener = Listener { lines: Arc::clone(&lines) };
        Self { lines, _listening: tracing::subscriber::set_default(listener) }
    }

    /// The lines since the last call, each as `LEVEL field=value …`.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.lines.lock().expect("nobody panics with it"))
    }
}

struct Listener {
    lines: Arc<Mutex<Vec<String>>>,
}

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("campanile_")
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        self.lines.lock().expect("nobody panics with it").push(line.0);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {field}={value:?}").expect("memory takes it");
    }
}
