//! `[fan_out]`: how many events are claimed at once, and how often the database is polled for them.

use campanile_engine::config::FanOutConfig;
use serde::{Deserialize, Serialize};

use super::values::{Span, check_count};

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FanOut {
    pub poll_interval: Span,
    pub batch: usize,
    pub initial_delay: Span,
}

impl FanOut {
    pub fn check(&self) -> anyhow::Result<()> {
        check_count("fan_out.batch", self.batch)
    }

    pub fn engine(&self) -> FanOutConfig {
        FanOutConfig {
            poll_interval: self.poll_interval.0,
            batch: self.batch,
            initial_delay: self.initial_delay.0,
        }
    }
}
