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
    pub tables: Tables,
}

/// `[retain.tables]`: tables that are kept for another time.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tables {
    pub audit: u32,
}

impl Retain {
    pub fn engine(&self) -> RetainConfig {
        let age = |days: u32| (days > 0).then(|| Duration::from_hours(24 * u64::from(days)));
        RetainConfig { age: age(self.days), audit_age: age(self.tables.audit), interval: self.interval.0 }
    }
}
