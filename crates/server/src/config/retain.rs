//! `[retain]`: for how long closed events are kept.

use std::time::Duration;

use campanile_engine::config::RetainConfig;
use serde::{Deserialize, Serialize};

use super::values::Span;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retain {
    pub days: u32,
    pub interval: Span,
}

impl Retain {
    pub fn engine(&self) -> RetainConfig {
        RetainConfig {
            age: (self.days > 0).then(|| Duration::from_hours(24 * u64::from(self.days))),
            interval: self.interval.0,
        }
    }
}
