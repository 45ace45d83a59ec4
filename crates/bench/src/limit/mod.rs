//! What the same machine can do at most: the statements of a plain design, in batches of a thousand and with nothing
//! else beside them; and the same messages through the broker alone.
//!
//! One notification is an insert into an outbox, its mark as published, an insert of the notification, one of its send,
//! and the mark as sent, with a status and an index on it for what is left to do. That cycle is the limit that the
//! pipeline is compared with. The engine has neither the second statement nor these indexes, so its own statements are
//! measured by themselves, too: three inserts and an update in place. Columns, other keys and texts are like the
//! engine's.

mod broker;
mod postgres;
mod sqlite;

use std::time::Duration;

pub use broker::broker;
pub use postgres::{cycle, inserts, lean_cycle};
pub use sqlite::sqlite_cycle;

/// How long each is measured.
const WINDOW: Duration = Duration::from_secs(8);
/// Rows of one statement.
const BATCH: usize = 1_000;

/// Rows per second.
pub type Rate = f64;

/// Batches that were done within so long.
#[expect(clippy::cast_precision_loss, reason = "far below that")]
fn rate(batches: usize, took: Duration) -> Rate {
    (batches * BATCH) as f64 / took.as_secs_f64()
}
