//! What every measurement is given.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::OnceCell;

use crate::backlog::Backlog;
use crate::servers::Servers;
use crate::world::Site;

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
    /// What was built and not demolished yet.
    pub sites: Mutex<Vec<Site>>,
}

impl Bench {
    /// Removes what measurements that failed have left behind.
    pub async fn clear(&self) {
        let sites = std::mem::take(&mut *self.sites.lock().unwrap_or_else(PoisonError::into_inner));
        for site in sites {
            if let Err(error) = site.clear().await {
                eprintln!(
                    "campanile-bench: the database {} and its queues are left behind: {error:#}",
                    site.name
                );
            }
        }
    }
}
