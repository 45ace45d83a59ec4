//! `[auth]`: the admin key, given directly or by a file.

use std::fmt;
use std::path::PathBuf;

use anyhow::Context;
use serde::{Deserialize, Serialize};

use super::backend::given;
use super::values::redacted;
use crate::data_folder::read_key;

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Auth {
    #[serde(serialize_with = "redacted")]
    pub admin_key: String,
    pub admin_key_file: PathBuf,
}

impl Auth {
    /// The configured key, or the one in the configured file.
    pub fn given_key(&self) -> anyhow::Result<Option<String>> {
        if !self.admin_key.is_empty() {
            return Ok(Some(self.admin_key.clone()));
        }
        let Some(file) = given(&self.admin_key_file) else { return Ok(None) };
        let key =
            read_key(&file).with_context(|| format!("cannot read auth.admin_key_file {}", file.display()))?;
        Ok(Some(key))
    }
}

impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Auth").field("admin_key_file", &self.admin_key_file).finish_non_exhaustive()
    }
}
