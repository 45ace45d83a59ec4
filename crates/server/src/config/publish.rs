//! `[publish]`: the size of chunks, and when a row that the broker refuses is given up.

use campanile_engine::config::PublishConfig;
use serde::{Deserialize, Serialize};

use super::values::{Span, check_count};

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Publish {
    pub batch: usize,
    pub poll_interval: Span,
    pub max_refusals: u32,
}

impl Publish {
    pub fn check(&self) -> anyhow::Result<()> {
        check_count("publish.batch", self.batch)
    }

    pub fn engine(&self) -> PublishConfig {
        PublishConfig {
            batch: self.batch,
            poll_interval: self.poll_interval.0,
            max_refusals: self.max_refusals,
        }
    }
}
