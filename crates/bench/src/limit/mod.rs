//! The limits of the machine: the statements of a plain design, in batches of a thousand rows and with nothing else;
//! and the same messages through the broker alone.
//!
//! A notification takes five statements in this design. They insert an outbox row, mark it as published, insert the
//! notification, insert its send, and mark that as sent. A status column with an index finds the remaining work. The
//! pipeline is compared with this cycle. The engine needs neither the second statement nor these indexes. So its own
//! statements are measured, too: three inserts and an update in place. Columns, other keys and texts are like the
//! engine's.

mod broker;
mod postgres;
mod sqlite;

use std::time::Duration;

pub use broker::broker;
pub use postgres::{cycle, inserts, lean_cycle};
pub use sqlite::sqlite_cycle;

/// How long each limit is measured.
const WINDOW: Duration = Duration::from_secs(8);
/// Rows per statement.
const BATCH: usize = 1_000;

/// Rows per second.
pub type Rate = f64;

/// The rate of batches that took this long.
#[expect(clippy::cast_precision_loss, reason = "far below that")]
fn rate(batches: usize, took: Duration) -> Rate {
    (batches * BATCH) as f64 / took.as_secs_f64()
}
