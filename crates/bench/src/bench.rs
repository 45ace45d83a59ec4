//! The parameters that all measurements share.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Result;
use tokio::sync::OnceCell;

use crate::backlog::Backlog;
use crate::servers::Servers;
use crate::site::Site;

#[derive(Debug)]
pub struct Bench {
    pub servers: Servers,
    pub binary: PathBuf,
    /// Settings of the engine, as environment variables; others have their defaults.
    pub settings: Vec<(String, String)>,
    /// How long a rate is sustained.
    pub window: Duration,
    pub runs: usize,
    pub large: bool,
    /// How many producers write events while the pipeline is measured. With 0 the events are written before.
    pub producers: usize,
    /// Two parts report it, and it takes minutes, so it is measured once.
    pub backlog: OnceCell<Backlog>,
    /// What was created and not removed yet.
    pub sites: Mutex<Vec<Site>>,
}

impl Bench {
    pub fn new(servers: Servers, binary: PathBuf, window: Duration) -> Self {
        Bench {
            servers,
            binary,
            settings: Vec::new(),
            window,
            runs: 1,
            large: false,
            producers: 0,
            backlog: OnceCell::new(),
            sites: Mutex::default(),
        }
    }

    /// Must be called before the site is created, so that it is removed whatever happens.
    pub fn note(&self, site: Site) {
        self.sites().push(site);
    }

    pub async fn remove(&self, site: &Site) -> Result<()> {
        site.clear().await?;
        self.sites().retain(|noted| noted.to_string() != site.to_string());
        Ok(())
    }

    /// Removes what failed measurements left behind.
    pub async fn clear(&self) {
        let sites = std::mem::take(&mut *self.sites());
        for site in sites {
            if let Err(error) = site.clear().await {
                eprintln!("campanile-bench: {site} can't be removed: {error:#}");
            }
        }
    }

    fn sites(&self) -> MutexGuard<'_, Vec<Site>> {
        self.sites.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
