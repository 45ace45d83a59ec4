//! Reads settings: the reference, then the operator's file, then variables, then flags; and what a server checks before
//! it starts.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context;
use campanile_engine::config::check_lease;
use config::{Environment, File, FileFormat};

use crate::http::TlsFiles;

use super::{BrokerChoice, Config, DatabaseChoice, REFERENCE};

/// The values of flags, which override everything else.
#[derive(Debug, Clone, Default)]
pub struct Flags {
    pub file: Option<PathBuf>,
    pub data_dir: Option<PathBuf>,
    pub listen: Option<SocketAddr>,
    pub database_url: Option<String>,
    pub broker_url: Option<String>,
    pub roles: Option<String>,
}

impl Config {
    pub fn load(flags: &Flags) -> anyhow::Result<Self> {
        let mut builder = config::Config::builder().add_source(File::from_str(REFERENCE, FileFormat::Toml));
        if let Some(file) = &flags.file {
            let text = std::fs::read_to_string(file)
                .with_context(|| format!("cannot read the configuration file {}", file.display()))?;
            builder = builder.add_source(File::from_str(&text, FileFormat::Toml));
        }
        let variables = variables();
        let environment = Environment::with_prefix("CAMPANILE")
            .prefix_separator("_")
            .separator("__")
            .source(Some(variables.clone()));
        builder = builder.add_source(environment);
        if let Some(data_dir) = &flags.data_dir {
            builder = builder.set_override("data_dir", data_dir.to_string_lossy().as_ref())?;
        }
        if let Some(listen) = flags.listen {
            builder = builder.set_override("server.listen", listen.to_string())?;
        }
        let given = [
            ("database.url", &flags.database_url),
            ("broker.url", &flags.broker_url),
            ("engine.roles", &flags.roles),
        ];
        for (key, value) in given {
            if let Some(value) = value {
                builder = builder.set_override(key, value.as_str())?;
            }
        }
        let loaded = builder.build().context("cannot read the configuration")?;
        let config: Config = serde_path_to_error::deserialize(loaded).map_err(|error| {
            let path = error.path().to_string();
            let variable = format!("CAMPANILE_{}", path.replace('.', "__").to_uppercase());
            let from =
                if variables.contains_key(&variable) { format!(" ({variable})") } else { String::new() };
            anyhow::anyhow!("configuration key `{path}`{from}: {}", error.into_inner())
        })?;
        config.check()?;
        Ok(config)
    }

    /// Also checks what only a server needs: that an attempt fits into its lease, and that its files and connections
    /// are usable.
    pub fn load_to_serve(flags: &Flags) -> anyhow::Result<Self> {
        let config = Self::load(flags)?;
        check_lease(&config.providers()?, config.engine.lease.0).map_err(anyhow::Error::msg)?;
        if let DatabaseChoice::Postgres(postgres) = config.database.choice(&config.data_dir)? {
            postgres.check()?;
        }
        match config.broker_choice()? {
            BrokerChoice::RabbitMq(rabbitmq) if config.engine.roles()?.use_broker() => rabbitmq.check()?,
            BrokerChoice::RabbitMq(_) | BrokerChoice::InProcess => {}
        }
        config.auth.check_files()?;
        config.server.tls()?.map(|tls| TlsFiles::open(&tls.cert, &tls.key)).transpose()?;
        Ok(config)
    }
}

/// Variables of tests and tools share the prefix but are no configuration.
fn variables() -> HashMap<String, String> {
    const NOT_OURS: [&str; 5] =
        ["CAMPANILE_TEST_", "CAMPANILE_KILL_AT", "CAMPANILE_URL", "CAMPANILE_KEY", "CAMPANILE_CA_FILE"];
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(name, _)| {
            name.starts_with("CAMPANILE_") && !NOT_OURS.iter().any(|other| name.starts_with(other))
        })
        .collect()
}

/// The names of the variables that set something.
pub fn variable_names() -> Vec<String> {
    let mut names: Vec<String> = variables().into_keys().collect();
    names.sort_unstable();
    names
}
