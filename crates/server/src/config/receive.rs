//! `[receive]`: how many messages are held, and how many are written in one transaction.

use campanile_engine::config::ReceiveConfig;
use serde::{Deserialize, Serialize};

use super::values::{Span, check_count};

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Receive {
    pub workers: usize,
    pub max_workers: usize,
    pub prefetch: usize,
    pub batch: usize,
    pub linger: Span,
}

impl Receive {
    pub fn check(&self) -> anyhow::Result<()> {
        check_count("receive.workers", self.workers)?;
        check_count("receive.max_workers", self.max_workers)?;
        check_count("receive.batch", self.batch)?;
        check_count("receive.prefetch", self.prefetch)
    }

    pub fn engine(&self) -> ReceiveConfig {
        ReceiveConfig {
            workers: self.workers,
            max_workers: self.max_workers,
            prefetch: self.prefetch,
            batch: self.batch,
            linger: self.linger.0,
        }
    }
}
