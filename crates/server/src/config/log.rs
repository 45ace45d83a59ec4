//! `[log]`: what is logged, and in which format.

use serde::{Deserialize, Serialize};

use super::values::word;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Log {
    pub filter: String,
    #[serde(deserialize_with = "word")]
    pub format: LogFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    Text,
    Json,
}

impl Log {
    pub fn check(&self) -> anyhow::Result<()> {
        tracing_subscriber::EnvFilter::try_new(&self.filter)
            .map_err(|error| anyhow::anyhow!("log.filter: `{}` is not a filter: {error}", self.filter))?;
        Ok(())
    }
}
