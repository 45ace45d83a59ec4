//! What every measurement is given.

use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::OnceCell;

use crate::backlog::Backlog;
use crate::servers::Servers;

#[derive(Debug)]
pub struct Bench {
    pub servers: Servers,
    pub binary: PathBuf,
    /// Of the engine, as variables; its defaults otherwise.
    pub settings: Vec<(String, String)>,
    /// How long a rate is sustained.
    pub window: Duration,
    pub runs: usize,
    pub large: bool,
    /// Two parts speak of it, and it takes minutes.
    pub backlog: OnceCell<Backlog>,
}
