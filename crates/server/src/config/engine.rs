//! `[engine]`: the instance's name, its roles, and the lease of what it holds.

use std::time::Duration;

use anyhow::bail;
use campanile_engine::Roles;
use serde::{Deserialize, Serialize};

use super::values::Span;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngineSection {
    pub instance: String,
    pub roles: String,
    pub lease: Span,
}

impl EngineSection {
    pub fn check(&self) -> anyhow::Result<()> {
        if self.lease.0 < Duration::from_secs(2) {
            bail!("engine.lease: must be at least 2s, so that a send attempt fits");
        }
        Ok(())
    }

    pub fn roles(&self) -> anyhow::Result<Roles> {
        self.roles.parse().map_err(|error| anyhow::anyhow!("engine.roles: {error}"))
    }

    /// The configured name, or one made of host and process.
    pub fn instance(&self) -> String {
        match self.instance.as_str() {
            "" => format!("{}-{}", hostname(), std::process::id()),
            name => name.to_owned(),
        }
    }
}

fn hostname() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map_or_else(|_| "campanile".to_owned(), |name| name.trim().to_owned())
}
