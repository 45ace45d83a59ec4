//! `[recover]`: after how long a published row that nobody received is published again.

use std::time::Duration;

use anyhow::bail;
use campanile_engine::config::RecoverConfig;
use serde::{Deserialize, Serialize};

use super::values::Span;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recover {
    pub republish_after: Span,
}

impl Recover {
    pub fn check(&self) -> anyhow::Result<()> {
        if self.republish_after.0 < Duration::from_secs(1) {
            bail!(
                "recover.republish_after: must be at least 1s, or rows in progress would be published again"
            );
        }
        Ok(())
    }

    pub fn engine(&self) -> RecoverConfig {
        RecoverConfig { republish_after: self.republish_after.0 }
    }
}
